"""Numbers, compiled: floats to integers with a block exponent and back, one block at a time.

A block of one chunk shares an exponent e, the smallest with |x| < 2^e on every worker. A worker sends
rint(x * 2^(31 - L - e)) and reads the result as sum * 2^(e + L - 31), where L = ceil(log2(workers)).
All of it is exact in float32 but for the two roundings, as long as the power of two is a normal float32; blocks so
small that it is not take the way through float64.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from protocol.constants import EXPONENT_MIN, EXPONENT_NAN, EXPONENT_ZERO, DType, Op
from protocol.jit import kernel
from protocol.kernels import copy_swapped, max32, pointer, swap32

FLOAT32, FLOAT16, BFLOAT16 = int(DType.FLOAT32), int(DType.FLOAT16), int(DType.BFLOAT16)
INT32, INT16, INT8, UINT8 = int(DType.INT32), int(DType.INT16), int(DType.INT8), int(DType.UINT8)
MEAN = int(Op.MEAN)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_NORMAL_MIN, _NORMAL_MAX = -126, 127  # exponents of powers of two that are normal float32 numbers


def _bits_to_double(_context: Any, _bits: Any) -> Any:
    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], cgutils.ir.DoubleType())

    return types.float64(types.int64), generate


def _double_to_bits(_context: Any, _value: Any) -> Any:
    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], cgutils.ir.IntType(64))

    return types.int64(types.float64), generate


bits_to_double: Callable[[int], float] = intrinsic(_bits_to_double)
double_to_bits: Callable[[float], int] = intrinsic(_double_to_bits)


@kernel
def power_of_two(exponent: int) -> float:
    """2^exponent as float64, for -1022 <= exponent <= 1023."""
    return bits_to_double((exponent + 1023) << 52)


@kernel
def widen(source: int, target: int, count: int, dtype: int) -> None:
    """Writes `count` float16 or bfloat16 numbers at `source` as float32 at `target`, exactly."""
    read = carray(pointer(source), (count,), np.uint16)
    write = carray(pointer(target), (count,), np.uint32)
    if dtype == BFLOAT16:
        for i in range(count):
            write[i] = np.uint32(read[i]) << np.uint32(16)
        return
    floats = carray(pointer(target), (count,), np.float32)
    for i in range(count):
        half = int(read[i])
        exponent = half >> 10 & 31
        mantissa = half & 0x3FF
        if exponent == 31:
            magnitude = 0x7F800000 | mantissa << 13
        elif exponent == 0:
            floats[i] = np.float32(mantissa) * np.float32(2.0**-24)
            magnitude = int(write[i])
        else:
            magnitude = (exponent + 112) << 23 | mantissa << 13
        write[i] = np.uint32((half & 0x8000) << 16 | magnitude)


@kernel
def narrow_bits(value: float, dtype: int) -> int:
    """The bits of the float16 or bfloat16 nearest to a float64, ties to even; too large a value becomes infinite."""
    bits = double_to_bits(value)
    sign = (bits >> 63 & 1) << 15
    exponent = (bits >> 52 & 0x7FF) - 1023
    magnitude = bits_to_double(bits & 0x7FFFFFFFFFFFFFFF)
    if dtype == FLOAT16:
        digits, lowest, infinity = 10, -14, 0x7C00
    else:
        digits, lowest, infinity = 7, -126, 0x7F80
    if exponent == 1024:
        return sign | infinity | (1 << (digits - 1) if magnitude != magnitude else 0)
    exponent = max(exponent, lowest)
    # A carry out of the mantissa runs into the exponent, which is what rounding up to the next binade means.
    scaled = int(np.rint(magnitude * power_of_two(digits - exponent)))
    rounded: int = ((exponent - lowest) << digits) + scaled
    return sign | min(rounded, infinity)


@kernel
def widen_bits(bits: int, dtype: int) -> float:
    """The value of the float16 or bfloat16 with these bits; it must be finite."""
    if dtype == FLOAT16:
        digits, lowest = 10, -14
    else:
        digits, lowest = 7, -126
    field = (bits & 0x7FFF) >> digits
    mantissa = bits & ((1 << digits) - 1)
    if field:
        mantissa |= 1 << digits
        field -= 1
    value = mantissa * power_of_two(field + lowest - digits)
    return -value if bits & 0x8000 else value


@kernel
def block_exponent(source: int, count: int) -> int:
    """The block exponent of `count` float32 numbers at `source`."""
    read = carray(pointer(source), (count,), np.uint32)
    largest = np.uint32(0)
    for i in range(count):
        largest = max32(largest, np.uint32(read[i] & _MAGNITUDE))
    bits = int(largest)
    if bits == 0:
        return EXPONENT_ZERO
    exponent = bits >> 23
    if exponent:
        return min(exponent - 126, EXPONENT_NAN)
    length = 0
    while bits:
        bits >>= 1
        length += 1
    return max(length - 149, EXPONENT_MIN)


@kernel
def quantize(source: int, target: int, count: int, exponent: int, headroom: int) -> None:
    """Writes `count` float32 numbers at `source` as 32-bit integers in network order at `target`.

    Args:
        exponent: block exponent, the maximum over the workers.
        headroom: L, the bits that the sum may need beyond one worker's.
    """
    write = carray(pointer(target), (count,), np.uint32)
    if exponent in (EXPONENT_ZERO, EXPONENT_NAN):
        for i in range(count):
            write[i] = np.uint32(0)
        return
    read = carray(pointer(source), (count,), np.float32)
    limit = np.int32((np.int64(1) << (31 - headroom)) - 1)
    shift = 31 - headroom - exponent
    if shift <= _NORMAL_MAX:
        scale = np.float32(power_of_two(shift))
        for i in range(count):
            scaled = np.int32(np.rint(read[i] * scale))
            write[i] = swap32(np.uint32(min(max(scaled, -limit), limit)))
    else:
        wide = power_of_two(shift)
        for i in range(count):
            scaled = np.int32(np.rint(np.float64(read[i]) * wide))
            write[i] = swap32(np.uint32(min(max(scaled, -limit), limit)))


@kernel
def dequantize(
    source: int, target: int, count: int, exponent: int, headroom: int, dtype: int, op: int, ranks: int
) -> None:
    """Writes the sums at `source`, 32-bit integers in network order, as `count` floats of `dtype` at `target`."""
    read = carray(pointer(source), (count,), np.uint32)
    shift = exponent + headroom - 31
    if dtype != FLOAT32:
        halves = carray(pointer(target), (count,), np.uint16)
        for i in range(count):
            if exponent == EXPONENT_ZERO:
                halves[i] = np.uint16(0)
            elif exponent == EXPONENT_NAN:
                halves[i] = np.uint16(0x7E00 if dtype == FLOAT16 else 0x7FC0)
            else:
                bits = narrow_bits(np.float64(np.int32(swap32(read[i]))) * power_of_two(shift), dtype)
                infinite = bits & 0x7FFF == (0x7C00 if dtype == FLOAT16 else 0x7F80)
                if op == MEAN and not infinite:
                    bits = narrow_bits(widen_bits(bits, dtype) / ranks, dtype)
                halves[i] = np.uint16(bits)
        return
    write = carray(pointer(target), (count,), np.float32)
    if exponent in (EXPONENT_ZERO, EXPONENT_NAN):
        filler = np.float32(0.0) if exponent == EXPONENT_ZERO else np.float32(np.nan)
        for i in range(count):
            write[i] = filler
        return
    if shift >= _NORMAL_MIN:
        scale = np.float32(power_of_two(shift))
        if op == MEAN:
            divisor = np.float32(ranks)
            for i in range(count):
                write[i] = np.float32(np.int32(swap32(read[i]))) * scale / divisor
        else:
            for i in range(count):
                write[i] = np.float32(np.int32(swap32(read[i]))) * scale
    else:
        wide = power_of_two(shift)
        divisor = np.float32(ranks if op == MEAN else 1)
        for i in range(count):
            write[i] = np.float32(np.float64(np.int32(swap32(read[i]))) * wide) / divisor


@kernel
def load_integers(source: int, target: int, count: int, dtype: int) -> None:
    """Writes `count` integers of `dtype` at `source` as 32-bit integers in network order at `target`."""
    if dtype == INT32:
        copy_swapped(source, target, count)
        return
    write = carray(pointer(target), (count,), np.uint32)
    if dtype == INT16:
        shorts = carray(pointer(source), (count,), np.int16)
        for i in range(count):
            write[i] = swap32(np.uint32(np.int32(shorts[i])))
    elif dtype == INT8:
        signed = carray(pointer(source), (count,), np.int8)
        for i in range(count):
            write[i] = swap32(np.uint32(np.int32(signed[i])))
    else:
        unsigned = carray(pointer(source), (count,), np.uint8)
        for i in range(count):
            write[i] = swap32(np.uint32(unsigned[i]))


@kernel
def store_integers(source: int, target: int, count: int, dtype: int) -> None:
    """Writes sums at `source`, in network order, as `count` integers of `dtype` at `target`, with wrap."""
    if dtype == INT32:
        copy_swapped(source, target, count)
        return
    read = carray(pointer(source), (count,), np.uint32)
    if dtype == INT16:
        shorts = carray(pointer(target), (count,), np.uint16)
        for i in range(count):
            shorts[i] = np.uint16(swap32(read[i]))
    else:
        octets = carray(pointer(target), (count,), np.uint8)
        for i in range(count):
            octets[i] = np.uint8(swap32(read[i]))
