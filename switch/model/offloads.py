"""What the kernel leaves to hardware, done in software: checksums and VLAN tags of frames from a packet socket."""

import struct
from typing import Final

VNET_HEADER_BYTES: Final = 10
# Flags, GSO type, a hint at the length of headers, GSO size, where the checksummed part starts, the checksum's offset.
VNET: Final = struct.Struct("=BBHHHH")
NEEDS_CHECKSUM: Final = 1


def internet_checksum(data: bytes) -> int:
    """The ones' complement sum of RFC 1071, never 0: both zeros mean the same, and UDP takes 0 for none."""
    value = int.from_bytes(data, "big")
    # 2**16 is 1 modulo 0xFFFF: the remainder of the whole number is the sum of its 16-bit words with carries added.
    return 0xFFFF - (value << 8 if len(data) % 2 else value) % 0xFFFF


def with_checksum(frame: bytes, vnet_header: bytes) -> bytes:
    """The frame, its checksum filled in where the sender's kernel left that to hardware.

    The field holds the sum of the pseudo-header then, and the header that comes before the frame says where it stands.
    """
    flags, _, _, _, start, offset = VNET.unpack(vnet_header)
    if not flags & NEEDS_CHECKSUM or start + offset + 2 > len(frame):
        return frame
    at = start + offset
    return frame[:at] + internet_checksum(frame[start:]).to_bytes(2, "big") + frame[at + 2 :]


def with_vlan_tag(frame: bytes, tpid: int, tci: int) -> bytes:
    """The frame, with the VLAN tag put back that the kernel took out."""
    return frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
