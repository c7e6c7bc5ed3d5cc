"""`wiresum stats`: prints the jobs and counters of a running switch."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from host import environment
from host.control import ControlClient
from host.control_types import CounterRow, SwitchReport

_RANKS_ABREAST: Final = 4  # so that counts of a billion fit into 80 columns


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser("stats", help="show a switch's jobs and counters", description=__doc__)
    parser.add_argument(
        "switch",
        metavar="HOST:PORT",
        nargs="?",
        help=f"control address of the switch (default: the environment's {environment.SWITCH})",
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON, zeros included")


def run(args: argparse.Namespace) -> int:
    """Prints them once."""
    address = environment.switch_or(args.switch)
    if address is None:
        raise ValueError(f"no switch: name one as HOST:PORT, or set {environment.SWITCH}")
    client = ControlClient(address)
    try:
        report = client.report()
    finally:
        client.close()
    if args.json:
        sys.stdout.write(json.dumps(asdict(report), indent=2) + "\n")
        return 0
    console = Console(highlight=False)
    for part in _tables(report):
        console.print(part)
    return 0


def _tables(report: SwitchReport) -> Iterator[RenderableType]:
    """Jobs, then the counters of ranks and those of the switch, as far as they are not zero."""
    used = report.total_slots - report.free_slots
    yield f"{used:,} of {report.total_slots:,} slots of 256 values in use, {len(report.jobs)} jobs"
    if report.jobs:
        jobs = Table("job", "number", "state", "ranks", "slots", "values")
        for job in report.jobs:
            ranks = f"{len(job.joined)} of {job.world_size}"
            known = "" if job.number is None else str(job.number)
            jobs.add_row(escape(job.name), known, job.state, ranks, str(job.slots or ""), str(job.values))
        yield jobs

    of_jobs: dict[tuple[str, int | None], list[CounterRow]] = {}
    for counter in report.counters:
        if counter.job is not None:
            of_jobs.setdefault((counter.job, counter.job_number), []).append(counter)
    for (name, number), counters in of_jobs.items():
        members = sorted({-1 if counter.rank is None else counter.rank for counter in counters})
        for start in range(0, len(members), _RANKS_ABREAST):
            yield _rank_table(f"job {escape(name)}, number {number}", members[start : start + _RANKS_ABREAST], counters)

    whole = Table("counter", title="switch", title_justify="left")
    whole.add_column("value", justify="right")
    for counter in report.counters:
        if counter.job is None and counter.value:
            whole.add_row(counter.name, f"{counter.value:,}")
    yield whole if whole.row_count else "the switch has counted nothing yet"


def _rank_table(title: str, ranks: list[int], counters: list[CounterRow]) -> Table:
    """A column for each rank, as there are more counters than fit side by side; -1 is a leaf switch's parent."""
    table = Table("counter", title=title, title_justify="left")
    for rank in ranks:
        table.add_column("parent" if rank < 0 else f"rank {rank}", justify="right")
    values = {(c.name, -1 if c.rank is None else c.rank): c.value for c in counters}
    busy = {counter.name for counter in counters if counter.value}
    for name in dict.fromkeys(counter.name for counter in counters):
        if name in busy:
            table.add_row(name, *(f"{values.get((name, rank), 0):,}" for rank in ranks))
    return table
