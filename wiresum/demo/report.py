"""What the two trainings came to, and whether they agree."""

import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from wiresum.demo.settings import TITLES, Settings
from wiresum.demo.traffic import Traffic

ALLOWED_ACCURACY_DIFFERENCE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One pass over the training images.

    Attributes:
        loss: mean over its steps and the workers.
        accuracy: share of the test images that are recognized afterwards.
        seconds: since the training began.
        traffic: of all workers, since the training began.
    """

    number: int
    loss: float
    accuracy: float
    seconds: float
    traffic: Traffic


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training.

    Attributes:
        lost: packets that the switch lost on purpose.
        digests: a hash of each worker's final weights, by rank.
        weights: float32, shape (parameters,): rank 0's final weights.
    """

    backend: str
    lost: int
    epochs: tuple[Epoch, ...]
    digests: tuple[str, ...]
    weights: npt.NDArray[np.float32]

    @property
    def last(self) -> Epoch:
        """The state at the end."""
        return self.epochs[-1]

    @property
    def identical(self) -> bool:
        """Whether all workers ended with the same bits."""
        return len(set(self.digests)) == 1

    def deviating_ranks(self) -> list[int]:
        """Ranks whose weights are not those of rank 0."""
        return [rank for rank, digest in enumerate(self.digests) if digest != self.digests[0]]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Both trainings side by side."""

    settings: Settings
    wiresum: Run
    gloo: Run

    @property
    def runs(self) -> tuple[Run, Run]:
        """First wiresum, then Gloo."""
        return self.wiresum, self.gloo

    @property
    def accuracy_difference(self) -> float:
        """How far the test accuracies are apart, as a share."""
        return abs(self.wiresum.last.accuracy - self.gloo.last.accuracy)

    @property
    def largest_weight_difference(self) -> float:
        """Between rank 0's final weights after the one and the other; NaN if any weight is."""
        return float(np.abs(self.wiresum.weights - self.gloo.weights).max())

    @property
    def largest_weight(self) -> float:
        """The largest magnitude among Gloo's final weights."""
        return float(np.abs(self.gloo.weights).max())

    def problems(self) -> list[str]:
        """Everything that must not be, in words; empty if all is well."""
        found = [
            f"{TITLES[run.backend]}: the final weights of rank(s) {', '.join(map(str, run.deviating_ranks()))} are not "
            "bit for bit those of rank 0"
            for run in self.runs
            if not run.identical
        ]
        found += [
            f"{TITLES[run.backend]}: the final weights hold a NaN or an infinity"
            for run in self.runs
            if not np.isfinite(run.weights).all()
        ]
        if self.accuracy_difference > ALLOWED_ACCURACY_DIFFERENCE + 1e-9:  # exactly a point is allowed, rounding or not
            found.append(
                f"the test accuracies, {self.wiresum.last.accuracy:.2%} with wiresum and {self.gloo.last.accuracy:.2%} "
                f"with Gloo, differ by more than {ALLOWED_ACCURACY_DIFFERENCE:.0%}"
            )
        return found

    def to_json(self) -> str:
        """Everything but the weights themselves."""

        def of(run: Run) -> dict[str, Any]:
            return {
                "test_accuracy": run.last.accuracy,
                "seconds": run.last.seconds,
                "traffic_of_all_workers": asdict(run.last.traffic),
                "packets_lost_on_purpose": run.lost,
                "workers_bit_identical": run.identical,
                "weight_digests": run.digests,
                "epochs": [asdict(epoch) for epoch in run.epochs],
            }

        content = {
            "settings": asdict(self.settings),
            "parameters": self.wiresum.weights.size,
            "accuracy_difference": self.accuracy_difference,
            "largest_weight_difference": _finite(self.largest_weight_difference),
            "largest_weight": _finite(self.largest_weight),
            "problems": self.problems(),
            "wiresum": of(self.wiresum),
            "gloo": of(self.gloo),
            "versions": {"python": platform.python_version(), "torch": version("torch"), "numpy": version("numpy")},
        }
        return json.dumps(content, indent=2) + "\n"

    def save(self, directory: Path) -> tuple[Path, Path]:
        """Writes report.json and loss.png into the directory, made if need be; returns their paths."""
        directory.mkdir(parents=True, exist_ok=True)
        text, picture = directory / "report.json", directory / "loss.png"
        text.write_text(self.to_json())
        self._draw(picture)
        return text, picture

    def _draw(self, path: Path) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        loss, accuracy = figure.subplots(1, 2)
        for run, style in zip(self.runs, ("-", "--"), strict=True):
            numbers = [epoch.number for epoch in run.epochs]
            label = TITLES[run.backend]
            if run is self.wiresum:
                label += f", {self.settings.loss:.1%} loss each way"
            loss.plot(numbers, [epoch.loss for epoch in run.epochs], style, label=label, linewidth=2)
            accuracy.plot(numbers, [100 * epoch.accuracy for epoch in run.epochs], style, label=label, linewidth=2)
        loss.set(title="Training loss", xlabel="epoch", yscale="log")
        accuracy.set(title="Test accuracy, %", xlabel="epoch", ylim=(None, 100))
        for axes in (loss, accuracy):
            axes.grid(alpha=0.3, which="both")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend()
        figure.suptitle(f"{self.settings.workers} workers, {self.wiresum.weights.size:,} parameters")
        figure.savefig(path, dpi=120)


def _finite(value: float) -> float | None:
    """JSON knows no NaN."""
    return value if np.isfinite(value) else None
