"""Pictures of results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.common import TITLES, Measured

_STYLES: Final = {"wiresum": "o-", "gloo": "s--", "backend": "^:"}
_COLOURS: Final = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink")


def _figure(columns: int) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * columns, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _finish(figure: Any, axes: Sequence[Any], path: Path) -> Path:
    for one in axes:
        one.grid(alpha=0.3)
        one.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def draw_allreduce(results: Sequence[Measured], path: Path) -> Path:
    """Bandwidth and time against size, a colour for each number of workers, a line style for each side."""
    figure = _figure(2)
    bandwidth, time = figure.subplots(1, 2)
    for colour, workers in zip(_COLOURS, sorted({one.workers for one in results}), strict=False):
        for side, style in _STYLES.items():
            chosen = [one for one in results if (one.workers, one.side) == (workers, side)]
            if not chosen:
                continue
            sizes = [one.elements for one in chosen]
            label = f"{TITLES[side]}, {workers} workers"
            bandwidth.loglog(sizes, [one.bandwidth / 1e6 for one in chosen], style, color=colour, label=label)
            time.loglog(sizes, [one.time * 1e3 for one in chosen], style, color=colour, label=label)
    bandwidth.set(title="Tensor bytes per second on each worker, MB/s", xlabel="float32 elements")
    time.set(title="Time of one all_reduce, ms", xlabel="float32 elements")
    return _finish(figure, (bandwidth, time), path)


def draw_scaling(results: Sequence[Measured], path: Path) -> Path:
    """Time against the number of workers."""
    figure = _figure(1)
    axes = figure.subplots()
    for side in dict.fromkeys(one.side for one in results):
        chosen = [one for one in results if one.side == side]
        axes.plot(
            [one.workers for one in chosen], [one.time * 1e3 for one in chosen], _STYLES[side], label=TITLES[side]
        )
    axes.set(title="Time of one all_reduce, ms", xlabel="workers", ylim=(0, None))
    return _finish(figure, (axes,), path)
