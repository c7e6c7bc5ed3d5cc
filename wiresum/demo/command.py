"""The command `wiresum demo`."""

import argparse
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from wiresum.arguments import path
from wiresum.demo.settings import MODEL_NAMES, Settings

_NEEDED = ("torch", "sklearn", "matplotlib")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command to those of `wiresum`."""
    defaults = Settings()
    parser = subparsers.add_parser(
        "demo",
        help="train a network on real data through a lossy software switch, and again with Gloo",
        description="Starts a software switch and several worker processes, trains a network on scikit-learn's "
        "handwritten digits with every gradient summed by the switch, trains it again with Gloo, and compares. "
        "The exit code is 1 if the workers' weights differ by a bit or the accuracies by more than a percentage point.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--workers", type=int, metavar="N", default=defaults.workers, help="worker processes, 2 to 32")
    add("--loss", type=float, metavar="SHARE", default=defaults.loss, help="share of packets lost each way, 0 to 0.5")
    add("--epochs", type=int, metavar="N", default=defaults.epochs, help="passes over the training images")
    add("--model", choices=MODEL_NAMES, default=defaults.model, help="network to train")
    add("--values", type=int, metavar="N", default=defaults.values, help="values in a packet: 32, 64, 128, ... 2048")
    add(
        "--slots",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help="slots of the job's pool, a power of two (default: left to switch and workers)",
    )
    add("--seed", type=int, metavar="N", default=defaults.seed, help="of weights, data order and packet loss")
    add(
        "--out",
        type=path,
        metavar="FOLDER",
        default=Path("wiresum-demo"),
        help="directory for report.json and loss.png",
    )


def run(args: argparse.Namespace) -> int:
    """Runs the demo; returns 0, or 1 if the two trainings do not agree."""
    settings = Settings(
        workers=args.workers,
        loss=args.loss,
        epochs=args.epochs,
        model=args.model,
        values=args.values,
        slots=getattr(args, "slots", None),
        seed=args.seed,
    )
    with _terminating_in_order():
        return run_demo(settings, args.out)


def run_demo(
    settings: Settings,
    out: Path,
    *,
    flip_bit_of_rank: int | None = None,
    on_start: Callable[[Sequence[int]], None] = lambda pids: None,
) -> int:
    """As `run`.

    Args:
        settings: what to train.
        out: directory for the report.
        flip_bit_of_rank: makes that rank flip one bit of its final weights, so that tests see it noticed.
        on_start: called with the workers' process ids at the start of each training.

    Raises:
        ProcessFailedError: the switch or a worker failed.
        ModuleNotFoundError: a package that the demo needs is not installed.
    """
    for module in _NEEDED:  # the workers would fail one by one
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    from rich.console import Console

    from wiresum.demo.display import Display
    from wiresum.demo.report import Report
    from wiresum.demo.training import save_digits, train
    from wiresum.processes import SwitchProcess

    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, and {out} is none")
    out.mkdir(parents=True, exist_ok=True)  # find out now, not after a minute, that it cannot be made
    display = Display(Console(), settings)
    with tempfile.TemporaryDirectory(prefix="wiresum-demo-") as name:
        scratch = Path(name)
        data = scratch / "digits.npz"
        training_images, test_images = save_digits(data, settings.seed)
        display.say(
            f"Training model {settings.model} on {training_images} handwritten digits ({test_images} more held out for "
            f"the test), {settings.workers} worker processes"
        )
        runs = []
        faults = f"loss={settings.loss}"
        with SwitchProcess("--faults-in", faults, "--faults-out", faults, "--seed", str(settings.seed)) as switch:
            display.say(
                f"wiresum: switch at {switch.address} sums the gradients and loses {settings.loss:.1%} of the packets "
                "each way"
            )
            for backend in ("wiresum", "gloo"):
                directory = scratch / backend
                directory.mkdir()
                with display.training(backend) as progress:
                    run = train(
                        settings,
                        backend,
                        data=data,
                        directory=directory,
                        switch=switch.address if backend == "wiresum" else None,
                        on_epoch=progress.epoch,
                        on_start=on_start,
                        flip_bit_of_rank=flip_bit_of_rank,
                    )
                runs.append(run)
                if backend == "wiresum":
                    switch.stop()
    report = Report(settings=settings, wiresum=runs[0], gloo=runs[1])
    display.result(report)
    display.files(report.save(out))
    return 1 if report.problems() else 0


@contextmanager
def _terminating_in_order() -> Iterator[None]:
    """Has SIGTERM unwind the stack, so that children are ended and files removed, as Ctrl-C does."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
