"""Drives one worker over its UDP socket: the thread, the clock and the waiting around host/worker.py.

Whoever waits for a result drives: a synchronous call moves packets in the caller's own thread, which saves two thread
switches, and only collectives that nobody waits for are driven by a thread in the background.
"""

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from host.handle import Handle
from host.pump_kernels import BLOCKED, EMPTY, MORE, WOKEN
from host.worker import Tensor, Worker
from protocol.datagrams import DatagramSocket
from protocol.errors import ClosedError, DisagreementError, StallError, WiresumError
from protocol.faults import FaultInjector
from protocol.packets import PacketBatch

_ROUNDS = 64  # batches that are received before other threads have their turn
_POLL_LIMIT = 1.0  # the longest time that a driver sleeps, seconds
_EXPIRY_CHECK_SECONDS = 0.01
_FOREVER = float("inf")
_INQUIRY_SECONDS = 10.0  # for the ranks' accounts of a disagreement to come together


class Engine:
    """Moves the packets of one worker.

    Args:
        worker: the state machine; from now on only the engine touches it.
        udp: a socket connected to the switch's data address.
        flow: tells this worker's packets from those of others with the same faults.
        outbound, inbound: faults to inject, or None.
        describe_stall: asks the control service who is missing; returns text.
        report_disagreement: tells the control service of a collective and what this rank asked for.
        give_up: leaves the job, so that the other ranks need not wait for their time-outs when this one has failed.
    """

    def __init__(
        self,
        worker: Worker,
        udp: DatagramSocket,
        *,
        flow: int = 0,
        outbound: FaultInjector | None,
        inbound: FaultInjector | None,
        describe_stall: Callable[[], str],
        report_disagreement: Callable[[int, str], None],
        give_up: Callable[[], None],
    ) -> None:
        self._worker, self._udp, self._flow = worker, udp, flow
        self._outbound, self._inbound = outbound, inbound
        self._describe_stall, self._report_disagreement, self._give_up = describe_stall, report_disagreement, give_up
        self._process = os.getpid()
        self._lock = threading.Lock()  # the worker, the handles, the failure
        self._visitors: list[None] = []  # one for each thread that wants the lock and does not drive
        self._waking = threading.Lock()  # the descriptor that interrupts the driver
        self._driver = threading.Lock()  # held by the thread that moves packets
        self._driving: int | None = None  # its identifier
        self._wanted = threading.Event()
        self._handles: dict[Handle, None] = {}
        self._failed: list[Handle] = []
        self._failure: WiresumError | None = None
        self._closed = False
        self._reported = False
        self._thread: threading.Thread | None = None
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(udp.fileno(), select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._bytes_sent = 0  # with faults; without them the worker counts
        self._bytes_received = 0

    def submit(self, handle: Handle, tensors: list[Tensor], on_submit: Callable[[Tensor], None]) -> None:
        """Puts tensors into the stream; each completes one of the handle's parts.

        Args:
            on_submit: called with each tensor once it has its number, before any packet goes out.

        Raises:
            WiresumError: the job has failed or the engine was closed; the same error each time.
        """
        self._check_process()
        with self._visit():
            if self._failure is not None:
                raise self._failure
            empty = 0
            for tensor in tensors:
                tensor.tag = handle
                if tensor.source.size:
                    self._worker.submit(tensor)
                else:
                    self._worker.skip(tensor)
                    empty += 1
                on_submit(tensor)
            self._handles[handle] = None
        if empty or not tensors:
            self._complete(handle, empty)

    def drive_in_background(self) -> None:
        """Has the background thread move packets as long as there is something to move."""
        with self._visit():
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="wiresum-progress", daemon=True)
                self._thread.start()
        self._wanted.set()
        self._interrupt()

    def wait_for(self, handle: Handle, timeout: float | None) -> None:
        """Returns when the handle is done or `timeout` seconds have passed; moves packets if nobody else does."""
        if handle.done():
            return
        self._check_process()
        if self._driving == threading.get_ident():
            raise RuntimeError("a done callback must not wait for a collective: nothing moves until it returns")
        until = None if timeout is None else time.monotonic() + timeout
        while not handle.done():
            # While the background thread drives, waking up for each of its steps would only take the GIL from it.
            if self._driver.acquire(blocking=False):
                try:
                    self._drive(handle, until)
                finally:
                    self._driver.release()
                if self._worker.busy:
                    self.drive_in_background()
            else:
                left = None if until is None else max(0.0, until - time.monotonic())
                handle.sleep(_POLL_LIMIT if left is None else min(left, _POLL_LIMIT))
            if until is not None and time.monotonic() >= until:
                return

    def fail(self, error: WiresumError) -> None:
        """Ends all collectives, and every later one, with `error`; the first failure stays."""
        with self._visit():
            if self._failure is not None:
                return
            self._failure = error
            self._failed = list(self._handles)
            self._handles.clear()
        for handle in self._failed:
            handle.settle(error)
        self._interrupt()

    @property
    def failure(self) -> WiresumError | None:
        """The error that ended the job for this worker, if any."""
        return self._failure

    def drain(self) -> None:
        """Waits for all collectives under way.

        Raises:
            WiresumError: one has failed, and nobody has asked its handle.
        """
        while self._handles and os.getpid() == self._process:
            with self._visit():
                pending = list(self._handles)
            for handle in pending:
                self.wait_for(handle, None)
        for handle in self._failed:
            if not handle.seen:
                handle.wait()

    def close(self) -> None:
        """Fails what is under way with `ClosedError` and stops the thread; idempotent.

        In a forked child it does nothing: socket and job are the parent's.
        """
        if os.getpid() != self._process:
            return
        self._closed = True
        self.fail(ClosedError("the communicator was closed"))
        self._wanted.set()
        self._interrupt()
        if self._driving == threading.get_ident():
            return  # a done callback; this thread lets go of the socket when it stops driving
        if self._thread is not None:
            self._thread.join()
        with self._driver:  # whoever drives leaves as soon as it sees the failure
            self._let_go()

    def statistics(self) -> dict[str, float]:
        """Counters of this worker's packets and bytes."""
        self._check_process()
        with self._visit():
            counts = self._worker.statistics()
            overflows = 0 if self._closed else self._udp.overflows()
        counts["bytes_sent"] += self._bytes_sent
        counts["bytes_received"] += self._bytes_received
        counts |= {
            "receive_overflows": overflows,
            "unsent": self._udp.unsent,
            "oversized": self._udp.truncated,
        }
        for direction, injector in (("out", self._outbound), ("in", self._inbound)):
            if injector is not None:
                counts |= {f"fault_{direction}_{name}": value for name, value in injector.counters.items()}
        return counts

    def _let_go(self) -> None:
        """Closes what the kernel gave; only the driver may."""
        with self._lock, self._waking:
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1
                self._udp.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise ClosedError("a communicator cannot be used in a forked child, only where it was made")

    @contextmanager
    def _visit(self) -> Iterator[None]:
        """The lock, for whoever does not drive: the driver holds it even while it waits for packets."""
        self._visitors.append(None)  # append and pop are atomic
        try:
            self._interrupt()
            with self._lock:
                yield
        finally:
            self._visitors.pop()

    def _interrupt(self) -> None:
        """Has the driver, if there is one, look at what other threads want."""
        with self._waking:  # so that it is not closed meanwhile
            if self._wake >= 0 and self._driver.locked():
                os.eventfd_write(self._wake, 1)

    def _woken(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _run(self) -> None:
        while not self._closed:
            self._wanted.wait()
            self._wanted.clear()
            with self._driver:
                self._drive(None, None)

    def _drive(self, handle: Handle | None, until: float | None) -> None:
        """Moves packets until the handle is done, or, without one, until nothing is under way."""
        worker = self._worker
        expiry_check = 0.0
        self._driving = threading.get_ident()
        try:
            if self._wake < 0:
                return
            while self._failure is None and not (handle is not None and handle.done()):
                while self._visitors:
                    time.sleep(0)  # it is their turn with the lock
                reason = self._step(until)
                now = time.monotonic()
                if worker.has_news or now >= expiry_check:
                    self._settle(now)
                    expiry_check = now + _EXPIRY_CHECK_SECONDS
                if not worker.busy or (until is not None and now >= until):
                    return
                if reason == BLOCKED:
                    self._await_room()
                elif reason == WOKEN:
                    self._woken()
                elif reason == EMPTY and self._inbound is not None:
                    self._sleep(until)
        except BaseException as error:
            # A driver that dies in silence would leave every other waiter, here and on other ranks, to its time-out.
            self._abort(error if isinstance(error, WiresumError) else WiresumError(f"moving packets failed: {error!r}"))
            if not isinstance(error, Exception):
                raise
        finally:
            self._driving = None
            if self._closed:
                self._let_go()

    def _abort(self, error: WiresumError) -> None:
        """Fails for a reason that the other ranks cannot know of."""
        self.fail(error)
        self._give_up()

    def _complete(self, handle: Handle, parts: int) -> None:
        handle.complete(parts)
        if handle.done():
            with self._lock if self._driving == threading.get_ident() else self._visit():
                self._handles.pop(handle, None)

    def _step(self, until: float | None) -> int:
        """Receives, applies, sends and waits; returns why it stopped, see host/pump_kernels.py."""
        if self._inbound is not None and self._outbound is not None:
            return self._step_with_faults(self._inbound, self._outbound)
        with self._lock:
            if self._failure is not None:
                return MORE  # the arrays are the callers' again
            oldest = self._worker.oldest
            wait_until = min(
                time.monotonic() + _POLL_LIMIT,
                _FOREVER if until is None else until,
                _FOREVER if oldest is None else oldest.tag.expires,
            )
            reason = self._worker.pump(self._udp.link, _ROUNDS, self._wake, wait_until)
        if reason < 0:
            raise OSError(-reason, os.strerror(-reason))
        return reason

    def _step_with_faults(self, inbound: FaultInjector, outbound: FaultInjector) -> int:
        """The same for one batch, by way of the injectors."""
        batch = self._udp.receive()
        now = time.monotonic()
        arrived = [held for _, held in inbound.due(now)]
        if batch is not None:
            self._bytes_received += batch.size
            arrived.append(inbound.apply(batch, now, flow=self._flow))
        for results in arrived:
            if results.size:
                with self._lock:
                    if self._failure is None:
                        self._worker.receive(results, now)
        for _, held in outbound.due(now):
            self._send(held)
        while self._worker.has_full_batch or (batch is None and self._worker.has_packets):
            with self._lock:
                packets = self._worker.packets(now)
            if packets is not None:
                going = outbound.apply(packets, now, flow=self._flow)
                if going.size:
                    self._send(going)
        return EMPTY if batch is None else MORE

    def _send(self, batch: PacketBatch) -> None:
        self._bytes_sent += batch.size
        while (left := self._udp.send(batch)) and self._failure is None:
            batch = PacketBatch(batch.view[-left:], batch.address + batch.size - left, batch.segment)
            self._await_room()

    def _await_room(self) -> None:
        """Waits until the socket takes more, or another thread wants something."""
        waiter = select.poll()
        waiter.register(self._udp.fileno(), select.POLLOUT)
        waiter.register(self._wake, select.POLLIN)
        for fd, _ in waiter.poll(_POLL_LIMIT * 1000):
            if fd == self._wake:
                self._woken()

    def _settle(self, now: float) -> None:
        """Completes handles whose tensors are done, and looks for disagreement and expired time-outs."""
        with self._lock:
            finished = self._worker.finished()
            oldest = self._worker.oldest
            disagreed = self._worker.disagreement()
        for tensor in finished:
            self._complete(tensor.tag, 1)
        if disagreed is not None and not self._reported:
            self._reported = True
            disagreed.tag.expires = min(disagreed.tag.expires, now + _INQUIRY_SECONDS)
            self._report_disagreement(disagreed.collective, disagreed.describe())
        expired = oldest if disagreed is None else disagreed
        if expired is not None and now >= expired.tag.expires:
            if disagreed is not None:
                self._abort(DisagreementError(f"another rank asked for something else than {disagreed.describe()}"))
            else:
                seconds = expired.tag.timeout
                self._abort(
                    StallError(f"{expired.describe()} did not finish within {seconds:g} s: {self._describe_stall()}")
                )

    def _sleep(self, until: float | None) -> None:
        """With faults: handles timers, as nothing is left to receive, and waits for a packet or another thread."""
        now = time.monotonic()
        with self._lock:
            self._worker.handle_timer(now)
            oldest = self._worker.oldest
            if oldest is None or self._worker.has_packets:
                return
            wake_at = min(self._worker.deadline, oldest.tag.expires, now + _POLL_LIMIT)
        for injector in (self._inbound, self._outbound):
            due = None if injector is None else injector.next_due()
            if due is not None:
                wake_at = min(wake_at, due)
        if until is not None:
            wake_at = min(wake_at, until)
        for fd, _ in self._poll.poll(max(0.0, (wake_at - now) * 1000)):
            if fd == self._wake:
                self._woken()
