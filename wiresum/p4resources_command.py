"""`wiresum p4resources`: what a compiled P4 program would need of a Tofino, beside the limits."""

import argparse
from typing import Any, Final

from switch.controller.program_files import find
from switch.model import resources
from switch.model.errors import ProgramError
from switch.model.program import Program
from switch.model.resources import ASSUMPTIONS, Estimate, estimate

SIZES: Final = (32, 64, 256)  # values per packet that the program is compiled for


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser(
        "p4resources", help="estimate what a compiled P4 program needs of a Tofino", description=__doc__
    )
    parser.add_argument("program", nargs="*", help="BMv2 JSON files (default: wiresum's own)")
    parser.add_argument(
        "--per-alu",
        type=int,
        choices=(1, 2),
        help="registers that share a stateful ALU of 64 bits (default: both, one after the other)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the estimate."""
    from rich.console import Console
    from rich.table import Table

    files = args.program or [find(values)[0] for values in SIZES]
    programs = [_load(str(file)) for file in files]
    estimates = [
        estimate(program, per_alu=per_alu)
        for program in programs
        for per_alu in ((args.per_alu,) if args.per_alu else (1, 2))
    ]
    table = Table(title="Needed of a Tofino (estimated)")
    table.add_column("")
    for each in estimates:
        table.add_column(f"{each.name}\n{each.per_alu} register(s) per ALU", justify="right")
    table.add_column("limit", justify="right")
    for label, values, limit in _rows(estimates):
        table.add_row(label, *values, limit)
    console = Console()
    console.print(table)
    console.print("Taken for granted:")
    for text in ASSUMPTIONS:
        console.print(f"- {text}", highlight=False)
    return 0


def _load(file: str) -> Program:
    try:
        return Program.load(file)
    except ProgramError as error:
        raise ProgramError(f"{file}: {error}") from None


def _rows(estimates: list[Estimate]) -> list[tuple[str, list[str], str]]:
    stages, alus, sram = resources.STAGES, resources.STATEFUL_ALUS, resources.SRAM_BLOCKS
    bits = resources.HEADER_VECTOR_BITS
    return [
        ("stages, ingress", [str(len(each.ingress)) for each in estimates], str(stages)),
        ("stages, egress", [str(len(each.egress)) for each in estimates], str(stages)),
        ("stateful ALUs", [str(each.alus) for each in estimates], f"{stages * alus} ({alus} per stage)"),
        ("register bits", [f"{each.register_bits:,}" for each in estimates], ""),
        ("SRAM blocks of 16 KiB", [str(each.sram) for each in estimates], f"{stages * sram} ({sram} per stage)"),
        ("header bits of one packet", [f"{each.header_bits:,}" for each in estimates], ""),
        ("and metadata", [f"{each.header_bits + each.metadata_bits:,}" for each in estimates], f"{bits:,}"),
        ("passes through the pipeline", [str(each.passes) for each in estimates], "1"),
    ]
