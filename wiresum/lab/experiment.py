"""What the experiments share: measuring on a network, and results as CSV, JSON and PNG."""

import argparse
import csv
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from wiresum.lab.folders import hand_over
from wiresum.lab.kernel import check_machine
from wiresum.lab.marks import remove_leftovers
from wiresum.lab.measure_worker import PREFIX, Task
from wiresum.lab.network import Lab, LabSettings
from wiresum.lab.nodes import own_environment
from wiresum.lab.programs import LabError
from wiresum.lab.run import run_command, terminate_on
from wiresum.lab.summary import machine

HEADER_BYTES: Final = 14 + 20 + 8 + 10  # Ethernet, IPv4, UDP, wiresum: what a rate counts beside the values
_TCP_SEGMENT, _TCP_FRAME = 1448, 1514
_TIME_LIMIT: Final = 600.0


def line_rate(rate: float, values: int = 256) -> float:
    """Elements per second that a link of `rate` Mbit/s can carry each way in packets of `values`."""
    return rate * 1e6 / 8 / (HEADER_BYTES + 4 * values) * values


def ring_rate(rate: float, workers: int) -> float:
    """Elements per second of the best ring of TCP connections over links of `rate` Mbit/s."""
    share = 2 * (workers - 1) / workers
    return rate * 1e6 / 8 * _TCP_SEGMENT / _TCP_FRAME / 4 / share


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What the ranks of one group reported.

    Attributes:
        seconds: of a reduction: the median over the repetitions, of the slowest rank.
        elements: of the array.
        busy: share of all cores that was in use meanwhile, 0 to 1.
        reports: one for each rank.
    """

    seconds: float
    elements: int
    busy: float
    reports: tuple[Mapping[str, Any], ...]

    @property
    def rate(self) -> float:
        """Aggregated elements per second."""
        return self.elements / self.seconds

    def total(self, counter: str) -> float:
        """A counter, summed over the ranks."""
        return float(sum(report["statistics"].get(counter, 0) for report in self.reports))

    def level(self, name: str) -> float:
        """The largest of the ranks' values of srtt, rto (seconds), slots or values."""
        return float(max(report["levels"].get(name, 0) for report in self.reports))

    def row(self) -> dict[str, Any]:
        """What every table has."""
        return {
            "seconds": self.seconds,
            "elements_per_s": self.rate,
            "megabytes_per_s": self.rate * 4 / 1e6,
            "busy": self.busy,
            "retransmissions": self.total("retransmissions"),
            "srtt_ms": 1e3 * self.level("srtt"),
            "slots": self.level("slots"),
        }


def run_tasks(lab: Lab, tasks: Sequence[Task | None], folder: Path) -> list[Mapping[str, Any] | None]:
    """Runs one task on each host, None for a host that rests; returns the reports by rank.

    Raises:
        LabError: a rank failed.
    """
    reports: list[Mapping[str, Any] | None] = [None] * len(tasks)
    names = {host.name: rank for rank, host in enumerate(lab.topology.hosts)}

    def on_line(host: str, line: str) -> None:
        if line.startswith(PREFIX):
            reports[names[host]] = json.loads(line.removeprefix(PREFIX))

    def command(rank: int) -> list[str]:
        task = tasks[rank]
        return ["true"] if task is None else task.command()

    result = run_command(
        lab,
        command,
        logs=folder,
        environment={"PYTHONPATH": own_environment()["PYTHONPATH"]},
        on_line=on_line,
        time_limit=_TIME_LIMIT,
    )
    if result.code:
        said = "; ".join(
            f"{host.name} said: {(folder / host.log).read_text().strip().splitlines()[-1:]}" for host in result.hosts
        )
        raise LabError(f"a measurement failed: {'; '.join(result.problems)}; {said}")
    return reports


def measurement(reports: Sequence[Mapping[str, Any] | None], elements: int) -> Measurement:
    """Puts the reports of one group together."""
    there = [report for report in reports if report is not None]
    return Measurement(
        seconds=max(median(report["seconds"]) for report in there),
        elements=elements,
        busy=max(report["busy"] for report in there),
        reports=tuple(there),
    )


def measure(lab: Lab, task: Task, folder: Path) -> Measurement:
    """Runs one task on all hosts."""
    return measurement(run_tasks(lab, [task] * len(lab.topology.hosts), folder), task.elements)


class Experiment:
    """A table that grows, is shown as it does, and is saved with the parameters and a picture.

    Args:
        name: of the files.
        description: what is measured.
        add_options: adds options to the command line; their values are the parameters.
    """

    def __init__(
        self, name: str, description: str, add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    ) -> None:
        self.name = name
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        parser.add_argument("--out", type=Path, default=Path("mininet/experiments/results"), help="folder for results")
        parser.add_argument("--repeats", type=int, default=5, help="repetitions of each measurement")
        parser.add_argument("--seed", type=int, default=1, help="of faults")
        add_options(parser)
        self.options = parser.parse_args()
        self.rows: list[dict[str, Any]] = []

    @contextmanager
    def running(self) -> Iterator["Experiment"]:
        """Prepares the machine, and saves what was measured, even if it was interrupted."""
        try:
            check_machine()
        except LabError as error:
            raise SystemExit(str(error)) from None
        terminate_on(signal.SIGTERM, signal.SIGHUP)
        remove_leftovers()
        self.options.out.mkdir(parents=True, exist_ok=True)
        self._start = time.time()
        with tempfile.TemporaryDirectory(prefix="wiresum-experiment-") as name:
            self.logs = Path(name)
            try:
                yield self
            finally:
                self.save()

    @contextmanager
    def lab(self, **settings: Any) -> Iterator[Lab]:
        """A network with these `LabSettings`."""
        with Lab(LabSettings(seed=self.options.seed, **settings), logs=self.logs) as made:
            for text in made.plan.missing:
                self.tell(f"warning: {text}")
            yield made

    def add(self, **row: Any) -> None:
        """Adds a row and shows it."""
        self.rows.append(row)
        cells = (f"{key} {value:,.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        self.tell(", ".join(cells))

    def tell(self, line: str) -> None:
        """Shows a line."""
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def path(self, suffix: str) -> Path:
        """A file of this experiment."""
        return Path(self.options.out) / f"{self.name}{suffix}"

    def save(self) -> None:
        """Writes table and parameters."""
        if not self.rows:
            return
        columns = list(dict.fromkeys(key for row in self.rows for key in row))
        with self.path(".csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)
        parameters = {
            key: str(value) if isinstance(value, Path) else value for key, value in vars(self.options).items()
        }
        about = {
            "experiment": self.name,
            "command": sys.argv,
            "parameters": parameters,
            "seconds": round(time.time() - self._start, 1),
            "machine": machine(),
        }
        self.path(".json").write_text(json.dumps(about, indent=2) + "\n")
        hand_over(self.options.out)

    def draw(self, plot: Callable[[Any], None], *, width: float = 7, height: float = 4.2) -> None:
        """Has `plot` draw into a figure of matplotlib, and writes it."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        plot(figure)
        figure.savefig(self.path(".png"), dpi=120)
        hand_over(self.options.out)
        self.tell(f"written: {self.path('.csv')}, .json, .png")

    def select(self, **equal: Any) -> list[dict[str, Any]]:
        """The rows in which these columns have these values."""
        return [row for row in self.rows if all(row.get(key) == value for key, value in equal.items())]
