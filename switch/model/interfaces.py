"""Ports of the programmable switch that move frames: network interfaces, and pairs of sockets for tests."""

import fcntl
import logging
import mmap
import os
import re
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Protocol, Self

from switch.model.errors import ModelError
from switch.model.offloads import VNET, VNET_HEADER_BYTES, with_checksum, with_vlan_tag
from switch.model.replication import MAX_PORT
from switch.model.segmentation import segments

_log = logging.getLogger(__name__)

# Linux's numbers (linux/if_packet.h, linux/if_ether.h, linux/sockios.h) that Python's socket module does not have.
_SOL_PACKET: Final = 263
_ADD_MEMBERSHIP: Final = 1
_RECEIVE_RING: Final = 5
_STATISTICS: Final = 6
_COPY_LONG: Final = 7  # PACKET_COPY_THRESH
_VERSION: Final = 10
_TPACKET_V2: Final = 1
_VNET_HEADER: Final = 15
_IGNORE_OUTGOING: Final = 23
_PROMISCUOUS: Final = 1
_ALL_PROTOCOLS: Final = 3
_GET_MTU: Final = 0x8921

# Of a frame in the ring: status, length, captured, offset of the frame, of its network header, time, VLAN tag.
_SLOT: Final = struct.Struct("=IIIHHIIHH")
_SLOT_BYTES: Final = 128  # no more than this stands before the frame
_STATUS: Final = struct.Struct("=I")
_IS_OURS: Final = 1 << 0
_IS_QUEUED: Final = 1 << 1
_HAS_TAG: Final = 1 << 4
_HAS_TPID: Final = 1 << 6
_DOT1Q: Final = 0x8100

_RING_BYTES: Final = 8 << 20  # at least, and
_RING_FRAMES: Final = 1024
_BLOCK_BYTES: Final = 1 << 16
_SEND_BYTES: Final = 8 << 20
_QUEUE_BYTES: Final = 64 << 20  # of frames too long for the ring
_QUEUED_BYTES: Final = 1 << 20  # more than the kernel ever puts in one of them
_FORCE_RECEIVE_BYTES: Final = 33  # SO_RCVBUFFORCE
_LONGEST_HEADER: Final = 14 + 8  # Ethernet with two VLAN tags
_PLAIN: Final = bytes(VNET_HEADER_BYTES)  # before a frame that nothing is left to do for
_SPEC: Final = re.compile(r"(\d+)@(\S+)")


@dataclass
class PortCounters:
    """Of one port, since it was opened.

    Attributes:
        unsent: frames that the interface did not take: its queue was full, it was down, or they were too long for it.
        overflows: frames that the kernel dropped because the switch did not keep up.
        oversized: frames above the MTU that came in and were dropped: the other end of the link has a larger one.
        unsegmented: frames of several packets that came in and were dropped, since their kind is not known.
    """

    packets_in: int = 0
    bytes_in: int = 0
    packets_out: int = 0
    bytes_out: int = 0
    unsent: int = 0
    overflows: int = 0
    oversized: int = 0
    unsegmented: int = 0


class Core(Protocol):
    """What ports need of a switch; `ModelSwitch` is one."""

    def receive(self, port: int, packet: bytes, now: float) -> list[tuple[int, bytes]]:
        """Takes a packet at `now` seconds and returns what leaves, as (port, packet)."""


class Port(Protocol):
    """Where frames come from and go to. None of the methods waits."""

    counters: PortCounters

    def fileno(self) -> int:
        """A descriptor that is readable when a frame is there."""

    def receive(self) -> Sequence[bytes]:
        """The next frame, or several that came as one; none if there are none."""

    def send(self, frame: bytes) -> None:
        """Sends a frame, or counts it as unsent."""

    def clear_error(self) -> None:
        """Takes note of an error that the descriptor reports, so that it reports it no more."""

    def update(self) -> None:
        """Brings counters up to date that are not kept frame by frame."""

    def close(self) -> None:
        """Gives the port back; idempotent."""


