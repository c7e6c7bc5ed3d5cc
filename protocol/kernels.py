"""What every kernel is built from: memory by address, byte order, the consistency hash, lengths and header fields.

Kernels take addresses as plain integers, since one batch crosses tensors of several types and buffers of several
owners; the caller keeps the arrays alive. Values stand at odd addresses (the prefix has 10 bytes), which the loads
here allow.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from protocol.constants import CONSISTENCY_VALUES
from protocol.jit import kernel


def _load(bits: int) -> Callable[[int], int]:
    """An intrinsic that reads a big-endian unsigned integer of `bits` bits at an address, as int64."""

    def load(_context: Any, _address: Any) -> Any:
        def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = cgutils.ir.IntType(bits)
            word = builder.load(builder.inttoptr(args[0], kind.as_pointer()), align=1)
            return builder.zext(builder.bswap(word) if bits > 8 else word, cgutils.ir.IntType(64))

        return types.int64(types.int64), generate

    loaded: Callable[[int], int] = intrinsic(load)
    return loaded


def _store(bits: int) -> Callable[[int, int], None]:
    """An intrinsic that writes the low `bits` bits of an int64 in network order at an address."""

    def store(_context: Any, _address: Any, _value: Any) -> Any:
        def generate(ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
            kind = cgutils.ir.IntType(bits)
            word = builder.trunc(args[1], kind)
            builder.store(
                builder.bswap(word) if bits > 8 else word, builder.inttoptr(args[0], kind.as_pointer()), align=1
            )
            return ctx.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    stored: Callable[[int, int], None] = intrinsic(store)
    return stored


load8, load16, load32 = _load(8), _load(16), _load(32)
store8, store16, store32 = _store(8), _store(16), _store(32)


def _pointer(_context: Any, _address: Any) -> Any:
    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


def _swap32(_context: Any, _value: Any) -> Any:
    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.bswap(args[0])

    return types.uint32(types.uint32), generate


def _add32(_context: Any, _left: Any, _right: Any) -> Any:
    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.add(args[0], args[1])

    return types.uint32(types.uint32, types.uint32), generate


def _max32(_context: Any, _left: Any, _right: Any) -> Any:
    def generate(_ctx: Any, builder: Any, _sig: Any, args: Any) -> Any:
        return builder.select(builder.icmp_unsigned(">", args[0], args[1]), args[0], args[1])

    return types.uint32(types.uint32, types.uint32), generate


pointer: Callable[[int], Any] = intrinsic(_pointer)
swap32: Callable[[Any], Any] = intrinsic(_swap32)
add32: Callable[[Any, Any], Any] = intrinsic(_add32)  # modulo 2^32, where numba's + would widen to 64 bits
max32: Callable[[Any, Any], Any] = intrinsic(_max32)


@kernel
def load_signed8(address: int) -> int:
    """The signed byte at `address`."""
    value = load8(address)
    return value - 256 if value > 127 else value


@kernel
def copy_bytes(source: int, target: int, count: int) -> None:
    """Copies `count` bytes."""
    read = carray(pointer(source), (count,), np.uint8)
    write = carray(pointer(target), (count,), np.uint8)
    for i in range(count):
        write[i] = read[i]


@kernel
def copy_swapped(source: int, target: int, count: int) -> None:
    """Copies `count` 32-bit words and turns their byte order round."""
    read = carray(pointer(source), (count,), np.uint32)
    write = carray(pointer(target), (count,), np.uint32)
    for i in range(count):
        write[i] = swap32(read[i])


@kernel
def add_swapped(source: int, target: int, count: int) -> None:
    """Adds `count` 32-bit words in network order at `source` to words in host order at `target`, modulo 2^32."""
    read = carray(pointer(source), (count,), np.uint32)
    write = carray(pointer(target), (count,), np.uint32)
    for i in range(count):
        write[i] = add32(write[i], swap32(read[i]))


@kernel
def mix64(word: np.uint64) -> np.uint64:
    """The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014)."""
    word = np.uint64(word)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(word ^ (word >> np.uint64(31)))


@kernel
def consistency(salt: np.uint64, tsi: int) -> int:
    """The consistency byte of chunk `tsi` of the collective with that salt: 0..126."""
    return int(mix64(np.uint64(salt) ^ np.uint64(tsi & 0xFFFFFFFF)) % np.uint64(CONSISTENCY_VALUES))
