"""Programs that run in a network namespace and end with the process that started them, even by kill -9.

Start them from a thread that lives as long as they should: the kernel ends them when that thread goes.
"""

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from protocol.errors import WiresumError
from wiresum.processes import describe_exit

_TAIL_LINES: Final = 40
_DRAIN_SECONDS: Final = 1.0


class LabError(WiresumError):
    """A network could not be set up, or something in it failed."""


def enter(place: int | Path | None) -> list[str]:
    """The beginning of a command line that runs the rest in other namespaces.

    Args:
        place: a process, in whose namespaces; a file that stands for a network namespace; None for our own.
    """
    if isinstance(place, Path):
        return ["nsenter", f"--net={place}"]
    return [] if place is None else ["mnexec", "-a", str(place)]


def run_in(place: int | Path | None, *command: str, timeout: float = 30.0) -> str:
    """Runs a command in the namespaces that `enter` tells of, and returns what it writes.

    Raises:
        LabError: it failed; the text ends with what it said.
    """
    try:
        done = subprocess.run(
            [*enter(place), *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
    except FileNotFoundError as error:
        raise LabError(f"{error.filename} is not installed") from None
    except subprocess.TimeoutExpired:
        raise LabError(f"{' '.join(command)} has not ended within {timeout:g} s") from None
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or describe_exit(done.returncode)
        raise LabError(f"{' '.join(command)}: {said}")
    return done.stdout


class Log:
    """A file of lines that takes a full disk calmly: it stops, and remembers why. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._lock = threading.Lock()
        self._file: IO[str] | None = None
        try:
            self._file = path.open("a", errors="replace", buffering=1)
        except OSError as error:
            self._fail(error)

    def write(self, line: str) -> None:
        """Adds a line; after `close`, nothing."""
        with self._lock:
            if self._file is not None and not self.problem:
                try:
                    self._file.write(line + "\n")
                except OSError as error:
                    self._fail(error)

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                try:
                    file.close()
                except OSError as error:
                    self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.problem = self.problem or f"{self.path} is not complete: {error.strerror}"


class Program:
    """A command in a namespace; its standard output and error go line by line to a log and a callback.

    Args:
        name: what messages call it.
        command: its words.
        namespace: a process whose namespaces it runs in, or None.
        environment: all its variables; None for those of this process.
        log: file for its lines.
        on_line: called from a thread with each line.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        namespace: int | None,
        environment: Mapping[str, str] | None = None,
        log: Path | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self.started = time.monotonic()
        self.ended: float | None = None
        self.log = None if log is None else Log(log)
        self._on_line = on_line
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._drain_by: float | None = None
        self._fresh: queue.SimpleQueue[str | None] | None = queue.SimpleQueue()
        self._process = subprocess.Popen(
            # setpriv after mnexec: the kernel's promise to end it with us does not survive entering namespaces for all.
            [*enter(namespace), "setpriv", "--pdeathsig", "KILL", "--", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"output of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for raw in lines:
                self._take(raw.decode(errors="replace").rstrip("\r\n"))
        if (fresh := self._fresh) is not None:
            fresh.put(None)

    def _take(self, line: str) -> None:
        self._tail.append(line)
        if self.log is not None:
            self.log.write(line)
        if (fresh := self._fresh) is not None:
            fresh.put(line)
        if self._on_line is not None:
            self._on_line(line)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        code = self._process.poll()
        if code is not None and self.ended is None:
            self.ended = time.monotonic()
        return code

    @property
    def seconds(self) -> float:
        """How long it ran, or runs already."""
        return (self.ended or time.monotonic()) - self.started

    def said(self) -> str:
        """The last lines of its output."""
        if self.poll() is not None:  # they may not have been read yet
            self._reader.join(_DRAIN_SECONDS)
        return "\n".join(self._tail)

    def failure(self, what: str) -> LabError:
        """An error that says `what` happened to it and what it said last."""
        said = self.said()
        return LabError(f"{self.name} {what}" + (f"; it said:\n{said}" if said else ""))

    def await_line(self, pattern: str, seconds: float) -> re.Match[str]:
        """Waits for a line that begins as `pattern` says; only before anything else has waited.

        Raises:
            LabError: it ended, or took too long.
        """
        assert self._fresh is not None
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._fresh.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise self.failure(f"did not get ready within {seconds:g} s") from None
            if line is None:
                raise self.failure(f"{describe_exit(self._process.wait())} before it was ready")
            if found := re.match(pattern, line):
                self._fresh = None
                return found

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal to it and to all of its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL, without waiting."""
        self.send_signal(signal.SIGKILL)
        self._drain_by = self._drain_by or time.monotonic() + _DRAIN_SECONDS

    def end(self, grace: float = 3.0, gentle: signal.Signals = signal.SIGTERM) -> int:
        """Ends it, by `gentle` and after `grace` seconds by SIGKILL, and its process group; returns its exit code."""
        if self.poll() is None and grace > 0:
            self.send_signal(gentle)
            self.send_signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self.kill()
        code = self._process.wait()
        self.poll()
        # A process that has left the group may hold the pipe open. It is waited for once, and for all at the same time.
        assert self._drain_by is not None
        self._reader.join(max(0.0, self._drain_by - time.monotonic()))
        if self.log is not None:
            self.log.close()
        return code


def end_all(programs: Sequence[Program], grace: float = 3.0, gentle: signal.Signals = signal.SIGTERM) -> None:
    """Ends several, all of them within `grace` seconds."""
    deadline = time.monotonic() + grace
    for program in programs:
        if program.poll() is None:
            program.send_signal(gentle)
            program.send_signal(signal.SIGCONT)
    while time.monotonic() < deadline and any(program.poll() is None for program in programs):
        time.sleep(0.02)
    for program in programs:
        program.kill()
    for program in programs:
        program.end(grace=0)
