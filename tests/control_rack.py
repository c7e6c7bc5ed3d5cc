"""A control service over a data plane that moves nothing, workers that join it, and both as processes of their own."""

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from host.control import ControlClient
from host.control_types import Membership
from protocol.errors import WiresumError
from protocol.packets import Address
from switch.control import ControlServer
from switch.dataplane import Counter, JobSpec, StalledSlot

ROOT = Path(__file__).resolve().parent.parent


class FakePlane:
    """Remembers jobs; what it has to say of them is set by the test."""

    total_slots = 4096
    values_supported = (32, 64, 128, 256)
    default_slots = 512

    def __init__(self, address: Address = ("127.0.0.1", 48864)) -> None:
        self.address = address
        self.jobs: dict[int, JobSpec] = {}
        self.removed = threading.Event()
        self.stalled_slots: list[StalledSlot] = []
        self.heard: list[float | None] = []
        self.counters: list[Counter] = []
        self.refusal: Exception | None = None

    def add_job(self, spec: JobSpec) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.jobs[spec.number] = spec

    def remove_job(self, number: int) -> None:
        self.jobs.pop(number, None)
        self.removed.set()

    def stalled(self, number: int) -> list[StalledSlot]:
        return self.stalled_slots

    def last_heard(self, number: int) -> list[float | None]:
        return self.heard or [None] * len(self.jobs[number].workers)

    def statistics(self) -> list[Counter]:
        return self.counters


class ControlWorker:
    """A client that joins, with its own failure box and a collective to speak of."""

    def __init__(self, switch: str, rank: int, *, account: str = "sum of 1000 float32") -> None:
        self.client = ControlClient(switch)
        self.rank = rank
        self.account = account
        self.failures: queue.Queue[WiresumError] = queue.Queue()

    def join(
        self,
        world_size: int,
        *,
        job: str = "train",
        rank: int | None = None,
        slots: int = 64,
        timeout: float = 20.0,
        port: int | None = None,
    ) -> Membership:
        rank = self.rank if rank is None else rank
        membership = self.client.join(
            job=job,
            rank=rank,
            world_size=world_size,
            udp=("127.0.0.1", port or 20000 + rank + 100 * (sum(job.encode()) % 100)),
            values=256,
            slots=slots,
            timeout=timeout,
        )
        self.client.watch(on_failure=self.failures.put, explain=lambda collective: f"#{collective}: {self.account}")
        return membership

    def failure(self, timeout: float = 20.0) -> WiresumError:
        """The failure that arrives; there must never be a second one."""
        failure = self.failures.get(timeout=timeout)
        self.client.close()
        assert self.failures.empty()
        return failure


def join_all(workers: Sequence[ControlWorker], *, job: str = "train") -> list[Membership | WiresumError]:
    """Joins all at once; the result of each."""
    results: list[Membership | WiresumError | None] = [None] * len(workers)

    def join(index: int) -> None:
        try:
            results[index] = workers[index].join(len(workers), job=job)
        except WiresumError as error:
            results[index] = error

    threads = [threading.Thread(target=join, args=(index,)) for index in range(len(workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [result for result in results if result is not None]


class Rack:
    """One control service and any number of workers and worker processes, all gone at the end."""

    def __init__(self, plane: FakePlane, server: ControlServer, switch: str) -> None:
        self.plane, self.server, self.switch = plane, server, switch
        self._workers: list[ControlWorker] = []
        self._processes: list[subprocess.Popen[str]] = []

    def worker(self, rank: int, **kwargs: str) -> ControlWorker:
        worker = ControlWorker(self.switch, rank, **kwargs)
        self._workers.append(worker)
        return worker

    def joined(self, world_size: int, *, job: str = "train") -> list[ControlWorker]:
        workers = [self.worker(rank) for rank in range(world_size)]
        for result in join_all(workers, job=job):
            assert isinstance(result, Membership), result
        return workers

    def process(self, code: str, *arguments: object) -> "subprocess.Popen[str]":
        process = python(code, *arguments)
        self._processes.append(process)
        return process

    def close(self) -> None:
        for worker in self._workers:
            worker.client.close()
        for process in self._processes:
            end(process)
        self.server.stop()


@contextmanager
def open_rack(plane: FakePlane | None = None, host: str = "127.0.0.1") -> Iterator[Rack]:
    plane = plane or FakePlane()
    server = ControlServer(plane, host=host, port=0)
    _, port = server.start()
    rack = Rack(plane, server, f"127.0.0.1:{port}")
    try:
        yield rack
    finally:
        rack.close()


def python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """A Python process whose output is read line by line."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_line(process: "subprocess.Popen[str]") -> str:
    """The next line of output, or an error with what the process had to complain."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline().strip()
    assert line, process.stderr.read()
    return line


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()
