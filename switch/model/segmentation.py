"""Segmentation in software: frames that hold several packets, because the sender left cutting them to hardware.

A packet socket sees such a frame whole, with what virtio's header says of it: of which kind it is, and how many bytes
of payload belong in each packet. Every packet gets the frame's headers, with lengths, numbers and checksums of its own.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switch.model.offloads import NEEDS_CHECKSUM, VNET

# Linux's numbers (linux/virtio_net.h).
TCP_IN_IPV4: Final = 1
TCP_IN_IPV6: Final = 4
UDP: Final = 5
_CONGESTION: Final = 0x80  # beside the kind: the first packet says that the window was reduced

_ETHERTYPES: Final = 12  # where the first stands
_TAGS: Final = (b"\x81\x00", b"\x88\xa8")
_IPV4: Final = b"\x08\x00"
_IPV6: Final = b"\x86\xdd"
_IPV4_BYTES: Final = 20  # without options
_IPV6_BYTES: Final = 40
_UDP_PROTOCOL: Final = 17
_TCP_PROTOCOL: Final = 6
_UDP_BYTES: Final = 8
_TCP_BYTES: Final = 20  # without options
_TCP_FLAGS: Final = 13  # where they stand
_FIN_AND_PUSH: Final = 0x09
_WINDOW_REDUCED: Final = 0x80

_Rows = npt.NDArray[np.uint8]
_Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class _Headers:
    """Where a frame's headers begin, and its payload."""

    ipv4: bool
    udp: bool
    network: int
    transport: int
    payload: int


def segments(frame: bytes, vnet_header: bytes) -> list[bytes]:
    """The packets that a frame holds, in order; none if it is of a kind that is not known here.

    Known are UDP and TCP directly in IPv4, or in IPv6 without extension headers, behind any VLAN tags.
    """
    flags, kind, _, size, start, _ = VNET.unpack(vnet_header)
    found = _headers(frame, kind & ~_CONGESTION)
    if found is None or not size:
        return []
    if flags & NEEDS_CHECKSUM and start != found.transport:
        return []  # the packets are in a tunnel: these are not the headers to be changed
    rows, lengths = _cut(frame, found.payload, size)
    _finish_transport(rows, lengths, found, size)
    if found.ipv4:
        _finish_ipv4(rows, lengths, found)
    else:
        _field(rows, found.network + 4)[:] = lengths - found.network - _IPV6_BYTES
    data, width = rows.tobytes(), rows.shape[1]
    return [data[i * width : i * width + length] for i, length in enumerate(lengths.tolist())]


def _headers(frame: bytes, kind: int) -> _Headers | None:
    at = _ETHERTYPES
    while (ethertype := frame[at : at + 2]) in _TAGS:
        at += 4
    network = at + 2
    if ethertype == _IPV4 and len(frame) > network + _IPV4_BYTES:
        transport = network + max(_IPV4_BYTES, 4 * (frame[network] & 0xF))
        protocol, ipv4, tcp = frame[network + 9], True, TCP_IN_IPV4
    elif ethertype == _IPV6 and len(frame) > network + _IPV6_BYTES:
        transport = network + _IPV6_BYTES
        protocol, ipv4, tcp = frame[network + 6], False, TCP_IN_IPV6
    else:
        return None
    if (kind, protocol) == (UDP, _UDP_PROTOCOL):
        payload = transport + _UDP_BYTES
    elif (kind, protocol) == (tcp, _TCP_PROTOCOL) and len(frame) > transport + _TCP_BYTES:
        payload = transport + 4 * (frame[transport + 12] >> 4)
    else:
        return None
    return _Headers(ipv4, kind == UDP, network, transport, payload) if payload < len(frame) else None


def _cut(frame: bytes, payload: int, size: int) -> tuple[_Rows, _Numbers]:
    """A row for each packet, headers as they were, and the lengths of the packets; zeros follow a packet in its row."""
    whole, rest = divmod(len(frame) - payload, size)
    width = payload + size
    data = np.frombuffer(frame, np.uint8)
    # Two bytes more than needed: checksums are sums of pairs, and a pair may begin in a packet's last byte.
    rows = np.zeros((whole + (rest > 0), width + 2), np.uint8)
    rows[:, :payload] = data[:payload]
    rows[:whole, payload:width] = data[payload : payload + whole * size].reshape(whole, size)
    lengths = np.full(len(rows), width, np.int64)
    if rest:
        rows[-1, payload : payload + rest] = data[-rest:]
        lengths[-1] = payload + rest
    return rows, lengths


def _finish_transport(rows: _Rows, lengths: _Numbers, found: _Headers, size: int) -> None:
    """Length or sequence number and flags, and the checksum."""
    begin = found.transport
    if found.udp:
        _field(rows, begin + 4)[:] = lengths - begin
        checksum = _field(rows, begin + 6)
    else:
        number = rows[:, begin + 4 : begin + 8].view(">u4")[:, 0]
        number[:] = (number.astype(np.int64) + size * np.arange(len(rows))) % 2**32
        rows[:-1, begin + _TCP_FLAGS] &= 0xFF ^ _FIN_AND_PUSH
        rows[1:, begin + _TCP_FLAGS] &= 0xFF ^ _WINDOW_REDUCED
        checksum = _field(rows, begin + 16)
    checksum[:] = 0
    # The pseudo-header is the addresses, the length and the protocol.
    first = found.network + (12 if found.ipv4 else 8)
    addresses = _sums(rows[:, first : first + (8 if found.ipv4 else 32)])
    protocol = _UDP_PROTOCOL if found.udp else _TCP_PROTOCOL
    sums = addresses + _sums(rows[:, begin:]) + lengths - begin + protocol
    # Both zeros mean the same, but UDP takes 0 for none, and the kernel writes 0 for TCP.
    checksum[:] = 0xFFFF - sums % 0xFFFF if found.udp else -sums % 0xFFFF


def _finish_ipv4(rows: _Rows, lengths: _Numbers, found: _Headers) -> None:
    """Length, identification and checksum."""
    begin = found.network
    _field(rows, begin + 2)[:] = lengths - begin
    identification = _field(rows, begin + 4)
    identification[:] = (identification.astype(np.int64) + np.arange(len(rows))) % 2**16
    checksum = _field(rows, begin + 10)
    checksum[:] = 0
    checksum[:] = -_sums(rows[:, begin : found.transport]) % 0xFFFF


def _field(rows: _Rows, at: int) -> _Numbers:
    """The big-endian numbers of two bytes at a place in every row, to be read and written."""
    return rows[:, at : at + 2].view(">u2")[:, 0]


def _sums(rows: _Rows) -> _Numbers:
    """The sum of the words of each row, without its last byte if their number is odd."""
    found: _Numbers = rows[:, : rows.shape[1] // 2 * 2].view(">u2").sum(axis=1, dtype=np.int64)
    return found
