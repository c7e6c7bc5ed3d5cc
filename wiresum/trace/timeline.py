"""A trace as a picture: slots from top to bottom, time from left to right, a bar for each round."""

from pathlib import Path
from typing import Any, Final

import numpy as np

from wiresum.trace.captures import Integers
from wiresum.trace.jobs import Job
from wiresum.trace.rounds import ANSWERED, NEVER, UNANSWERED, WAITING, Rounds

_MARKS: Final = {
    WAITING: ("sent again, others were missing", "|", "0.35"),
    UNANSWERED: ("sent again, contribution lost or late", "x", "black"),
    ANSWERED: ("sent again, result lost or late", "+", "tab:red"),
}
_NOBODY: Final = "0.8"
_TALLEST: Final = 64  # slots that get a bar of their own height; of more, the picture stays as high


def draw(path: Path, job: Job, rounds: Rounds, *, title: str, origin: int, slot: int | None = None) -> None:
    """Writes the picture of one job, which the title names; seconds count from `origin`, in nanoseconds.

    Raises:
        ModuleNotFoundError: matplotlib is missing.
        OSError: the file cannot be written.
    """
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    shown = np.flatnonzero((rounds.begin != NEVER) & ((rounds.slot == slot) if slot is not None else True))
    used, line = np.unique(rounds.slot[shown], return_inverse=True)
    height = 2.2 + 0.16 * min(max(len(used), 4), _TALLEST)
    figure = Figure(figsize=(12, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    width = max(0.3, min(12.0, 0.55 * (height - 1.5) * 72 / max(1, len(used))))
    palette = colormaps["tab10" if len(job.ranks) <= 10 else "turbo"]

    def color(rank: int) -> Any:
        return palette(rank if len(job.ranks) <= 10 else rank / max(1, len(job.ranks) - 1))

    start = (rounds.begin[shown] - origin) / 1e9
    stop = start + rounds.waited[shown] / 1e9
    bars = np.stack([np.stack([start, line], axis=1), np.stack([stop, line], axis=1)], axis=1)
    legend: list[Any] = []
    for rank in range(-1, len(job.ranks)):
        mine = rounds.last[shown] == rank
        if mine.any():
            paint = _NOBODY if rank < 0 else color(rank)
            axes.add_collection(LineCollection(list(bars[mine]), colors=[paint], linewidths=width, capstyle="butt"))
            label = "not all ranks seen" if rank < 0 else f"{job.names[rank]} last"
            legend.append(Line2D([], [], color=paint, linewidth=5, label=label))
    for reason, (label, marker, paint) in _MARKS.items():
        at, where = _marks(job, rounds, used, reason)
        if len(at):
            axes.plot((at - origin) / 1e9, where, marker, color=paint, markersize=5, label=label)
            legend.append(Line2D([], [], color=paint, marker=marker, linestyle="", label=label))
    axes.set_ylim(max(len(used), 1) - 0.4, -0.6)
    axes.margins(x=0.01)
    axes.autoscale(axis="x")
    places = np.unique(np.linspace(0, max(len(used) - 1, 0), min(max(len(used), 1), 33)).astype(int))
    axes.set_yticks(places, [str(number) for number in used[places]] if len(used) else [""] * len(places))
    axes.set_xlabel("seconds")
    axes.set_ylabel("slot")
    axes.set_title(f"{title}: each bar is a round, from the first contribution to the result", loc="left")
    if legend:
        figure.legend(handles=legend, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    figure.savefig(path, format="png")


def _marks(job: Job, rounds: Rounds, used: Integers, reason: int) -> tuple[Integers, Integers]:
    """Times, and lines of the picture, of what was sent again for that reason."""
    mine = np.flatnonzero(rounds.again_reason == reason)
    slots = rounds.slot[rounds.again_row[mine]]
    mine = mine[np.isin(slots, used)]
    slots = rounds.slot[rounds.again_row[mine]]
    return job.packets["time"][rounds.again[mine]], np.searchsorted(used, slots)
