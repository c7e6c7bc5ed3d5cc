"""Python modules in processes of their own that never outlive the process that started them.

`SwitchProcess` runs `wiresum switch` on free ports; the demo, the tests and the benchmarks stand on it. Start processes
from a thread that lives as long as they should: the kernel ends them when that thread goes.
"""

import contextlib
import ctypes
import os
import queue
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from protocol.errors import WiresumError

_PR_SET_PDEATHSIG: Final = 1
_READY: Final = re.compile(r"^wiresum switch ready: control (\S+) data (\S+)$")
_STDERR_TAIL_BYTES: Final = 4000


class ProcessFailedError(WiresumError):
    """A process ended, or did not get ready, when it should not have; the text ends with what it said last."""


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the process with id `parent`, which started it, is gone, even by kill -9.

    Does nothing where the kernel is not Linux.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it went before we asked
        os._exit(1)


class Child:
    """`python -m MODULE ARGS...` in a process of its own.

    Args:
        module: name of the module to run.
        args: its command line.
        name: what messages call it.
        on_line: called from a thread with each line of the child's standard output, and with None at the end.
        environment: variables added to this process's environment.
        prefix: a command that executes the rest of its command line in its place, such as `ip netns exec NAME`.
    """

    def __init__(
        self,
        module: str,
        args: Sequence[str],
        *,
        name: str,
        on_line: Callable[[str | None], None],
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._on_line = on_line
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object is
        self._process = self._start(module, args, environment or {}, prefix)
        self._reader = threading.Thread(target=self._read, name=f"stdout of {name}", daemon=True)
        self._reader.start()

    def _start(
        self, module: str, args: Sequence[str], environment: Mapping[str, str], prefix: Sequence[str]
    ) -> "subprocess.Popen[bytes]":
        # A session of its own keeps a Ctrl-C at the terminal from reaching the child behind its parent's back.
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "wiresum.processes", str(os.getpid()), module, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **environment},
            start_new_session=True,
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._on_line(line.decode(errors="replace").rstrip("\r\n"))
        self._on_line(None)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def returncode(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self._process.poll()

    def wait(self, timeout: float) -> int:
        """Waits for the process to end by itself and returns its exit code.

        Raises:
            ProcessFailedError: it still runs after `timeout` seconds.
        """
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProcessFailedError(f"{self.name} has not ended within {timeout:g} s") from None

    def send_signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless the process has ended."""
        self._process.send_signal(number)

    def stderr(self) -> str:
        """The end of what the process wrote to its standard error."""
        if self._stderr.closed:
            return ""
        size = os.fstat(self._stderr.fileno()).st_size
        start = max(0, size - _STDERR_TAIL_BYTES)
        return os.pread(self._stderr.fileno(), size - start, start).decode(errors="replace").strip()

    def failure(self, what: str) -> ProcessFailedError:
        """An error that says `what` happened to this process and what it said last."""
        said = self.stderr()
        return ProcessFailedError(f"{self.name} {what}" + (f"; it said:\n{said}" if said else ""))

    def stop(self, grace: float = 5.0) -> int:
        """Ends the process, by SIGTERM and after `grace` seconds by SIGKILL; returns its exit code. Idempotent."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)  # a stopped process takes SIGTERM only when it goes on
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        return self.kill()

    def kill(self) -> int:
        """Ends the process by SIGKILL if it still runs; returns its exit code. Idempotent."""
        self._process.kill()
        code = self._process.wait()
        self._reader.join()
        self._stderr.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def describe_exit(code: int) -> str:
    """An exit code in words: "exited with code 1", "was killed by SIGKILL"."""
    if code >= 0:
        return f"exited with code {code}"
    return f"was killed by {signal.Signals(-code).name}"


class SwitchProcess(Child):
    """`wiresum switch` in a process of its own, on free ports of 127.0.0.1 unless `args` say otherwise.

        with SwitchProcess("--slots", "512") as switch:
            Communicator(switch=switch.address, ...)

    Args:
        args: further options of `wiresum switch`.
        ready_within: seconds it may take to get ready; the first start compiles kernels.

    Attributes:
        address: "host:port" of its control service, for `Communicator` and WIRESUM_SWITCH.
        data_address: "host:port" that workers send packets to.

    Raises:
        ProcessFailedError: it ended, or took too long, before it was ready.
    """

    def __init__(self, *args: str, ready_within: float = 120.0) -> None:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        ready = threading.Event()

        def on_line(line: str | None) -> None:
            if not ready.is_set():
                lines.put(line)

        command = ["switch", "--bind", "127.0.0.1", "--port", "0", "--control-port", "0", *args]
        super().__init__("wiresum", command, name="the switch", on_line=on_line)
        try:
            self.address, self.data_address = self._await_ready(lines, time.monotonic() + ready_within)
        except BaseException:
            self.stop(grace=1.0)
            raise
        ready.set()

    def _await_ready(self, lines: "queue.SimpleQueue[str | None]", deadline: float) -> tuple[str, str]:
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise self.failure("did not get ready in time") from None
            if line is None:
                raise self.failure(f"{describe_exit(self._process.wait())} before it was ready")
            if match := _READY.match(line):
                return match[1], match[2]


def _main() -> None:
    """Runs the module that the command line names, in a process that dies with its parent."""
    parent, module, *args = sys.argv[1:]
    die_with_parent(int(parent))
    sys.argv = [module, *args]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
