"""Handles of the communicator as the `Work` and the futures that torch waits for."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from host.handle import Handle

T = TypeVar("T")

_NO_TIMEOUT = timedelta(0)


def future_of(handle: Handle | None, value: T) -> "torch.futures.Future[T]":
    """A future that is `value` when the handle is done, or fails with the text of its error; None is done."""
    done: torch.futures.Future[Any] = torch.futures.Future()

    def result(_: object) -> T:
        error = handle.exception() if handle is not None else None
        if error is not None:
            raise error
        return value

    # The error is raised inside then(): torch loses the text of an exception that set_exception() is given, and DDP
    # does not survive a hook that raises.
    future: torch.futures.Future[T] = done.then(result)
    if handle is None or handle.done():
        done.set_result(True)
    else:
        handle.add_done_callback(lambda _: _complete(done))
    return future


def _complete(done: "torch.futures.Future[Any]") -> None:
    """Completes a future, and with it runs all that its user chained to it, in a thread that has time for that.

    What is chained may start a sum of its own and wait for it, as PowerSGD does; the thread that calls here may be the
    one that moves the packets, and must go on.
    """
    try:
        _chained().submit(done.set_result, True)
    except RuntimeError:  # the interpreter is shutting down and starts no more threads
        done.set_result(True)


@cache
def _chained() -> ThreadPoolExecutor:
    # A thread is only made when all others are busy, that is, wait for sums of their own.
    return ThreadPoolExecutor(max_workers=256, thread_name_prefix="wiresum-futures")


def failed_future(error: BaseException) -> "torch.futures.Future[Any]":
    """A future that fails with the error's text."""
    done: torch.futures.Future[Any] = torch.futures.Future()

    def fail(_: object) -> None:
        raise error

    future: torch.futures.Future[Any] = done.then(fail)
    done.set_result(True)
    return future


class SumWork(dist.Work):
    """Sums under way: what a collective returns.

    `wait` raises the collective's WiresumError. Its future holds the list of tensors that was passed in; a failure
    reaches who waits for the future as a RuntimeError that carries the same text.

    Args:
        handle: the communicator's; None if all is done.
        tensors: what is summed, in place.
    """

    def __init__(self, handle: Handle | None, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._handle = handle
        self._tensors = tensors
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Blocks until the sums are in the tensors.

        Args:
            timeout: how long to wait at most; zero, the default, leaves it to the group's time-out.

        Raises:
            WiresumError: the collective failed.
            TimeoutError: it was still under way after `timeout`; it goes on.
        """
        if self._handle is not None:
            seconds = timeout.total_seconds()
            self._handle.wait(seconds if seconds > 0 else None)
        return True

    def synchronize(self) -> None:
        """The same as `wait()`; there is no device to synchronize."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether the sums are done or failed."""
        return self._handle is None or self._handle.done()

    def is_success(self) -> bool:
        """Whether the sums are done and none failed."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """The error of a collective that has failed."""
        return self._handle.exception() if self._handle is not None and self._handle.done() else None

    def result(self) -> list[torch.Tensor]:
        """The tensors that were passed in."""
        return self._tensors

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        """A future whose value is the list of tensors that was passed in."""
        if self._future is None:
            self._future = future_of(self._handle, self._tensors)
        return self._future


class FailedWork(SumWork):
    """An asynchronous collective that failed at once: torch must learn of it from the work, not from the call."""

    def __init__(self, error: BaseException, tensors: list[torch.Tensor]) -> None:
        super().__init__(None, tensors)
        self._error = error

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Raises the error."""
        raise self._error

    def exception(self) -> BaseException | None:
        """The error."""
        return self._error

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        """A future that fails with the error's text."""
        if self._future is None:
            self._future = failed_future(self._error)
        return self._future
