"""What the demo shows: progress while it trains, and both trainings side by side at the end."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from wiresum.demo.report import Epoch, Report, Run
from wiresum.demo.settings import TITLES, Settings

_BARS: Final = "▁▂▃▄▅▆▇█"
_ASCII_BARS: Final = ".:-=+*%#"
_PLAIN_LINES: Final = 10  # of one training's progress, where lines cannot be rewritten,
_PLAIN_SECONDS: Final = 5.0  # and more if it takes longer than that from one to the next


class Display:
    """Writes to a console: live bars on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, settings: Settings) -> None:
        self._console = console
        self._settings = settings

    def say(self, text: str) -> None:
        """One line of text, as it is."""
        self._console.print(Text(text), soft_wrap=True)

    @contextmanager
    def training(self, backend: str) -> Iterator["TrainingDisplay"]:
        """Shows one training's progress while the block runs."""
        title = TITLES[backend]
        if not self._console.is_terminal:
            yield PlainTraining(self, title, self._settings.epochs)
            return
        columns = (
            TextColumn("{task.description:8}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}"),
        )
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task(title, total=self._settings.epochs, state="workers are starting ...")
            yield LiveTraining(progress, task)

    def result(self, report: Report) -> None:
        """The table and the verdict."""
        self._console.print(_table(report, bars=_ASCII_BARS if self._console.options.ascii_only else _BARS))
        for problem in report.problems():
            self._console.print(Text(f"FAILED: {problem}", style="bold red"), soft_wrap=True)
        if not report.problems():
            self._console.print(
                Text(
                    f"All {report.settings.workers} workers ended with the same weights, bit for bit, and the "
                    f"accuracies differ by {report.accuracy_difference * 100:.2f} percentage points.",
                    style="bold green",
                ),
                soft_wrap=True,
            )

    def files(self, paths: Sequence[Path]) -> None:
        """Where things were written."""
        self.say("Written: " + ", ".join(map(str, paths)))


class TrainingDisplay:
    """Progress of one training."""

    def epoch(self, epoch: Epoch) -> None:
        """Called after each epoch."""
        raise NotImplementedError


class LiveTraining(TrainingDisplay):
    """A bar that moves."""

    def __init__(self, progress: Progress, task: object) -> None:
        self._progress = progress
        self._task = task

    def epoch(self, epoch: Epoch) -> None:
        """Moves the bar on."""
        self._progress.update(self._task, completed=epoch.number, state=_short_state(epoch))  # type: ignore[arg-type]


class PlainTraining(TrainingDisplay):
    """A line now and then."""

    def __init__(self, display: Display, title: str, epochs: int) -> None:
        self._display = display
        self._title = title
        self._epochs = epochs
        self._next_seconds = _PLAIN_SECONDS

    def epoch(self, epoch: Epoch) -> None:
        """Writes a line, unless there would be too many."""
        step = math.ceil(self._epochs / _PLAIN_LINES)
        if epoch.number % step == 0 or epoch.number == self._epochs or epoch.seconds >= self._next_seconds:
            self._next_seconds = epoch.seconds + _PLAIN_SECONDS
            self._display.say(f"{self._title:8} epoch {epoch.number:3}/{self._epochs}  {_state(epoch)}")


def _state(epoch: Epoch) -> str:
    traffic = epoch.traffic
    return (
        f"loss {epoch.loss:.4f}  accuracy {epoch.accuracy:6.2%}  packets {traffic.packets_sent:,} out "
        f"{traffic.packets_received:,} in  sent again {traffic.retransmissions:,}"
    )


def _short_state(epoch: Epoch) -> str:
    """Fits, with the rest of the line, into 80 columns."""
    traffic = epoch.traffic
    packets = traffic.packets_sent + traffic.packets_received
    return (
        f"loss {epoch.loss:.3f} accuracy {epoch.accuracy:.1%} packets {packets / 1e3:.0f}k, "
        f"{traffic.retransmissions / 1e3:.1f}k again"
    )


def _table(report: Report, *, bars: str) -> Table:
    settings = report.settings
    table = Table(
        title=f"{settings.workers} workers, model {settings.model} with {report.gloo.weights.size:,} parameters, "
        f"{settings.epochs} epochs",
        caption="Traffic is payload of all workers during training. TCP on loopback packs up to 64 kB into a packet; "
        f"wiresum's carry {settings.values} values, as on a real network.",
    )
    table.add_column("", no_wrap=True)
    table.add_column(f"wiresum\n{settings.loss:.1%} loss each way", justify="right", no_wrap=True)
    table.add_column("Gloo\nno loss", justify="right", no_wrap=True)

    def row(name: str, values: tuple[str, str]) -> None:
        table.add_row(name, *values)

    def both(of: Callable[[Run], str]) -> tuple[str, str]:
        return of(report.wiresum), of(report.gloo)

    row("test accuracy", both(lambda run: f"{run.last.accuracy:.2%}"))
    row("training loss at the end", both(lambda run: f"{run.last.loss:.5f}"))
    row("training loss, log scale", both(lambda run: sparkline([epoch.loss for epoch in run.epochs], bars)))
    row("time", both(lambda run: f"{run.last.seconds:.1f} s"))
    row("bytes sent", both(lambda run: f"{run.last.traffic.bytes_sent:,}"))
    row("bytes received", both(lambda run: f"{run.last.traffic.bytes_received:,}"))
    row("packets sent", both(lambda run: f"{run.last.traffic.packets_sent:,}"))
    row("packets received", both(lambda run: f"{run.last.traffic.packets_received:,}"))
    row("packets lost on purpose", both(lambda run: f"{run.lost:,}"))
    row("packets sent again", both(lambda run: f"{run.last.traffic.retransmissions:,}"))
    row("workers bit-identical", both(lambda run: "yes" if run.identical else "NO"))
    table.add_section()
    table.add_row("largest weight difference", f"{report.largest_weight_difference:.2g}", "")
    table.add_row("largest weight", *both(lambda run: f"{float(abs(run.weights).max()):.3g}"))
    return table


def sparkline(values: Sequence[float], bars: str = _BARS, width: int = 24) -> str:
    """A curve of positive values in one line of text, on a logarithmic scale."""
    chosen = [values[i * len(values) // width] for i in range(width)] if len(values) > width else list(values)
    if len(values) > width:
        chosen[-1] = values[-1]
    logs = [-math.inf if value <= 0 else math.log(value) for value in chosen]
    finite = [value for value in logs if math.isfinite(value)]
    if not finite:
        return "?" * len(chosen)
    low, span = min(finite), max(finite) - min(finite)

    def bar(value: float) -> str:
        if math.isnan(value):
            return "?"
        share = (value - low) / span if span else 0.0
        return bars[min(len(bars) - 1, max(0, int(share * len(bars))))] if math.isfinite(share) else bars[0]

    return "".join(map(bar, logs))
