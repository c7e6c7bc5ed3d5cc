"""`wiresum trace`: what captures tell of a run: rounds, losses, round trips, stragglers, stalls, wrong sums."""

import argparse
import json
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from protocol.constants import DATA_PORT, MAX_JOBS, MAX_RANKS, MAX_SLOTS
from protocol.errors import WiresumError
from wiresum.arguments import path, whole

if TYPE_CHECKING:
    from wiresum.trace.analysis import Analysis

_PLAIN_WIDTH: Final = 160  # so that nothing is cut in a file or a pipe


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser(
        "trace", help="tell from packet captures what happened in a run", description=__doc__
    )
    parser.add_argument(
        "captures", metavar="RUN.pcap", nargs="+", type=path, help="pcap or pcapng files of one run, of any of its ends"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--png", metavar="FILE", type=path, help="draw a timeline (needs the extra demo)")
    parser.add_argument(
        "--job",
        metavar="N",
        type=whole(0, MAX_JOBS - 1, "job"),
        help="look at the job of this number only (default: all)",
    )
    parser.add_argument("--slot", metavar="N", type=whole(0, MAX_SLOTS - 1, "slot"), help="list this slot's rounds")
    parser.add_argument(
        "--port",
        metavar="N",
        type=whole(1, 65535, "port"),
        default=DATA_PORT,
        help="UDP port of the switch (default: %(default)s)",
    )
    parser.add_argument(
        "--ranks",
        metavar="N",
        type=whole(1, MAX_RANKS, "number of ranks"),
        help="ranks of the job (default: those seen)",
    )
    parser.add_argument(
        "--summary",
        metavar="FILE",
        type=path,
        help="the run's summary.json, for the nodes' names (default: that beside the captures)",
    )
    parser.add_argument(
        "--stall",
        metavar="SECONDS",
        type=_seconds,
        help="how long a round may take (default: ten times the median, a millisecond at least)",
    )


def run(args: argparse.Namespace) -> int:
    """Reads, prints and draws."""
    if args.png is not None:
        import_module("matplotlib")  # before the work, which may take a while
    from wiresum.trace.analysis import analyse

    if args.png is not None:
        _check_picture(args.png)
    analysis = analyse(
        args.captures, port=args.port, job=args.job, ranks=args.ranks, stall=args.stall, summary=args.summary
    )
    if args.slot is not None:
        _check_slot(args.slot, analysis)
    if args.json:
        sys.stdout.write(json.dumps(asdict(analysis.report), indent=2) + "\n")
    else:
        from rich.console import Console
        from rich.table import Table

        from wiresum.trace.tables import render

        plain = not sys.stdout.isatty()
        console = Console(highlight=False, soft_wrap=plain, width=_PLAIN_WIDTH if plain else None)
        for part in render(analysis, slot=args.slot):
            if plain and isinstance(part, Table):
                part.box = None
            console.print(part)
    if args.png is not None:
        # Standard output is JSON alone, if it is that.
        _draw(args.png, analysis, args.slot, sys.stderr if args.json else sys.stdout)
    return 0


def _draw(file: Path, analysis: "Analysis", slot: int | None, told: TextIO) -> None:
    """A picture for each job at each switch; which is which is told if there are several."""
    from wiresum.trace.report import headline
    from wiresum.trace.timeline import draw

    origin = int(analysis.trace.packets["time"][0])
    several = len(analysis.jobs) > 1
    digits = len(str(len(analysis.jobs)))  # so that files stand in the order of the report
    for number, (job, rounds, report) in enumerate(
        zip(analysis.jobs, analysis.rounds, analysis.report.jobs, strict=True), 1
    ):
        name = f"-{job.switch_name}" if job.switch in job.nodes else ""
        path = file.with_stem(f"{file.stem}-{number:0{digits}}{name}") if several else file
        draw(path, job, rounds, title=headline(report), origin=origin, slot=slot)
        if several:
            told.write(f"picture of {headline(report)}: {path}\n")


def _check_slot(slot: int, analysis: "Analysis") -> None:
    used = {seen.slot for job in analysis.report.jobs for seen in job.slots_seen}
    if slot not in used:
        raise WiresumError(
            f"slot {slot} is not in the captures; they show {len(used):,} slots, from {min(used)} to {max(used)}"
            if used
            else f"slot {slot} is not in the captures, which show no round of any slot"
        )


def _check_picture(file: Path) -> None:
    """What would fail only when everything is read."""
    if file.is_dir() or not file.parent.is_dir():
        raise ValueError(f"--png: {file} is {'a folder' if file.is_dir() else 'in a folder that is not there'}")
    if file.suffix.lower() != ".png":
        raise ValueError(f"--png: the name of the picture must end with .png, not {file.name!r}")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value
