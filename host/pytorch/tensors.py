"""Tensors as the numpy arrays that the communicator adds, sharing their memory."""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

HostArray: TypeAlias = npt.NDArray[Any]

SUMMED: Final[dict[torch.dtype, str | None]] = {
    # The communicator's name of the type, where the numpy array alone does not tell it.
    torch.float32: None,
    torch.float16: None,
    torch.bfloat16: "bfloat16",
    torch.int32: None,
    torch.int16: None,
    torch.int8: None,
    torch.uint8: None,
}
_NAMES: Final = ", ".join(str(dtype).removeprefix("torch.") for dtype in SUMMED)


def dtype_name(dtype: torch.dtype) -> str:
    """The type's name without the module, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def why_not(tensor: torch.Tensor) -> str | None:
    """Why the switch cannot add this tensor, or None if it can.

    The text is the same for all tensors with the same obstacle, so that it can name a kind in a warning.
    """
    if tensor.layout != torch.strided:
        return f"{str(tensor.layout).removeprefix('torch.')} tensors: the switch adds dense ones"
    if tensor.device.type != "cpu":
        return f"tensors on {tensor.device.type}: the agent reads the memory of the CPU"
    if tensor.dtype not in SUMMED:
        return f"{dtype_name(tensor.dtype)}: the switch adds {_NAMES}"
    return None


def as_array(tensor: torch.Tensor) -> HostArray:
    """A numpy view of the tensor's memory, of the same shape and strides; no copy.

    bfloat16, which numpy lacks, comes as uint16 with the raw bits; `SUMMED` has the name to pass with it.

    Raises:
        TypeError: the switch cannot add this tensor; the text says why.
        ValueError: elements of the tensor share memory, as after `expand`, so a sum cannot be written into it.
    """
    reason = why_not(tensor)
    if reason is not None:
        raise TypeError(f"the switch cannot add {reason}")
    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        raise ValueError(
            f"a tensor to sum in place must have memory for each element, but shape {tuple(tensor.shape)} with strides"
            f" {tensor.stride()} shares it, as after expand(); use contiguous()"
        )
    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        return plain.view(torch.int16).numpy().view(np.uint16)
    array: HostArray = plain.numpy()
    return array
