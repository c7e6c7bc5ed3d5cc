"""What a run has taken on this machine, and the removal of what a killed one has left.

Every process of a run carries the run's id in its environment or is in a network namespace that does, and namespaces
and interfaces go with the last process in them. A run holds a lock on a file of its own; when the lock is free and the
file is still there, the run was killed.
"""

import fcntl
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wiresum.lab.namespaces import namespace_of, namespaces_of, process_ids

VARIABLE: Final = "WIRESUM_RUN"
_PREFIX: Final = "wiresum-"
_END_SECONDS: Final = 5.0


def marks_folder() -> Path:
    """Where the locks are; for root /run/wiresum."""
    parent = Path("/run")
    return (parent if os.access(parent, os.W_OK) else Path(tempfile.gettempdir())) / "wiresum"


class RunMark:
    """The lock of one run, and a folder for its sockets and scratch files, from `__enter__` to `close`.

    Attributes:
        id: which no other run on this machine has.
        scratch: an empty folder, removed at the end.
    """

    def __init__(self) -> None:
        self.id = f"{_PREFIX}{secrets.token_hex(4)}"
        folder = marks_folder()
        folder.mkdir(mode=0o755, exist_ok=True)
        self.scratch = folder / self.id
        self.scratch.mkdir(mode=0o700)
        self._path = folder / f"{self.id}.lock"
        fresh = folder / f".{self.id}"  # nobody may see it unlocked
        self._descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())
        fresh.rename(self._path)

    def close(self) -> None:
        """Ends what still runs of this run and removes its files; idempotent."""
        if self._descriptor < 0:
            return
        end_processes(self.id)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remove_leftovers() -> list[str]:
    """Ends processes and removes files of runs whose owner is gone, and nothing else; returns those runs' ids."""
    found = []
    for path in sorted(marks_folder().glob(f"{_PREFIX}*.lock")):
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:  # it ended meanwhile
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # it lives
            continue
        else:
            if not os.fstat(descriptor).st_nlink:  # it ended in order meanwhile
                continue
            end_processes(path.stem)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink(missing_ok=True)
            found.append(path.stem)
        finally:
            os.close(descriptor)
    return found


def end_processes(run: str) -> int:
    """Kills every process of a run; returns how many.

    Raises:
        TimeoutError: some do not go.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _END_SECONDS
    with namespaces_of(run) as namespaces:
        while pids := _processes(run, namespaces):
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {sorted(pids)} of run {run} cannot be ended")
            for pid in pids:
                _kill(pid, run, namespaces)
            killed |= pids
            time.sleep(0.01)
    return len(killed)


def processes_of(run: str) -> set[int]:
    """A run's processes, without this one and those that are about to be gone."""
    with namespaces_of(run) as namespaces:
        return _processes(run, namespaces)


def _processes(run: str, namespaces: Collection[int]) -> set[int]:
    return {pid for pid in process_ids() if pid != os.getpid() and _belongs(pid, run, namespaces)}


def _belongs(pid: int, run: str, namespaces: Collection[int]) -> bool:
    if namespace_of(pid) in namespaces:
        return True
    try:
        return f"{VARIABLE}={run}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _kill(pid: int, run: str, namespaces: Collection[int]) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _belongs(pid, run, namespaces):  # the number may have gone to another process meanwhile
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
