"""Runs the worker processes of one training and gathers what they report."""

import json
import queue
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any, Final

import numpy as np

from wiresum.demo.report import Epoch, Run
from wiresum.demo.settings import Settings, Task
from wiresum.demo.traffic import Traffic
from wiresum.processes import Child, ProcessFailedError, describe_exit

_SILENCE_SECONDS: Final = 180.0  # importing torch on a busy machine is slow
_SETTLE_SECONDS: Final = 1.0  # others fail because of the first; give the cause time to show
_EXIT_SECONDS: Final = 30.0
TEST_SHARE: Final = 0.2


def save_digits(path: Path, seed: int) -> tuple[int, int]:
    """Saves scikit-learn's handwritten digits, split into training and test images; returns how many of each."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    train_x, test_x, train_y, test_y = train_test_split(
        images, digits.target.astype(np.int64), test_size=TEST_SHARE, random_state=seed, stratify=digits.target
    )
    np.savez(path, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)
    return len(train_x), len(test_x)


def train(
    settings: Settings,
    backend: str,
    *,
    data: Path,
    directory: Path,
    switch: str | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    on_start: Callable[[Sequence[int]], None] = lambda pids: None,
    flip_bit_of_rank: int | None = None,
    prefixes: Sequence[Sequence[str]] = (),
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Trains with one process for each worker.

    Args:
        settings: what to train.
        backend: of torch.distributed.
        data: what `save_digits` wrote.
        directory: for files of this training; empty.
        switch: control address of the switch, for backend "wiresum".
        on_epoch: called after each epoch, when all workers have reported it.
        on_start: called with the workers' process ids.
        flip_bit_of_rank: makes that rank flip one bit of its final weights, so that tests see it noticed.
        prefixes: for each worker a command that runs the rest of its command line, such as `ip netns exec NAME`.
        environment: further variables of the workers.

    Raises:
        ProcessFailedError: a worker failed; all are ended then.
    """
    events: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
    variables = {"WIRESUM_VALUES_PER_PACKET": str(settings.values), **(environment or {})}
    if switch is not None:
        variables["WIRESUM_SWITCH"] = switch
    if settings.slots is not None:
        variables["WIRESUM_SLOTS"] = str(settings.slots)
    weights = directory / "weights.npy"
    workers: list[Child] = []
    try:
        for rank in range(settings.workers):
            task = Task(
                rank=rank,
                backend=backend,
                store=str(directory / "store"),
                data=str(data),
                weights=str(weights),
                settings=settings,
                flip_bit=rank == flip_bit_of_rank,
            )

            def on_line(line: str | None, rank: int = rank) -> None:
                events.put((rank, line))

            child = Child(
                "wiresum.demo.worker",
                [task.to_json()],
                name=f"worker {rank}",
                on_line=on_line,
                environment=variables,
                prefix=prefixes[rank] if prefixes else (),
            )
            workers.append(child)
        on_start([worker.pid for worker in workers])
        gathering = _Gathering(workers, events, on_epoch)
        gathering.run()
        return Run(
            backend=backend,
            lost=0 if switch is None else _lost_packets(switch),
            epochs=tuple(gathering.epochs),
            digests=tuple(gathering.digests[rank] for rank in range(settings.workers)),
            weights=np.load(weights),
        )
    finally:
        for worker in workers:
            worker.kill()


def _lost_packets(switch: str) -> int:
    """How many packets the switch has lost on purpose since it was started."""
    from host.control import ControlClient

    client = ControlClient(switch)
    try:
        rows = client.statistics()
    finally:
        client.close()
    return sum(row.value for row in rows if row.name in ("fault_in_lost", "fault_out_lost") and row.job is None)


class _Gathering:
    """Takes the workers' events until all have ended well."""

    def __init__(
        self,
        workers: list[Child],
        events: "queue.SimpleQueue[tuple[int, str | None]]",
        on_epoch: Callable[[Epoch], None],
    ) -> None:
        self._workers = workers
        self._events = events
        self._on_epoch = on_epoch
        self._reported: dict[int, list[dict[str, Any]]] = {}
        self._errors: dict[int, str] = {}
        self.epochs: list[Epoch] = []
        self.digests: dict[int, str] = {}

    def run(self) -> None:
        running = len(self._workers)
        while running:
            try:
                rank, line = self._events.get(timeout=_SILENCE_SECONDS)
            except queue.Empty:
                raise ProcessFailedError(f"no worker has reported anything for {_SILENCE_SECONDS:g} s") from None
            if line is not None:
                self._take(rank, line)
                continue
            running -= 1
            if self._workers[rank].wait(_EXIT_SECONDS) or rank not in self.digests:
                self._fail(rank)

    def _take(self, rank: int, line: str) -> None:
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            return  # a library wrote to standard output
        if kind == "failed":
            self._errors[rank] = event["error"]
        elif kind == "done":
            self.digests[rank] = event["digest"]
        elif kind == "epoch":
            reports = self._reported.setdefault(event["epoch"], [])
            reports.append(event)
            if len(reports) == len(self._workers):
                self._finish_epoch(self._reported.pop(event["epoch"]))

    def _finish_epoch(self, reports: list[dict[str, Any]]) -> None:
        epoch = Epoch(
            number=reports[0]["epoch"],
            loss=fmean(report["loss"] for report in reports),
            accuracy=fmean(report["accuracy"] for report in reports),
            seconds=max(report["seconds"] for report in reports),
            traffic=Traffic.total(Traffic(**report["traffic"]) for report in reports),
        )
        self.epochs.append(epoch)
        self._on_epoch(epoch)

    def _fail(self, first: int) -> None:
        """Raises the error of the worker that most likely was the cause: one that was killed, or the first."""
        deadline = monotonic() + _SETTLE_SECONDS
        while (left := deadline - monotonic()) > 0:
            try:
                rank, line = self._events.get(timeout=left)
            except queue.Empty:
                break
            if line is not None:
                self._take(rank, line)
        killed = [rank for rank, worker in enumerate(self._workers) if (worker.returncode() or 0) < 0]
        rank = killed[0] if killed else first
        worker = self._workers[rank]
        code = worker.returncode()
        if rank in self._errors and not killed:
            raise ProcessFailedError(f"{worker.name} failed: {self._errors[rank]}")
        raise worker.failure("is still running" if code is None else describe_exit(code))
