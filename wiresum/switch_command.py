"""`wiresum switch`: serves the software switch until it is told to stop."""

import argparse
import select
import sys
import time
from typing import Any

from protocol.constants import CONTROL_PORT, DATA_PORT
from protocol.errors import WiresumError
from protocol.faults import FaultRates
from switch.server import DEFAULT_TOTAL_SLOTS, SoftwareSwitch
from wiresum.arguments import control_address, ipv4, port, slots
from wiresum.serving import say, stop_signals

_FAULTS = """Faults are written KIND=RATE, with commas between them and rates from 0 to 1: loss, duplicate, reorder,
delay, corrupt. delay_seconds=S and reorder_seconds=S set how long packets are held."""
_REFRESH_SECONDS = 0.5
_HEALTH_SECONDS = 1.0


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser("switch", help="run a software switch", description=__doc__, epilog=_FAULTS)
    parser.add_argument(
        "--bind",
        default="127.0.0.1",
        type=ipv4,
        metavar="ADDRESS",
        help="IPv4 address to serve; 0.0.0.0: all of this machine (default: %(default)s)",
    )
    parser.add_argument(
        "--port", default=DATA_PORT, type=port, metavar="N", help="UDP data port, 0: any (default: %(default)s)"
    )
    parser.add_argument(
        "--control-port",
        default=CONTROL_PORT,
        type=port,
        metavar="N",
        help="TCP control port, 0: any (default: %(default)s)",
    )
    parser.add_argument(
        "--slots",
        default=DEFAULT_TOTAL_SLOTS,
        type=slots,
        metavar="N",
        help="slots of 256 values that all jobs share (default: %(default)s)",
    )
    parser.add_argument(
        "--parent",
        metavar="HOST:PORT",
        type=control_address,
        help="control address of the switch above, which makes this one a leaf of a tree of switches",
    )
    for name, what in (
        ("in", "what workers and leaf switches send"),
        ("out", "what they are sent"),
        ("up-in", "what the parent sends"),
        ("up-out", "what it is sent"),
    ):
        parser.add_argument(
            f"--faults-{name}",
            default=FaultRates(),
            type=_faults,
            metavar="KIND=RATE,...",
            help=f"faults in {what} (default: none)",
        )
    parser.add_argument("--seed", default=0, type=int, metavar="N", help="seed of the faults (default: %(default)s)")
    parser.add_argument("--no-offload", action="store_true", help="do without UDP segmentation and receive offload")
    parser.add_argument("--watch", action="store_true", help="show live counters, twice a second")


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM."""
    with (
        stop_signals() as (reader, _),
        SoftwareSwitch(
            bind=args.bind,
            port=args.port,
            control_port=args.control_port,
            total_slots=args.slots,
            parent=args.parent,
            faults_in=args.faults_in,
            faults_out=args.faults_out,
            faults_up_in=args.faults_up_in,
            faults_up_out=args.faults_up_out,
            seed=args.seed,
            offload=not args.no_offload,
        ) as switch,
    ):
        control, data = switch.control_address, switch.data_address
        say(f"wiresum switch ready: control {control[0]}:{control[1]} data {data[0]}:{data[1]}")
        if not switch.offload and not args.no_offload:
            sys.stderr.write("this kernel has no UDP segmentation or receive offload: slower, otherwise the same\n")
        if args.watch:
            _watch(switch, reader)
        else:
            while switch.alive and not select.select([reader], [], [], _HEALTH_SECONDS)[0]:
                pass
        if not switch.alive:
            raise WiresumError("the data plane has stopped; see the traceback above")
    return 0


def _watch(switch: SoftwareSwitch, stop: int) -> None:
    from rich.console import Console
    from rich.live import Live

    from wiresum.live_counters import LiveCounters

    console = Console()
    counters = LiveCounters()
    if not console.is_terminal:
        while switch.alive and not select.select([stop], [], [], _HEALTH_SECONDS)[0]:
            say(counters.line(switch.jobs(), switch.statistics(), time.monotonic()))
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while switch.alive:
            live.update(counters.table(switch.jobs(), switch.statistics(), time.monotonic()), refresh=True)
            if select.select([stop], [], [], _REFRESH_SECONDS)[0]:
                return


def _faults(text: str) -> FaultRates:
    try:
        return FaultRates.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