def parse_interfaces(specs: Iterable[str]) -> dict[int, str]:
    """Interfaces by port number, from BMv2's way to write them: `0@veth0`.

    Raises:
        ModelError: one is not of that form, or a number or interface stands twice.
    """
    found: dict[int, str] = {}
    for spec in specs:
        match = _SPEC.fullmatch(spec)
        if match is None or int(match[1]) > MAX_PORT:
            raise ModelError(f"expected PORT@INTERFACE with a port from 0 to {MAX_PORT}, got {spec!r}")
        number, name = int(match[1]), match[2]
        if number in found or name in found.values():
            raise ModelError(f"{spec!r}: port {number} or interface {name!r} stands twice")
        found[number] = name
    return found


class InterfacePort:
    """A network interface in promiscuous mode; frames come through a ring of memory that is shared with the kernel.

    What the sender's kernel left to hardware is done here, so that veth pairs work as they come: checksums are filled
    in, frames that hold several packets are segmented, VLAN tags are put back. Packets in tunnels are not segmented:
    such frames are dropped and counted, and a warning names the remedy.

    Raises:
        ModelError: there is no such interface, or no right to open it (CAP_NET_RAW).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.counters = PortCounters()
        self._next = 0  # where the next frame will stand in the ring
        self._resources = ExitStack()
        try:
            self._in = self._resources.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            self._out = self._resources.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
        except PermissionError:
            raise ModelError(f"interface {name!r} needs root, or the capability CAP_NET_RAW") from None
        try:
            self._open(name)
        except OSError as error:
            self.close()
            raise ModelError(f"interface {name!r} cannot be opened: {error.strerror or error}") from error

    def _open(self, name: str) -> None:
        index = socket.if_nametoindex(name)
        request = fcntl.ioctl(self._in, _GET_MTU, struct.pack("16si12x", name.encode(), 0))
        self._longest = struct.unpack_from("i", request, 16)[0] + _LONGEST_HEADER
        self._slot_bytes = 1 << (self._longest + _SLOT_BYTES - 1).bit_length()
        block = max(_BLOCK_BYTES, self._slot_bytes)
        blocks = max(_RING_BYTES, _RING_FRAMES * self._slot_bytes) // block
        self._in.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V2)
        self._in.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
        self._in.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        ring = struct.pack("=IIII", block, blocks, self._slot_bytes, blocks * block // self._slot_bytes)
        self._in.setsockopt(_SOL_PACKET, _RECEIVE_RING, ring)
        self._in.setsockopt(_SOL_PACKET, _COPY_LONG, 1)
        try:
            self._in.setsockopt(socket.SOL_SOCKET, _FORCE_RECEIVE_BYTES, _QUEUE_BYTES)
        except PermissionError:  # for lack of CAP_NET_ADMIN; as much as everyone may have, then
            self._in.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE_BYTES)
        self._ring = self._resources.enter_context(mmap.mmap(self._in.fileno(), blocks * block))
        self._in.bind((name, _ALL_PROTOCOLS))  # only now: before, frames of other interfaces would come as well
        self._in.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, struct.pack("=IHH8x", index, _PROMISCUOUS, 0))
        self._out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        self._out.bind((name, 0))
        self._out.setblocking(False)

    def fileno(self) -> int:
        """Readable when a frame is there."""
        return self._in.fileno()

    def receive(self) -> Sequence[bytes]:
        """The next frame, or those that were segmented from one; none if there are none."""
        ring = self._ring
        while True:
            at = self._next
            status, length, captured, offset, _, _, _, tci, tpid = _SLOT.unpack_from(ring, at)
            if not status & _IS_OURS:
                return ()
            start = at + offset
            frame = ring[start : start + captured]
            vnet_header = ring[start - VNET_HEADER_BYTES : start]
            _STATUS.pack_into(ring, at, 0)  # the kernel's again
            self._next = (at + self._slot_bytes) % len(ring)
            counters = self.counters
            if captured < length:  # too long for the ring
                frame = self._receive_queued() if status & _IS_QUEUED else b""
                if not frame:
                    counters.overflows += 1
                    continue
            if vnet_header != _PLAIN:
                if vnet_header[1]:
                    frames = self._segmented(frame, vnet_header)
                    if status & _HAS_TAG:
                        frames = [with_vlan_tag(each, tpid if status & _HAS_TPID else _DOT1Q, tci) for each in frames]
                    if not frames:
                        continue
                    counters.packets_in += len(frames)
                    counters.bytes_in += sum(map(len, frames))
                    return frames
                frame = with_checksum(frame, vnet_header)
            if length > self._longest:
                self._warn_of_length(length)
                continue
            if status & _HAS_TAG:
                frame = with_vlan_tag(frame, tpid if status & _HAS_TPID else _DOT1Q, tci)
            counters.packets_in += 1
            counters.bytes_in += len(frame)
            return (frame,)

    def send(self, frame: bytes) -> None:
        """Sends a frame; one that the interface does not take is counted."""
        try:
            self._out.send(frame)
        except OSError:
            self.counters.unsent += 1
        else:
            self.counters.packets_out += 1
            self.counters.bytes_out += len(frame)

    def clear_error(self) -> None:
        """Logs the error, such as that the interface went down."""
        error = self._in.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            _log.warning("interface %s: %s", self.name, os.strerror(error))

    def update(self) -> None:
        """Reads from the kernel how many frames it dropped."""
        _, dropped = struct.unpack("=II", self._in.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        self.counters.overflows += dropped

    def close(self) -> None:
        """Closes the sockets; the interface leaves promiscuous mode with them."""
        self._resources.close()

    def _receive_queued(self) -> bytes:
        """A frame that was too long for the ring; the kernel queues them in the order of their places in the ring."""
        while True:
            try:
                return self._in.recv(_QUEUED_BYTES, socket.MSG_DONTWAIT)[VNET_HEADER_BYTES:]
            except BlockingIOError:
                return b""
            except OSError as error:  # the interface's, which the socket reports once and before any frame
                _log.warning("interface %s: %s", self.name, error.strerror)

    def _segmented(self, frame: bytes, vnet_header: bytes) -> list[bytes]:
        found = segments(frame, vnet_header)
        if not found:
            self.counters.unsegmented += 1
            if self.counters.unsegmented == 1:
                _, kind, _, size, _, _ = VNET.unpack(vnet_header)
                _log.warning(
                    "interface %s: a frame that holds several packets came in and was dropped, since only TCP and UDP "
                    "directly in IP are segmented here (its GSO type is %d, the size %d); have the sender do it: "
                    "ethtool -K INTERFACE tso off gso off",
                    self.name,
                    kind,
                    size,
                )
        return found

    def _warn_of_length(self, length: int) -> None:
        self.counters.oversized += 1
        if self.counters.oversized == 1:
            _log.warning(
                "interface %s: a frame of %d bytes came in and was dropped, since it is above the interface's MTU; "
                "set the same MTU at both ends of the link",
                self.name,
                length,
            )


class PairPort:
    """A port whose other end is in this process, for tests: frames are sent and received on `peer`, a socket."""

    def __init__(self) -> None:
        self.counters = PortCounters()
        self._socket, self.peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)

    def fileno(self) -> int:
        """Readable when a frame is there."""
        return self._socket.fileno()

    def receive(self) -> Sequence[bytes]:
        """The next frame; none if there is none."""
        try:
            frame = self._socket.recv(1 << 16)
        except (BlockingIOError, ConnectionResetError):
            return ()
        if not frame:
            return ()
        self.counters.packets_in += 1
        self.counters.bytes_in += len(frame)
        return (frame,)

    def send(self, frame: bytes) -> None:
        """Sends a frame; it is counted as unsent if the other end does not read."""
        try:
            self._socket.send(frame)
        except OSError:
            self.counters.unsent += 1
        else:
            self.counters.packets_out += 1
            self.counters.bytes_out += len(frame)

    def clear_error(self) -> None:
        """Nothing to do: there are no errors but the end."""

    def update(self) -> None:
        """Nothing to do: all counters are kept frame by frame."""

    def close(self) -> None:
        """Closes both ends."""
        self._socket.close()
        self.peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
