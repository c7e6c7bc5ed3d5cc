"""One rack against a tree of racks: elements per second, and the traffic on the links between switches.

sudo .venv/bin/python mininet/experiments/tree.py
"""

import argparse
from typing import Any

from wiresum.lab.experiment import Experiment, line_rate, measure
from wiresum.lab.measure_worker import Task
from wiresum.lab.network import Lab
from wiresum.lab.topology import Direction, deep_tree, rack


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    parser.add_argument("--racks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=3, help="in each rack")
    parser.add_argument("--rate", type=float, default=200, help="Mbit/s of the hosts' links")
    parser.add_argument("--trunk-rate", type=float, default=200, help="Mbit/s of the links between switches")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long a reduction takes at the limit")
    parser.add_argument("--slots", type=int, help="of the pool; left to the agent if not given")


def uplink(lab: Lab) -> float:
    """Megabytes up and down the busiest link between switches, so far; 0 in a rack."""
    trunks = [link for link in lab.topology.links if link.child.startswith("s")]
    sums = [sum(way["bytes"] for way in lab.link_counters(link).values()) for link in trunks]
    return max(sums, default=0) / 1e6


def main() -> None:
    """Measures and draws."""
    experiment = Experiment("tree", __doc__, options)
    chosen = experiment.options
    way, trunk = Direction(rate=chosen.rate), Direction(rate=chosen.trunk_rate)
    elements = int(line_rate(chosen.rate) * chosen.seconds)
    topologies = {
        "rack": rack(chosen.racks * chosen.hosts, up=way),
        "tree": deep_tree((chosen.racks, chosen.hosts), up=way, trunk_up=trunk),
    }
    with experiment.running():
        for name, topology in topologies.items():
            with experiment.lab(topology=topology) as lab:
                for backend in ("wiresum", "gloo"):
                    before = uplink(lab)
                    task = Task(backend=backend, elements=elements, repeats=chosen.repeats, slots=chosen.slots)
                    found = measure(lab, task, experiment.logs)
                    reductions = task.repeats + task.warmup
                    experiment.add(
                        topology=name,
                        backend=backend,
                        elements=elements,
                        **found.row(),
                        uplink_megabytes=(uplink(lab) - before) / reductions,
                        tensor_megabytes=elements * 4 / 1e6,
                    )
        experiment.draw(lambda figure: plot(figure, experiment), width=10)


def plot(figure: Any, experiment: Experiment) -> None:
    """Rates on the left, traffic on the right."""
    rate, traffic = figure.subplots(1, 2)
    labels = [f"{row['backend']}, {row['topology']}" for row in experiment.rows]
    rate.bar(labels, [row["elements_per_s"] / 1e6 for row in experiment.rows])
    rate.axhline(line_rate(experiment.options.rate) / 1e6, color="k", linestyle="--", label="links, less headers")
    rate.set(ylabel="million elements/s")
    rate.legend()
    rows = experiment.select(topology="tree")
    traffic.bar([row["backend"] for row in rows], [row["uplink_megabytes"] for row in rows])
    traffic.axhline(2 * rows[0]["tensor_megabytes"], color="k", linestyle="--", label="the tensor, up and down")
    traffic.set(ylabel="MB on a link between switches, for one reduction")
    traffic.legend()


if __name__ == "__main__":
    main()
