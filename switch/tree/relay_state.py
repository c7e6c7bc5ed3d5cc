"""Jobs at a leaf switch: the ranks below it, each with a membership at the parent."""

import asyncio
import secrets
from dataclasses import dataclass, field
from itertools import count

from protocol import control_pb2 as pb
from protocol.errors import WiresumError
from protocol.packets import Address
from switch.admission import JoinWish, ranks_by_source
from switch.job_events import JobStatus


@dataclass(eq=False, kw_only=True)
class RelayMember:
    """A rank below a leaf switch.

    Attributes:
        membership: the number by which calls from below name it.
        upstream: its membership at the parent; 0 until that has answered.
        started: the answer to its join.
        mailbox: what its watch has to tell; None ends it.
        ready: when the parent's watch says that all switches have the job.
        watched: whether its watch was opened.
        over: whether it has left, died, or been told the last event.
        left: whether it has left by itself.
    """

    job: "RelayJob"
    wish: JoinWish
    membership: int = field(default_factory=lambda: secrets.randbits(63))
    upstream: int = 0
    started: "asyncio.Future[pb.JoinReply]"
    ready: "asyncio.Future[None]"
    mailbox: "asyncio.Queue[pb.Event | None]" = field(default_factory=asyncio.Queue)
    watched: bool = False
    over: bool = False
    left: bool = False

    @property
    def name(self) -> str:
        """Rank and address, for messages."""
        return self.wish.name

    @property
    def is_below_leaf(self) -> bool:
        """Whether another leaf switch stands between this one and the worker."""
        return self.wish.via is not None

    def tell(self, event: pb.Event | None) -> None:
        """Puts an event into the mailbox."""
        self.mailbox.put_nowait(event)


@dataclass(eq=False, kw_only=True)
class RelayJob:
    """A job as far as it is below a leaf switch.

    Attributes:
        key: a number of its own at this switch.
        promised: the pool that is kept free for it.
        room: the largest that there was room for when it came.
        opened: the uplink's own address and the parent's.
        members: by rank; also those that are over.
        expected: the ranks below this switch, once the parent has answered for one of them; else empty.
        parent_number: the parent's number of the job.
        complete: when the parent has answered for all of them.
        leaves_ready: when a watch is open for each rank below a further leaf.
        number: None until the data plane is told.
    """

    name: str
    world_size: int
    values: int
    key: int = field(default_factory=count().__next__)
    promised: int
    room: int
    opened: "asyncio.Future[tuple[Address, Address]]"
    complete: "asyncio.Future[None]"
    leaves_ready: "asyncio.Future[None]"
    members: dict[int, RelayMember] = field(default_factory=dict)
    expected: frozenset[int] = frozenset()
    parent_number: int = 0
    number: int | None = None
    slots: int = 0
    state: str = "waiting"

    @classmethod
    def of(
        cls, wish: JoinWish, opened: "asyncio.Future[tuple[Address, Address]]", *, promised: int, room: int
    ) -> "RelayJob":
        """The job that a first rank wishes for."""
        loop = asyncio.get_running_loop()
        return cls(
            name=wish.job,
            world_size=wish.world_size,
            values=wish.values,
            promised=promised,
            room=room,
            opened=opened,
            complete=loop.create_future(),
            leaves_ready=loop.create_future(),
        )

    def enter(self, wish: JoinWish) -> RelayMember:
        """A new member."""
        loop = asyncio.get_running_loop()
        member = RelayMember(job=self, wish=wish, started=loop.create_future(), ready=loop.create_future())
        self.members[wish.rank] = member
        return member

    @property
    def active(self) -> list[RelayMember]:
        """Members that are not over, by rank."""
        return [member for _, member in sorted(self.members.items()) if not member.over]

    @property
    def below(self) -> dict[Address, tuple[int, ...]]:
        """The ranks behind each address that sends to this switch, in the order of the lowest of them."""
        return ranks_by_source(member.wish for member in self.members.values())

    def answered(self, member: RelayMember, reply: pb.JoinReply) -> None:
        """The parent has answered for a member."""
        member.upstream = reply.membership
        self.expected, self.parent_number, self.slots = frozenset(reply.ranks), reply.job_number, reply.slots
        there = {rank for rank, one in self.members.items() if one.upstream}
        if self.expected <= there and not self.complete.done():
            self.complete.set_result(None)

    def check_leaves(self) -> None:
        """To be called when a watch was opened."""
        leaves = [member for member in self.active if member.is_below_leaf]
        if all(member.watched for member in leaves) and not self.leaves_ready.done():
            self.leaves_ready.set_result(None)

    def fail_waits(self, error: WiresumError) -> None:
        """Ends what waits for the job to begin."""
        for future in (self.complete, self.leaves_ready):
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody may be waiting any more

    def status(self) -> JobStatus:
        """The job as displays show it."""
        return JobStatus(
            name=self.name,
            number=self.number,
            world_size=self.world_size,
            joined=tuple(member.wish.rank for member in self.active),
            slots=self.slots if self.number is not None else 0,
            values=self.values,
            state=self.state,
        )
