"""Aggregated elements per second against the number of workers, beside Gloo's ring and the links' limit.

sudo .venv/bin/python mininet/experiments/workers.py
"""

import argparse
from collections.abc import Sequence
from typing import Any

from wiresum.arguments import pool_slots
from wiresum.lab.experiment import Experiment, measure, ring_rate
from wiresum.lab.experiment_options import RATE, SECONDS, WORKERS, Distinct, check_memory, elements_for, line_rate
from wiresum.lab.measure_worker import Task
from wiresum.lab.topology import Direction, rack

BACKENDS = {"wiresum": "C0", "gloo": "C1"}
HOLDS = 0.9  # of the links' limit: below it, something else is the limit


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    parser.add_argument(
        "--rates", type=RATE, nargs="+", action=Distinct, default=[1000, 200], help="Mbit/s of the links"
    )
    parser.add_argument(
        "--workers", type=WORKERS, nargs="+", action=Distinct, default=[2, 3, 4, 6, 8], help="at each rate"
    )
    parser.add_argument(
        "--slow-workers", type=WORKERS, nargs="*", default=[16], help="more of them, at the lowest rate"
    )
    parser.add_argument("--seconds", type=SECONDS, default=0.5, help="about how long a reduction takes at the limit")
    parser.add_argument("--slots", type=pool_slots, help="of the pool; left to the agent if not given")


def check(chosen: argparse.Namespace) -> None:
    """Whether the options go together."""
    check_memory(elements_for(max(chosen.rates), chosen.seconds), max(chosen.workers))
    check_memory(elements_for(min(chosen.rates), chosen.seconds), max(chosen.slow_workers, default=0))


def main() -> None:
    """Measures and draws."""
    experiment = Experiment(__file__, str(__doc__), options, check, needs=("torch",))
    chosen = experiment.options
    with experiment.running():
        for rate in chosen.rates:
            more = chosen.slow_workers if rate == min(chosen.rates) else []
            for workers in sorted({*chosen.workers, *more}):
                share = run(experiment, rate, workers, tuple(BACKENDS))
            # Where this machine's cores are the limit, and not the links: the highest rate at which they are not.
            slower = rate
            while share < HOLDS and slower > rate / 4:
                slower -= rate / 10
                share = run(experiment, slower, workers, ("wiresum",), part="slower")
        experiment.finish(lambda figure: plot(figure, experiment), width=4.5 * len(chosen.rates))


def run(experiment: Experiment, rate: float, workers: int, backends: Sequence[str], part: str = "workers") -> float:
    """Measures one rack; returns which share of the links' limit the first backend reached."""
    limit = line_rate(rate)
    shares = []
    with experiment.lab(topology=rack(workers, up=Direction(rate=rate))) as lab:
        for backend in backends:
            task = Task(
                backend=backend,
                elements=elements_for(rate, experiment.options.seconds),
                repeats=experiment.options.repeats,
                slots=experiment.options.slots,
            )
            found = measure(lab, task, experiment.logs)
            shares.append(found.rate / limit)
            experiment.add(
                part=part,
                rate_mbit=rate,
                workers=workers,
                backend=backend,
                elements=task.elements,
                **found.row(),
                limit=limit,
                of_limit=shares[-1],
                ring_limit=ring_rate(rate, workers),
            )
    return shares[0]


def plot(figure: Any, experiment: Experiment) -> None:
    """One picture for each rate."""
    rates = list(dict.fromkeys(row["rate_mbit"] for row in experiment.select(part="workers")))
    for axes, rate in zip(figure.subplots(1, len(rates), squeeze=False)[0], rates, strict=True):
        for backend, color in BACKENDS.items():
            rows = experiment.select(part="workers", rate_mbit=rate, backend=backend)
            workers = [row["workers"] for row in rows]
            axes.plot(workers, [row["elements_per_s"] / 1e6 for row in rows], "o-", color=color, label=backend)
        axes.plot(workers, [row["limit"] / 1e6 for row in rows], "k--", label="links, less headers")
        axes.plot(workers, [row["ring_limit"] / 1e6 for row in rows], "k:", label="links, for a ring")
        axes.set(title=f"links of {rate:g} Mbit/s", xlabel="workers", ylabel="million elements/s", ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()


if __name__ == "__main__":
    main()
