"""Time of a reduction against the share of packets that every link loses each way: wiresum, and Gloo over TCP.

sudo .venv/bin/python mininet/experiments/loss.py
"""

import argparse
from typing import Any

from wiresum.arguments import pool_slots
from wiresum.lab.experiment import Experiment, measure
from wiresum.lab.experiment_options import LOSS, RATE, SECONDS, WORKERS, Distinct, check_memory, elements_for
from wiresum.lab.measure_worker import Task
from wiresum.lab.topology import Direction, rack


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    parser.add_argument(
        "--losses", type=LOSS, nargs="+", action=Distinct, default=[0, 0.0001, 0.001, 0.01], help="shares lost"
    )
    parser.add_argument("--workers", type=WORKERS, default=4)
    parser.add_argument("--rate", type=RATE, default=200, help="Mbit/s of the links")
    parser.add_argument("--seconds", type=SECONDS, default=1.0, help="about how long a reduction takes at the limit")
    parser.add_argument("--slots", type=pool_slots, help="of the pool; left to the agent if not given")


def check(chosen: argparse.Namespace) -> None:
    """Whether the options go together."""
    check_memory(elements_for(chosen.rate, chosen.seconds), chosen.workers)


def main() -> None:
    """Measures and draws."""
    experiment = Experiment(__file__, str(__doc__), options, check, needs=("torch",))
    chosen = experiment.options
    elements = elements_for(chosen.rate, chosen.seconds)
    with experiment.running():
        for loss in chosen.losses:
            topology = rack(chosen.workers, up=Direction(rate=chosen.rate, loss=loss))
            for backend in ("wiresum", "gloo"):
                # With segmentation offload, a TCP segment of many packets would be lost or kept as a whole; wiresum's
                # packets are lost one by one anyway.
                with experiment.lab(topology=topology, frames_are_packets=backend == "gloo") as lab:
                    task = Task(backend=backend, elements=elements, repeats=chosen.repeats, slots=chosen.slots)
                    found = measure(lab, task, experiment.logs)
                    experiment.add(
                        loss=loss, backend=backend, elements=elements, **found.row(), faults_by=lab.plan.mechanism
                    )
        for row in experiment.rows:
            (base,) = experiment.select(loss=chosen.losses[0], backend=row["backend"])
            row["times_as_long"] = row["seconds"] / base["seconds"]
        experiment.finish(lambda figure: plot(figure, experiment))


def plot(figure: Any, experiment: Experiment) -> None:
    """Bars side by side."""
    axes = figure.subplots()
    losses = experiment.options.losses
    for shift, backend in ((-0.2, "wiresum"), (0.2, "gloo")):
        rows = experiment.select(backend=backend)
        bars = axes.bar([i + shift for i in range(len(rows))], [row["seconds"] for row in rows], 0.38, label=backend)
        axes.bar_label(bars, [f"{row['times_as_long']:.2f}x" for row in rows], fontsize=8)
    axes.set_xticks(range(len(losses)), [f"{loss:.2%}" for loss in losses])
    chosen = experiment.options
    title = f"{chosen.workers} workers, {chosen.rate:g} Mbit/s, {experiment.rows[0]['elements'] / 1e6:.1f} M elements"
    axes.set(title=title, xlabel="packets lost each way", ylabel="seconds for a reduction")
    axes.legend()


if __name__ == "__main__":
    main()
