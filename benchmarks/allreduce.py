"""Time, bandwidth, CPU time and memory of all_reduce through a software switch, beside Gloo on the same machine.

Both take turns, A B A B ..., in worker processes of their own over loopback. Bandwidth is bytes of the tensor per
second on each worker; the time of one all_reduce is the slowest worker's, from a barrier to its own completion.

    python -m benchmarks.allreduce                         # everything, some eight minutes
    python -m benchmarks.allreduce --sizes 25M --workers 2 --parts speed
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.common import (
    TITLES,
    Contestant,
    Measured,
    add_common_options,
    as_record,
    console,
    frame,
    measure,
    new_table,
    positive,
    save,
    short,
    spec_for,
)
from benchmarks.figures import draw_allreduce
from benchmarks.group import Group
from benchmarks.memory import WorkerMemory, switch_memory, worker_memory
from benchmarks.targets import LARGE, Target, loss_targets, memory_targets, speed_targets
from wiresum.processes import SwitchProcess

_SIZES: Final = (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, LARGE)
_WORKERS: Final = (2, 4, 8)
_LOSSES: Final = (0.0, 0.001, 0.01)
_MEMORY_SIZES: Final = (1 << 20, LARGE)
_PARTS: Final = ("speed", "loss", "memory")


def measure_speed(args: argparse.Namespace) -> tuple[list[Measured], int]:
    """Every size with every number of workers, and the highest memory of a switch in bytes."""
    results = []
    peak = 0
    sides = ("wiresum", "gloo", "backend") if args.backend else ("wiresum", "gloo")
    for workers in args.workers:
        with ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            contestants = []
            for side in sides:
                switch = None if side == "gloo" else stack.enter_context(SwitchProcess())
                group = stack.enter_context(Group(workers))
                store = directory / f"store-{side}"
                spec = spec_for(side, switch=switch, store=store, values=args.values, slots=args.slots)
                group.call("open", name=side, spec=spec)
                contestants.append(Contestant(side, group, switch, side))
            for elements in args.sizes:
                measured = measure(contestants, elements, args.runs)
                results += measured
                medians = ", ".join(f"{TITLES[one.side]} {_duration(one.time)}" for one in measured)
                _progress(f"{workers} workers, {short(elements)} elements: {medians}")
            peak = max([peak, *(switch_memory(one.switch) for one in contestants if one.switch)])
    return results, peak


def measure_loss(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Our own time with packets lost each way; one switch for each rate, all served by the same workers in turn."""
    results = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        switches = []
        for loss in _LOSSES:
            faults = f"loss={loss}"
            command = ("--faults-in", faults, "--faults-out", faults, "--seed", "1") if loss else ()
            switches.append(stack.enter_context(SwitchProcess(*command)))
        group = stack.enter_context(Group(args.loss_workers))
        contestants = []
        for loss, switch in zip(_LOSSES, switches, strict=True):
            spec = spec_for("wiresum", switch=switch, store=directory, values=args.values, slots=args.slots)
            group.call("open", name=f"loss {loss}", spec=spec)
            contestants.append(Contestant("wiresum", group, switch, f"loss {loss}"))
        for elements in args.loss_sizes:
            measured = measure(contestants, elements, args.runs)
            for loss, one in zip(_LOSSES, measured, strict=True):
                results.append({"loss": loss, "ratio": one.time / measured[0].time, **as_record(one)})
                _progress(f"{args.loss_workers} workers, {short(elements)}, {loss:.1%} loss: {_duration(one.time)}")
    return results


def measure_memory(args: argparse.Namespace) -> list[WorkerMemory]:
    """Of a worker, for a small and a large tensor."""
    results = []
    for side in ("wiresum", "gloo", "backend") if args.backend else ("wiresum", "gloo"):
        results += worker_memory(side, args.memory_sizes, values=args.values, slots=args.slots)
    return results


