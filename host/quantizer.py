"""The quantizer on whole numpy arrays: what the worker does to a tensor block by block, for tests, tools and study."""

from typing import Any

import numpy as np
import numpy.typing as npt

from host import quantizer_kernels as kernels
from protocol.constants import DType, Op


def headroom_bits(world_size: int) -> int:
    """L = ceil(log2(world size)): the bits that a sum over the workers needs beyond one worker's value."""
    return (world_size - 1).bit_length()


def block_exponent(block: npt.NDArray[np.float32]) -> int:
    """The smallest e, not below -127, with |x| < 2^e for every x; -128 if all are zero, 127 if one cannot be sent."""
    block = np.ascontiguousarray(block, np.float32)
    return int(kernels.block_exponent(block.ctypes.data, block.size))


def quantize(block: npt.NDArray[np.float32], exponent: int, world_size: int) -> npt.NDArray[np.int32]:
    """What one worker sends for a block of float32 numbers, given the exponent that all agreed on."""
    block = np.ascontiguousarray(block, np.float32)
    sent = np.zeros(block.size, ">i4")
    kernels.quantize(block.ctypes.data, sent.ctypes.data, block.size, exponent, headroom_bits(world_size))
    return sent.astype(np.int32)


def dequantize(
    sums: npt.NDArray[np.int32], exponent: int, world_size: int, dtype: DType = DType.FLOAT32, op: Op = Op.SUM
) -> npt.NDArray[Any]:
    """What a worker makes of the switch's sums: float32, float16, or the bits of bfloat16 as uint16."""
    received = np.ascontiguousarray(sums, ">i4")
    kind = {DType.FLOAT32: np.float32, DType.FLOAT16: np.float16, DType.BFLOAT16: np.uint16}[dtype]
    result = np.zeros(received.size, kind)
    kernels.dequantize(
        received.ctypes.data,
        result.ctypes.data,
        received.size,
        exponent,
        headroom_bits(world_size),
        int(dtype),
        int(op),
        world_size,
    )
    return result
