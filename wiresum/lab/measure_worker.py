"""One rank of a measurement: reduces an array again and again, and reports times as a line of JSON.

    python -m wiresum.lab.measure_worker '{"backend": "gloo", "elements": 1000000, "repeats": 5}'

The rank, the world and the switch come from torchrun's and wiresum's variables, unless the task names them.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wiresum.demo.traffic import tcp_traffic

PREFIX = "MEASURED "


@dataclass(frozen=True, kw_only=True)
class Task:
    """What to measure.

    Attributes:
        backend: "wiresum" or "gloo".
        elements: of the float32 array.
        repeats: measured reductions, after `warmup` others.
        values, slots: per packet and of the pool; None leaves them to the agent.
        late: seconds that this rank sleeps before each reduction.
        job: name at the switch.
        ranks: machine-wide ranks that take part, or None for all.
    """

    backend: str
    elements: int
    repeats: int
    warmup: int = 1
    values: int | None = None
    slots: int | None = None
    late: float = 0.0
    job: str = "measure"
    ranks: tuple[int, ...] | None = None

    def command(self) -> list[str]:
        """A command line that carries it out."""
        return [sys.executable, "-m", "wiresum.lab.measure_worker", json.dumps(asdict(self))]

    @classmethod
    def from_json(cls, text: str) -> "Task":
        """Reads what `command` wrote."""
        fields = json.loads(text)
        ranks = fields.pop("ranks", None)
        return cls(**fields, ranks=None if ranks is None else tuple(ranks))


def busy_seconds() -> tuple[float, float]:
    """What all cores have been busy for, and what they have been there for, in seconds of one core since boot."""
    user, nice, system, idle, iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    ticks = os.sysconf("SC_CLK_TCK")
    busy = user + nice + system + irq + softirq + steal
    return busy / ticks, (busy + idle + iowait) / ticks


@contextmanager
def _wiresum(task: Task, rank: int, world: int) -> Iterator[tuple[Callable[[], Any], Callable[[], Any], Any]]:
    import wiresum

    array = np.random.default_rng(rank).standard_normal(task.elements, np.float32)
    out = np.empty_like(array)
    with wiresum.Communicator(
        job=task.job, rank=rank, world_size=world, values_per_packet=task.values, slots=task.slots
    ) as comm:
        extra = {"slots": comm.slots, "values": comm.values_per_packet}
        yield lambda: comm.all_reduce(array, out=out), comm.barrier, lambda: {**comm.statistics(), **extra}


@contextmanager
def _gloo(task: Task, rank: int, world: int) -> Iterator[tuple[Callable[[], Any], Callable[[], Any], Any]]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    where = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=world)
    array = torch.randn(task.elements)

    def reduce() -> None:
        dist.all_reduce(array)
        array.mul_(1 / world)  # or it would grow beyond all bounds

    yield reduce, dist.barrier, lambda: asdict(tcp_traffic())
    dist.destroy_process_group()


def main() -> int:
    """Carries out the task on the command line."""
    task = Task.from_json(sys.argv[1])
    rank = int(os.environ["RANK"])
    members = task.ranks or tuple(range(int(os.environ["WORLD_SIZE"])))
    group = {"wiresum": _wiresum, "gloo": _gloo}[task.backend]
    seconds = []
    with group(task, members.index(rank), len(members)) as (reduce, barrier, statistics):
        for _ in range(task.warmup):
            reduce()
        barrier()
        busy, there = busy_seconds()
        before = statistics()
        start = time.perf_counter()
        for _ in range(task.repeats):
            if task.late:
                time.sleep(task.late)
            begin = time.perf_counter()
            reduce()
            seconds.append(time.perf_counter() - begin)
        total = time.perf_counter() - start
        after, (busy_then, there_then) = statistics(), busy_seconds()
        barrier()
    report = {
        "rank": rank,
        "seconds": seconds,
        "total": total,
        "busy": (busy_then - busy) / max(there_then - there, 1e-9),
        "statistics": {name: after[name] - before.get(name, 0) for name in after if name not in _LEVELS},
        "levels": {name: after[name] for name in after if name in _LEVELS},
    }
    sys.stdout.write(PREFIX + json.dumps(report) + "\n")
    return 0


_LEVELS = ("srtt", "rto", "slots", "values")

if __name__ == "__main__":
    sys.exit(main())
