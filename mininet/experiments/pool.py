"""Elements per second against the pool's size, with the bandwidth-delay product marked, and against packet size.

sudo .venv/bin/python mininet/experiments/pool.py
"""

import argparse
from typing import Any

from wiresum.lab.experiment import HEADER_BYTES, Experiment, line_rate, measure
from wiresum.lab.measure_worker import Task
from wiresum.lab.topology import Direction, rack

VALUES = 256


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    sizes = [2**i for i in range(11)]
    parser.add_argument("--slots", type=int, nargs="+", default=sizes, help="pool sizes, powers of two")
    parser.add_argument("--values", type=int, nargs="+", default=[32, 64, 128, 256], help="values per packet")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=1000, help="Mbit/s of the links")
    parser.add_argument("--delay", type=float, default=0, help="ms each way; ours is good for slow links only")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long a reduction takes at the limit")


def main() -> None:
    """Measures and draws."""
    experiment = Experiment("pool", __doc__, options)
    chosen = experiment.options
    elements = int(line_rate(chosen.rate) * chosen.seconds)
    way = Direction(rate=chosen.rate, delay=chosen.delay / 1e3)
    with experiment.running(), experiment.lab(topology=rack(chosen.workers, up=way)) as lab:
        for slots in chosen.slots:
            # A small pool takes long: fewer elements tell as much.
            some = max(VALUES * 64, int(elements * min(1.0, slots / 32)))
            task = Task(backend="wiresum", elements=some, repeats=chosen.repeats, slots=slots, values=VALUES)
            found = measure(lab, task, experiment.logs)
            experiment.add(part="pool", asked=slots, values=VALUES, elements=some, **found.row())
        # The round trip of a pool so small that nothing waits.
        round_trip = min(row["srtt_ms"] for row in experiment.select(part="pool")) / 1e3
        product = chosen.rate * 1e6 * round_trip / 8 / (HEADER_BYTES + 4 * VALUES)
        for row in experiment.rows:
            row["bdp_packets"] = product
        for values in chosen.values:
            task = Task(backend="wiresum", elements=elements, repeats=chosen.repeats, values=values)
            found = measure(lab, task, experiment.logs)
            limit = line_rate(chosen.rate, values)
            experiment.add(part="values", values=values, elements=elements, **found.row(), limit=limit)
        experiment.draw(lambda figure: plot(figure, experiment), width=10)


def plot(figure: Any, experiment: Experiment) -> None:
    """Pool sizes on the left, packet sizes on the right."""
    left, right = figure.subplots(1, 2)
    chosen = experiment.options
    rows = experiment.select(part="pool")
    left.plot([row["slots"] for row in rows], [row["elements_per_s"] / 1e6 for row in rows], "o-", label="wiresum")
    left.axhline(line_rate(chosen.rate, VALUES) / 1e6, color="k", linestyle="--", label="links, less headers")
    left.axvline(rows[0]["bdp_packets"], color="C3", linestyle=":", label="bandwidth x round trip")
    left.set_xscale("log", base=2)
    left.set(title=f"{chosen.workers} workers, {chosen.rate:g} Mbit/s", xlabel="slots of the pool", ylim=(0, None))
    rows = experiment.select(part="values")
    places = range(len(rows))
    right.plot(places, [row["elements_per_s"] / 1e6 for row in rows], "o-", label="wiresum")
    right.plot(places, [row["limit"] / 1e6 for row in rows], "k--", label="links, less headers")
    right.set_xticks(places, [row["values"] for row in rows])
    right.set(title="packet size", xlabel="values per packet", ylim=(0, None))
    for axes in (left, right):
        axes.set_ylabel("million elements/s")
        axes.grid(alpha=0.3)
        axes.legend()


if __name__ == "__main__":
    main()
