"""The Ethernet frames that the control plane itself sends and reads: ARP."""

import ipaddress
import struct
from typing import Final

_FRAME: Final = struct.Struct("!6s6sH HHBBH 6s4s6s4s")
_ARP: Final = 0x0806
_FIXED: Final = (_ARP, 1, 0x0800, 6, 4)  # type; hardware, protocol and the lengths of their addresses
_REQUEST, _REPLY = 1, 2
_SHORTEST: Final = 60  # bytes of an Ethernet frame without its checksum


def mac_bytes(mac: int) -> bytes:
    """The six bytes of a MAC address."""
    return mac.to_bytes(6, "big")


def arp_request(*, mac: int, address: str, asked: str) -> bytes:
    """The question which MAC address `asked` has, from `address`."""
    own = mac_bytes(mac)
    sender, target = ipaddress.IPv4Address(address).packed, ipaddress.IPv4Address(asked).packed
    frame = _FRAME.pack(b"\xff" * 6, own, *_FIXED, _REQUEST, own, sender, bytes(6), target)
    return frame.ljust(_SHORTEST, b"\0")


def read_arp_reply(frame: bytes) -> tuple[str, int] | None:
    """The IPv4 and the MAC address that an ARP reply tells of; None if it is none."""
    if len(frame) < _FRAME.size:
        return None
    _, _, *fixed, operation, mac, address, _, _ = _FRAME.unpack_from(frame)
    if tuple(fixed) != _FIXED or operation != _REPLY:
        return None
    return str(ipaddress.IPv4Address(address)), int.from_bytes(mac, "big")
