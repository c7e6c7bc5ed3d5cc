"""Waiting for what packets from the target answer to packets to the target."""

import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

from protocol.errors import WiresumError


class Replies:
    """Brings replies, which may come in any order or not at all, to those who wait for them. Thread-safe."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, Future[Any]] = {}
        self._failure: WiresumError | None = None

    def post(self, key: Hashable, value: Any) -> None:
        """A reply has come; it is dropped if nobody waits for it."""
        future = self._waiting.pop(key, None)
        if future is not None:
            future.set_result(value)

    def fail(self, failure: WiresumError) -> None:
        """No further replies will come: all who wait, or ever will, get this error."""
        self._failure = failure
        for key in list(self._waiting):
            future = self._waiting.pop(key, None)
            if future is not None:
                future.set_exception(failure)

    def ask(
        self, keys: Iterable[Hashable], send: Callable[[Any], None], *, every: float, within: float
    ) -> dict[Any, Any]:
        """Asks until all replies have come, or the time is over.

        Args:
            keys: of the replies.
            send: asks for one of them.
            every: seconds between questions.
            within: seconds in all.

        Returns:
            the replies that have come.

        Raises:
            WiresumError: what `fail` was called with.
        """
        futures = {key: self._waiting.setdefault(key, Future()) for key in keys}
        deadline = time.monotonic() + within
        try:
            while True:
                if self._failure is not None:
                    raise self._failure
                open_keys = [key for key, future in futures.items() if not future.done()]
                left = deadline - time.monotonic()
                if not open_keys or left <= 0:
                    return {key: future.result() for key, future in futures.items() if future.done()}
                for key in open_keys:
                    send(key)
                wait(futures.values(), timeout=min(every, left), return_when=FIRST_EXCEPTION)
        finally:
            for key in futures:
                self._waiting.pop(key, None)
