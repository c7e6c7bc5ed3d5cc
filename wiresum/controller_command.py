"""`wiresum controller`: makes a P4Runtime target, such as BMv2, a switch for workers until it is told to stop."""

import argparse
import ipaddress
import os
import re
import select
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from protocol.constants import CONTROL_PORT
from protocol.errors import WiresumError
from wiresum.serving import ipv4, port, say, slots, stop_signals

_DEFAULT_VALUES: Final = 64
_MAX_PORT: Final = 509  # 510 is the control plane's own, 511 drops
_MAC: Final = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser("controller", help="drive a P4 switch through P4Runtime", description=__doc__)
    parser.add_argument("--target", required=True, type=_target, help="P4Runtime server of the switch, HOST:PORT")
    parser.add_argument("--address", required=True, type=ipv4, help="the switch's IPv4 address among the workers")
    parser.add_argument("--mac", type=_mac, help="its MAC address (default: 02:00 and the IPv4 address)")
    parser.add_argument(
        "--values", type=int, choices=(32, 64, 256), help=f"values per packet (default: {_DEFAULT_VALUES})"
    )
    parser.add_argument("--json", type=Path, help="compiled program to load instead of the one for --values")
    parser.add_argument("--p4info", type=Path, help="its p4info")
    parser.add_argument(
        "--ports", default="0-15", type=_ports, help="the switch's ports, such as 0-3,7 (default: %(default)s)"
    )
    parser.add_argument("--bind", default="0.0.0.0", type=ipv4, help="address to serve (default: %(default)s)")
    parser.add_argument(
        "--control-port", default=CONTROL_PORT, type=port, help="TCP control port, 0: any (default: %(default)s)"
    )
    parser.add_argument(
        "--device-id",
        default=0,
        type=int,
        help="the number that the switch was started with, --device-id of BMv2 (default: %(default)s)",
    )
    parser.add_argument(
        "--election-id", default=1, type=_election, help="the controller with the highest wins (default: %(default)s)"
    )
    parser.add_argument("--slots", type=slots, help="slots of the program to use (default: all)")
    parser.add_argument(
        "--parent", metavar="HOST:PORT", help="control address of the switch above: this one is a leaf of a tree"
    )
    parser.add_argument("--keep-pipeline", action="store_true", help="the switch runs the program: do not load it")


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM, or until the target is lost."""
    from switch.controller.program import WiresumProgram
    from switch.controller.program_files import find
    from switch.controller.server import ControlledSwitch

    if (args.json is None) != (args.p4info is None):
        raise ValueError("--json and --p4info belong together: give both or none")
    if args.json is not None and args.values is not None:
        raise ValueError("--values chooses a program, and so do --json and --p4info: give one of them")
    files = (args.json, args.p4info) if args.json is not None else find(args.values or _DEFAULT_VALUES)
    program = WiresumProgram.load(*files)
    with stop_signals() as (stop, wake):

        def on_failure(_: WiresumError) -> None:
            with suppress(OSError):
                os.write(wake, b"\0")

        with ControlledSwitch(
            args.target,
            program,
            address=args.address,
            mac=_mac_of(args.address) if args.mac is None else args.mac,
            ports=args.ports,
            bind=args.bind,
            control_port=args.control_port,
            device_id=args.device_id,
            election_id=args.election_id,
            keep_pipeline=args.keep_pipeline,
            total_slots=args.slots,
            parent=args.parent,
            on_failure=on_failure,
        ) as switch:
            control, data = switch.control_address, switch.data_address
            say(f"wiresum controller ready: control {control[0]}:{control[1]} data {data[0]}:{data[1]}")
            select.select([stop], [], [])
            if switch.failure is not None:
                raise switch.failure
    return 0


def _mac_of(address: str) -> int:
    return 0x02 << 40 | int(ipaddress.IPv4Address(address))


def _target(text: str) -> str:
    host, colon, number = text.rpartition(":")
    if not host or not colon or not number.isdecimal() or not 0 < int(number) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return text


def _mac(text: str) -> int:
    if not _MAC.fullmatch(text.lower()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a MAC address such as 02:00:0a:00:00:fe")
    number = int(text.replace(":", ""), 16)
    if number >> 40 & 1 or not number:
        raise argparse.ArgumentTypeError(f"{text!r} is not the MAC address of one host")
    return number


def _ports(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= _MAX_PORT):
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of ports from 0 to {_MAX_PORT} such as 0-3,7")
        found.update(range(int(first), int(last) + 1))
    return tuple(sorted(found))


def _election(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {(1 << 64) - 1}")
    return int(text)
