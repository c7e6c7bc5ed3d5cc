"""How jobs begin and end at a leaf switch. `switch.tree.relay` has the calls that lead to it."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, TypeVar

from protocol import control_pb2 as pb
from protocol.constants import MAX_SLOTS, MAX_WORLD
from protocol.control import SHUTTING_DOWN
from protocol.control_events import error_of
from protocol.control_grpc import grpc
from protocol.errors import JoinRefusedError, PeerLostError, WiresumError
from protocol.packets import Address
from switch.admission import (
    JobNumbers,
    JoinWish,
    SlotBudget,
    check_against,
    check_alone,
    check_sources,
    check_width,
    least_slots,
)
from switch.control_messages import is_last
from switch.dataplane import JobSpec, LeafPlane, Uplink
from switch.jobs import WATCH_GRACE
from switch.service_base import DRAIN_INTERVAL, ServiceBase
from switch.tree.parent import Parent, upward
from switch.tree.relay_state import RelayJob, RelayMember

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class RelayJobs(ServiceBase[LeafPlane]):
    """The jobs of a leaf switch. Lives in one event loop; only `status` may be read from other threads."""

    def __init__(self, plane: LeafPlane, parent: str) -> None:
        super().__init__(plane)
        self._name = ""  # for messages: this switch's control address
        self._parent = Parent(parent)
        self._budget = SlotBudget(plane.total_slots, plane.default_slots)
        self._jobs: list[RelayJob] = []
        self._pending: dict[str, RelayJob] = {}  # those that the parent has not answered
        self._members: dict[int, RelayMember] = {}
        self._numbers = JobNumbers()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._draining: asyncio.Task[None] | None = None

    # A job begins

    def _admit(self, wish: JoinWish) -> RelayJob:
        """The job that a rank enters."""
        check_alone(wish, MAX_WORLD, self._plane.values_supported)
        job = self._pending.get(wish.job)
        present = [] if job is None else [member.wish for member in job.active]
        if present:
            check_against(wish, present, running=False)
        check_sources(wish, present, [member.wish for job in self._jobs for member in job.active])
        if job is not None:
            self._budget.give_back(job.key)
        try:
            self._budget.check(wish.job, least_slots((*present, wish)), wish.values)
            if job is None:
                job = self._new_job(wish)
        finally:
            if job is not None:
                self._budget.take(job.key, job.name, job.promised, job.values)
        return job

    def _new_job(self, wish: JoinWish) -> RelayJob:
        promised = min(wish.slots or self._budget.default(wish.values, wish.most_slots), wish.room or MAX_SLOTS)
        job = RelayJob.of(wish, self._spawn(self._open(wish)), promised=promised, room=self._budget.room(wish.values))
        self._pending[wish.job] = job
        self._jobs.append(job)
        return job

    async def _open(self, wish: JoinWish) -> tuple[Address, Address]:
        above = await self._parent.describe()
        parent = above.data_host, above.data_port
        return await self._ask(partial(self._plane.open_uplink, parent)), parent

    async def _join_parent(self, member: RelayMember) -> pb.JoinReply:
        """The parent's answer; or the error, if the job ends here before."""
        job = member.job
        via, _ = await asyncio.shield(job.opened)
        request = upward(member.wish, via=via, most_slots=job.promised, room=job.room)
        call = self._spawn(_awaited(self._parent.stub.Join(request)))
        try:
            await asyncio.wait((call, member.started), return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                return member.started.result()
            reply: pb.JoinReply = call.result()
        finally:
            call.cancel()
        if job.state == "waiting":
            job.state = "installing"
            del self._pending[job.name]
            self._spawn(self._begin(job))
        job.answered(member, reply)
        return reply

    async def _begin(self, job: RelayJob) -> None:
        """Makes a job run that the parent has taken."""
        try:
            async with asyncio.timeout(WATCH_GRACE):
                await job.complete
            await self._install(job)
            below = job.below
            for member in job.active:
                if member.wish.via is not None:
                    self._answer(member, ranks=below[member.wish.via])
            job.check_leaves()
            async with asyncio.timeout(WATCH_GRACE):
                await job.leaves_ready
            followed = job.active
            for member in followed:
                self._spawn(self._follow(member))
            for member in followed:
                await member.ready
        except TimeoutError:
            there = {m.wish.rank for m in job.active if m.upstream and (m.watched or not m.is_below_leaf)}
            rank = min(job.expected - there, default=min(job.expected))
            self._abandon(job, PeerLostError(f"rank {rank} of job {job.name!r} died just as the job began"))
        except WiresumError as error:
            self._abandon(job, error)
        else:
            job.state = "running"
            for member in job.active:
                if member.is_below_leaf:
                    member.tell(pb.Event(watching=pb.Watching()))
                else:
                    self._answer(member)
            self._settle(job)

    async def _install(self, job: RelayJob) -> None:
        """Takes number and slots, and tells the data plane."""
        if job not in self._jobs:
            raise PeerLostError(f"job {job.name!r} ended just as it began")
        check_width(job.name, len(job.below), self._budget.name)
        via, parent = job.opened.result()
        self._budget.give_back(job.key)
        try:
            self._budget.check(job.name, job.slots, job.values)
            job.promised = job.slots
        finally:
            self._budget.take(job.key, job.name, job.promised, job.values)
        number = job.number = self._numbers.free({one.number for one in self._jobs}, job.name, self._budget.name)
        below = job.below
        spec = JobSpec(
            number=number,
            name=job.name,
            slots=job.slots,
            values=job.values,
            workers=tuple(below),
            below=tuple(below.values()),
            uplink=Uplink(address=via, parent=parent, job=job.parent_number),
        )
        _log.info("job %r begins: number %d, %d slots, ranks %s", job.name, number, job.slots, sorted(job.members))
        try:
            await self._ask(partial(self._plane.add_job, spec))
        except Exception as error:
            if not isinstance(error, WiresumError):  # a fault of the switch
                _log.exception("the data plane could not add job %r", job.name)
            raise JoinRefusedError(f"{self._budget.name} could not set up job {job.name!r}: {error}") from None

    def _answer(self, member: RelayMember, ranks: tuple[int, ...] = ()) -> None:
        """Answers a join, and expects a watch."""
        assert member.job.number is not None
        if not member.started.done():
            member.started.set_result(
                pb.JoinReply(
                    membership=member.membership, job_number=member.job.number, slots=member.job.slots, ranks=ranks
                )
            )
        asyncio.get_running_loop().call_later(WATCH_GRACE, self._expect_watch, member)

    def _expect_watch(self, member: RelayMember) -> None:
        if not member.watched:
            self._lose(member, f"died: it opened no watch within {WATCH_GRACE:g} s after joining")
            self._members.pop(member.membership, None)

    # What the parent tells

    async def _follow(self, member: RelayMember) -> None:
        """Hands on what the parent's watch says of a member."""
        try:
            async for event in self._parent.stub.Watch(pb.WatchRequest(membership=member.upstream)):
                if event.HasField("watching"):
                    member.ready.set_result(None)
                else:
                    self._hand_on(member, event)
            text = f"the switch above it, at {self._parent.name}, ended job {member.job.name!r} without a reason"
        except grpc.aio.AioRpcError as error:
            text = str(self._parent.lost(error))
        if not member.over:
            text = f"the switch at {self._name} lost {text}"
            self._hand_on(member, pb.Event(switch_lost=pb.SwitchLost(text=text)))
        if not member.ready.done():
            member.ready.set_result(None)

    def _hand_on(self, member: RelayMember, event: pb.Event) -> None:
        if event.HasField("goodbye"):
            text = f"the switch at {self._name} lost the switch above it, at {self._parent.name}, which {SHUTTING_DOWN}"
            event = pb.Event(switch_lost=pb.SwitchLost(text=text))
        if not member.ready.done():
            if (error := error_of(event)) is not None:
                member.over = True
                member.ready.set_exception(error)
                member.ready.exception()  # one of them is enough
            return
        if member.over:
            return
        member.tell(event)
        if is_last(event):
            member.over = True
            self._settle(member.job)

    # A job ends

    def _watch_ended(self, member: RelayMember) -> None:
        self._members.pop(member.membership, None)
        leaf = ", or the leaf switch did that it was below" if member.is_below_leaf else ""
        self._lose(member, f"died{leaf}")

    def _lose(self, member: RelayMember, how: str) -> None:
        """A rank goes without leaving."""
        if member.over:
            return
        self._give_up(member, how)
        member.over = True
        if member.job.state == "installing":
            self._fail(member.job, PeerLostError(f"{member.name} of job {member.job.name!r} {how}"))
        self._settle(member.job)

    def _give_up(self, member: RelayMember, reason: str, *, refused: bool = False) -> None:
        """Tells the parent that a rank is not there any more, if it knows it."""
        if member.upstream:
            request = pb.LeaveRequest(membership=member.upstream, reason=reason, refused=refused)
            self._spawn(self._tell_parent("Leave", request))

    async def _tell_parent(self, call: str, request: Any) -> None:
        with contextlib.suppress(WiresumError):  # if the parent is gone, its watches say so
            await self._parent.call(getattr(self._parent.stub, call), request)

    def _abandon(self, job: RelayJob, error: WiresumError) -> None:
        """Gives a job up that has not begun, above and below."""
        refused = isinstance(error, JoinRefusedError)
        for member in job.active:
            self._give_up(member, str(error) if refused else "died", refused=refused)
        self._fail(job, error)

    def _fail(self, job: RelayJob, error: WiresumError, event: pb.Event | None = None) -> None:
        """Ends a job below this switch.

        Args:
            error: what joins are answered with.
            event: what watches tell; by default what tells the same.
        """
        job.fail_waits(error)
        if event is None:
            refused = isinstance(error, JoinRefusedError)
            text = str(error)
            event = pb.Event(refused=pb.Refused(text=text)) if refused else pb.Event(peer_lost=pb.PeerLost(text=text))
        for member in job.members.values():
            if not member.started.done():
                member.started.set_exception(error)
                member.started.exception()  # its call may be over
            elif not member.left:
                member.tell(event)
            member.over = True
        self._settle(job)

    def _settle(self, job: RelayJob) -> None:
        """To be called when a member is over or a job's state has changed."""
        self.status = [one.status() for one in self._jobs]
        if job in self._jobs and not job.active:
            self._jobs.remove(job)
            self._budget.give_back(job.key)
            if self._pending.get(job.name) is job:
                del self._pending[job.name]
            self.status = [one.status() for one in self._jobs]
            self._spawn(self._remove(job))
        if self._draining is None and any(self._blocked_ranks(one) for one in self._jobs):
            self._draining = self._spawn(self._watch_draining())

    async def _remove(self, job: RelayJob) -> None:
        """Takes a job from the data plane."""
        try:
            via, _ = await job.opened
        except WiresumError:
            return  # there never was an uplink
        try:
            if job.number is None:
                await self._ask(partial(self._plane.close_uplink, via))
            else:
                await self._ask(partial(self._plane.remove_job, job.number))
                await self._ask(partial(self._plane.close_uplink, via))  # if it never got the job
        except WiresumError as error:
            _log.warning("job %r could not be removed: %s", job.name, error)

    def _blocked_ranks(self, job: RelayJob) -> dict[int, int]:
        """By number of the data plane: a rank that has left, where all that send as one have."""
        return {
            number: ranks[0]
            for number, ranks in enumerate(job.below.values())
            if all(job.members[rank].left for rank in ranks)
        }

    async def _watch_draining(self) -> None:
        try:
            while draining := [job for job in self._jobs if self._blocked_ranks(job) and job.state == "running"]:
                await asyncio.sleep(DRAIN_INTERVAL)
                for job in draining:
                    await self._find_blocked(job)
        finally:
            self._draining = None

    async def _find_blocked(self, job: RelayJob) -> None:
        """Tells the parent if a rank is waited for that has left."""
        if job.number is None or not job.active:
            return
        gone = self._blocked_ranks(job)
        missing = {
            number for slot in await self._ask(partial(self._plane.stalled, job.number)) for number in slot.missing
        }
        for number in sorted(missing & set(gone)):
            if job.active:
                request = pb.BlockedRequest(membership=job.active[0].upstream, rank=gone[number])
                await self._tell_parent("Blocked", request)
            return

    def _spawn(self, coroutine: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _awaited(call: Awaitable[_T]) -> _T:
    return await call
