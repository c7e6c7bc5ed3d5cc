"""What a run shows while it lasts: what hosts write and, while they are silent, who runs and what passes the links."""

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Final

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType

from wiresum.lab.network import Lab
from wiresum.lab.programs import Program
from wiresum.lab.run import listed

_SILENCE: Final = 2.0  # seconds, after which a terminal shows a status
_EVERY: Final = 1.0
_FIRST_PLAIN: Final = 5.0  # where it cannot be rewritten it is said rarely, and ever more so
_LAST_PLAIN: Final = 60.0
_ERASE_LINE: Final = 2
_BACKLOG: Final = 100  # lines that wait to be written
_LAST_BACKLOG: Final = 100_000  # the same with what the pipes of hosts that have ended still held
_LOOK: Final = 0.1  # seconds, after which it is seen that a host has ended
_PATIENCE: Final = 2.0  # seconds for what is written to be read


class Screen:
    """Standard output for what hosts write, standard error for what the run says; to be used from any thread.

    Nothing that happens to a terminal or a pipe ends a run or holds it up: a thread of its own writes. Hosts wait while
    their lines are not read, the run itself waits for some seconds at most.

    Args:
        quiet: whether to leave out what hosts write.
        console: for what the run says.

    Attributes:
        rewrites: whether a status is a line that is rewritten in place.
        spoken: when the last line was written, by `time.monotonic`.
    """

    def __init__(self, *, quiet: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._quiet = quiet
        self._shown = False
        self._stuck = False
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], object], bool]] = deque()  # and whether it is the run's own
        self._handed = self._written = 0
        self._writer: threading.Thread | None = None
        self.rewrites = self._console.is_terminal and not self._console.is_dumb_terminal
        self.spoken = monotonic()

    def line(self, host: str, text: str, running: Callable[[], bool] = lambda: True) -> None:
        """A line that a host has written; waits while too many are not read yet.

        Args:
            host: its name.
            text: the line.
            running: whether the host still runs. What it leaves when it has ended is taken at once, so that its log
                gets all of it before the run goes on, and the screen before the summary.
        """
        if self._quiet:
            return
        with self._changed:
            while (waiting := self._handed - self._written) >= _BACKLOG and (waiting >= _LAST_BACKLOG or running()):
                self._changed.wait(_LOOK)
        self._hand(
            partial(self._write, lambda: (sys.stdout.write(f"[{host}] {text}\n"), sys.stdout.flush())), own=False
        )

    def tell(self, text: str) -> None:
        """A line of the run's own."""
        self._do(partial(self._write, lambda: self._console.file.write(f"wiresum mininet: {text}\n")))
        self.spoken = monotonic()  # also if nobody reads it, or it would be said at every tick

    def show(self, draw: Callable[[Console], object]) -> None:
        """Whatever else is drawn on the console."""
        self._do(partial(self._write, lambda: draw(self._console)))

    def status(self, text: str) -> None:
        """A line that the next one, of whatever kind, replaces; only where that can be, and nothing else waits."""
        if self.rewrites and self._handed == self._written:
            self._do(partial(self._show_status, text))

    def clear(self) -> None:
        """Takes the status away, when all that was to be written before has been."""
        self._do(self._clear)

    def close(self) -> bool:
        """Waits for what is still to be written as long as it moves on; returns whether all is.

        If it is not, because nobody reads what hosts write, what the run says is written without that, where it can be.
        """
        with self._changed:
            while (written := self._written) < self._handed:
                if not self._changed.wait_for(lambda: self._written > written, _PATIENCE):
                    break
            else:
                return True
            own = [action for action, is_own in self._waiting if is_own]
            lines = len(self._waiting) - len(own)
            self._waiting.clear()
        if lines:
            text = f"wiresum mininet: {lines:,} lines of hosts are only in the logs, as nobody reads them here\n"
            own.append(partial(self._write, lambda: self._console.file.write(text)))
        past = threading.Thread(target=lambda: [action() for action in own], name="screen's last", daemon=True)
        past.start()
        past.join(_PATIENCE)
        return False

    def _do(self, action: Callable[[], object]) -> None:
        """Has something written, and waits for it unless nobody reads what is written."""
        number = self._hand(action, own=True)
        with self._changed:
            patience = 0 if self._stuck else _PATIENCE
            self._stuck = not self._changed.wait_for(lambda: self._written >= number, patience)

    def _hand(self, action: Callable[[], object], *, own: bool) -> int:
        """Gives something to the writer; returns how many there will be when it has been written."""
        with self._changed:
            if self._writer is None:
                self._writer = threading.Thread(target=self._serve, name="screen", daemon=True)
                self._writer.start()
            self._waiting.append((action, own))
            self._handed += 1
            self._changed.notify_all()
            return self._handed

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                action, _ = self._waiting.popleft()
            action()
            with self._changed:
                self._written += 1
                self._stuck = False
                self._changed.notify_all()

    # In the writer

    def _show_status(self, text: str) -> None:
        self._clear()
        self._try(lambda: (self._console.file.write(text[: self._console.width - 1]), self._console.file.flush()))
        self._shown = True

    def _clear(self) -> None:
        if self._shown:
            self._shown = False
            erase = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, _ERASE_LINE))
            self._try(lambda: self._console.control(erase))

    def _write(self, write: Callable[[], object]) -> None:
        self._clear()
        self._try(write)
        self.spoken = monotonic()

    @staticmethod
    def _try(write: Callable[[], object]) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal has gone, or the pipe is closed
            write()