def main() -> int:
    """Measures, prints, saves; returns 0 whether or not the targets are met."""
    args = _arguments()
    content = frame("allreduce", {k: v for k, v in vars(args).items() if k not in ("out", "quick")})
    out = console()
    targets: list[Target] = []
    if "speed" in args.parts:
        speed, peak = measure_speed(args)
        content["speed"] = [as_record(one) for one in speed]
        content["switch_memory"] = peak
        out.print(_speed_table(speed))
        out.print(f"The switch took at most {peak / 1e6:.0f} MB beyond an interpreter with numpy.")
        targets += speed_targets(speed)
    if "loss" in args.parts:
        loss = measure_loss(args)
        content["loss"] = loss
        out.print(_loss_table(loss))
        targets += loss_targets(loss)
    if "memory" in args.parts:
        memory = measure_memory(args)
        content["memory"] = [asdict(one) for one in memory]
        out.print(_memory_table(memory))
        targets += memory_targets(memory)
    content["targets"] = [asdict(target) for target in targets]
    out.print(_target_table(targets))
    written = [save(args.out, "allreduce", content)]
    if "speed" in args.parts:
        written.append(draw_allreduce(speed, args.out / "allreduce.png"))
    out.print("Written: " + ", ".join(map(str, written)), soft_wrap=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, runs=7)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS, help="what to measure (default: all)")
    parser.add_argument("--sizes", nargs="+", type=positive, default=_SIZES, help="elements, such as 1Ki or 25M")
    parser.add_argument("--workers", nargs="+", type=positive, default=_WORKERS, help="default: 2 4 8")
    parser.add_argument("--loss-sizes", nargs="+", type=positive, default=(LARGE,), help="default: 25M")
    parser.add_argument("--loss-workers", type=positive, default=4, help="default: %(default)s")
    parser.add_argument("--memory-sizes", nargs="+", type=positive, default=_MEMORY_SIZES, help="default: 1Mi 25M")
    parser.add_argument("--values", type=positive, default=256, help="values in a packet (default: %(default)s)")
    parser.add_argument("--slots", type=positive, help="slots of a pool; left to the agent if not given")
    parser.add_argument("--backend", action="store_true", help='also measure the torch backend "wiresum"')
    args = parser.parse_args()
    if args.quick:
        args.sizes, args.workers, args.runs = (1 << 10, 1 << 20), (2,), min(args.runs, 3)
        args.loss_sizes, args.loss_workers, args.memory_sizes = (1 << 20,), 2, (1 << 20,)
    return args


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def _speed_table(results: list[Measured]) -> Any:
    table = new_table(
        "Medians, ratios to Gloo. CPU: seconds of all processes for each GB of each worker's tensor",
        "", "workers", "elements", "time", "MB/s a worker", "of Gloo's", "CPU s/GB", "of these the switch",
    )  # fmt: skip
    gloo = {(one.workers, one.elements): one for one in results if one.side == "gloo"}
    for one in results:
        other = gloo[one.workers, one.elements]
        in_switch = one.switch_cpu / (4e-9 * one.workers * one.elements)
        table.add_row(
            TITLES[one.side],
            str(one.workers),
            short(one.elements),
            _duration(one.time),
            f"{one.bandwidth / 1e6:.3g}" if one.bandwidth < 1e8 else f"{one.bandwidth / 1e6:.0f}",
            "" if one is other else f"{one.bandwidth / other.bandwidth:.2f}",
            f"{one.cpu_per_gb:.2f}",
            f"{in_switch:.2f}" if one.switch_cpu else "",
            end_section=one.side == results[-1].side,
        )
    return table


def _loss_table(loss: list[dict[str, Any]]) -> Any:
    table = new_table(
        "wiresum with packets lost each way", "loss", "workers", "elements", "time", "of its loss-free time"
    )
    for row in loss:
        numbers = (str(row["workers"]), short(row["elements"]), _duration(row["median_seconds"]), f"{row['ratio']:.2f}")
        table.add_row(f"{row['loss']:.1%}", *numbers)
    return table


def _memory_table(memory: list[WorkerMemory]) -> Any:
    table = new_table(
        "Memory of a worker beyond tensor and interpreter, MB", "", "elements", "libraries", "peak", "of it not shared"
    )
    for one in memory:
        megabytes = (f"{value / 1e6:.0f}" for value in (one.libraries, one.peak, one.private))
        table.add_row(TITLES[one.side], short(one.elements), *megabytes)
    return table


def _target_table(targets: list[Target]) -> Any:
    table = new_table("Targets", "", "target", "measured", "met")
    for target in targets:
        table.add_row(target.name, target.limit, f"{target.measured:.2f}", "yes" if target.met else "NO")
    return table


if __name__ == "__main__":
    sys.exit(main())
