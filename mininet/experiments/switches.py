"""The three kinds of switch side by side: elements and packets per second, on links without a limit.

sudo .venv/bin/python mininet/experiments/switches.py
"""

import argparse
import shutil
from typing import Any

from wiresum.arguments import whole
from wiresum.lab.experiment import Experiment, measure
from wiresum.lab.experiment_options import WORKERS, Distinct, check_memory
from wiresum.lab.measure_worker import Task
from wiresum.lab.topology import rack

KINDS = ("software", "bmv2", "model")
SIZES = (32, 64, 256)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    parser.add_argument("--kinds", nargs="+", action=Distinct, choices=KINDS, default=list(KINDS))
    parser.add_argument("--values", type=int, nargs="+", action=Distinct, choices=SIZES, default=list(SIZES))
    parser.add_argument("--workers", type=WORKERS, default=3)
    parser.add_argument(
        "--chunks", type=whole(1, 1_000_000), default=2000, help="packets of each worker, in a reduction"
    )
    parser.add_argument(
        "--software-factor", type=whole(1, 1000), default=20, help="times as many for the software switch"
    )


def check(chosen: argparse.Namespace) -> None:
    """Whether the options go together."""
    check_memory(max(packets(chosen, kind) for kind in chosen.kinds) * max(chosen.values), chosen.workers)


def packets(chosen: argparse.Namespace, kind: str) -> int:
    """Of each worker, in a reduction."""
    return int(chosen.chunks) * (int(chosen.software_factor) if kind == "software" else 1)


def main() -> None:
    """Measures and draws."""
    experiment = Experiment(__file__, str(__doc__), options, check)
    chosen = experiment.options
    with experiment.running():
        for kind in chosen.kinds:
            if kind == "bmv2" and shutil.which("simple_switch_grpc") is None:
                experiment.tell("no simple_switch_grpc on PATH: BMv2 is left out")
                continue
            for values in chosen.values:
                own = {} if kind == "software" else {"values": values}
                with experiment.lab(topology=rack(chosen.workers), kind=kind, **own) as lab:
                    elements = values * packets(chosen, kind)
                    task = Task(backend="wiresum", elements=elements, repeats=chosen.repeats, values=values)
                    found = measure(lab, task, experiment.logs)
                    total = max(report["total"] for report in found.reports)
                    experiment.add(
                        kind=kind,
                        values=values,
                        workers=chosen.workers,
                        elements=elements,
                        **found.row(),
                        packets_in_per_s=found.total("packets_sent") / total,
                    )
        experiment.finish(lambda figure: plot(figure, experiment), width=10)


def plot(figure: Any, experiment: Experiment) -> None:
    """Elements on the left, packets on the right; both logarithmic."""
    kinds = [kind for kind in KINDS if experiment.select(kind=kind)]
    sizes = experiment.options.values
    parts = (("elements_per_s", "aggregated elements/s"), ("packets_in_per_s", "packets/s into the switch"))
    for axes, (column, label) in zip(figure.subplots(1, 2), parts, strict=True):
        for place, values in enumerate(sizes):
            rows = experiment.select(values=values)
            middle = place - (len(sizes) - 1) / 2
            bars = axes.bar(
                [kinds.index(row["kind"]) + 0.27 * middle for row in rows],
                [row[column] for row in rows],
                0.25,
                label=f"{values} values per packet",
            )
            axes.bar_label(bars, [f"{row[column]:,.2g}" for row in rows], fontsize=7)
        axes.set_xticks(range(len(kinds)), kinds)
        axes.set(ylabel=label, yscale="log")
        axes.legend()


if __name__ == "__main__":
    main()
