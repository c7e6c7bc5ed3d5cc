"""What the control service tells a worker, as plain values."""

from dataclasses import dataclass, field
from typing import Final

from protocol import control_pb2 as pb

_SLOTS_SHOWN: Final = 3


@dataclass(frozen=True, kw_only=True)
class SwitchInfo:
    """What a switch has to offer.

    Attributes:
        data_host: where to send packets.
        total_slots: slots of 256 values, shared by all jobs.
        max_ranks: the largest world size.
        values_supported: numbers of values per packet.
    """

    protocol_version: int
    data_host: str
    data_port: int
    total_slots: int
    free_slots: int
    max_ranks: int
    values_supported: tuple[int, ...]

    @classmethod
    def from_reply(cls, reply: pb.DescribeReply, data_host: str) -> "SwitchInfo":
        """The values in a message, with `data_host` as this worker must address it."""
        return cls(
            protocol_version=reply.protocol_version,
            data_host=data_host,
            data_port=reply.data_port,
            total_slots=reply.total_slots,
            free_slots=reply.free_slots,
            max_ranks=reply.max_ranks,
            values_supported=tuple(reply.values_supported),
        )


@dataclass(frozen=True, kw_only=True)
class Membership:
    """A rank's place in a job.

    Attributes:
        job_number: what packets carry.
        slots: the pool that was granted, a power of two; at most what was asked for.
        token: by which the switch knows this worker.
    """

    token: int = field(repr=False)
    job: str
    rank: int
    world_size: int
    job_number: int
    slots: int
    values: int


@dataclass(frozen=True, kw_only=True)
class StalledSlot:
    """A slot that some ranks have sent to and others have not: `seen` and `missing`."""

    slot: int
    chunk: int
    seen: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RankState:
    """A rank as the switch sees it.

    Attributes:
        address: of its UDP socket.
        last_heard: seconds since its last packet; None: never heard.
        left: whether it left the job.
    """

    address: str
    last_heard: float | None
    left: bool


@dataclass(frozen=True, kw_only=True)
class StallReport:
    """Why a job does not move on.

    Attributes:
        slots: those that wait for some rank.
        ranks: by rank.
    """

    job: str
    slots: tuple[StalledSlot, ...]
    ranks: tuple[RankState, ...]

    @classmethod
    def from_reply(cls, reply: pb.StallReply, job: str) -> "StallReport":
        """The values in a message."""
        return cls(
            job=job,
            slots=tuple(
                StalledSlot(slot=slot.slot, chunk=slot.chunk, seen=tuple(slot.seen), missing=tuple(slot.missing))
                for slot in reply.slots
            ),
            ranks=tuple(
                RankState(
                    address=state.address,
                    last_heard=state.last_heard if state.HasField("last_heard") else None,
                    left=state.left,
                )
                for state in reply.ranks
            ),
        )

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that some slot waits for."""
        return tuple(sorted({rank for slot in self.slots for rank in slot.missing}))

    def describe(self) -> str:
        """The report as a sentence or two for users."""
        if not self.slots:
            heard = "; ".join(f"rank {rank} {_heard(state)}" for rank, state in enumerate(self.ranks))
            return f"the switch waits for no rank in any slot of job {self.job!r}: {heard}"
        ranks = "; ".join(f"rank {rank} ({_describe(self.ranks[rank])})" for rank in self.missing)
        slots = ", ".join(
            f"slot {slot.slot} (chunk {slot.chunk}) has {_ranks(slot.seen)} and lacks {_ranks(slot.missing)}"
            for slot in self.slots[:_SLOTS_SHOWN]
        )
        more = len(self.slots) - _SLOTS_SHOWN
        return f"the switch waits for {ranks}. {slots}{f', and {more} more slots' if more > 0 else ''}"


@dataclass(frozen=True, kw_only=True)
class CounterRow:
    """One number of the switch's statistics; a field that does not apply is None."""

    name: str
    job: str | None
    job_number: int | None
    rank: int | None
    value: int


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """A job of the switch; `number` is None, and `slots` 0, while ranks are missing."""

    name: str
    number: int | None
    state: str
    world_size: int
    joined: tuple[int, ...]
    slots: int
    values: int


@dataclass(frozen=True, kw_only=True)
class SwitchReport:
    """Jobs and counters of a switch; slots are of 256 values."""

    jobs: tuple[JobRow, ...]
    counters: tuple[CounterRow, ...]
    total_slots: int
    free_slots: int

    @classmethod
    def from_reply(cls, reply: pb.StatisticsReply) -> "SwitchReport":
        """The values in a message."""
        return cls(
            jobs=tuple(
                JobRow(
                    name=job.name,
                    number=job.number if job.HasField("number") else None,
                    state=job.state,
                    world_size=job.world_size,
                    joined=tuple(job.joined),
                    slots=job.slots,
                    values=job.values,
                )
                for job in reply.jobs
            ),
            counters=tuple(
                CounterRow(
                    name=counter.name,
                    job=counter.job if counter.HasField("job") else None,
                    job_number=counter.job_number if counter.HasField("job_number") else None,
                    rank=counter.rank if counter.HasField("rank") else None,
                    value=counter.value,
                )
                for counter in reply.counters
            ),
            total_slots=reply.total_slots,
            free_slots=reply.free_slots,
        )


def _heard(state: RankState) -> str:
    heard = "never sent a packet" if state.last_heard is None else f"sent its last packet {state.last_heard:.1f} s ago"
    return f"left the job, {heard}" if state.left else heard


def _describe(state: RankState) -> str:
    return f"{state.address}, {_heard(state)}"


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks)) or 'none'}"
