"""Numbers as P4Runtime's byte strings: big-endian, the shortest that holds the value (specification, 8.4)."""

from switch.p4runtime.errors import Code, P4RuntimeError


def encode(value: int) -> bytes:
    """An unsigned number; 0 is one byte."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def decode(data: bytes, width: int, what: str) -> int:
    """An unsigned number of `width` bits; leading zeros are taken as well.

    Raises:
        P4RuntimeError: OUT_OF_RANGE; the string is empty, or the value has more bits.
    """
    if not data:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{what}: the byte string is empty; expected {width} bits")
    value = int.from_bytes(data, "big")
    if value.bit_length() > width:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{what}: value {value:#x} does not fit {width} bits")
    return value


def encode_signed(value: int) -> bytes:
    """A signed number in two's complement."""
    bits = (value if value >= 0 else ~value).bit_length() + 1
    return value.to_bytes((bits + 7) // 8, "big", signed=True)


def decode_signed(data: bytes, width: int, what: str) -> int:
    """A signed number of `width` bits; copies of the sign in front are taken as well.

    Raises:
        P4RuntimeError: OUT_OF_RANGE; the string is empty, or the value has more bits.
    """
    if not data:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{what}: the byte string is empty; expected {width} bits")
    value = int.from_bytes(data, "big", signed=True)
    half = 1 << width >> 1
    if not -half <= value < half:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{what}: value {value} does not fit {width} bits, signed")
    return value
