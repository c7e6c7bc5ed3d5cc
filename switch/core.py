"""The switch without sockets: which source is which rank of which job, and what its packets lead to."""

import ipaddress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.constants import SlotEvent
from protocol.packets import Address, PacketBatch
from switch.dataplane import Counter, JobSpec, StalledSlot
from switch.pump_kernels import PORT
from switch.slots import Aggregator, Result

_BYTES: Final = ("bytes_in", "bytes_out")


class Member:
    """One rank of one job, or the parent of a leaf.

    Attributes:
        flow: a number of its own among the members of all jobs, for the fault injector.
        record: its PORT, which compiled code shares.
    """

    def __init__(self, *, job: "Job", rank: int, address: Address, flow: int, record: Any) -> None:
        self.job, self.rank, self.address, self.flow, self.record = job, rank, address, flow, record
        record["job"], record["rank"], record["heard"] = job.aggregator.address, rank, -1.0
        record["host"], record["port"] = int(ipaddress.IPv4Address(address[0])), address[1]

    @property
    def heard(self) -> float | None:
        """When its last packet came, by the monotonic clock, or None."""
        at = float(self.record["heard"])
        return None if at < 0 else at


class Job:
    """One job: its slots and its members by rank.

    Attributes:
        members: by rank.
        parent: of a leaf.
        ends: the members, and the parent after them.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        uplink, ranks = spec.uplink, len(spec.workers)
        self.aggregator = Aggregator(
            job=spec.number,
            ranks=ranks,
            slots=spec.slots,
            values=spec.values,
            parent_job=None if uplink is None else uplink.job,
        )
        self._ports = np.zeros(ranks + 1, PORT)
        self.aggregator.record["ports"] = self._ports.ctypes.data
        self.members = tuple(self._member(rank, address) for rank, address in enumerate(spec.workers))
        self.parent = None if uplink is None else self._member(ranks, uplink.parent)
        self.ends = self.members if self.parent is None else (*self.members, self.parent)

    def _member(self, number: int, address: Address) -> Member:
        flow = self.spec.number << 8 | number
        return Member(job=self, rank=number, address=address, flow=flow, record=self._ports[number])

    def port_address(self, member: Member) -> int:
        """Where the PORT of a member stands in memory."""
        return int(self._ports.ctypes.data) + member.rank * PORT.itemsize

    def outgoing(self, result: Result) -> "Outgoing":
        """A result with the members it goes to."""
        return Outgoing(result.batch, self.members if result.rank is None else (self.ends[result.rank],))

    def counters(self) -> list[tuple[str, int | None, int]]:
        """(name, rank, value) of all that is counted for each member.

        A switch below is named by the first of its ranks, the parent by None.
        """
        counted: npt.NDArray[np.int64] = self.aggregator.counters[: len(self.ends)]
        ranks = [None if end is self.parent else self.spec.ranks_below(end.rank)[0] for end in self.ends]
        rows: list[tuple[str, int | None, int]] = []
        for event in SlotEvent:
            rows.extend((event.counter, rank, int(row[event])) for rank, row in zip(ranks, counted, strict=True))
        for end, rank in zip(self.ends, ranks, strict=True):
            rows.extend((name, rank, int(end.record[name])) for name in _BYTES)
        return rows


class Outgoing(NamedTuple):
    """Packets for some members; a view that the next call overwrites."""

    batch: PacketBatch
    members: tuple[Member, ...]


class SwitchCore:
    """Jobs side by side, each with slots of its own."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.members: dict[Address, Member] = {}
        self.unknown_source = 0
        self.empty = 0
        self.unsent = 0  # packets for which the sockets of jobs that have ended had no room
        self._ended: dict[str, int] = {}
        self._waiting: dict[Job, None] = {}  # jobs with results that wait for more

    def add_job(self, spec: JobSpec) -> Job:
        """Installs a job. An address that stands in an older job belongs to the new one from now on."""
        if spec.number in self.jobs:
            raise ValueError(f"job number {spec.number} is taken by job {self.jobs[spec.number].spec.name!r}")
        job = self.jobs[spec.number] = Job(spec)
        self.members.update((member.address, member) for member in job.members)
        return job

    def remove_job(self, number: int) -> Job | None:
        """Removes a job; its packets come from unknown sources afterwards."""
        job = self.jobs.pop(number, None)
        if job is None:
            return None
        self._waiting.pop(job, None)
        for member in job.members:
            if self.members.get(member.address) is member:
                del self.members[member.address]
        for name, _, value in job.counters():
            self._ended[name] = self._ended.get(name, 0) + value
        for member in job.ends:
            self.unknown_source += int(member.record["strangers"])
            self.empty += int(member.record["empty"])
            self.unsent += int(member.record["unsent"])
        return job

    def receive(self, batch: PacketBatch, source: Address, now: float) -> list[Outgoing]:
        """Takes a batch of packets from one source.

        Returns:
            results that fill a batch. Others wait for more, until `flush`.
        """
        member = self.members.get(source)
        if member is None:
            self.unknown_source += max(1, len(batch))
            return []
        return self.receive_from(member, batch, now)

    def receive_from(self, member: Member, batch: PacketBatch, now: float) -> list[Outgoing]:
        """Takes a batch of packets from a member, as `receive` does.

        A parent may be that of several jobs, so that its address does not name it.
        """
        size = batch.size
        if not size:
            self.empty += 1
            return []
        member.record["heard"] = now
        member.record["bytes_in"] += size
        job = member.job
        results = job.aggregator.add(batch, member.rank)
        if job.aggregator.waiting >= job.aggregator.full_batch:
            results += job.aggregator.take()
        elif job.aggregator.waiting:
            self._waiting[job] = None
        return [job.outgoing(result) for result in results]

    def flush(self) -> list[Outgoing]:
        """The results that wait; call it when no more packets are there to be received."""
        if not self._waiting:
            return []
        jobs, self._waiting = self._waiting, {}
        return [job.outgoing(result) for job in jobs for result in job.aggregator.take()]

    def stalled(self, number: int) -> list[StalledSlot]:
        """Slots of a job that wait for some of its ranks."""
        job = self.jobs.get(number)
        return [] if job is None else job.aggregator.open_slots()

    def statistics(self) -> list[Counter]:
        """Counters of each rank of each job, and totals of the switch, which include the jobs that have ended."""
        rows: list[Counter] = []
        totals = dict.fromkeys((*(event.counter for event in SlotEvent), *_BYTES), 0) | self._ended
        for number, job in sorted(self.jobs.items()):
            for name, rank, value in job.counters():
                rows.append(Counter(name=name, job=job.spec.name, job_number=number, rank=rank, value=value))
                totals[name] += value
        records = [member.record for job in self.jobs.values() for member in job.ends]
        totals["unknown_source"] = self.unknown_source + sum(int(record["strangers"]) for record in records)
        totals["empty"] = self.empty + sum(int(record["empty"]) for record in records)
        totals["send_overflows"] = self.unsent + sum(int(record["unsent"]) for record in records)
        rows.extend(
            Counter(name=name, job=None, job_number=None, rank=None, value=value) for name, value in totals.items()
        )
        return rows
