"""The switch without sockets: which source is which rank of which job, and what its packets lead to."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.packets import Address, PacketBatch
from switch.dataplane import Counter, JobSpec, StalledSlot
from switch.slot_kernels import COUNTERS
from switch.slots import Aggregator, Result


@dataclass(slots=True, eq=False)
class Member:
    """One rank of one job.

    Attributes:
        flow: a number of its own among the members of all jobs, for the fault injector.
        heard: when its last packet came, or None.
    """

    job: "Job"
    rank: int
    address: Address
    flow: int
    heard: float | None = None
    bytes_in: int = 0
    bytes_out: int = 0


class Job:
    """One job: its slots and its members by rank."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.aggregator = Aggregator(job=spec.number, ranks=len(spec.workers), slots=spec.slots, values=spec.values)
        self.members = tuple(
            Member(job=self, rank=rank, address=address, flow=spec.number << 8 | rank)
            for rank, address in enumerate(spec.workers)
        )

    def outgoing(self, result: Result) -> "Outgoing":
        """A result with the members it goes to."""
        return Outgoing(result.batch, self.members if result.rank is None else (self.members[result.rank],))

    def counters(self) -> list[tuple[str, int, int]]:
        """(name, rank, value) of all that is counted for each rank."""
        counted: npt.NDArray[np.int64] = self.aggregator.counters
        rows = [(name, rank, int(counted[rank, i])) for i, name in enumerate(COUNTERS) for rank in range(len(counted))]
        for member in self.members:
            rows.append(("bytes_in", member.rank, member.bytes_in))
            rows.append(("bytes_out", member.rank, member.bytes_out))
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
        size = batch.size
        if not size:
            self.empty += 1
            return []
        member.heard = now
        member.bytes_in += size
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
        totals = dict.fromkeys((*COUNTERS, "bytes_in", "bytes_out"), 0) | self._ended
        for number, job in sorted(self.jobs.items()):
            for name, rank, value in job.counters():
                rows.append(Counter(name=name, job=job.spec.name, job_number=number, rank=rank, value=value))
                totals[name] += value
        totals["unknown_source"] = self.unknown_source
        totals["empty"] = self.empty
        rows.extend(
            Counter(name=name, job=None, job_number=None, rank=None, value=value) for name, value in totals.items()
        )
        return rows
