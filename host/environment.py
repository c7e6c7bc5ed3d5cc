"""Variables of the environment, for whatever joins a job: WIRESUM_*, and those by which torchrun tells ranks apart.

An empty variable counts as one that is not set. A variable whose setting was given as an argument is not looked at.
"""

import os
from collections.abc import Callable
from typing import Final

from protocol.constants import MAX_SLOTS, VALUES_PER_PACKET, check_slots, size_code
from protocol.control import parse_address

SWITCH: Final = "WIRESUM_SWITCH"
JOB: Final = "WIRESUM_JOB"
SLOTS: Final = "WIRESUM_SLOTS"
VALUES: Final = "WIRESUM_VALUES_PER_PACKET"
RANK: Final = "RANK"
WORLD_SIZE: Final = "WORLD_SIZE"


def switch_or(given: str | None) -> str | None:
    """`given`, or else the control address in WIRESUM_SWITCH, "host" or "host:port".

    Raises:
        ValueError: the variable holds something else.
    """
    text = _text(SWITCH) if given is None else None
    if text is None:
        return given
    try:
        parse_address(text)
    except ValueError as error:
        raise ValueError(f"{SWITCH}: {error}") from None
    return text


def job_or(given: str | None) -> str | None:
    """`given`, or else the job's name in WIRESUM_JOB."""
    return _text(JOB) if given is None else given


def slots_or(given: int | None) -> int | None:
    """`given`, or else the slots of the job's pool in WIRESUM_SLOTS.

    Raises:
        ValueError: the variable holds no number that a pool may have.
    """
    return _number(SLOTS, check_slots, f"a power of two from 1 to {MAX_SLOTS}") if given is None else given


def values_or(given: int | None) -> int | None:
    """`given`, or else the values per packet in WIRESUM_VALUES_PER_PACKET.

    Raises:
        ValueError: the variable holds no number that a packet may have.
    """
    return _number(VALUES, size_code, f"one of {', '.join(map(str, VALUES_PER_PACKET))}") if given is None else given


def rank_or(given: int | None) -> int:
    """`given`, or else the rank in RANK.

    Raises:
        ValueError: the variable holds no number, or nothing says the rank.
    """
    return _needed("rank", RANK) if given is None else given


def world_size_or(given: int | None) -> int:
    """`given`, or else the number of ranks in WORLD_SIZE.

    Raises:
        ValueError: the variable holds no number, or nothing says how many there are.
    """
    return _needed("world_size", WORLD_SIZE) if given is None else given


def _needed(name: str, variable: str) -> int:
    number = _number(variable, int, "a whole number")
    if number is None:
        raise ValueError(f"no {name}: give {name}=, or set {variable} as torchrun does")
    return number


def _text(variable: str) -> str | None:
    return os.environ.get(variable) or None


def _number(variable: str, check: Callable[[int], object], expected: str) -> int | None:
    text = _text(variable)
    if text is None:
        return None
    try:
        number = int(text)
        check(number)
    except ValueError:
        raise ValueError(f"{variable} must be {expected}, not {text!r}") from None
    return number
