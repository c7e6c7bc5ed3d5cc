"""`wiresum controller`: makes a P4Runtime target, such as BMv2, a switch for workers until it is told to stop."""

import argparse
import ipaddress
import os
import re
import select
from contextlib import suppress
from typing import Any, Final

from protocol.constants import CONTROL_PORT, DEFAULT_VALUES
from protocol.errors import WiresumError
from wiresum.arguments import control_address, ipv4, ipv4_host, path, port, server_address, slots, whole
from wiresum.serving import say, stop_signals

_DEFAULT_VALUES: Final = 64
_MAX_PORT: Final = 509  # 510 is the control plane's own, 511 drops
_PORTS: Final = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")
_MAC: Final = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser("controller", help="drive a P4 switch through P4Runtime", description=__doc__)
    parser.add_argument(
        "--target",
        required=True,
        type=server_address,
        metavar="HOST:PORT",
        help="P4Runtime server of the switch",
    )
    parser.add_argument(
        "--address",
        required=True,
        type=ipv4_host,
        metavar="IPV4",
        help="address that the switch gets, in the workers' subnet and of no other host",
    )
    parser.add_argument("--mac", type=_mac, metavar="MAC", help="its MAC address (default: 02:00 and the IPv4 address)")
    parser.add_argument(
        "--values", type=int, choices=(32, 64, 256), help=f"values per packet (default: {_DEFAULT_VALUES})"
    )
    parser.add_argument(
        "--json", type=path, metavar="FILE", help="compiled program to load instead of the one for --values"
    )
    parser.add_argument("--p4info", type=path, metavar="FILE", help="its p4info as text")
    parser.add_argument(
        "--ports",
        default="0-15",
        type=_ports,
        metavar="PORTS",
        help="the switch's ports, such as 0-3,7 (default: %(default)s)",
    )
    parser.add_argument(
        "--bind",
        default="0.0.0.0",
        type=ipv4,
        metavar="IPV4",
        help="where to serve the control service (default: %(default)s, all addresses of this machine)",
    )
    parser.add_argument(
        "--control-port",
        default=CONTROL_PORT,
        type=port,
        metavar="N",
        help="TCP control port, 0: any (default: %(default)s)",
    )
    parser.add_argument(
        "--device-id",
        default=0,
        type=whole(0, 2**64 - 1),
        metavar="N",
        help="the number that the switch was started with, --device-id of BMv2 (default: %(default)s)",
    )
    parser.add_argument(
        "--election-id",
        default=1,
        type=whole(1, 2**64 - 1),
        metavar="N",
        help="the controller with the highest wins (default: %(default)s)",
    )
    parser.add_argument(
        "--slots",
        type=slots,
        metavar="N",
        help="slots of the program that jobs may use, a power of two (default: all)",
    )
    parser.add_argument(
        "--parent",
        metavar="HOST:PORT",
        type=control_address,
        help="control address of the switch above: this one is a leaf of a tree",
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
    if args.slots is not None:
        _check_slots(args.slots, program.slots, program.values)
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


def _check_slots(slots: int, most: int, values: int) -> None:
    least = max(1, DEFAULT_VALUES // values)  # jobs are given slots of 256 values
    if not least <= slots <= most or slots & (slots - 1):
        raise ValueError(
            f"--slots must be a power of two from {least} to the {most} that the P4 program for {values} values has, "
            f"not {slots}"
        )


def _mac_of(address: str) -> int:
    return 0x02 << 40 | int(ipaddress.IPv4Address(address))


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
        match = _PORTS.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= _MAX_PORT:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of ports from 0 to {_MAX_PORT} such as 0-3,7")
        found.update(range(first, last + 1))
    return tuple(sorted(found))
