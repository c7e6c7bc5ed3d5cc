"""Numbers of the wiresum protocol that both sides agree on. Sizes are in bytes, times in seconds."""

from enum import IntEnum
from typing import Final

DATA_PORT: Final = 48864
CONTROL_PORT: Final = 50099

MAX_RANKS: Final = 32  # at one switch: a slot's "seen" is one 32-bit register
MAX_WORLD: Final = 1024  # ranks of one job over a tree of switches: enough for 32 leaves, and 21 bits for each value
MAX_SLOTS: Final = 16384  # pool_index has 14 bits of slot
MAX_JOBS: Final = 256  # the job number is one byte

HEADER_BYTES: Final = 8
EXPONENT_BYTES: Final = 2
PREFIX_BYTES: Final = HEADER_BYTES + EXPONENT_BYTES  # what stands before the values
VALUE_BYTES: Final = 4
VALUES_PER_PACKET: Final = (32, 64, 128, 256, 512, 1024, 2048)  # by the header's size field
DEFAULT_VALUES: Final = 256

MSG_VALUES: Final = 1  # exponents and values
MSG_EXPONENTS: Final = 2  # exponents only

VERSION_BIT: Final = 0x8000  # of pool_index
SLOT_MASK: Final = 0x3FFF

EXPONENT_ZERO: Final = -128  # the block is all zero, or nothing to announce
EXPONENT_MIN: Final = -127
EXPONENT_NAN: Final = 127  # the block holds a NaN, an infinity, or a value of 2^126 or more

CONSISTENCY_VALUES: Final = 127  # the consistency byte is in 0..126

MAX_DATAGRAM: Final = 65507  # of UDP over IPv4
MAX_SEGMENTS: Final = 64  # the kernel's UDP_MAX_SEGMENTS in its oldest form


class DType(IntEnum):
    """Element types that the switch can add, by the number that enters the consistency hash."""

    FLOAT32 = 0
    FLOAT16 = 1
    BFLOAT16 = 2
    INT32 = 3
    INT16 = 4
    INT8 = 5
    UINT8 = 6

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE[self]

    @property
    def is_float(self) -> bool:
        """Whether elements travel as quantized blocks with an exponent."""
        return self <= DType.BFLOAT16


_ITEMSIZE: Final = {
    DType.FLOAT32: 4,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.INT32: 4,
    DType.INT16: 2,
    DType.INT8: 1,
    DType.UINT8: 1,
}


class Op(IntEnum):
    """Reductions, by the number that enters the consistency hash."""

    SUM = 0
    MEAN = 1


class SlotEvent(IntEnum):
    """What a switch counts for each member of a job, by the number of the counter.

    All switches count the same: the software switch in its kernels, a P4 switch under the numbers of the enum Event in
    p4/constants.p4. There 0 is no event, and what came in is counted elsewhere.
    """

    RECEIVED = 0
    CONTRIBUTIONS = 1
    DUPLICATES = 2
    PREVIOUS = 3
    STALE = 4
    WRONG_JOB = 5
    WRONG_SIZE = 6
    OUTSIDE_POOL = 7
    WRONG_INDEX = 8
    RESERVED_BITS = 9
    RESULTS = 10
    RETRANSMITTED = 11
    PARTIALS = 12
    PARTIALS_AGAIN = 13
    UNNEEDED = 14

    @property
    def counter(self) -> str:
        """The name in statistics."""
        return self.name.lower()


def packet_bytes(values: int) -> int:
    """Bytes of UDP payload of a packet that carries `values` values."""
    return PREFIX_BYTES + VALUE_BYTES * values


def size_code(values: int) -> int:
    """The header's size field for `values` values per packet.

    Raises:
        ValueError: no size code stands for that number of values.
    """
    if values not in VALUES_PER_PACKET:
        raise ValueError(f"values per packet must be one of {VALUES_PER_PACKET}, not {values}")
    return VALUES_PER_PACKET.index(values)


def check_slots(slots: int) -> int:
    """`slots` itself, if a pool may have that many.

    Raises:
        ValueError: it is not a power of two between 1 and 16384.
    """
    if not 1 <= slots <= MAX_SLOTS or slots & (slots - 1):
        raise ValueError(f"slots must be a power of two from 1 to {MAX_SLOTS}, not {slots}")
    return slots
