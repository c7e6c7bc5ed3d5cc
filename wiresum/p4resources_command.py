"""`wiresum p4resources`: what a compiled P4 program would need of a Tofino, beside the limits."""

import argparse
from typing import Any, Final

from switch.controller.program_files import find
from switch.model import resources
from switch.model.errors import ProgramError
from switch.model.program import Program
from switch.model.resources import ASSUMPTIONS, Estimate, estimate
from wiresum.arguments import path

SIZES: Final = (32, 64, 256)  # values per packet that the program is compiled for


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser(
        "p4resources", help="estimate what a compiled P4 program needs of a Tofino", description=__doc__
    )
    parser.add_argument(
        "program",
        nargs="*",
        type=path,
        metavar="JSON",
        help="files that p4c-bm2-ss wrote (default: wiresum's own programs)",
    )
    parser.add_argument(
        "--per-alu",
        type=int,
        choices=(1, 2),
        help="registers that share a stateful ALU of 64 bits (default: both, one after the other)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the estimate."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    files = args.program or [find(values)[0] for values in SIZES]
    table = Table(title="What a Tofino would need, estimated", box=box.SIMPLE, padding=(0, 0, 0, 1), pad_edge=False)
    table.add_column("program", no_wrap=True)
    for title in ("per\nALU", "stages\nin", "stages\nout", "stateful\nALUs", "SRAM\nblocks"):
        table.add_column(title, justify="right")
    for title in ("header\nbits", "and\nmetadata", "passes"):
        table.add_column(title, justify="right")
    stages, alus, sram = resources.STAGES, resources.STATEFUL_ALUS, resources.SRAM_BLOCKS
    limits = (stages, stages, f"{alus}x{stages}", f"{sram}x{stages}", "", resources.HEADER_VECTOR_BITS, 1)
    table.add_row("limit", "", *map(str, limits), end_section=True)
    for file in files:
        program = _load(str(file))
        for per_alu in (args.per_alu,) if args.per_alu else (1, 2):
            table.add_row(file.stem, str(per_alu), *map(str, _row(estimate(program, per_alu=per_alu))))
    console = Console()
    console.print(table)
    console.print("Limits of the first Tofino, as p4c's back end for it has them. Taken for granted:")
    for text in ASSUMPTIONS:
        console.print(f"- {text}", highlight=False)
    return 0


def _row(needed: Estimate) -> tuple[int, ...]:
    stages = len(needed.ingress), len(needed.egress)
    bits = needed.header_bits, needed.header_bits + needed.metadata_bits
    return (*stages, needed.alus, needed.sram, *bits, needed.passes)


def _load(file: str) -> Program:
    try:
        return Program.load(file)
    except ProgramError as error:
        raise ProgramError(f"{file}: {error}") from None
