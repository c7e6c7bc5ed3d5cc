"""What one process sends and receives, counted by the agent for wiresum and by the kernel for TCP (and so for Gloo)."""

import os
import socket
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

# Offsets in struct tcp_info of include/uapi/linux/tcp.h; fields are only ever added at its end.
_TOTAL_RETRANS: Final = 100
_BYTES_RECEIVED: Final = 128
_SEGMENTS_OUT_IN: Final = 136
_BYTES_SENT: Final = 200  # since Linux 4.19
_TCP_INFO_BYTES: Final = 208


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Bytes of payload, and packets, of one process or of several."""

    bytes_sent: int = 0
    bytes_received: int = 0
    packets_sent: int = 0
    packets_received: int = 0
    retransmissions: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __sub__(self, other: Self) -> Self:
        return type(self)(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})

    @classmethod
    def from_statistics(cls, statistics: dict[str, int]) -> Self:
        """From what a `Communicator` has counted."""
        return cls(**{f.name: statistics.get(f.name, 0) for f in fields(cls)})

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """The sum of several."""
        return sum(parts, cls())


def tcp_traffic() -> Traffic:
    """Traffic of all TCP connections that this process has open, since each was made."""
    return Traffic.total(_of_descriptor(int(entry.name)) for entry in Path("/proc/self/fd").iterdir())


def _of_descriptor(descriptor: int) -> Traffic:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return Traffic()
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
                return Traffic()
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:  # closed meanwhile
        return Traffic()
    if len(info) < _TCP_INFO_BYTES:
        return Traffic()
    segments_out, segments_in = struct.unpack_from("=II", info, _SEGMENTS_OUT_IN)
    return Traffic(
        bytes_sent=struct.unpack_from("=Q", info, _BYTES_SENT)[0],
        bytes_received=struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0],
        packets_sent=segments_out,
        packets_received=segments_in,
        retransmissions=struct.unpack_from("=I", info, _TOTAL_RETRANS)[0],
    )
