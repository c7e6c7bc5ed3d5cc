"""The thread that moves packets, and what other threads have it do in between."""

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from protocol.errors import WiresumError

T = TypeVar("T")

_CALL_SECONDS: Final = 10.0


class PacketThread:
    """A thread that alone touches what packets go through.

    Args:
        name: of the thread.
        serve: called over and over; it waits for packets, and for `wake` too, which it answers with `run_calls`.
        finish: called at the end, also when `serve` has failed.
        what: what it is, for messages.
        error: raised if it has ended or does not answer.

    Attributes:
        wake: a file descriptor that is readable when functions wait to be run.
        failure: what ended the thread, unless it was closed.
    """

    def __init__(
        self,
        name: str,
        serve: Callable[[], None],
        finish: Callable[[], None],
        *,
        what: str,
        error: type[WiresumError] = WiresumError,
    ) -> None:
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.failure: BaseException | None = None
        self._what, self._error = what, error
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._calling = threading.Lock()  # the life of `wake`
        self._running = True
        self._thread = threading.Thread(target=self._run, args=(serve, finish), name=name, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether packets are being moved."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begins to serve."""
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Runs `function` on the thread, between two packets, and returns what it returns.

        What it raises is raised here. From the thread itself it runs at once.

        Raises:
            WiresumError: the thread has ended, or does not answer; of the class that was given.
        """
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()
        with self._calling:
            if self.wake < 0 or not self._thread.is_alive():
                raise self._error(f"{self._what} has stopped: {self.failure or 'it was closed'}")
            self._calls.put((function, future))
            os.eventfd_write(self.wake, 1)
        try:
            return future.result(_CALL_SECONDS)
        except TimeoutError:
            if future.cancel() or not future.done():
                raise self._error(f"{self._what} did not answer in {_CALL_SECONDS:.0f} s") from None
            raise

    def run_calls(self) -> None:
        """Runs the functions that wait; to be called on the thread."""
        os.eventfd_read(self.wake)
        while not self._calls.empty():
            function, future = self._calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

    def close(self) -> None:
        """Ends the thread, and returns when it has finished; idempotent."""
        with self._calling:
            self._running = False
            if self.wake >= 0:
                os.eventfd_write(self.wake, 1)
                self._thread.join()
                os.close(self.wake)
                self.wake = -1

    def _run(self, serve: Callable[[], None], finish: Callable[[], None]) -> None:
        try:
            while self._running:
                serve()
        except BaseException as error:
            self.failure = error
            raise
        finally:
            finish()
            while not self._calls.empty():
                _, future = self._calls.get()
                if future.set_running_or_notify_cancel():
                    future.set_exception(self._error(f"{self._what} has stopped: {self.failure or 'it was closed'}"))
