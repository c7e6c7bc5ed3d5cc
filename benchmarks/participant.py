"""One worker process of a benchmark: holds a tensor and reduces it, on command, through whatever was opened."""

import contextlib
import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wiresum.processes import die_with_parent

Floats = npt.NDArray[np.float32]
_BARRIER_SECONDS = 120.0


class Barrier(Protocol):
    """What this module needs of multiprocessing's barrier."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits until all have come."""
        ...

    def abort(self) -> None:
        """Has all who wait, now or later, fail."""
        ...


@dataclass(frozen=True, kw_only=True)
class SideSpec:
    """A way to reduce. `address` is the switch's control address, or for Gloo the rendezvous file's path."""

    kind: str  # "gloo", "wiresum" (its Communicator) or "backend" (wiresum through torch.distributed)
    address: str
    store: str = ""  # rendezvous file of kind "backend"
    job: str = "benchmark"
    values: int = 256
    slots: int | None = None


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one worker saw of one sample."""

    seconds: float  # wall time of one all_reduce
    cpu_seconds: float  # of this process, for one all_reduce


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Of one process, in bytes.

    Attributes:
        anonymous: the part of `resident` that no file backs, and that therefore no other process shares.
        peak: the highest that `resident` was.
    """

    resident: int
    anonymous: int
    peak: int


@dataclass(frozen=True)
class _Side:
    all_reduce: Callable[[Floats], object]
    close: Callable[[], object]
    statistics: Callable[[], dict[str, int]]


def memory_of(pid: int | str = "self") -> Memory:
    """Resident memory of a process, as /proc tells it."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident, anonymous, peak = (1024 * int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon", "VmHWM"))
    return Memory(resident=resident, anonymous=anonymous, peak=peak)


def cpu_seconds_of(pid: int) -> float:
    """CPU time, user and system, that the living threads of a process have used, to the nanosecond where known."""
    try:
        return sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    except (OSError, IndexError):  # a kernel without it counts in clock ticks, usually of 10 ms
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _own_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Participant:
    """The commands that a worker process understands."""

    def __init__(self, rank: int, world_size: int, barrier: Barrier) -> None:
        self._rank = rank
        self._world_size = world_size
        self._barrier = barrier
        self._sides: dict[str, _Side] = {}
        self._tensor: Floats = np.zeros(0, np.float32)

    def allocate(self, elements: int) -> None:
        """Makes the tensor that is reduced."""
        self._tensor = np.empty(elements, np.float32)
        self._fill()

    def _fill(self) -> None:
        """The same random numbers on every worker, times rank + 1: so the sum is known everywhere without a word."""
        np.random.default_rng(1).standard_normal(self._tensor.size, np.float32, out=self._tensor)
        self._tensor *= self._rank + 1

    def open(self, name: str, spec: SideSpec) -> None:
        """Opens a way to reduce, under a name; all workers at once."""
        self._sides[name] = _OPENERS[spec.kind](spec, self._rank, self._world_size)

    def close(self, name: str) -> None:
        """Closes what was opened under that name."""
        self._sides.pop(name).close()

    def check(self, name: str) -> float:
        """Reduces once and returns the largest error, as a share of the largest magnitude of the exact sum."""
        self._fill()
        factor = self._world_size * (self._world_size + 1) // 2 / (self._rank + 1)
        expected = self._tensor * np.float32(factor)
        self._sides[name].all_reduce(self._tensor)
        if not self._tensor.size:
            return 0.0
        np.subtract(self._tensor, expected, out=self._tensor)
        return float(np.abs(self._tensor).max() / np.abs(expected).max())

    def time(self, name: str, iterations: int) -> Timing:
        """Reduces `iterations` times from a barrier on, each call after the last has ended, and returns the mean.

        After each call the tensor is divided by the number of workers, lest it grow without end. That is in the time
        of a loop, but not in that of a single call.
        """
        all_reduce = self._sides[name].all_reduce
        share = np.float32(1 / self._world_size)
        tensor = self._tensor
        self._barrier.wait(_BARRIER_SECONDS)
        cpu = _own_cpu_seconds()
        start = time.perf_counter()
        for _ in range(iterations - 1):
            all_reduce(tensor)
            tensor *= share
        all_reduce(tensor)
        seconds = time.perf_counter() - start
        cpu = _own_cpu_seconds() - cpu
        tensor *= share
        return Timing(seconds=seconds / iterations, cpu_seconds=cpu / iterations)

    def statistics(self, name: str) -> dict[str, int]:
        """What the library has counted since it was opened; empty for Gloo."""
        return self._sides[name].statistics()

    def memory(self) -> Memory:
        """This process's memory."""
        return memory_of()

    def shut_down(self) -> None:
        """Closes everything."""
        while self._sides:
            self._sides.popitem()[1].close()


def _open_gloo(spec: SideSpec, rank: int, world_size: int) -> _Side:
    return _open_torch("gloo", spec.address, rank, world_size)


def _open_backend(spec: SideSpec, rank: int, world_size: int) -> _Side:
    os.environ["WIRESUM_SWITCH"] = spec.address
    import wiresum

    wiresum.register()
    return _open_torch("wiresum", spec.store, rank, world_size)


def _open_torch(backend: str, store: str, rank: int, world_size: int) -> _Side:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=world_size)

    def all_reduce(tensor: Floats) -> None:
        dist.all_reduce(torch.from_numpy(tensor))

    return _Side(all_reduce, dist.destroy_process_group, dict)


def _open_communicator(spec: SideSpec, rank: int, world_size: int) -> _Side:
    from wiresum import Communicator

    communicator = Communicator(
        switch=spec.address,
        job=spec.job,
        rank=rank,
        world_size=world_size,
        values_per_packet=spec.values,
        slots=spec.slots,
    )

    def statistics() -> dict[str, int]:
        return {name: int(value) for name, value in communicator.statistics().items() if float(value).is_integer()}

    return _Side(communicator.all_reduce, communicator.close, statistics)


_OPENERS: dict[str, Callable[[SideSpec, int, int], _Side]] = {
    "gloo": _open_gloo,
    "wiresum": _open_communicator,
    "backend": _open_backend,
}


def serve(connection: Connection, rank: int, world_size: int, barrier: Barrier, parent: int) -> None:
    """Carries out commands, (method name, keyword arguments), until the other end is closed.

    Answers each with (True, what it returned) or (False, the error's text).
    """
    die_with_parent(parent)
    participant = Participant(rank, world_size, barrier)
    with contextlib.suppress(EOFError, ConnectionError):  # the other end was closed
        while True:
            method, arguments = connection.recv()
            connection.send(_carry_out(participant, method, arguments, barrier))


def _carry_out(participant: Participant, method: str, arguments: dict[str, Any], barrier: Barrier) -> tuple[bool, Any]:
    try:
        return True, getattr(participant, method)(**arguments)
    except BrokenBarrierError:
        return False, "another worker failed"
    except Exception as error:
        barrier.abort()  # nobody is to wait for this worker
        return False, f"{type(error).__name__}: {error}"
