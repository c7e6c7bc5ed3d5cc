"""Hash and checksum algorithms by the names that p4c writes, over bytes, with BMv2's results."""

import binascii
import zlib
from collections.abc import Callable
from functools import partial

Algorithm = Callable[[bytes], int]


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071). Sixteen-bit words in ones' complement are a number modulo 65535."""
    number = int.from_bytes(data + b"\0" if len(data) & 1 else data, "big")
    return 0xFFFF if number == 0 else 0xFFFF ^ (number % 0xFFFF or 0xFFFF)


def identity(data: bytes) -> int:
    """The first eight bytes."""
    return int.from_bytes(data[:8], "big")


def _xor(size: int, data: bytes) -> int:
    padded = data + bytes(-len(data) % size)
    found = 0
    for place in range(0, len(padded), size):
        found ^= int.from_bytes(padded[place : place + size], "big")
    return found


def _table(polynomial: int, width: int) -> list[int]:
    """Remainders of the 256 bytes, least significant bit first."""
    reflected = int(f"{polynomial:0{width}b}"[::-1], 2)
    table = []
    for byte in range(256):
        rest = byte
        for _ in range(8):
            rest = rest >> 1 ^ (reflected if rest & 1 else 0)
        table.append(rest)
    return table


def _reflected_crc(table: list[int], data: bytes) -> int:
    rest = 0
    for byte in data:
        rest = rest >> 8 ^ table[(rest ^ byte) & 0xFF]
    return rest


def _crc8(data: bytes) -> int:
    rest = 0
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = (rest << 1 ^ (0x07 if rest & 0x80 else 0)) & 0xFF
    return rest


def _crc_ccitt(data: bytes) -> int:
    return binascii.crc_hqx(data, 0xFFFF)


_crc16 = partial(_reflected_crc, _table(0x8005, 16))  # CRC-16/ARC
_crc64 = partial(_reflected_crc, _table(0x1B, 64))

_ALGORITHMS: dict[str, Algorithm] = {
    "csum16": csum16,
    "cksum16": csum16,
    "crc16": _crc16,
    "crc16_custom": _crc16,  # the parameters of custom ones can be set in BMv2 by its own interface only
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "crc8_custom": _crc8,
    "crc64_custom": _crc64,
    "crcCCITT": _crc_ccitt,
    "identity": identity,
    "xor16": partial(_xor, 2),
    "xor32": partial(_xor, 4),
}
ALGORITHMS = frozenset({*_ALGORITHMS, "round_robin"})


def algorithm(name: str) -> Algorithm:
    """The algorithm of a name. `round_robin` counts the packets: each call gives one of its own.

    Raises:
        KeyError: there is none.
    """
    if name != "round_robin":
        return _ALGORITHMS[name]
    count = -1

    def following(_: bytes) -> int:
        nonlocal count
        count += 1
        return count

    return following
