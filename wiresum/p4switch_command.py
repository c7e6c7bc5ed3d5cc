"""`wiresum p4switch`: a programmable switch that runs a compiled P4 program, with a P4Runtime server.

It takes the options of BMv2's simple_switch_grpc, also in its way to write them: the program as an argument of its
own, and options of the server after `--`.
"""

import argparse
import logging
import select
import sys
from pathlib import Path
from typing import Any, Final

from protocol.errors import WiresumError
from switch.model.errors import ModelError
from wiresum.arguments import whole
from wiresum.serving import say, stop_signals

_HEALTH_SECONDS: Final = 0.5
_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
_PORT: Final = whole(0, 511, "port")
_NUMBER: Final = whole(0, 2**64 - 1)
# Of simple_switch_grpc, and without a meaning here; with how many values.
_IGNORED: Final = {
    "--thrift-port": 1,
    "--nanolog": 1,
    "--notifications-addr": 1,
    "--debugger": 0,
    "--debugger-addr": 1,
    "--log-flush": 0,
    "--log-file-max-size": 1,
    "--log-file-max-files": 1,
    "--dump-packet-data": 1,
    "--max-port-count": 1,
    "--priority-queues": 1,
    "--max-mc-groups": 1,
    "--max-l1-entries": 1,
    "--max-l2-entries": 1,
    "--disable-swap": 0,
}


def add_parser(subparsers: Any) -> None:
    """Adds the command to the front end's parser."""
    parser = subparsers.add_parser(
        "p4switch",
        help="run a P4 program with a P4Runtime server",
        description=__doc__,
        epilog=f"Accepted and ignored, being simple_switch_grpc's: {', '.join(_IGNORED)}.",
    )
    parser.add_argument("program", nargs="?", metavar="JSON", help="the compiled program, as p4c-bm2-ss writes it")
    parser.add_argument("--json", metavar="FILE", help="the same")
    parser.add_argument("--p4info", metavar="FILE", help="its p4info as text; without it, a controller has to bring it")
    parser.add_argument(
        "-i",
        "--interface",
        action="append",
        default=[],
        metavar="PORT@INTERFACE",
        help="serve a network interface as a port; once for each",
    )
    parser.add_argument(
        "--grpc-addr",
        "--grpc-server-addr",
        default="0.0.0.0:9559",
        type=_server,
        metavar="HOST:PORT",
        help="address of the P4Runtime server, port 0: any (default: %(default)s)",
    )
    parser.add_argument("--cpu-port", type=_PORT, metavar="N", help="port of packets from and to the controller")
    parser.add_argument(
        "--drop-port", type=_PORT, default=511, metavar="N", help="port that drops (default: %(default)s)"
    )
    parser.add_argument(
        "--device-id", type=_NUMBER, default=0, metavar="N", help="what controllers call it (default: %(default)s)"
    )
    parser.add_argument("--no-p4", action="store_true", help="start without a program; a controller brings it")
    parser.add_argument("--pcap", nargs="?", const=".", metavar="DIR", help="capture what goes in and out of each port")
    parser.add_argument(
        "-L", "--log-level", choices=_LEVELS, default="warn", help="least severe that is logged (default: %(default)s)"
    )
    parser.add_argument("--log-console", action="store_true", help="log on standard output, not on standard error")
    parser.add_argument("--log-file", metavar="FILE", help="log to FILE.txt")
    parser.add_argument("--seed", type=_NUMBER, default=0, metavar="N", help="of random numbers (default: %(default)s)")
    parser.add_argument("--grpc-server-ssl", action="store_true", help="serve with TLS")
    for name, what in (
        ("cacert", "certificate that clients are checked against"),
        ("cert", "own certificate"),
        ("key", "own key"),
    ):
        parser.add_argument(f"--grpc-server-{name}", metavar="PEM", help=what)
    parser.add_argument("--grpc-server-with-client-auth", action="store_true", help="demand a certificate of clients")
    for name, values in _IGNORED.items():
        if values:
            parser.add_argument(name, help=argparse.SUPPRESS)
        else:
            parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    parse = parser.parse_known_args

    def parse_both(args: Any = None, namespace: Any = None) -> Any:
        # The two sorts of options have no name in common, so they need not be told apart.
        return parse([arg for arg in args if arg != "--"], namespace)

    parser.parse_known_args = parse_both


def run(args: argparse.Namespace) -> int:
    """Serves until SIGINT or SIGTERM."""
    _settle(args)
    _log(args)
    from switch.p4runtime.pipeline import SwitchOptions
    from switch.p4runtime.server import P4RuntimeSwitch

    json, p4info = _files(args)
    options = SwitchOptions(cpu_port=args.cpu_port, drop_port=args.drop_port, seed=args.seed)
    certificates = _certificates(args)
    with (
        stop_signals() as (reader, _),
        P4RuntimeSwitch(
            _ports(args),
            address=args.grpc_addr,
            device_id=args.device_id,
            options=options,
            certificates=certificates,
        ) as switch,
    ):
        _start(switch, args, json, p4info)
        say(_ready(args, switch.address))
        while switch.alive and not select.select([reader], [], [], _HEALTH_SECONDS)[0]:
            pass
        if not switch.alive:
            raise WiresumError(f"the switch has stopped: {switch.ports.failure}")
    return 0


