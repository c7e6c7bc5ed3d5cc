"""Ports of the programmable switch that move frames: network interfaces, and pairs of sockets for tests."""

import fcntl
import logging
import re
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, Self

from switch.model.errors import ModelError
from switch.model.offloads import VNET_HEADER_BYTES, with_checksum, with_vlan_tag
from switch.model.replication import MAX_PORT

_log = logging.getLogger(__name__)

# Linux's numbers (linux/if_packet.h, linux/if_ether.h, linux/sockios.h) that Python's socket module does not have.
_SOL_PACKET: Final = 263
_ADD_MEMBERSHIP: Final = 1
_STATISTICS: Final = 6
_AUXDATA: Final = 8
_VNET_HEADER: Final = 15
_IGNORE_OUTGOING: Final = 23
_PROMISCUOUS: Final = 1
_ALL_PROTOCOLS: Final = 3
_GET_MTU: Final = 0x8921
_SO_RCVBUFFORCE: Final = 33

_BUFFER_BYTES: Final = 8 << 20
_CONTROL_BYTES: Final = 256
_LONGEST_HEADER: Final = 14 + 8  # Ethernet with two VLAN tags
_SPEC: Final = re.compile(r"(\d+)@(\S+)")


@dataclass
class PortCounters:
    """Of one port, since it was opened.

    Attributes:
        unsent: frames that the interface did not take: its queue was full, it was down, or they were too long for it.
        overflows: frames that the kernel dropped because the switch did not keep up.
        oversized: frames above the MTU that came in and were dropped: the sender left segmentation to hardware.
    """

    packets_in: int = 0
    bytes_in: int = 0
    packets_out: int = 0
    bytes_out: int = 0
    unsent: int = 0
    overflows: int = 0
    oversized: int = 0


class Core(Protocol):
    """What ports need of a switch; `ModelSwitch` is one."""

    def receive(self, port: int, packet: bytes, now: float) -> list[tuple[int, bytes]]:
        """Takes a packet at `now` seconds and returns what leaves, as (port, packet)."""


class Port(Protocol):
    """Where frames come from and go to. None of the methods waits."""

    counters: PortCounters

    def fileno(self) -> int:
        """A descriptor that is readable when a frame is there."""

    def receive(self) -> bytes | None:
        """The next frame, or None."""

    def send(self, frame: bytes) -> None:
        """Sends a frame, or counts it as unsent."""

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
    """A network interface in promiscuous mode.

    Checksums that the sender's kernel left to hardware are filled in and VLAN tags are put back, so that veth pairs
    work as they come. Frames that still wait for segmentation are dropped and counted; a warning names the remedy.

    Raises:
        ModelError: there is no such interface, or no right to open it (CAP_NET_RAW).
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.counters = PortCounters()
        try:
            self._in = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self._out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        except PermissionError:
            raise ModelError(f"interface {name!r} needs root, or the capability CAP_NET_RAW") from None
        try:
            self._open(name)
        except OSError as error:
            self.close()
            raise ModelError(f"interface {name!r} cannot be opened: {error.strerror}") from error

    def _open(self, name: str) -> None:
        index = socket.if_nametoindex(name)
        self._in.setsockopt(_SOL_PACKET, _AUXDATA, 1)
        self._in.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
        self._in.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        try:
            self._in.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        except PermissionError:
            self._in.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._in.bind((name, _ALL_PROTOCOLS))  # only now: before, frames of other interfaces would come as well
        self._in.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, struct.pack("=IHH8x", index, _PROMISCUOUS, 0))
        self._out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        self._out.bind((name, 0))
        request = fcntl.ioctl(self._in, _GET_MTU, struct.pack("16si12x", name.encode(), 0))
        self._longest = struct.unpack_from("i", request, 16)[0] + _LONGEST_HEADER
        for each in (self._in, self._out):
            each.setblocking(False)

    def fileno(self) -> int:
        """Readable when a frame is there."""
        return self._in.fileno()

    def receive(self) -> bytes | None:
        """The next frame, or None; also when the interface is down."""
        while True:
            try:
                data, control, flags, _ = self._in.recvmsg(self._longest + VNET_HEADER_BYTES, _CONTROL_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                _log.warning("interface %s: %s", self.name, error.strerror)
                return None
            if flags & socket.MSG_TRUNC:
                self._warn_of_segmentation()
                continue
            frame = with_checksum(data[VNET_HEADER_BYTES:], data[:VNET_HEADER_BYTES])
            for level, kind, auxdata in control:
                if level == _SOL_PACKET and kind == _AUXDATA:
                    frame = with_vlan_tag(frame, auxdata)
            self.counters.packets_in += 1
            self.counters.bytes_in += len(frame)
            return frame

    def send(self, frame: bytes) -> None:
        """Sends a frame; one that the interface does not take is counted."""
        try:
            self._out.send(frame)
        except OSError:
            self.counters.unsent += 1
        else:
            self.counters.packets_out += 1
            self.counters.bytes_out += len(frame)

    def update(self) -> None:
        """Reads from the kernel how many frames it dropped."""
        _, dropped = struct.unpack("=II", self._in.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        self.counters.overflows += dropped

    def close(self) -> None:
        """Closes the sockets; the interface leaves promiscuous mode with them."""
        self._in.close()
        self._out.close()

    def _warn_of_segmentation(self) -> None:
        self.counters.oversized += 1
        if self.counters.oversized == 1:
            _log.warning(
                "interface %s: a frame above its MTU came in and was dropped. The sender leaves segmentation to "
                "hardware; turn that off there: ethtool -K INTERFACE tso off gso off",
                self.name,
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

    def receive(self) -> bytes | None:
        """The next frame, or None."""
        try:
            frame = self._socket.recv(1 << 16)
        except (BlockingIOError, ConnectionResetError):
            return None
        if not frame:
            return None
        self.counters.packets_in += 1
        self.counters.bytes_in += len(frame)
        return frame

    def send(self, frame: bytes) -> None:
        """Sends a frame; it is counted as unsent if the other end does not read."""
        try:
            self._socket.send(frame)
        except OSError:
            self.counters.unsent += 1
        else:
            self.counters.packets_out += 1
            self.counters.bytes_out += len(frame)

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
