"""Python modules in processes that are forked from one that has imported what takes them long.

    class RankProcess(ForkedChild, starter=Starter("host.communicator")): ...

Importing numba takes a process most of a second of processor time and torch several seconds; a fork costs nothing. What
is forked is a process like any other, with a session, standard streams and an exit code of its own, and goes with the
process that asked for it. The starter has no threads and no connections, which would not survive a fork.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Final

from wiresum.processes import Child, die_with_parent

_ROOT: Final = Path(__file__).resolve().parent.parent
_LONGEST: Final = 1 << 17  # bytes of a request
_CLONE_NEWNET: Final = 0x40000000
_IN_NAMESPACE: Final = ("ip", "netns", "exec")
_START_SECONDS: Final = 60.0


class Starter:
    """Forks processes; its own starts when it is first needed and ends with this one, even if that is killed.

    Args:
        modules: to import beforehand. None of them may start threads, or be one that is then run.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._starting = threading.Lock()
        self._socket: socket.socket | None = None

    def start(
        self, module: str, args: Sequence[str], *, stderr: int, environment: Mapping[str, str], namespace: str | None
    ) -> "Forked":
        """`python -m module args`, in a network namespace of that name; its standard output is a pipe."""
        with self._starting:
            if self._socket is None:
                self._socket = self._begin()
        request = {
            "module": module,
            "args": [*args],
            "environment": {**os.environ, **environment},
            "folder": os.getcwd(),
            "namespace": namespace,
        }
        output, stdout = os.pipe()
        news, status = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [stdout, stderr, status])
        finally:
            os.close(stdout)
            os.close(status)
        return Forked(open(output, "rb"), open(news, "rb", buffering=0))

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # It ends when our end of the connection closes.
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.starter", str(theirs.fileno()), *self._modules],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours


class Forked(subprocess.Popen[bytes]):
    """What a starter has forked: the parts of `Popen` that `Child` uses.

    Args:
        stdout: its output.
        news: where the starter tells its process id and then, when it has ended, its exit code.
    """

    def __init__(self, stdout: IO[bytes], news: IO[bytes]) -> None:
        # Not Popen's own: nothing is left to be started, and the process is no child of ours.
        self._child_created = False
        self.stdout = stdout
        self.returncode = None
        self._news = news
        self._asking = threading.Lock()
        said = self._read(_START_SECONDS)
        assert said is not None, "the starter did not start a process"
        self.pid = said

    def __del__(self, *_: object) -> None:
        """Popen's own would wait for the process."""

    def _read(self, seconds: float | None) -> int | None:
        if not select.select([self._news], [], [], seconds)[0]:
            return None
        said = self._news.read(16)
        return int(said) if said else -signal.SIGKILL  # the starter was killed, and its children with it

    def poll(self) -> int | None:
        """See `Popen`."""
        with self._asking:
            if self.returncode is None and (code := self._read(0)) is not None:
                self.returncode = code
                self._news.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """See `Popen`."""
        if self.poll() is None:
            with contextlib.suppress(ValueError):  # closed: another thread has taken the exit code
                select.select([self._news], [], [], timeout)
            if self.poll() is None:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        return self.returncode


class ForkedChild(Child):
    """A `Child` that a starter forks; a subclass names the starter."""

    _starter: ClassVar[Starter]

    def __init_subclass__(cls, *, starter: Starter | None = None, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        if starter is not None:
            cls._starter = starter

    def _start(
        self, module: str, args: Sequence[str], environment: Mapping[str, str], prefix: Sequence[str]
    ) -> "subprocess.Popen[bytes]":
        assert not prefix or tuple(prefix[:-1]) == _IN_NAMESPACE, prefix
        return self._starter.start(
            module,
            args,
            stderr=self._stderr.fileno(),
            environment=environment,
            namespace=prefix[-1] if prefix else None,
        )


def _serve(connection: socket.socket) -> tuple[str, list[str]] | None:
    """Forks what is asked for; returns in each child what to run there, and in the starter None at its end."""
    running: dict[int, int] = {}  # process id to where to tell its exit code

    def reap(*_: object) -> None:
        while running:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:  # the next signal came in the middle of this function, which has seen to all
                return
            if pid == 0:
                return
            _tell(running.pop(pid), os.waitstatus_to_exitcode(status), close=True)

    signal.signal(signal.SIGCHLD, reap)
    starter = os.getpid()
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, _LONGEST, 3)
        if not data:
            return None
        *streams, status = descriptors
        request = json.loads(data)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            die_with_parent(starter)
            connection.close()
            for descriptor in (status, *running.values()):
                os.close(descriptor)
            _become(request, streams)
            return request["module"], request["args"]
        running[pid] = status
        _tell(status, pid)
        for descriptor in streams:
            os.close(descriptor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _tell(descriptor: int, number: int, *, close: bool = False) -> None:
    """Writes a number, in as many bytes as each is read."""
    try:
        os.write(descriptor, f"{number:16}".encode())
    except BrokenPipeError:  # whoever asked is gone
        pass
    finally:
        if close:
            os.close(descriptor)


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Makes this process look as if it had been started for the request."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.path[0] = request["folder"]
    for number, descriptor in enumerate(streams, 1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["namespace"] is not None:
        with open(f"/run/netns/{request['namespace']}") as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter namespace {request['namespace']}")


def _main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    if (work := _serve(connection)) is None:
        return
    module, args = work
    sys.argv = [module, *args]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
