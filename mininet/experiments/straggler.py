"""One slow worker, one slow link, and two jobs that share a switch.

sudo .venv/bin/python mininet/experiments/straggler.py
"""

import argparse
from dataclasses import replace
from typing import Any

from wiresum.arguments import number, pool_slots
from wiresum.lab.experiment import Experiment, measure, measurement, run_tasks
from wiresum.lab.experiment_options import RATE, SECONDS, WORKERS, Distinct, check_memory, elements_for, line_rate
from wiresum.lab.measure_worker import Task
from wiresum.lab.topology import Direction, rack


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    late, share = number(0, 10_000, "a time in milliseconds"), number(0.01, 1, "a share")
    late_default, share_default = [0, 50, 100, 200, 400], [1, 0.5, 0.25]
    parser.add_argument(
        "--late", type=late, nargs="+", action=Distinct, default=late_default, help="ms before a reduction"
    )
    parser.add_argument(
        "--slow-links",
        type=share,
        nargs="+",
        action=Distinct,
        default=share_default,
        help="share of the others' rate",
    )
    parser.add_argument("--workers", type=WORKERS, default=4, help="an even number from 4, for two jobs")
    parser.add_argument("--rate", type=RATE, default=200, help="Mbit/s of the links")
    parser.add_argument("--seconds", type=SECONDS, default=0.25, help="about how long a reduction takes at the limit")
    parser.add_argument("--slots", type=pool_slots, help="of the pool; left to the agent if not given")


def check(chosen: argparse.Namespace) -> None:
    """Whether the options go together."""
    if chosen.workers < 4 or chosen.workers % 2:
        raise ValueError(f"--workers must be an even number from 4, for two jobs, not {chosen.workers}")
    check_memory(elements_for(chosen.rate, chosen.seconds), chosen.workers)


def main() -> None:
    """Measures and draws."""
    experiment = Experiment(__file__, str(__doc__), options, check)
    chosen = experiment.options
    elements = elements_for(chosen.rate, chosen.seconds)
    topology = rack(chosen.workers, up=Direction(rate=chosen.rate))
    task = Task(backend="wiresum", elements=elements, repeats=chosen.repeats, slots=chosen.slots)
    with experiment.running():
        with experiment.lab(topology=topology) as lab:
            for late in chosen.late:
                tasks = [replace(task, late=late / 1e3 if rank == 0 else 0) for rank in range(chosen.workers)]
                found = measurement(run_tasks(lab, tasks, experiment.logs), elements)
                experiment.add(part="late", late_ms=late, elements=elements, **found.row())
            half = chosen.workers // 2
            groups = {"a": tuple(range(half)), "b": tuple(range(half, chosen.workers))}
            for running in (("a",), ("b",), ("a", "b")):
                tasks_of: list[Task | None] = [None] * chosen.workers
                for job in running:
                    for rank in groups[job]:
                        tasks_of[rank] = replace(task, job=job, ranks=groups[job])
                reports = run_tasks(lab, tasks_of, experiment.logs)
                for job in running:
                    found = measurement([reports[rank] for rank in groups[job]], elements)
                    others = [other for other in running if other != job]
                    label = f"{job} with {others[0]}" if others else f"{job} alone"
                    experiment.add(part="jobs", jobs=label, elements=elements, **found.row())
        for share in chosen.slow_links:
            slow = Direction(rate=chosen.rate * share)
            first, *rest = topology.links
            links = (replace(first, up=slow, down=slow), *rest)
            with experiment.lab(topology=replace(topology, links=links)) as lab:
                found = measure(lab, task, experiment.logs)
                limit = line_rate(chosen.rate * share)
                experiment.add(part="link", share=share, elements=elements, **found.row(), limit=limit)
        experiment.finish(lambda figure: plot(figure, experiment), width=12)


def plot(figure: Any, experiment: Experiment) -> None:
    """A late worker, a slow link, two jobs."""
    late, link, jobs = figure.subplots(1, 3)
    rows = experiment.select(part="late")
    start = rows[0]["seconds"]
    late.plot([row["late_ms"] for row in rows], [row["seconds"] for row in rows], "o-", label="slowest worker sees")
    late.plot(
        [row["late_ms"] for row in rows], [start + row["late_ms"] / 1e3 for row in rows], "k--", label="its delay"
    )
    late.set(title="one worker comes late", xlabel="ms late", ylabel="seconds for a reduction", ylim=(0, None))
    rows = experiment.select(part="link")
    link.plot([row["share"] for row in rows], [row["elements_per_s"] / 1e6 for row in rows], "o-", label="wiresum")
    link.plot([row["share"] for row in rows], [row["limit"] / 1e6 for row in rows], "k--", label="that link's limit")
    link.set(title="one link is slow", xlabel="share of the others' rate", ylabel="million elements/s", ylim=(0, None))
    rows = experiment.select(part="jobs")
    jobs.bar([row["jobs"] for row in rows], [row["elements_per_s"] / 1e6 for row in rows])
    jobs.set(title="two jobs, alone and together", ylabel="million elements/s")
    for axes in (late, link):
        axes.grid(alpha=0.3)
        axes.legend()


if __name__ == "__main__":
    main()
