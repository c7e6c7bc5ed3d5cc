"""What the project wants to reach, each as a ratio to something measured in the same run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.common import Measured, short
from benchmarks.memory import WorkerMemory

LARGE: Final = 25_000_000
SMALL: Final = 1 << 10
_BANDWIDTH: Final = {2: 0.5, 4: 0.7, 8: 1.0}  # of Gloo's, by workers, for LARGE
_LATENCY: Final = 1.5  # of Gloo's, for SMALL
_LOSS: Final = {0.001: 1.15, 0.01: 1.5}  # of our own time without loss
_MEMORY_MB: Final = 64.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """One of them, and what was measured.

    Attributes:
        limit: in words, such as "at least 0.5".
    """

    name: str
    limit: str
    measured: float
    met: bool


def _at_least(name: str, limit: float, measured: float) -> Target:
    return Target(name=name, limit=f"at least {limit:g}", measured=measured, met=measured >= limit)


def _at_most(name: str, limit: float, measured: float) -> Target:
    return Target(name=name, limit=f"at most {limit:g}", measured=measured, met=measured <= limit)


def speed_targets(results: Sequence[Measured]) -> list[Target]:
    """Of those sizes and numbers of workers that were measured."""
    by_key = {(one.side, one.workers, one.elements): one for one in results}
    targets = []
    for workers, limit in _BANDWIDTH.items():
        ours, gloo = (by_key.get((side, workers, LARGE)) for side in ("wiresum", "gloo"))
        if ours and gloo:
            name = f"bandwidth of {short(LARGE)} elements with {workers} workers, of Gloo's"
            targets.append(_at_least(name, limit, ours.bandwidth / gloo.bandwidth))
    for workers in sorted({one.workers for one in results}):
        ours, gloo = (by_key.get((side, workers, SMALL)) for side in ("wiresum", "gloo"))
        if ours and gloo:
            name = f"time of {short(SMALL)} elements with {workers} workers, of Gloo's"
            targets.append(_at_most(name, _LATENCY, ours.time / gloo.time))
    return targets


def loss_targets(rows: Sequence[dict[str, Any]]) -> list[Target]:
    """Of rows of the loss part, for the large tensor."""
    return [
        _at_most(f"time with {row['loss']:.1%} loss each way, of the loss-free time", _LOSS[row["loss"]], row["ratio"])
        for row in rows
        if row["loss"] in _LOSS and row["elements"] == LARGE
    ]


def memory_targets(results: Sequence[WorkerMemory]) -> list[Target]:
    """Of the worker that needs no torch."""
    return [
        _at_most(f"memory of a worker with {short(one.elements)} elements, MB", _MEMORY_MB, one.peak / 1e6)
        for one in results
        if one.side == "wiresum"
    ]
