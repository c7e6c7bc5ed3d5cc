"""What the experiments share: measuring on a network, and results as CSV, JSON and PNG."""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

from protocol.errors import WiresumError
from wiresum.arguments import path, whole
from wiresum.lab.interruption import Interrupted, Interruption
from wiresum.lab.kernel import check_machine
from wiresum.lab.marks import remove_leftovers
from wiresum.lab.measure_worker import PREFIX, Task
from wiresum.lab.network import Lab, LabSettings
from wiresum.lab.nodes import own_environment
from wiresum.lab.programs import LabError
from wiresum.lab.results import ResultFiles
from wiresum.lab.run import CommandResult, run_command
from wiresum.lab.summary import machine

_TCP_SEGMENT, _TCP_FRAME = 1448, 1514
_LEAST_TIME_LIMIT: Final = 600.0
_REDUCTION_LIMIT: Final = 60.0  # seconds


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

    reductions = max((task.repeats + task.warmup for task in tasks if task is not None), default=0)
    result = run_command(
        lab,
        command,
        logs=folder,
        environment={"PYTHONPATH": own_environment()["PYTHONPATH"]},
        on_line=on_line,
        time_limit=max(_LEAST_TIME_LIMIT, _REDUCTION_LIMIT * reductions),
    )
    if result.code:
        raise failure("a measurement", result, folder)
    return reports


def failure(what: str, result: CommandResult, folder: Path) -> LabError:
    """An error that says why `what` failed, with the last lines of the hosts that did; `folder` has their logs."""
    logs = {host.name: (folder / host.log).read_text().splitlines() for host in result.hosts if host.code}
    said = [f"{name} said last: {lines[-1]}" for name, lines in logs.items() if lines]
    return LabError(f"{what} failed: {'; '.join([*result.problems, *said])}")


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
        script: its file; what it writes has the same name, and goes into the folder `results` beside it.
        description: what is measured.
        add_options: adds options to the command line; their values are the parameters.
        check: raises ValueError for options that do not go together.
        needs: modules without which it could not end.

    Raises:
        SystemExit: the command line asks for what cannot be, exit code 2; or for help.
    """

    def __init__(
        self,
        script: str,
        description: str,
        add_options: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
        check: Callable[[argparse.Namespace], object] = lambda options: None,
        needs: Sequence[str] = (),
    ) -> None:
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        parser.add_argument(
            "--out",
            type=path,
            default=argparse.SUPPRESS,
            help="folder for results, as seen from the working directory (default: results, beside this script)",
        )
        parser.add_argument("--repeats", type=whole(1, 10_000), default=5, help="repetitions of each measurement")
        parser.add_argument("--seed", type=whole(0, 2**32 - 1, "seed"), default=1, help="of faults")
        add_options(parser)
        self.options = parser.parse_args()
        self._parser = parser
        try:
            check(self.options)
        except ValueError as error:
            parser.error(str(error))
        out = getattr(self.options, "out", Path(script).resolve().parent / "results")
        self.files = ResultFiles(out, Path(script).stem)
        self.rows: list[dict[str, Any]] = []
        self._needs = ("matplotlib", *needs)
        self._start = time.time()
        self._complete = False

    @contextmanager
    def running(self) -> Iterator["Experiment"]:
        """Prepares the machine, and ends the process if what is done within fails or a signal comes."""
        self._check_machine()
        try:
            self.files.prepare()
        except OSError as error:
            self._parser.error(f"argument --out: no results can be written to {self.files.folder}: {error.strerror}")
        with Interruption() as self._interruption:
            try:
                remove_leftovers()
                with tempfile.TemporaryDirectory(prefix="wiresum-experiment-") as name:
                    self.logs = Path(name)
                    yield self
            except Interrupted as error:
                self._end(f"interrupted by {error.number.name}", error.number + 128)
            except OSError as error:
                where = f"{error.filename}: " if error.filename else ""
                self._end(f"{where}{error.strerror or error}", 1)
            except WiresumError as error:
                self._end(str(error), 1)
            finally:
                self.files.drop_if_unused()
        if not self._complete:
            self._end("nothing was measured", 1)

    def _check_machine(self) -> None:
        try:
            check_machine()
        except LabError as error:
            raise SystemExit(str(error)) from None
        missing = [name for name in self._needs if find_spec(name) is None]
        if missing:
            raise SystemExit(f"this needs {', '.join(missing)}, of the extras in pyproject.toml")

    def _end(self, why: str, code: int) -> None:
        if self._complete:
            self.tell(f"{why}; the results are complete")
        elif self.rows and self.files.partial.exists():
            kept = f"the rows so far ({len(self.rows)}) are in {self.files.partial}"
            self.tell(f"{why}; {kept}, and no other results were touched")
        else:
            self.tell(f"{why}; no results were touched")
        raise SystemExit(code)

    @contextmanager
    def lab(self, **settings: Any) -> Iterator[Lab]:
        """A network with these `LabSettings`."""
        with Lab(LabSettings(seed=self.options.seed, **settings), logs=self.logs) as made:
            for text in made.plan.missing:
                self.tell(f"warning: {text}")
            yield made

    def add(self, **row: Any) -> None:
        """Adds a row, keeps it in the partial results, and shows it."""
        self.rows.append(row)
        self.files.keep(self.rows, self._about())
        cells = (f"{key} {value:,.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
        self.tell(", ".join(cells))

    def tell(self, line: str) -> None:
        """Shows a line; that nobody reads it ends no experiment."""
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line + "\n")
                sys.stderr.flush()

    def _about(self) -> dict[str, Any]:
        return {
            "experiment": self.files.name,
            "command": sys.argv,
            "parameters": {key: value for key, value in vars(self.options).items() if key != "out"},
            "seconds": round(time.time() - self._start, 1),
            "machine": machine(),
        }

    def finish(self, plot: Callable[[Any], None], *, width: float = 7, height: float = 4.2) -> None:
        """Writes table and parameters, and what `plot` draws into a figure of matplotlib: all of them or none.

        Raises:
            OSError: they cannot be written.
        """
        if not self.rows:
            return
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        plot(figure)
        self._interruption.hold()
        self.files.complete(self.rows, self._about(), lambda path: figure.savefig(path, dpi=120))
        self._complete = True
        self._interruption.raise_pending()
        self.tell(f"written: {self.files.path('.csv')}, .json, .png")

    def select(self, **equal: Any) -> list[dict[str, Any]]:
        """The rows in which these columns have these values."""
        return [row for row in self.rows if all(row.get(key) == value for key, value in equal.items())]
