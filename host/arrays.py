"""Arrays as users give them: which can be reduced, and the contiguous memory that the stream of chunks needs."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from host.worker import Tensor
from protocol.constants import DType, Op

_DTYPES: Final = {
    np.dtype(np.float32): DType.FLOAT32,
    np.dtype(np.float16): DType.FLOAT16,
    np.dtype(np.int32): DType.INT32,
    np.dtype(np.int16): DType.INT16,
    np.dtype(np.int8): DType.INT8,
    np.dtype(np.uint8): DType.UINT8,
}
_SUPPORTED: Final = "float32, float16, int32, int16, int8, uint8, and bfloat16 as its bits in uint16"


def prepare(
    arrays: Sequence[npt.NDArray[Any]], outs: Sequence[npt.NDArray[Any]], op: str, dtype: str | None
) -> tuple[list[Tensor], Callable[[], None] | None]:
    """The tensors of one collective, and what is to be done when all have their results, if anything.

    Args:
        arrays: what is reduced.
        outs: where the results go, one for each array and maybe the same.
        op: "sum" or "mean".
        dtype: "bfloat16" if uint16 arrays hold the bits of such numbers, otherwise None.

    Raises:
        TypeError, ValueError: an argument that cannot be reduced, or written to.
    """
    tensors: list[Tensor] = []
    copies: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
    for array, out in zip(arrays, outs, strict=True):
        kind, operator = _check(array, out, op, dtype)
        # Results overwrite blocks while later ones are still to be sent: fine in place, not half over each other.
        in_place = array.ctypes.data == out.ctypes.data and array.strides == out.strides
        usable = array.flags.c_contiguous and (in_place or not np.may_share_memory(array, out))
        source = array.reshape(-1) if usable else np.array(array, order="C").reshape(-1)
        if out.flags.c_contiguous:
            landing = out.reshape(-1)
        else:
            landing = np.empty_like(source) if usable else source
            copies.append((out, landing))
        tensors.append(Tensor(source=source, target=landing, dtype=kind, op=operator))
    if len(outs) > 1:
        _check_apart(outs)
    return tensors, (lambda: _copy_back(copies)) if copies else None


def _copy_back(copies: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> None:
    for out, landing in copies:
        np.copyto(out, landing.reshape(out.shape))


def _check(array: npt.NDArray[Any], out: npt.NDArray[Any], op: str, dtype: str | None) -> tuple[DType, Op]:
    """Checks one array and its output, and names their type and the operator."""
    arguments: tuple[tuple[str, object], ...] = (("array", array), ("out", out))
    for name, given in arguments:
        if not isinstance(given, np.ndarray) or isinstance(given, np.ma.MaskedArray):
            raise TypeError(f"{name} must be a numpy array, not {type(given).__name__}")
    if op not in ("sum", "mean"):
        raise ValueError(f"op must be 'sum' or 'mean', not {op!r}")
    if dtype not in (None, "bfloat16"):
        raise ValueError(f"dtype must be None or 'bfloat16', not {dtype!r}")
    kind = _DTYPES.get(array.dtype)
    if dtype == "bfloat16" or array.dtype.name == "bfloat16":
        if array.dtype != np.uint16 and array.dtype.name != "bfloat16":
            raise TypeError(f"bfloat16 comes as its bits in a uint16 array, not as {array.dtype}")
        kind = DType.BFLOAT16
    if kind is None:
        raise TypeError(f"the switch cannot add {array.dtype}; it adds {_SUPPORTED}")
    if op == "mean" and not kind.is_float:
        raise TypeError(f"the mean of {array.dtype} is not defined; use 'sum', or floats")
    if out.shape != array.shape or out.dtype != array.dtype:
        raise ValueError(f"out must have shape {array.shape} and dtype {array.dtype}, not {out.shape} and {out.dtype}")
    if not out.flags.writeable:
        raise ValueError("the output is read-only; give a writeable array, or another one as out")
    return kind, Op.SUM if op == "sum" else Op.MEAN


def _check_apart(arrays: Sequence[npt.NDArray[Any]]) -> None:
    """Refuses arrays that share memory: the result of one would become what is sent of another."""
    spans = sorted((*byte_bounds(array), index) for index, array in enumerate(arrays) if array.size)
    overlapping: list[tuple[int, int]] = []  # end and index of arrays that reach beyond the start of this one
    for start, end, index in spans:
        overlapping = [(other_end, other) for other_end, other in overlapping if other_end > start]
        for _, other in overlapping:
            if np.shares_memory(arrays[index], arrays[other]):
                first, second = sorted((index, other))
                raise ValueError(f"arrays {first} and {second} share memory; each must have its own")
        overlapping.append((end, index))
