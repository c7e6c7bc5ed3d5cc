"""The calls of the control service: a thin shell of messages, clock and timers around the job table."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from protocol import control_pb2 as pb
from protocol.control import PROTOCOL_VERSION, format_address
from protocol.control_grpc import grpc
from protocol.errors import JoinRefusedError, WiresumError
from protocol.packets import Address
from switch.control_messages import abort, is_last, message, read_wish, statistics, write_slots
from switch.dataplane import DataPlane
from switch.job_events import (
    Effect,
    EndWatch,
    Event,
    Install,
    JoinDone,
    JoinFailed,
    Remove,
    Tell,
)
from switch.jobs import WATCH_GRACE, JobTable
from switch.service_base import DRAIN_INTERVAL, ServiceBase
from switch.tree.stalls import combine, heard_by_rank

_log = logging.getLogger(__name__)


class ControlService(ServiceBase[DataPlane]):
    """Lives in one event loop; only `status` may be read from other threads."""

    def __init__(self, plane: DataPlane, *, max_ranks: int):
        super().__init__(plane)
        self._table = JobTable(
            total_slots=plane.total_slots,
            values_supported=plane.values_supported,
            default_slots=plane.default_slots,
            max_ranks=max_ranks,
        )
        self._own_ranks = max_ranks
        self._joins: dict[int, asyncio.Future[JoinDone]] = {}
        self._mailboxes: dict[int, asyncio.Queue[Event | None]] = {}  # what a watch has to tell; None ends it
        self._watched: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._draining: asyncio.Task[None] | None = None

    async def start(self, address: Address) -> None:
        """Begins to serve at that address; there is nothing to wait for."""

    def shutdown(self) -> None:
        """Ends all jobs, and with them all calls that wait."""
        self._table.shutdown()
        self._children.release()
        self._settle()

    async def close(self) -> None:
        """Waits until the data plane has done what was asked of it."""
        for task in (self._timer, self._draining):
            if task is not None:
                task.cancel()
        await asyncio.to_thread(self._plane_calls.shutdown)

    # Calls

    async def Describe(self, request: pb.DescribeRequest, context: Any) -> pb.DescribeReply:  # noqa: N802
        """See control.proto."""
        host, port = self._plane.address
        return pb.DescribeReply(
            protocol_version=PROTOCOL_VERSION,
            data_host=host,
            data_port=port,
            total_slots=self._table.budget.total,
            free_slots=self._table.budget.free,
            max_ranks=self._table.max_ranks,
            values_supported=self._table.values_supported,
        )

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinReply:  # noqa: N802
        """See control.proto."""
        loop = asyncio.get_running_loop()
        try:
            membership = self._table.join(read_wish(request, context.peer()), loop.time())
        except JoinRefusedError as error:
            await abort(context, error)
        answer = self._joins[membership] = loop.create_future()
        self._settle()
        try:
            done = await answer
        except WiresumError as error:
            await abort(context, error)
        except asyncio.CancelledError:  # the worker died, or gave up
            self._table.gone(membership)
            self._settle()
            raise
        finally:
            del self._joins[membership]
        return pb.JoinReply(membership=membership, job_number=done.job_number, slots=done.slots, ranks=done.ranks)

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.Event]:  # noqa: N802
        """See control.proto."""
        membership = request.membership
        mailbox = self._mailboxes.get(membership)
        if mailbox is None or membership in self._watched:
            await context.abort(grpc.StatusCode.NOT_FOUND, "the job is over, or watched already")
            return
        self._watched.add(membership)
        context.add_done_callback(lambda _: self._watch_ended(membership))
        begun = self._table.watching(membership, asyncio.get_running_loop().time())
        self._settle()
        if begun:
            yield pb.Event(watching=pb.Watching())
        while (event := await mailbox.get()) is not None:
            told = message(event)
            yield told
            if is_last(told):
                return

    async def Leave(self, request: pb.LeaveRequest, context: Any) -> pb.LeaveReply:  # noqa: N802
        """See control.proto."""
        if request.reason:
            self._table.given_up(request.membership, request.reason, refused=request.refused)
        else:
            self._table.leave(request.membership)
        self._settle()
        return pb.LeaveReply()

    async def Stall(self, request: pb.StallRequest, context: Any) -> pb.StallReply:  # noqa: N802
        """See control.proto."""
        if request.HasField("job_number"):
            job = self._table.running_number(request.job_number)
        else:
            job = self._table.running(request.membership)
        if job is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "the job is over")
            raise AssertionError("abort raises")
        accounts = await self._children.accounts(job.number) if job.leaves else []
        try:
            stalled = await self._ask(partial(self._plane.stalled, job.number))
            own = await self._ask(partial(self._plane.last_heard, job.number))
        except WiresumError as error:  # the job ended meanwhile
            await abort(context, error)
        heard = heard_by_rank(own, job.below, accounts)
        return pb.StallReply(
            slots=write_slots(combine(stalled, job.below, accounts)),
            ranks=[
                pb.RankState(address=format_address(worker), last_heard=heard.get(rank), left=rank in job.left)
                for rank, worker in enumerate(job.workers)
            ],
        )

    async def Disagree(self, request: pb.DisagreeRequest, context: Any) -> pb.DisagreeReply:  # noqa: N802
        """See control.proto."""
        now = asyncio.get_running_loop().time()
        self._table.disagree(request.membership, request.collective, request.request, now)
        self._settle()
        return pb.DisagreeReply()

    async def Explain(self, request: pb.ExplainRequest, context: Any) -> pb.ExplainReply:  # noqa: N802
        """See control.proto."""
        self._table.explain(request.membership, request.collective, request.request)
        self._settle()
        return pb.ExplainReply()

    async def Statistics(self, request: pb.StatisticsRequest, context: Any) -> pb.StatisticsReply:  # noqa: N802
        """See control.proto."""
        return statistics(self._table.status(), await self._ask(self._plane.statistics), self._table.budget)

    # Leaf switches

    async def Blocked(self, request: pb.BlockedRequest, context: Any) -> pb.BlockedReply:  # noqa: N802
        """See control.proto."""
        self._table.blocked_below(request.membership, request.rank)
        self._settle()
        return pb.BlockedReply()

    def _leaves_changed(self) -> None:
        self._table.max_ranks = max(self._own_ranks, self._children.max_ranks)

    # What the job table wants done

    def _settle(self) -> None:
        """To be called after every change of the job table."""
        loop = asyncio.get_running_loop()
        for effect in self._table.effects():
            self._carry_out(effect)
        self.status = self._table.status()
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._table.next_deadline()
        self._timer = None if deadline is None else loop.call_at(deadline, self._expire)
        if self._draining is None and self._table.draining():
            self._draining = loop.create_task(self._watch_draining())

    def _carry_out(self, effect: Effect) -> None:
        loop = asyncio.get_running_loop()
        match effect:
            case Install(spec):
                ranks = len(spec.workers)
                _log.info("job %r begins: number %d, %d slots, %d ranks", spec.name, spec.number, spec.slots, ranks)
                done = loop.run_in_executor(self._plane_calls, self._plane.add_job, spec)
                done.add_done_callback(partial(self._installed, spec.number))
            case Remove(number):
                _log.info("job number %d is over", number)
                done = loop.run_in_executor(self._plane_calls, self._plane.remove_job, number)
                done.add_done_callback(partial(self._removed, number))
            case JoinDone(membership):
                self._mailboxes[membership] = asyncio.Queue()
                loop.call_later(2 * WATCH_GRACE, self._forget, membership)
                self._answer(membership, lambda answer: answer.set_result(effect))
            case JoinFailed(membership, error):
                self._answer(membership, lambda answer: answer.set_exception(error))
            case Tell(membership, event):
                self._post(membership, event)
            case EndWatch(membership):
                self._post(membership, None)

    def _answer(self, membership: int, give: Callable[["asyncio.Future[JoinDone]"], None]) -> None:
        answer = self._joins.get(membership)
        if answer is not None and not answer.done():  # done: cancelled, and its call is about to say that it is gone
            give(answer)

    def _post(self, membership: int, event: Event | None) -> None:
        mailbox = self._mailboxes.get(membership)
        if mailbox is not None:
            mailbox.put_nowait(event)

    def _installed(self, number: int, done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if error is None:
            self._table.installed(number, asyncio.get_running_loop().time())
        else:
            _log_fault("add", number, error)
            self._table.not_installed(number, str(error))
        self._settle()

    def _removed(self, number: int, done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if error is not None:
            _log_fault("remove", number, error)

    def _expire(self) -> None:
        self._table.expire(asyncio.get_running_loop().time())
        self._settle()

    def _forget(self, membership: int) -> None:
        """Drops the mailbox of a worker that never came to watch."""
        if membership not in self._watched:
            self._mailboxes.pop(membership, None)

    def _watch_ended(self, membership: int) -> None:
        self._watched.discard(membership)
        self._mailboxes.pop(membership, None)
        self._table.gone(membership)
        self._settle()

    async def _watch_draining(self) -> None:
        while numbers := self._table.draining():
            await asyncio.sleep(DRAIN_INTERVAL)
            for number in numbers:
                try:
                    stalled = await self._ask(partial(self._plane.stalled, number))
                except WiresumError:  # it ended meanwhile
                    continue
                self._table.blocked(number, stalled)
                self._settle()
        self._draining = None


def _log_fault(what: str, number: int, error: BaseException) -> None:
    """The data plane may refuse, which the job's workers are told; anything else is a fault of the switch."""
    expected = isinstance(error, WiresumError)
    _log.log(
        logging.WARNING if expected else logging.ERROR,
        "the data plane could not %s job number %d: %s",
        what,
        number,
        error,
        exc_info=None if expected else error,
    )
