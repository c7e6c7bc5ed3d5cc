"""Types for arguments of commands; what they do not take is named, with what was expected."""

import argparse
import ipaddress
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

from protocol.constants import DEFAULT_VALUES, MAX_JOBS, MAX_SLOTS, VALUES_PER_PACKET, check_slots
from protocol.control import parse_address

# All that jobs could ever take: a number above is a mistake.
_MOST_SLOTS: Final = MAX_JOBS * MAX_SLOTS * max(VALUES_PER_PACKET) // DEFAULT_VALUES
_DIGITS: Final = 100  # far more than any of our numbers has; Python refuses to read thousands


def whole(least: int, most: int, what: str = "number") -> Callable[[str], int]:
    """A type for whole numbers from `least` to `most`, without a sign."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a {what} from {least} to {most}")
        return int(text)

    return parse


port = whole(0, 65535, "port")
slots = whole(1, _MOST_SLOTS, "number of slots")


def pool_slots(text: str) -> int:
    """Slots of one job's pool."""
    try:
        return check_slots(whole(1, MAX_SLOTS)(text))
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a power of two from 1 to {MAX_SLOTS}") from None


def number(least: float, most: float, what: str, *, above: bool = False, below: bool = False) -> Callable[[str], float]:
    """A type for numbers from `least` (or `above` it) to `most` (or `below` it); infinity and NaN are none."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or (above and value == least) or (below and value == most):
            bounds = f"above {least:g} and up" if above else f"from {least:g}"
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {what} {bounds} to {'below ' if below else ''}{most:.10g}"
            )
        return value

    return parse


share = number(0, 1, "a share")
loss = number(0, 1, "a share of lost packets", below=True)  # of all, nothing would pass


def ipv4(text: str) -> str:
    """An IPv4 address to serve."""
    return str(_ipv4(text))


def ipv4_host(text: str) -> str:
    """The IPv4 address of a host among others."""
    address = _ipv4(text)
    if address.is_loopback:
        raise argparse.ArgumentTypeError(f"{text!r} is a loopback address, and no other host can reach that")
    if address.packed[0] == 0 or address.packed[3] in (0, 255):
        raise argparse.ArgumentTypeError(f"{text!r} is the address of a network or a broadcast, not of one host")
    return str(address)


def _ipv4(text: str) -> ipaddress.IPv4Address:
    try:
        address = ipaddress.IPv4Address("127.0.0.1" if text == "localhost" else text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IPv4 address") from None
    if address.is_multicast or address.is_reserved:  # broadcast is among the reserved
        kind = "multicast" if address.is_multicast else "broadcast" if address.packed == b"\xff" * 4 else "reserved"
        raise argparse.ArgumentTypeError(f"{text!r} is a {kind} address, not that of one host")
    return address


def control_address(text: str) -> str:
    """HOST or HOST:PORT of a control service."""
    try:
        parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def server_address(text: str) -> str:
    """HOST:PORT of some other server, with brackets around an IPv6 address."""
    host, _, number = text.rpartition(":")
    if not host or (":" in host and not (host[0] == "[" and host[-1] == "]")) or not number.isascii():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    if not number.isdigit() or not 0 < int(number) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT with a port from 1 to 65535")
    return text


def path(text: str) -> Path:
    """A file or folder; the empty name would be taken for the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("the name of a file or folder must not be empty")
    return Path(text)
