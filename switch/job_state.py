"""A job and its ranks. Only `switch.jobs` changes them."""

from dataclasses import dataclass, field
from enum import Enum

from protocol.control import format_address
from switch.admission import JoinWish
from switch.inquiry import Inquiry
from switch.job_events import JobStatus, RunningJob


class State(Enum):
    """Of a job; the values are for people.

    - waiting: some ranks have joined. Nothing is reserved yet.
    - installing: all ranks have joined; number and slots are taken, and the data plane is being told.
    - running: every rank's join was answered. Each rank keeps a watch open until it leaves.
    """

    WAITING = "waiting"
    INSTALLING = "installing"
    RUNNING = "running"


@dataclass(kw_only=True)
class Member:
    """A rank in a job, also after it has left.

    Attributes:
        membership: the number by which calls name it.
        deadline: when the rendezvous must be complete, then when the watch must be open; None: neither is pending.
    """

    membership: int
    wish: JoinWish
    deadline: float | None
    left: bool = False

    @property
    def name(self) -> str:
        """Rank and address, for messages."""
        return f"rank {self.wish.rank} ({format_address(self.wish.address)})"


@dataclass(kw_only=True)
class Job:
    """A job with its ranks.

    Attributes:
        number: None until all ranks have joined.
        slots: granted pool; 0 until all ranks have joined.
        notes: while waiting, why a rank that had come is not here.
    """

    name: str
    world_size: int
    values: int
    state: State = State.WAITING
    number: int | None = None
    slots: int = 0
    members: dict[int, Member] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    inquiry: Inquiry | None = None

    @property
    def active(self) -> list[Member]:
        """Ranks that have not left, in order."""
        return [member for _, member in sorted(self.members.items()) if not member.left]

    def status(self) -> JobStatus:
        """The job as displays show it."""
        return JobStatus(
            name=self.name,
            number=self.number,
            world_size=self.world_size,
            joined=tuple(member.wish.rank for member in self.active),
            slots=self.slots,
            values=self.values,
            state=self.state.value,
        )

    def running(self) -> RunningJob | None:
        """What the diagnosis of a stall needs; None while ranks are missing."""
        if self.number is None:
            return None
        members = [member for _, member in sorted(self.members.items())]
        return RunningJob(
            number=self.number,
            workers=tuple(member.wish.address for member in members),
            left=frozenset(member.wish.rank for member in members if member.left),
        )
