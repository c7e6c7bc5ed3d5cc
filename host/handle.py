"""A collective under way, as its caller sees it."""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from host.engine import Engine

_log = logging.getLogger(__name__)


class Handle:
    """A collective under way.

    The result stands in the output arrays once it is done. Waiting works from every thread but in one place: a done
    callback, which runs where packets are moved, must not wait for another collective.
    """

    def __init__(self, engine: "Engine", parts: int, timeout: float) -> None:
        self._engine: Engine | None = engine
        self._left = parts
        self._event = threading.Event()
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Handle], None]] = []
        self._lock = threading.Lock()
        self.expires = time.monotonic() + timeout
        self.timeout = timeout
        self.result: Any = None
        self.owner: Any = None  # what must live until the handle is done
        self.seen = False  # whether somebody has learned how it ended
        self.finish: Callable[[], None] | None = None  # runs before the handle is done

    def done(self) -> bool:
        """Whether the result is in place or the collective has failed."""
        return self._event.is_set()

    def exception(self) -> BaseException | None:
        """Why the collective failed, once it is done."""
        self.seen = self.seen or self._event.is_set()
        return self._error

    def wait(self, timeout: float | None = None) -> Any:
        """Waits for the result and returns the output array, or the list of them.

        Args:
            timeout: seconds; without it, as long as the collective's own time-out.

        Raises:
            TimeoutError: it is still under way after `timeout` seconds; it goes on.
            WiresumError: it failed.
            RuntimeError: this is a done callback of another collective.
        """
        engine = self._engine  # gone as soon as it is done
        if engine is not None:
            engine.wait_for(self, timeout)
        if not self._event.is_set():
            raise TimeoutError(f"the collective is still under way after {timeout} s")
        self.seen = True
        if self._error is not None:
            raise self._error
        return self.result

    def add_done_callback(self, function: Callable[["Handle"], None]) -> None:
        """Calls `function(handle)` when the collective is done, from the thread that drives it; at once if it is.

        What the function raises is logged, and otherwise without effect.
        """
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(function)
                return
        self._call(function)

    def sleep(self, seconds: float) -> None:
        """Waits for another thread to make it done, at most so long."""
        self._event.wait(seconds)

    def complete(self, parts: int) -> None:
        """So many of its tensors are done; with the last of them the handle is."""
        with self._lock:
            self._left -= parts
            if self._left > 0:
                return
        error: BaseException | None = None
        if self.finish is not None:
            try:
                self.finish()
            except Exception as failure:
                error = failure
        self.settle(error)

    def settle(self, error: BaseException | None) -> None:
        """Makes it done, unless it is."""
        with self._lock:
            if self._event.is_set():
                return
            self._error = error
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        self.finish = self.owner = self._engine = None
        for function in callbacks:
            self._call(function)

    def _call(self, function: Callable[["Handle"], None]) -> None:
        try:
            function(self)
        except Exception:
            # It would otherwise end the thread that all collectives of this worker depend on.
            _log.exception("the done callback %r failed", function)
