"""One rack against a tree of racks: elements per second, and the traffic on the links between switches.

sudo .venv/bin/python mininet/experiments/tree.py
"""

import argparse
from typing import Any

from protocol.constants import MAX_RANKS
from wiresum.arguments import pool_slots, whole
from wiresum.lab.experiment import Experiment, measure
from wiresum.lab.experiment_options import RATE, SECONDS, check_memory, elements_for, line_rate
from wiresum.lab.measure_worker import Task
from wiresum.lab.network import Lab
from wiresum.lab.topology import Direction, deep_tree, rack


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    parser.add_argument("--racks", type=whole(1, MAX_RANKS, "number of racks"), default=2)
    parser.add_argument("--hosts", type=whole(1, MAX_RANKS, "number of hosts"), default=3, help="in each rack")
    parser.add_argument("--rate", type=RATE, default=200, help="Mbit/s of the hosts' links")
    parser.add_argument("--trunk-rate", type=RATE, default=200, help="Mbit/s of the links between switches")
    parser.add_argument("--seconds", type=SECONDS, default=0.5, help="about how long a reduction takes at the limit")
    parser.add_argument("--slots", type=pool_slots, help="of the pool; left to the agent if not given")


def uplink(lab: Lab) -> float:
    """Megabytes up and down the busiest link between switches, so far; 0 in a rack."""
    trunks = [link for link in lab.topology.links if link.child.startswith("s")]
    sums = [sum(way["bytes"] for way in lab.link_counters(link).values()) for link in trunks]
    return max(sums, default=0) / 1e6


def check(chosen: argparse.Namespace) -> None:
    """Whether the options go together."""
    workers = chosen.racks * chosen.hosts
    if not 2 <= workers <= MAX_RANKS:  # all of them are also measured around one switch
        raise ValueError(f"--racks times --hosts must be from 2 to {MAX_RANKS} workers, not {workers}")
    check_memory(elements_for(chosen.rate, chosen.seconds), workers)


def main() -> None:
    """Measures and draws."""
    experiment = Experiment(__file__, str(__doc__), options, check, needs=("torch",))
    chosen = experiment.options
    way, trunk = Direction(rate=chosen.rate), Direction(rate=chosen.trunk_rate)
    elements = elements_for(chosen.rate, chosen.seconds)
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
        experiment.finish(lambda figure: plot(figure, experiment), width=10)


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