def _start(switch: Any, args: argparse.Namespace, json: bytes | None, p4info: Any) -> None:
    try:
        if json is not None and p4info is not None:
            switch.service.load(p4info, json)
        elif json is not None:
            switch.service.run_program(json)
    except ModelError as error:
        raise WiresumError(f"{args.program}: {error}") from error


def _settle(args: argparse.Namespace) -> None:
    """Makes one way of writing out of several, and checks what needs no files."""
    from switch.model.interfaces import parse_interfaces

    if args.pcap is not None and args.pcap.endswith(".json") and args.program is None:
        args.program, args.pcap = args.pcap, "."  # simple_switch_grpc's --pcap takes its value only after "="
    if args.json is not None and args.program is not None:
        raise ValueError(f"the program is given twice: {args.json} and {args.program}")
    args.program = args.program if args.json is None else args.json
    if args.no_p4 and (args.program is not None or args.p4info is not None):
        given = args.program if args.program is not None else args.p4info
        raise ValueError(f"--no-p4 starts without a program, and {given} is given: leave out one of them")
    if not args.no_p4 and args.program is None:
        raise ValueError("give the compiled program, with --json, or --no-p4 to start without")
    if "" in (args.program, args.p4info):
        raise ValueError("the name of the file of the program, or of its p4info, is empty")
    if args.cpu_port is not None and args.cpu_port in (0, args.drop_port):
        raise ValueError(f"the CPU port must be neither 0 nor the drop port {args.drop_port}, got {args.cpu_port}")
    if args.pcap is not None and not Path(args.pcap).is_dir():
        raise ValueError(f"--pcap: {args.pcap} is not a directory")
    if args.grpc_server_ssl and not (args.grpc_server_cert and args.grpc_server_key):
        raise ValueError("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if not args.grpc_server_ssl:
        for name in ("cacert", "cert", "key", "with_client_auth"):
            if getattr(args, f"grpc_server_{name}"):
                option = f"--grpc-server-{name.replace('_', '-')}"
                raise ValueError(f"{option} has no meaning without --grpc-server-ssl, and the server would be open")
    if args.grpc_server_with_client_auth and not args.grpc_server_cacert:
        raise ValueError("--grpc-server-with-client-auth needs --grpc-server-cacert")
    try:
        args.interface_names = parse_interfaces(args.interface)
    except ModelError as error:
        raise ValueError(f"-i: {error}") from None


def _log(args: argparse.Namespace) -> None:
    if args.log_file:
        handler: logging.Handler = logging.FileHandler(f"{args.log_file}.txt")
    else:
        handler = logging.StreamHandler(sys.stdout if args.log_console else sys.stderr)
    logging.basicConfig(
        level=_LEVELS[args.log_level], handlers=[handler], format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def _files(args: argparse.Namespace) -> tuple[bytes | None, Any]:
    from google.protobuf import text_format

    from switch.p4runtime.messages import p4info_pb2

    json = None if args.program is None else _read(args.program)
    if args.p4info is None:
        return json, None
    p4info = p4info_pb2.P4Info()
    try:
        text_format.Parse(_read(args.p4info).decode(), p4info, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise WiresumError(f"{args.p4info} is not p4info as text: {error}") from None
    return json, p4info


def _ports(args: argparse.Namespace) -> dict[int, Any]:
    from switch.model.interfaces import InterfacePort
    from switch.p4runtime.capture import CapturedPort

    opened: dict[int, Any] = {}
    try:
        for number, name in args.interface_names.items():
            if number in (args.cpu_port, args.drop_port):
                raise ValueError(f"-i {number}@{name}: {number} is the CPU port or the drop port")
            port: Any = InterfacePort(name)
            opened[number] = port if args.pcap is None else CapturedPort(port, Path(args.pcap), name)
    except BaseException:
        for port in opened.values():
            port.close()
        raise
    return opened


def _certificates(args: argparse.Namespace) -> Any:
    from switch.p4runtime.server import Certificates

    if not args.grpc_server_ssl:
        return None
    root = args.grpc_server_cacert
    return Certificates(
        key=_pem(args.grpc_server_key),
        chain=_pem(args.grpc_server_cert),
        root=None if root is None else _pem(root),
        client_auth=args.grpc_server_with_client_auth,
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise WiresumError(f"cannot read {path}: {error.strerror}") from None


def _pem(path: str) -> bytes:
    content = _read(path)
    if b"-----BEGIN " not in content:
        raise WiresumError(f"{path} is no certificate or key in PEM form")
    return content


def _ready(args: argparse.Namespace, address: str) -> str:
    ports = " ".join(args.interface) or "none"
    return f"wiresum p4switch ready: P4Runtime {address} device {args.device_id} ports {ports}"


def _server(text: str) -> str:
    host, _, number = text.rpartition(":")
    if text.startswith("unix:") or (host and number.isascii() and number.isdigit() and int(number) < 65536):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port from 0 to 65535, or unix:PATH")
