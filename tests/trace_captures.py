"""Captures for the tests of `wiresum trace`: frames and files built by hand, and an in-memory rack that is captured."""

import ipaddress
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from protocol.constants import DATA_PORT
from protocol.packets import PacketBatch
from tests.rack import Rack

SWITCH = "10.0.0.254"
ETHERNET, COOKED, COOKED_2, RAW = 1, 113, 276, 101


def worker(rank: int) -> str:
    """The rank's name in reports."""
    return f"10.0.0.{rank + 1}:{40000 + rank}"


@dataclass(frozen=True)
class Seen:
    """A UDP payload that passed a tap at a time in seconds."""

    at: float
    rank: int
    payload: bytes
    result: bool = False
    number: int = 0  # identification of the IP header
    port: int = DATA_PORT

    def network(self) -> bytes:
        """The IPv4 packet."""
        own, switch = (f"10.0.0.{self.rank + 1}", 40000 + self.rank), (SWITCH, self.port)
        source, destination = (switch, own) if self.result else (own, switch)
        udp = struct.pack(">HHHH", source[1], destination[1], 8 + len(self.payload), 0) + self.payload
        addresses = ipaddress.IPv4Address(source[0]).packed + ipaddress.IPv4Address(destination[0]).packed
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), self.number, 0x4000, 64, 17, 0) + addresses + udp

    def frame(self, link: int = ETHERNET, tags: int = 0) -> bytes:
        """The frame, with as many VLAN tags."""
        kind = b"".join(struct.pack(">HH", 0x8100, 5 + tag) for tag in range(tags)) + b"\x08\x00"
        if link == RAW:
            return self.network()
        if link == COOKED:
            return struct.pack(">HHH8s", 0, 1, 6, bytes(8)) + kind + self.network()
        if link == COOKED_2:
            # The type stands first, what follows a tag after the header.
            return kind[:2] + struct.pack(">HIHBB8s", 0, 7, 1, 0, 6, bytes(8)) + kind[2:] + self.network()
        return bytes(12) + kind + self.network()


def pcap(
    seen: Iterable[Seen],
    *,
    order: str = "<",
    nano: bool = True,
    link: int = ETHERNET,
    tags: int = 0,
    snap: int = 1 << 18,
    base: int = 1_700_000_000,
) -> bytes:
    """A pcap file."""
    file = [struct.pack(f"{order}IHHiIII", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, snap, link)]
    for each in seen:
        frame = each.frame(link, tags)
        seconds, fraction = divmod(base * 10**9 + round(each.at * 1e9), 10**9)
        fraction //= 1 if nano else 1000
        file.append(struct.pack(f"{order}IIII", seconds, fraction, min(snap, len(frame)), len(frame)) + frame[:snap])
    return b"".join(file)


def block(order: str, kind: int, body: bytes) -> bytes:
    """A block of a pcapng file."""
    body += bytes(-len(body) % 4)
    size = struct.pack(f"{order}I", 12 + len(body))
    return struct.pack(f"{order}I", kind) + size + body + size


def pcapng(
    seen: Iterable[Seen], *, order: str = "<", link: int = ETHERNET, nano: bool = True, base: int = 1_700_000_000
) -> bytes:
    """A pcapng file of one section and interface."""
    resolution = struct.pack(f"{order}HHB3x", 9, 1, 9) if nano else b""
    file = [
        block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1)),
        block(order, 1, struct.pack(f"{order}HHI", link, 0, 0) + resolution + bytes(4)),
    ]
    for each in seen:
        frame, ticks = each.frame(link), round(each.at * 1e9) + base * 10**9
        ticks //= 1 if nano else 1000
        head = struct.pack(f"{order}IIIII", 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame))
        file.append(block(order, 6, head + frame))
    return b"".join(file)


class CapturedRack(Rack):
    """A rack that is captured at the switch, and at each worker, as tcpdump would do it.

    A rank in `asleep` does nothing from a time until another: a straggler.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_switch: list[Seen] = []
        self.at_workers: list[list[Seen]] = [[] for _ in range(self.ranks)]
        self.asleep: dict[int, tuple[float, float]] = {}  # rank: from, until
        self._seen_so_far = 0

    def turn(self) -> bool:
        """As the rack does, but those that sleep do nothing."""
        moved = False
        for rank, each in enumerate(self.workers):
            start, until = self.asleep.get(rank, (0.0, 0.0))
            if start <= self.now < until:
                moved = True  # so that the clock goes on step by step
                continue
            each.handle_timer(self.now)
            while (batch := each.packets(self.now)) is not None:
                moved = True
                self.at_workers[rank] += [self._seen(rank, packet, result=False) for packet in batch]
                self._arrive(rank, self.upward.apply(batch, self.now, flow=rank))
        for flow, batch in self.upward.due(self.now):
            moved = True
            self._arrive(flow, batch)
        for flow, batch in self.downward.due(self.now):
            moved = True
            self._deliver(flow, batch)
        return moved

    def _seen(self, rank: int, packet: bytes, *, result: bool) -> Seen:
        self._seen_so_far += 1
        return Seen(self.now + self._seen_so_far * 1e-9, rank, packet, result)  # so that the order is never in doubt

    def _arrive(self, rank: int, batch: PacketBatch) -> None:
        self.at_switch += [self._seen(rank, packet, result=False) for packet in batch]
        for to, result in self.aggregator.receive(batch, rank):
            for receiver in range(self.ranks) if to is None else (to,):
                self.at_switch += [self._seen(receiver, packet, result=True) for packet in result]
                self._deliver(receiver, self.downward.apply(result, self.now, flow=receiver))

    def _deliver(self, rank: int, batch: PacketBatch) -> None:
        self.at_workers[rank] += [self._seen(rank, packet, result=True) for packet in batch]
        super()._deliver(rank, batch)


def save(folder: Path, name: str, contents: bytes) -> Path:
    """Writes a file."""
    path = folder / name
    path.write_bytes(contents)
    return path
