"""Jobs as the controller has installed them, and what it has read of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.packets import Address
from switch.controller.program import EVENTS, WiresumProgram, event_index
from switch.dataplane import Counter, JobSpec

_HEADERS: Final = 14 + 20 + 8  # bytes before the UDP payload, which is what the software switch counts


@dataclass(frozen=True)
class Neighbour:
    """Where a host is."""

    mac: int
    port: int


@dataclass(eq=False, kw_only=True)
class InstalledJob:
    """A job on the target.

    Attributes:
        base: first slot of its pool.
        members: number of each rank among those of all jobs.
        neighbours: where each rank is.
        before: the counters of its members before it began, by their index.
        packets, bytes: received from each rank, as last read; with all headers.
        heard: when `packets` was last seen to grow, by rank.
    """

    spec: JobSpec
    base: int
    members: tuple[int, ...]
    neighbours: tuple[Neighbour, ...]
    before: Mapping[int, int]
    packets: list[int] = field(init=False)
    bytes: list[int] = field(init=False)
    heard: list[float | None] = field(init=False)

    def __post_init__(self) -> None:
        ranks = len(self.members)
        self.packets, self.bytes, self.heard = [0] * ranks, [0] * ranks, [None] * ranks

    def group(self, program: WiresumProgram) -> Any:
        """Its multicast group."""
        replicas = [(n.port, member) for n, member in zip(self.neighbours, self.members, strict=True)]
        return program.job_group(self.spec.number, replicas)

    def member_entries(self, program: WiresumProgram) -> list[Any]:
        """Where its results go."""
        return [
            program.member(member, address, neighbour.mac, job=self.spec.number)
            for member, address, neighbour in zip(self.members, self.spec.workers, self.neighbours, strict=True)
        ]

    def worker_entry(self, program: WiresumProgram, rank: int) -> Any:
        """How the packets of a rank are known."""
        return program.worker(
            self.spec.workers[rank],
            member=self.members[rank],
            job=self.spec.number,
            rank=rank,
            ranks=len(self.members),
            base=self.base,
            slots=self.spec.slots,
            port=self.neighbours[rank].port,
        )

    def heed(self, rank: int, packets: int, size: int, now: float) -> None:
        """Takes what was read of a rank's packets and their bytes, at a time in seconds."""
        if packets > self.packets[rank]:
            self.heard[rank] = now
        self.packets[rank], self.bytes[rank] = packets, size

    def contributions(self, cells: Mapping[int, int]) -> list[int]:
        """Chunks that each rank has contributed to, from the counters by their index."""
        return [self._since(event_index(member, "contributions"), cells) for member in self.members]

    def counters(self, cells: Mapping[int, int]) -> Iterator[Counter]:
        """All that is counted for each rank."""
        name, number = self.spec.name, self.spec.number
        for rank, member in enumerate(self.members):
            counted = {"received": self.packets[rank]}
            counted |= {event: self._since(event_index(member, event), cells) for event in EVENTS}
            counted["bytes_in"] = self.bytes[rank] - _HEADERS * self.packets[rank]
            for what, value in counted.items():
                yield Counter(name=what, job=name, job_number=number, rank=rank, value=value)

    def _since(self, index: int, cells: Mapping[int, int]) -> int:
        return cells.get(index, 0) - self.before.get(index, 0)


Owners = dict[Address, tuple[InstalledJob, int]]  # whose packets come from an address: job and rank
