"""Time and traffic until the demo's network reaches a given accuracy over slow links: wiresum and Gloo.

sudo .venv/bin/python mininet/experiments/training.py
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from wiresum.arguments import number, pool_slots, whole
from wiresum.demo.settings import MODEL_NAMES, TITLES, Settings, Task
from wiresum.demo.training import save_digits
from wiresum.lab.experiment import Experiment, failure
from wiresum.lab.experiment_options import RATE, WORKERS
from wiresum.lab.network import Lab
from wiresum.lab.nodes import own_environment
from wiresum.lab.run import run_command
from wiresum.lab.topology import Direction, rack


def options(parser: argparse.ArgumentParser) -> None:
    """Adds this experiment's own."""
    parser.add_argument("--workers", type=WORKERS, default=4)
    parser.add_argument("--rate", type=RATE, default=100, help="Mbit/s of the links")
    parser.add_argument(
        "--accuracy", type=number(0, 1, "a share"), default=0.97, help="of the test images, to be reached"
    )
    parser.add_argument("--epochs", type=whole(1, 10_000), default=10)
    parser.add_argument("--model", choices=MODEL_NAMES, default="wide")
    parser.add_argument("--slots", type=pool_slots, help="of the pool; left to the agent if not given")


def train(lab: Lab, backend: str, settings: Settings, data: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """Trains on all hosts; returns the mean of what they report of each epoch."""
    import sys

    folder.mkdir()
    reports: dict[int, list[dict[str, Any]]] = {}

    def command(rank: int) -> list[str]:
        task = Task(
            rank=rank,
            backend=backend,
            store=str(folder / "store"),
            data=str(data),
            weights=str(folder / "weights.npy"),
            settings=settings,
        )
        return [sys.executable, "-m", "wiresum.demo.worker", task.to_json()]

    def on_line(host: str, line: str) -> None:
        if line.startswith('{"event": "epoch"'):
            event = json.loads(line)
            reports.setdefault(event["epoch"], []).append(event)

    environment = {"PYTHONPATH": own_environment()["PYTHONPATH"]}
    if settings.slots is not None:
        environment["WIRESUM_SLOTS"] = str(settings.slots)
    result = run_command(
        lab, command, logs=folder, environment=environment, on_line=on_line, time_limit=max(1800, 60 * settings.epochs)
    )
    if result.code:
        raise failure("training", result, folder)
    for epoch, events in sorted(reports.items()):
        yield {
            "epoch": epoch,
            "seconds": max(event["seconds"] for event in events),
            "accuracy": fmean(event["accuracy"] for event in events),
            "loss": fmean(event["loss"] for event in events),
            "sent_megabytes": sum(event["traffic"]["bytes_sent"] for event in events) / len(events) / 1e6,
            "received_megabytes": sum(event["traffic"]["bytes_received"] for event in events) / len(events) / 1e6,
        }


def main() -> None:
    """Trains with both and draws."""
    experiment = Experiment(__file__, str(__doc__), options, needs=("torch", "sklearn"))
    chosen = experiment.options
    settings = Settings(
        workers=chosen.workers,
        loss=0,
        epochs=chosen.epochs,
        model=chosen.model,
        slots=chosen.slots,
        seed=chosen.seed,
    )
    with experiment.running():
        data = experiment.logs / "digits.npz"
        save_digits(data, settings.seed)
        with experiment.lab(topology=rack(chosen.workers, up=Direction(rate=chosen.rate))) as lab:
            for backend in TITLES:
                for row in train(lab, backend, settings, data, experiment.logs / backend):
                    experiment.add(backend=backend, **row)
        for backend, title in TITLES.items():
            reached = [row for row in experiment.select(backend=backend) if row["accuracy"] >= chosen.accuracy]
            if reached:
                first = reached[0]
                sent = f"{first['sent_megabytes']:.1f} MB sent by each worker"
                experiment.tell(f"{title}: {chosen.accuracy:.0%} after {first['seconds']:.1f} s and {sent}")
            else:
                experiment.tell(f"{title}: {chosen.accuracy:.0%} was not reached in {chosen.epochs} epochs")
        experiment.finish(lambda figure: plot(figure, experiment), width=10)


def plot(figure: Any, experiment: Experiment) -> None:
    """Accuracy against time, and against traffic."""
    chosen = experiment.options
    columns = (("seconds", "seconds"), ("sent_megabytes", "MB sent by each worker"))
    for axes, (column, label) in zip(figure.subplots(1, 2), columns, strict=True):
        for backend, title in TITLES.items():
            rows = experiment.select(backend=backend)
            axes.plot([row[column] for row in rows], [100 * row["accuracy"] for row in rows], "o-", label=title)
        axes.axhline(100 * chosen.accuracy, color="k", linestyle=":")
        axes.set(xlabel=label, ylabel="test accuracy, %", xlim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    figure.suptitle(f"{chosen.workers} workers, model {chosen.model}, links of {chosen.rate:g} Mbit/s")


if __name__ == "__main__":
    main()
