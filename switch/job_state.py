"""A job and its ranks. Only `switch.jobs` and `switch.job_endings` change them."""

from dataclasses import dataclass, field
from enum import Enum

from protocol.packets import Address
from switch.admission import JoinWish, ranks_by_source
from switch.inquiry import Inquiry
from switch.job_events import JobStatus, RunningJob


class State(Enum):
    """Of a job; the values are for people.

    - waiting: some ranks have joined. Nothing is reserved yet.
    - installing: all ranks have joined; number and slots are taken. The data plane is being told, then those of leaf
      switches: their joins are answered, and the others' are once a watch is open for each rank below them.
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
        answered: whether its join was.
        watching: whether its watch was opened.
    """

    membership: int
    wish: JoinWish
    deadline: float | None
    left: bool = False
    answered: bool = False
    watching: bool = False

    @property
    def name(self) -> str:
        """Rank and address, for messages."""
        return self.wish.name


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

    @property
    def below(self) -> dict[Address, tuple[int, ...]]:
        """The ranks behind each address that sends to this switch, in the order of the lowest of them."""
        return ranks_by_source(member.wish for member in self.members.values())

    @property
    def awaited(self) -> list[Member]:
        """Ranks below leaf switches for which no watch is open yet."""
        return [member for member in self.active if member.wish.via is not None and not member.watching]

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
            below=tuple(self.below.values()),
            leaves=frozenset(
                number
                for number, ranks in enumerate(self.below.values())
                if self.members[ranks[0]].wish.via is not None
            ),
        )