class Traffic:
    """Rates over the hosts' links, from the counters of their interfaces."""

    def __init__(self, interfaces: Sequence[tuple[int, str]]) -> None:
        self._interfaces = interfaces
        self._last = monotonic(), self._read()

    @classmethod
    def of(cls, lab: Lab) -> "Traffic":
        """The links of all hosts."""
        return cls([lab.interfaces(lab.topology.link_of(host.name))[0] for host in lab.topology.hosts])

    def rates(self) -> tuple[float, float]:
        """Mbit/s that all hosts have sent and received since the last call."""
        before, (now, counts) = self._last, (monotonic(), self._read())
        self._last = now, counts
        seconds = max(now - before[0], 1e-3)
        sent, received = (max(0, new - old) * 8e-6 / seconds for new, old in zip(counts, before[1], strict=True))
        return sent, received

    def _read(self) -> tuple[int, int]:
        sent = received = 0
        for pid, interface in self._interfaces:
            try:
                lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
            except OSError:  # the host has ended
                continue
            for line in lines:
                name, _, numbers = line.partition(":")
                if name.strip() == interface:
                    fields = numbers.split()
                    received, sent = received + int(fields[0]), sent + int(fields[8])
        return sent, received


class Progress:
    """Says what a run is at, whenever nobody has said anything for a while."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._traffic: Traffic | None = None
        self._next = 0.0
        self._patience = _FIRST_PLAIN

    def watch(self, lab: Lab) -> None:
        """Measures the traffic of this network from now on."""
        self._traffic = Traffic.of(lab)

    def step(self, text: str) -> None:
        """What is done now, and may take a while."""
        if self._screen.rewrites:
            self._screen.status(text)
        elif monotonic() - self._screen.spoken > _FIRST_PLAIN:
            self._screen.tell(text)

    def tick(self, programs: Sequence[Program]) -> None:
        """To be called many times a second while hosts run."""
        now = monotonic()
        silence = now - self._screen.spoken
        if self._screen.rewrites:
            if silence > _SILENCE and now >= self._next:
                self._next = now + _EVERY
                self._screen.status(self._text(programs))
        elif silence > self._patience:
            self._patience = min(2 * self._patience, _LAST_PLAIN)
            self._screen.tell(self._text(programs))

    def _text(self, programs: Sequence[Program]) -> str:
        running = listed([program.name for program in programs if program.poll() is None])
        text = f"{programs[0].seconds:.0f} s: {running} running"
        if self._traffic is not None:
            sent, received = self._traffic.rates()
            text += f"; {sent:,.1f} Mbit/s from the hosts, {received:,.1f} Mbit/s to them"
        return text
