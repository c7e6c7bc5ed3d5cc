"""What all benchmarks share: samples, the report's frame, files."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.group import Group
from benchmarks.participant import SideSpec, cpu_seconds_of
from wiresum.processes import SwitchProcess

RESULTS: Final = Path(__file__).parent / "results"
SAMPLE_SECONDS: Final = 0.12  # short operations are repeated until a sample lasts about this long
MAX_ITERATIONS: Final = 200
TITLES: Final = {"wiresum": "wiresum", "gloo": "Gloo", "backend": "wiresum by torch backend"}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Samples of one way to reduce one size with one number of workers.

    Attributes:
        seconds: for each run, the slowest worker's time for one all_reduce.
        worker_cpu: CPU seconds of one worker for one all_reduce, the mean over runs and workers.
        switch_cpu: CPU seconds of the switch for one all_reduce, the mean over runs; 0 without a switch.
        error: the largest error of a result, as a share of the largest magnitude in it.
    """

    workers: int
    elements: int
    side: str
    iterations: int
    seconds: tuple[float, ...]
    worker_cpu: float
    switch_cpu: float
    error: float

    @property
    def time(self) -> float:
        """The median, in seconds."""
        return median(self.seconds)

    @property
    def bandwidth(self) -> float:
        """Bytes of the tensor per second, on each worker."""
        return 4 * self.elements / self.time

    @property
    def cpu_per_gb(self) -> float:
        """CPU seconds of all processes together for each GB that a worker has had summed."""
        return (self.workers * self.worker_cpu + self.switch_cpu) / (4e-9 * self.workers * self.elements)


@dataclass(frozen=True)
class Contestant:
    """A group of workers with one way to reduce open in it, and the switch that serves it, if any."""

    side: str
    group: Group
    switch: SwitchProcess | None
    name: str  # of what is open in the group


def spec_for(side: str, *, switch: SwitchProcess | None, store: Path, values: int, slots: int | None) -> SideSpec:
    """How a worker opens a side; `store` is a path that does not exist yet."""
    address = str(store) if switch is None else switch.address
    return SideSpec(kind=side, address=address, store=str(store), values=values, slots=slots)


def measure(contestants: Sequence[Contestant], elements: int, runs: int) -> list[Measured]:
    """Has the contestants reduce `elements` numbers in turn, A B C A B C ..., `runs` times.

    Each is checked, warmed up and given its number of iterations first.

    Raises:
        RuntimeError: a worker failed, or a sum is wrong.
    """
    errors, iterations = [], []
    for group in dict.fromkeys(contestant.group for contestant in contestants):
        group.call("allocate", elements=elements)
    for one in contestants:
        error = max(one.group.call("check", name=one.name))
        if not error < 1e-5:
            raise RuntimeError(f"{one.side}: a sum of {elements} elements is wrong by {error:.1e} of its largest value")
        errors.append(error)
        one.group.time(one.name, 1)
        estimate = one.group.time(one.name, 2).seconds
        iterations.append(max(1, min(MAX_ITERATIONS, round(SAMPLE_SECONDS / estimate))))
    timings: list[list[Any]] = [[] for _ in contestants]
    switch_cpu = [0.0] * len(contestants)
    for _ in range(runs):
        for i, one in enumerate(contestants):
            before = cpu_seconds_of(one.switch.pid) if one.switch else 0.0
            timings[i].append(one.group.time(one.name, iterations[i]))
            switch_cpu[i] += (cpu_seconds_of(one.switch.pid) - before) if one.switch else 0.0
    return [
        Measured(
            workers=one.group.world_size,
            elements=elements,
            side=one.side,
            iterations=iterations[i],
            seconds=tuple(timing.seconds for timing in timings[i]),
            worker_cpu=sum(timing.cpu_seconds for timing in timings[i]) / runs,
            switch_cpu=switch_cpu[i] / (runs * iterations[i]),
            error=errors[i],
        )
        for i, one in enumerate(contestants)
    ]


def frame(benchmark: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """What a saved result tells of where it comes from."""
    return {
        "benchmark": benchmark,
        "command": " ".join(["python", "-m", f"benchmarks.{benchmark}", *sys.argv[1:]]),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "parameters": parameters,
        "seed": 1,
        "machine": {
            "cpu": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "kernel": platform.release(),
            "load_average_at_start": os.getloadavg()[0],
        },
        "versions": {
            "commit": _commit(),
            "python": platform.python_version(),
            **{name: _version(name) for name in ("torch", "numpy", "numba", "grpcio")},
        },
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def add_common_options(parser: argparse.ArgumentParser, *, runs: int) -> None:
    """Options that every benchmark takes."""
    parser.add_argument("--runs", type=positive, default=runs, help="samples of everything (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory for JSON and PNG (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a small part, to see that it works")


def positive(text: str) -> int:
    """An argument that is a whole number above 0, "25M" and "4Ki" allowed."""
    for suffix, factor in (("Ki", 1 << 10), ("Mi", 1 << 20), ("k", 1000), ("M", 1_000_000)):
        if text.endswith(suffix):
            return positive(text.removesuffix(suffix)) * factor
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


def short(elements: int) -> str:
    """A number of elements as it is written on the command line."""
    for suffix, factor in (("Mi", 1 << 20), ("Ki", 1 << 10), ("M", 1_000_000), ("k", 1000)):
        if elements % factor == 0 and elements >= factor:
            return f"{elements // factor} {suffix}"
    return str(elements)


def as_record(measured: Measured) -> dict[str, Any]:
    """For JSON: samples, and what is derived from them."""
    derived = {"median_seconds": measured.time, "bandwidth": measured.bandwidth, "cpu_per_gb": measured.cpu_per_gb}
    return {**asdict(measured), **derived}


def save(directory: Path, name: str, content: dict[str, Any]) -> Path:
    """Writes NAME.json and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.json"
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def new_table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    return table


def console() -> Console:
    """Where results are printed; wide enough for tables where it is not a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=140)
