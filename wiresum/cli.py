"""The command line `wiresum`. Each command is a module with `add_parser(subparsers)` and `run(args) -> int`."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from protocol.errors import WiresumError

_COMMANDS: Final = {
    "switch": "wiresum.switch_command",
    "demo": "wiresum.demo.command",
    "stats": "wiresum.stats_command",
    "p4switch": "wiresum.p4switch_command",
    "controller": "wiresum.controller_command",
    "p4resources": "wiresum.p4resources_command",
    "mininet": "wiresum.mininet_command",
    "trace": "wiresum.trace_command",
}
# What a missing package belongs to, so that the switch alone runs without these.
_EXTRAS: Final = {
    "torch": "torch",
    "sklearn": "demo",
    "matplotlib": "demo",
    "scapy": "scapy",
    "p4": "p4",
    "mininet": "mininet",
}

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that `argv`, by default this process's command line, asks for; returns the exit code.

    A failure is one line on standard error: exit code 1 for one at run time, 2 for a wrong argument, 130 for Ctrl-C.
    With WIRESUM_DEBUG set, failures are raised instead.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_missing()
    try:
        args = _parser(arguments).parse_args(arguments)
        code = int(import_module(_COMMANDS[args.command]).run(args))
        sys.stdout.flush()  # here, where it can be told if it fails
        return code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # whoever read this, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_FAILURE
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None or _debugging():
            raise
        return _fail(f"this needs {error.name}; install it with: pip install 'wiresum[{extra}]'", EXIT_FAILURE)
    except (WiresumError, OSError) as error:
        if _debugging():
            raise
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            return _fail(f"{error.filename}: {error.strerror}", EXIT_FAILURE)
        return _fail(str(error), EXIT_FAILURE)
    except ValueError as error:
        if _debugging():
            raise
        return _fail(str(error), EXIT_USAGE)


def _open_missing() -> None:
    """Standard output and error may be closed, as by `>&-`, and are then None."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _debugging() -> bool:
    return bool(os.environ.get("WIRESUM_DEBUG"))


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"wiresum: {message}\n")
    return code


def _version() -> str:
    try:
        return version("wiresum")
    except PackageNotFoundError:
        return "(not installed)"


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="wiresum", description="In-network aggregation that anyone can run.")
    parser.add_argument("--version", action="version", version=f"wiresum {_version()}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # The command comes first; the others' modules need not be loaded for it.
    chosen = arguments[0] if arguments and arguments[0] in _COMMANDS else None
    for name, module in _COMMANDS.items():
        if chosen in (None, name):
            import_module(module).add_parser(subparsers)
    return parser
