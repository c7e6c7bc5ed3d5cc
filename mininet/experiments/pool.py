"""Elements per second against the pool's size, with the bandwidth-delay product marked, and against packet size.

sudo .venv/bin/python mininet/experiments/pool.py
"""

import argparse
from typing import Any

from wiresum.arguments import number, pool_slots
from wiresum.lab.experiment import Experiment, measure
from wiresum.lab.experiment_options import (
    HEADER_BYTES,
    PACKET_VALUES,
    RATE,
    SECONDS,
    WORKERS,
    Distinct,
    check_memory,
    elements_for,
    line_rate,
)
from wiresum.lab.measure_worker import Task
from wiresum.lab.network import Lab
from wiresum.lab.topology import Direction, rack

VALUES = 256


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    sizes = [2**i for i in range(11)]
    parser.add_argument(
        "--slots", type=pool_slots, nargs="+", action=Distinct, default=sizes, help="pool sizes, powers of two"
    )
    parser.add_argument(
        "--values",
        type=int,
        nargs="+",
        action=Distinct,
        choices=PACKET_VALUES,
        default=list(PACKET_VALUES),
        help="values per packet",
    )
    parser.add_argument("--workers", type=WORKERS, default=2)
    parser.add_argument("--rate", type=RATE, default=1000, help="Mbit/s of the links without delay")
    parser.add_argument("--far-rate", type=RATE, default=200, help="Mbit/s of those with delay")
    delay = number(0, 1000, "a delay in milliseconds", above=True)
    parser.add_argument("--far-delay", type=delay, default=2, help="ms each way")
    parser.add_argument("--seconds", type=SECONDS, default=0.5, help="about how long a reduction takes at the limit")


def check(chosen: argparse.Namespace) -> None:
    """Whether the options go together."""
    check_memory(elements_for(max(chosen.rate, chosen.far_rate), chosen.seconds), chosen.workers)


def main() -> None:
    """Measures and draws."""
    experiment = Experiment(__file__, str(__doc__), options, check)
    chosen = experiment.options
    with experiment.running():
        for rate, delay in ((chosen.rate, 0.0), (chosen.far_rate, chosen.far_delay)):
            elements = elements_for(rate, chosen.seconds)
            way = Direction(rate=rate, delay=delay / 1e3)
            with experiment.lab(topology=rack(chosen.workers, up=way)) as lab:
                pools(experiment, lab, rate, delay, elements)
                if not delay:
                    packets(experiment, lab, rate, elements)
        experiment.finish(lambda figure: plot(figure, experiment), width=10)


def pools(experiment: Experiment, lab: Lab, rate: float, delay: float, elements: int) -> None:
    """Measures each size of the pool."""
    for slots in experiment.options.slots:
        # A small pool takes long: fewer elements tell as much.
        some = max(VALUES * 64, int(elements * min(1.0, slots / 32)))
        task = Task(backend="wiresum", elements=some, repeats=experiment.options.repeats, slots=slots, values=VALUES)
        found = measure(lab, task, experiment.logs)
        limit = line_rate(rate, VALUES)
        experiment.add(
            part="pool",
            rate_mbit=rate,
            delay_ms=delay,
            faults_by=lab.plan.mechanism,
            asked=slots,
            values=VALUES,
            elements=some,
            **found.row(),
            limit=limit,
            of_limit=found.rate / limit,
        )
    rows = experiment.select(part="pool", rate_mbit=rate, delay_ms=delay)
    # The round trip of a pool so small that nothing waits.
    product = rate * 1e6 * min(row["srtt_ms"] for row in rows) / 1e3 / 8 / (HEADER_BYTES + 4 * VALUES)
    for row in rows:
        row["bdp_packets"] = product


def packets(experiment: Experiment, lab: Lab, rate: float, elements: int) -> None:
    """Measures each size of packets."""
    for values in experiment.options.values:
        task = Task(backend="wiresum", elements=elements, repeats=experiment.options.repeats, values=values)
        found = measure(lab, task, experiment.logs)
        limit = line_rate(rate, values)
        experiment.add(
            part="values",
            rate_mbit=rate,
            values=values,
            elements=elements,
            **found.row(),
            limit=limit,
            of_limit=found.rate / limit,
        )


def plot(figure: Any, experiment: Experiment) -> None:
    """Pool sizes on the left, packet sizes on the right."""
    left, right = figure.subplots(1, 2)
    chosen = experiment.options
    for color, rate, delay in (("C0", chosen.rate, 0.0), ("C1", chosen.far_rate, chosen.far_delay)):
        rows = experiment.select(part="pool", rate_mbit=rate, delay_ms=delay)
        title = f"{rate:g} Mbit/s, delay {delay:g} ms each way"
        left.plot(
            [row["slots"] for row in rows], [100 * row["of_limit"] for row in rows], "o-", color=color, label=title
        )
        left.axvline(rows[0]["bdp_packets"], color=color, linestyle=":", label="bandwidth x round trip")
    left.set_xscale("log", base=2)
    left.set(title=f"{chosen.workers} workers", xlabel="slots of the pool", ylim=(0, None))
    left.set_ylabel("% of the links, less headers")
    rows = experiment.select(part="values")
    places = range(len(rows))
    right.plot(places, [row["elements_per_s"] / 1e6 for row in rows], "o-", label="wiresum")
    right.plot(places, [row["limit"] / 1e6 for row in rows], "k--", label="links, less headers")
    right.set_xticks(places, [row["values"] for row in rows])
    right.set(title=f"{chosen.rate:g} Mbit/s", xlabel="values per packet", ylim=(0, None))
    right.set_ylabel("million elements/s")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()


if __name__ == "__main__":
    main()
