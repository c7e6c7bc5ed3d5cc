"""The worker's end of the control service: join a job, hear at once of what ends it, ask why it stalls."""

import contextlib
import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from host.control_channel import CALL_TIMEOUT, ControlChannel
from host.control_types import CounterRow, Membership, StallReport, SwitchReport
from protocol import control_pb2 as pb
from protocol.control import PROTOCOL_VERSION, SHUTTING_DOWN
from protocol.control_events import error_of
from protocol.control_grpc import grpc
from protocol.errors import ClosedError, SwitchLostError, WiresumError
from protocol.packets import Address

_LEAVE_TIMEOUT: Final = 2.0  # seconds for the switch to answer
_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


@dataclass(frozen=True)
class _Callbacks:
    on_failure: Callable[[WiresumError], None]
    explain: Callable[[int], str]


class ControlClient:
    """A worker's connection to the control service of a switch, thread-safe.

    No call lasts longer than about ten seconds if the switch is dead or out of reach. Only `join` waits for others, up
    to its own time-out. A forked child cannot use its parent's client, and does no harm to it.

    Args:
        switch: "host:port", or "host" for port 50099.
        timeout: seconds for the switch to answer.

    Attributes:
        info: what the switch has to offer, as it was when this client was made.

    Raises:
        ValueError: `switch` is malformed.
        SwitchUnreachableError: no control service answers there.
        JoinRefusedError: it speaks another version of the protocol.
    """

    def __init__(self, switch: str, *, timeout: float = CALL_TIMEOUT):
        self._channel = ControlChannel(switch, timeout)
        self.info = self._channel.info
        self._lock = threading.Lock()
        self._membership: Membership | None = None
        self._left = False
        self._failure: WiresumError | None = None  # what ended the job
        self._watcher: threading.Thread | None = None
        self._callbacks: _Callbacks | None = None
        self._attached = threading.Event()  # set when there are callbacks, or will never be

    def join(
        self,
        *,
        job: str,
        rank: int,
        world_size: int,
        udp: Address,
        values: int,
        slots: int,
        timeout: float,
        most_slots: int = 0,
    ) -> Membership:
        """Joins a job, and waits until all its ranks have.

        Args:
            job: its name.
            rank: of this worker, from 0.
            world_size: how many ranks the job has.
            udp: IPv4 address and port of this worker's UDP socket; the address may be "0.0.0.0", which stands for the
                one that reaches the switch.
            values: values per packet.
            slots: pool size that is wanted, a power of two; 0 leaves it to the switch. If the ranks differ, the
                smallest is granted.
            timeout: seconds to wait for the other ranks.
            most_slots: the largest pool that the switch may choose; 0 for any.

        Raises:
            ValueError: a number is negative, or the time-out is not positive.
            JoinRefusedError: the switch refused; the text says why.
            JoinTimeoutError: some ranks did not join; the text names them.
            PeerLostError: a rank died just as the job began.
            SwitchLostError: the switch went away.
        """
        for name, number in (("rank", rank), ("world size", world_size), ("values", values), ("slots", slots)):
            if not 0 <= number < 2**31:
                raise ValueError(f"{name} must be from 0 to {2**31 - 1}, not {number}")
        if not (timeout > 0 and math.isfinite(timeout)):
            raise ValueError(f"the time-out of a join must be a positive number of seconds, not {timeout}")
        if self._membership is not None:
            raise RuntimeError(f"this client joined job {self._membership.job!r} before; make a new one")
        request = pb.JoinRequest(
            protocol_version=PROTOCOL_VERSION,
            job=job,
            rank=rank,
            world_size=world_size,
            udp_host=udp[0],
            udp_port=udp[1],
            values=values,
            slots=slots,
            timeout=timeout,
            most_slots=most_slots,
        )
        reply = self._channel.call(self._channel.stub.Join, request, timeout=None)
        membership = Membership(
            token=reply.membership,
            job=job,
            rank=rank,
            world_size=world_size,
            job_number=reply.job_number,
            slots=reply.slots,
            values=values,
        )
        self._membership = membership
        self._live(membership)
        return membership

    def watch(self, *, on_failure: Callable[[WiresumError], None], explain: Callable[[int], str]) -> None:
        """Says what to do when the job ends, or when another rank asks; to be called after `join`.

        Both functions are called from a thread of this client, also for what happened before this call.

        Args:
            on_failure: called at most once, with what ended the job: PeerLostError, DisagreementError or
                SwitchLostError. Not called once `leave` or `close` has begun.
            explain: this rank's own account of its collective of that number, for the error messages of all ranks.

        Raises:
            RuntimeError: the client has not joined, or is watching already.
        """
        self._channel.check_usable()
        if self._membership is None or self._callbacks is not None:
            raise RuntimeError("watch is to be called once, after join")
        self._callbacks = _Callbacks(on_failure, explain)
        self._attached.set()

    def stall(self) -> StallReport:
        """Asks the switch why the job does not move on.

        Raises:
            WiresumError: the job is over; class and text say why.
        """
        membership = self._check_joined()
        reply = self._call(self._channel.stub.Stall, pb.StallRequest(membership=membership.token))
        return StallReport.from_reply(reply, membership.job)

    def disagree(self, collective: int, request: str) -> None:
        """Says that the ranks disagree about a collective, which ends the job.

        Every rank then gets a DisagreementError that shows what each asked for, through its `on_failure`.

        Args:
            collective: this rank's number of the collective.
            request: what this rank asked for.
        """
        message = pb.DisagreeRequest(membership=self._check_joined().token, collective=collective, request=request)
        self._call(self._channel.stub.Disagree, message)

    def statistics(self) -> list[CounterRow]:
        """The switch's counters; needs no join."""
        return list(self.report().counters)

    def report(self) -> SwitchReport:
        """The switch's jobs and counters; needs no join."""
        return SwitchReport.from_reply(self._call(self._channel.stub.Statistics, pb.StatisticsRequest()))

    def leave(self) -> None:
        """Leaves the job, if this worker is in one that still runs. Raises nothing."""
        if not self._channel.usable:
            return
        with self._lock:
            membership = None if self._left or self._failure is not None else self._membership
            self._left = True
        if membership is not None:
            # The switch may be gone already, and then there is nothing to leave.
            with contextlib.suppress(WiresumError):
                request = pb.LeaveRequest(membership=membership.token)
                self._channel.call(self._channel.stub.Leave, request, timeout=_LEAVE_TIMEOUT)

    def close(self) -> None:
        """Leaves the job and closes the connection. Raises nothing; once more, it does nothing."""
        if not self._channel.usable:
            return
        self.leave()
        self._channel.close()
        self._attached.set()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join(CALL_TIMEOUT)

    def _check_joined(self) -> Membership:
        self._channel.check_usable()
        if self._membership is None:
            raise RuntimeError("this client has not joined a job")
        if self._left:
            raise ClosedError(f"this worker has left job {self._membership.job!r}")
        if self._failure is not None:
            raise self._failure
        return self._membership

    def _call(self, method: "grpc.UnaryUnaryMultiCallable[_Request, _Reply]", request: _Request) -> _Reply:
        try:
            return self._channel.call(method, request)
        except WiresumError:
            # The job may have ended in the middle of the call, and what ended it says more.
            if self._failure is not None:
                raise self._failure from None
            raise

    def _live(self, membership: Membership) -> None:
        """Opens the stream by which the switch sees that this worker lives."""
        opened = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(membership, opened), name="wiresum-watch", daemon=True)
        watcher.start()
        self._watcher = watcher  # only now: another thread may close, which waits for its end
        opened.wait(CALL_TIMEOUT)

    def _watch(self, membership: Membership, opened: threading.Event) -> None:
        try:
            events = self._channel.stub.Watch(pb.WatchRequest(membership=membership.token))
            failure = self._follow(events, membership, opened)
        except grpc.RpcError as error:
            failure = self._channel.translated(error)
        except ValueError:  # how grpc says that the channel was closed before
            failure = ClosedError("closed")
        with self._lock:
            if not self._left:
                self._failure = failure
        opened.set()
        self._attached.wait()
        if self._failure is not None and self._callbacks is not None:
            self._callbacks.on_failure(self._failure)

    def _follow(self, events: Iterable[pb.Event], membership: Membership, opened: threading.Event) -> WiresumError:
        """Reads events up to the one that ends the job."""
        for event in events:
            opened.set()
            if (error := error_of(event)) is not None:
                return error
            match event.WhichOneof("event"):
                case "goodbye":
                    return SwitchLostError(f"the switch at {self._channel.name} {SHUTTING_DOWN}")
                case "explain":
                    self._explain(membership, event.explain.collective)
        return SwitchLostError(f"the switch at {self._channel.name} ended job {membership.job!r} without a reason")

    def _explain(self, membership: Membership, collective: int) -> None:
        self._attached.wait()
        if self._callbacks is None:  # closed before anyone watched
            return
        try:
            account = self._callbacks.explain(collective)
        except Exception as error:
            # The others must not wait for it, and their message is where the fault is seen.
            account = f"could not say what it asked for: {error!r}"
        request = pb.ExplainRequest(membership=membership.token, collective=collective, request=account)
        with contextlib.suppress(WiresumError):  # whatever it is, the stream tells it as well
            self._channel.call(self._channel.stub.Explain, request)
