"""Network namespaces of a run: their loopback interfaces bear the run's id, which no process in them can lose."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from wiresum.lab.programs import run_in

_OWN: Final = "/proc/self/ns/net"
_SECONDS: Final = 20.0


def claim_namespace(pid: int, run: str) -> None:
    """Says whose the network namespace of a process is.

    Raises:
        LabError: it cannot be entered.
    """
    run_in(pid, "ip", "link", "set", "dev", "lo", "alias", run)


@contextmanager
def namespaces_of(run: str) -> Iterator[frozenset[int]]:
    """The inode numbers of a run's namespaces, without our own; within, the kernel gives them to no other namespace.

    The kernel keeps no list of namespaces. One without a process or a mount ends by itself; the others are found by
    their processes.
    """
    found = set()
    seen = {os.stat(_OWN).st_ino}
    with ExitStack() as held:
        for pid in process_ids():
            number = namespace_of(pid)
            if number is None or number in seen:
                continue
            try:
                descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
            except OSError:  # it has ended; another process may lead to the same namespace
                continue
            held.callback(os.close, descriptor)
            number = os.fstat(descriptor).st_ino
            seen.add(number)
            if _alias(descriptor) == run:
                found.add(number)
        yield frozenset(found)


class HeldNamespaces:
    """Keeps network namespaces and what is counted in them, also without a process there, until `close`."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}

    def hold(self, pid: int) -> None:
        """Keeps the namespace that a process is in."""
        self._held[pid] = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)

    def place(self, pid: int) -> Path:
        """What `run_in` takes, for the namespace that a process was in when it was held."""
        return Path(f"/proc/{os.getpid()}/fd/{self._held[pid]}")

    def close(self) -> None:
        """Lets go of all; idempotent."""
        while self._held:
            os.close(self._held.popitem()[1])


def process_ids() -> Iterator[int]:
    """All processes."""
    return (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())


def namespace_of(pid: int) -> int | None:
    """The inode number of a process's network namespace; None if it has ended or we may not know."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


def _alias(descriptor: int) -> str | None:
    """What is written at the loopback interface of an open network namespace."""
    command = ["nsenter", f"--net=/proc/self/fd/{descriptor}", "ip", "-j", "link", "show", "dev", "lo"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, pass_fds=[descriptor], timeout=_SECONDS
        )
        (link,) = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):  # not to be entered by us, so not ours
        return None
    alias: str | None = link.get("ifalias")
    return alias
