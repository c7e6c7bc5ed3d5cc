"""Signals that end a run early: the first one does, and the others wait until it has been cleaned up."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NOHUP: Final = (signal.SIGHUP, signal.SIG_IGN)
_PATIENCE: Final = b"\nwiresum: cleaning up, which takes some seconds\n"


class Interrupted(SystemExit):
    """A signal came; the exit code is 128 + its number."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(128 + number)
        self.number = number


class Interruption:
    """Takes SIGINT, SIGTERM and SIGHUP while it is entered; only in the main thread.

    The first one raises `Interrupted` in the main thread or, after `hold`, is only remembered. No later one disturbs
    what has to be done then.

    Attributes:
        number: the signal that came, if one did.
    """

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._held = False
        self._at_prompt = False
        self._before: dict[signal.Signals, Any] = {}

    def pending(self) -> signal.Signals | None:
        """The signal that came, as a function."""
        return self.number

    def raise_pending(self) -> None:
        """Raises `Interrupted` if a signal has come."""
        if self.number is not None:
            raise Interrupted(self.number)

    def hold(self) -> None:
        """From now on a signal is only remembered."""
        self._held = True

    @contextmanager
    def at_prompt(self) -> Iterator[None]:
        """Within, signals raise; but Ctrl-C on a terminal ends what the prompt does at the moment, as in a shell."""
        self._at_prompt, self._held = sys.stdin.isatty(), False
        try:
            self.raise_pending()
            yield
        finally:
            self._at_prompt, self._held = False, True

    def _take(self, number: int, frame: object) -> None:
        if self.number is not None:
            # Not by sys.stderr, which may be writing at this moment.
            os.write(2, _PATIENCE)
        elif self._at_prompt and number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            self.number = signal.Signals(number)
            if not self._held:
                raise Interrupted(self.number)

    def __enter__(self) -> Self:
        # Under nohup, a run is to outlive its terminal.
        taken = [number for number in _SIGNALS if (number, signal.getsignal(number)) != _NOHUP]
        self._before = {number: signal.signal(number, self._take) for number in taken}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextmanager
def signals_later() -> Iterator[None]:
    """Within, the signals that end a run do nothing; one that came takes effect afterwards.

    Programs that are started within are spared them, too: a terminal sends Ctrl-C to all that it runs.
    """
    came: list[int] = []  # where another thread takes it; this one leaves it pending
    before: Mapping[signal.Signals, Any] = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, before)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
