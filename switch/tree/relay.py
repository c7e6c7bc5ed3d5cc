"""The control service of a leaf switch: each rank that joins here is held a membership at the parent.

The parent, or the root above it, decides about jobs. A leaf passes on what workers ask and what the parent tells, and
sees to its own data plane: a worker's join is answered when the data planes of all switches have the job. See
`Watching` in control.proto for how they wait for each other.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from protocol import control_pb2 as pb
from protocol.control import PROTOCOL_VERSION, SHUTTING_DOWN, format_address
from protocol.control_grpc import grpc
from protocol.errors import (
    JoinRefusedError,
    PeerLostError,
    SwitchLostError,
    SwitchUnreachableError,
    WiresumError,
)
from protocol.packets import Address
from switch.control_messages import abort, is_last, read_wish, statistics, write_slots
from switch.dataplane import LeafPlane
from switch.tree.children import ACCOUNT_SECONDS
from switch.tree.parent import CALL_SECONDS
from switch.tree.relay_jobs import RelayJobs
from switch.tree.relay_state import RelayJob
from switch.tree.stalls import RankSlot, combine, heard_by_rank

_ATTACH_INTERVAL: Final = 0.5  # seconds between attempts to be known to the parent again
_CLOSE_SECONDS: Final = 1.0  # to tell the parent what becomes of the ranks


class RelayService(RelayJobs):
    """Lives in one event loop; only `status` may be read from other threads.

    Args:
        plane: the data plane.
        parent: control address of the parent, "host:port" or "host".

    Raises:
        ValueError: a malformed address.
    """

    def __init__(self, plane: LeafPlane, parent: str) -> None:
        super().__init__(plane, parent)
        self._attachment: asyncio.Task[None] | None = None
        self._run = secrets.randbits(64)

    async def start(self, address: Address) -> None:
        """Connects to the parent; this switch is to be served at that address.

        Raises:
            SwitchUnreachableError: no control service answers there, or it is this switch's own.
            JoinRefusedError: it speaks another version of the protocol.
        """
        self._name = format_address(address)
        self._budget.name = f"the leaf switch at {self._name}"
        await self._parent.open(address)
        attached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._attachment = self._spawn(self._stay_attached(attached=attached))
        await attached

    def shutdown(self) -> None:
        """Ends all jobs, and with them all calls that wait."""
        if self._attachment is not None:
            self._attachment.cancel()
        self._children.release()
        for job in list(self._jobs):
            for member in job.active:
                self._give_up(member, f"is cut off: the leaf switch at {self._name} is shutting down")
            self._fail(job, SwitchLostError(SHUTTING_DOWN), pb.Event(goodbye=pb.Goodbye()))

    async def close(self) -> None:
        """Waits until parent and data plane have been told."""
        if self._draining is not None:
            self._draining.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_SECONDS)
        for task in self._tasks:
            task.cancel()
        self._attachment = None  # its call would keep the connection open
        await self._parent.close()
        await asyncio.to_thread(self._plane_calls.shutdown)

    # Calls from below

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeReply:  # noqa: N802
        """See control.proto. The world size is limited by the root, the rest by this switch and those above."""
        try:
            above = await self._parent.describe()
        except WiresumError as error:
            await abort(context, error)
        host, port = self._plane.address
        return pb.DescribeReply(
            protocol_version=PROTOCOL_VERSION,
            data_host=host,
            data_port=port,
            total_slots=self._budget.total,
            free_slots=self._budget.free,
            max_ranks=above.max_ranks,
            values_supported=[v for v in self._plane.values_supported if v in above.values_supported],
        )

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:  # noqa: N802
        """See control.proto."""
        try:
            wish = read_wish(request, context.peer())
            job = self._admit(wish)
        except JoinRefusedError as error:
            await abort(context, error)
        member = job.enter(wish)
        try:
            await self._join_parent(member)
            self._members[member.membership] = member
            return await asyncio.shield(member.started)
        except (grpc.aio.AioRpcError, WiresumError) as error:
            failure = error
        except asyncio.CancelledError:  # the worker died, or gave up
            self._lose(member, "died")
            raise
        finally:
            if not member.started.done() or member.started.exception() is not None:
                self._members.pop(member.membership, None)
            if not member.upstream:
                member.over = True
                del job.members[wish.rank]
                self._settle(job)
        # Only now: whoever hears of the failure may join again.
        if isinstance(failure, WiresumError):
            await abort(context, failure)
        await self._parent.pass_on(failure, context)
        raise AssertionError("abort raises")

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.Event]:  # noqa: N802
        """See control.proto."""
        member = self._members.get(request.membership)
        if member is None or member.watched:
            await context.abort(grpc.StatusCode.NOT_FOUND, "the job is over, or watched already")
            return
        member.watched = True
        context.add_done_callback(lambda _: self._watch_ended(member))
        if member.is_below_leaf:
            member.job.check_leaves()
        else:
            yield pb.Event(watching=pb.Watching())
        while (event := await member.mailbox.get()) is not None:
            yield event
            if is_last(event):
                return

    async def Leave(self, request: pb.LeaveRequest, context: Any) -> pb.LeaveReply:  # noqa: N802
        """See control.proto."""
        member = self._members.get(request.membership)
        if member is None or member.over:
            return pb.LeaveReply()
        member.over, member.left = True, not request.reason
        member.tell(None)
        if member.job.state != "running":
            error = JoinRefusedError if request.refused else PeerLostError
            self._fail(member.job, error(f"{member.name} of job {member.job.name!r} {request.reason or 'left'}"))
        up = pb.LeaveRequest(membership=member.upstream, reason=request.reason, refused=request.refused)
        with contextlib.suppress(WiresumError):  # if the parent is gone, there is nothing to leave
            await self._parent.call(self._parent.stub.Leave, up)
        self._settle(member.job)
        return pb.LeaveReply()

    async def Stall(self, request: pb.StallRequest, context: Any) -> pb.StallReply:  # noqa: N802
        """See control.proto. The root answers, which asks the leaves; of a job's number, this switch knows its own."""
        if request.HasField("job_number"):
            job = next((one for one in self._jobs if one.number == request.job_number), None)
            if job is None:
                await context.abort(grpc.StatusCode.NOT_FOUND, "the job is over")
                raise AssertionError("abort raises")
            slots, _ = await self._known(job)
            return pb.StallReply(slots=write_slots(slots))
        reply: pb.StallReply = await self._ask_parent(
            "Stall", pb.StallRequest(membership=self._upstream(request)), context
        )
        return reply

    async def Disagree(self, request: pb.DisagreeRequest, context: Any) -> pb.DisagreeReply:  # noqa: N802
        """See control.proto."""
        up = pb.DisagreeRequest(
            membership=self._upstream(request), collective=request.collective, request=request.request
        )
        reply: pb.DisagreeReply = await self._ask_parent("Disagree", up, context)
        return reply

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainReply:  # noqa: N802
        """See control.proto."""
        up = pb.ExplainRequest(
            membership=self._upstream(request), collective=request.collective, request=request.request
        )
        reply: pb.ExplainReply = await self._ask_parent("Explain", up, context)
        return reply

    async def Statistics(self, request: pb.StatisticsRequest, context: Any) -> pb.StatisticsReply:  # noqa: N802
        """See control.proto. Of this switch alone."""
        return statistics(self.status, await self._ask(self._plane.statistics), self._budget)

    async def Blocked(self, request: pb.BlockedRequest, context: Any) -> pb.BlockedReply:  # noqa: N802
        """See control.proto."""
        up = pb.BlockedRequest(membership=self._upstream(request), rank=request.rank)
        reply: pb.BlockedReply = await self._ask_parent("Blocked", up, context)
        return reply

    def _upstream(self, request: Any) -> int:
        """The parent's membership for the one in a request; 0, which names none, if there is none."""
        member = self._members.get(request.membership)
        return 0 if member is None else member.upstream

    async def _ask_parent(self, call: str, request: Any, context: Any) -> Any:
        try:
            return await getattr(self._parent.stub, call)(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            await self._parent.pass_on(error, context)

    # The parent

    async def _stay_attached(
        self, *, attached: "asyncio.Future[None] | None" = None, before: "asyncio.Task[None] | None" = None
    ) -> None:
        """Keeps this switch known to its parent.

        Args:
            attached: told of the first try, which is the only one if it fails.
            before: the attachment that this one takes the place of, once it is made, so that there is always one.
        """
        try:
            while True:
                request = pb.AttachRequest(name=self._name, max_ranks=self._children.max_ranks, run=self._run)
                try:
                    async for event in self._parent.stub.Attach(request):
                        if attached is not None and not attached.done():
                            attached.set_result(None)
                        if before is not None:
                            before.cancel()
                        if event.HasField("stall"):
                            self._spawn(self._account(event.stall))
                except grpc.aio.AioRpcError as error:
                    if attached is not None and not attached.done():
                        attached.set_exception(SwitchUnreachableError(str(self._parent.lost(error))))
                        return
                await asyncio.sleep(_ATTACH_INTERVAL)
        finally:
            if before is not None:
                before.cancel()

    def _leaves_changed(self) -> None:
        """The number of ranks below has changed."""
        if self._attachment is not None and not self._attachment.done():
            self._attachment = self._spawn(self._stay_attached(before=self._attachment))

    async def _account(self, query: pb.StallQuery) -> None:
        """Tells the parent what is known here of a job that does not move on."""
        answer = pb.StallAnswer(query=query.query)
        job = next(
            (one for one in self._jobs if one.parent_number == query.job_number and one.number is not None), None
        )
        if job is not None:
            slots, heard = await self._known(job)
            answer.slots.extend(write_slots(slots))
            answer.heard.extend(pb.RankHeard(rank=rank, last_heard=last) for rank, last in heard.items())
        await self._tell_parent("AnswerStall", answer)

    async def _known(self, job: RelayJob) -> tuple[list[RankSlot], dict[int, float | None]]:
        """What this switch and those below it know of a job's waiting slots, and when each rank was last heard."""
        if job.number is None:
            return [], {}
        below = tuple(job.below.values())
        deeper = any(member.is_below_leaf for member in job.members.values())
        accounts = await self._children.accounts(job.number, ACCOUNT_SECONDS / 2) if deeper else []
        try:
            stalled = await self._ask(partial(self._plane.stalled, job.number))
            heard = heard_by_rank(await self._ask(partial(self._plane.last_heard, job.number)), below, accounts)
        except WiresumError:  # it ended meanwhile
            return [], {}
        return combine(stalled, below, accounts), heard
