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
        members: number of each worker, and of a leaf's parent after them, among those of all jobs.
        neighbours: where each of them is.
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
        ranks = self.ranks
        self.packets, self.bytes, self.heard = [0] * ranks, [0] * ranks, [None] * ranks

    @property
    def ranks(self) -> int:
        """Workers, and switches below."""
        return len(self.spec.workers)

    def group(self, program: WiresumProgram) -> Any:
        """Its multicast group."""
        workers = zip(self.neighbours[: self.ranks], self.members[: self.ranks], strict=True)
        return program.job_group(self.spec.number, [(neighbour.port, member) for neighbour, member in workers])

    def member_entries(self, program: WiresumProgram) -> list[Any]:
        """Where its results go and, of a leaf, its partial results, and how the parent's results are known."""
        entries = [
            program.member(self.members[rank], address, self.neighbours[rank].mac, job=self.spec.number)
            for rank, address in enumerate(self.spec.workers)
        ]
        uplink = self.spec.uplink
        if uplink is not None:
            up, mac = self.members[-1], self.neighbours[-1].mac
            entries += [
                program.member(up, uplink.parent, mac, job=uplink.job, own_port=uplink.address[1]),
                program.parent(
                    uplink,
                    member=up,
                    local=self.spec.number,
                    ranks=self.ranks,
                    base=self.base,
                    slots=self.spec.slots,
                ),
            ]
        return entries

    def worker_entry(self, program: WiresumProgram, rank: int) -> Any:
        """How the packets of a rank are known."""
        return program.worker(
            self.spec.workers[rank],
            member=self.members[rank],
            job=self.spec.number,
            rank=rank,
            ranks=self.ranks,
            base=self.base,
            slots=self.spec.slots,
            port=self.neighbours[rank].port,
            up=None if self.spec.uplink is None else (self.members[-1], self.neighbours[-1].port),
        )

    def heed(self, rank: int, packets: int, size: int, now: float) -> None:
        """Takes what was read of a rank's packets and their bytes, at a time in seconds."""
        if packets > self.packets[rank]:
            self.heard[rank] = now
        self.packets[rank], self.bytes[rank] = packets, size

    def contributions(self, cells: Mapping[int, int]) -> list[int]:
        """Chunks that each rank has contributed to, from the counters by their index."""
        return [self._since(event_index(member, "contributions"), cells) for member in self.members[: self.ranks]]

    def counters(self, cells: Mapping[int, int]) -> Iterator[Counter]:
        """All that is counted for each member.

        A switch below is named by the first of its ranks, a parent by None.
        """
        name, number = self.spec.name, self.spec.number
        for place, member in enumerate(self.members):
            counted = {event: self._since(event_index(member, event), cells) for event in EVENTS.values()}
            rank = None
            if place < self.ranks:
                rank = self.spec.ranks_below(place)[0]
                counted["received"] = self.packets[place]
                counted["bytes_in"] = self.bytes[place] - _HEADERS * self.packets[place]
            for what, value in counted.items():
                yield Counter(name=what, job=name, job_number=number, rank=rank, value=value)

    def _since(self, index: int, cells: Mapping[int, int]) -> int:
        return cells.get(index, 0) - self.before.get(index, 0)


Owners = dict[Address, tuple[InstalledJob, int]]  # whose packets come from an address: job and rank
