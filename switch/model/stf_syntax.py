"""The syntax of STF files, the packet tests beside p4c's sample programs, in the dialect of its BMv2 runner.

One statement stands on one line, or goes on where a line does not begin with a keyword:

    packet PORT HEX...                      a packet comes in
    expect PORT [HEX...][$]                 one goes out; a `*` stands for any digit, a `$` for the exact end
    add TABLE [PRIORITY] FIELD:VALUE... ACTION(NAME:VALUE, ...) [= NAME]
    setdefault TABLE ACTION(NAME:VALUE, ...)
    check_counter NAME(INDEX) [packets|bytes == NUMBER]
    wait / remove all / no_packet
    mirroring_add, mirroring_add_mc, mirroring_delete, mirroring_get, mc_mgrp_create, mc_node_create, mc_node_update,
    mc_node_associate, counter_read, counter_write, register_read, register_write, register_reset, meter_get_rates,
    meter_set_rates, meter_array_set_rates: as in BMv2's command line
"""

import re
from dataclasses import dataclass
from typing import Final

from switch.model.errors import ModelError


class StfError(ModelError):
    """A statement that cannot be understood, or that does not fit the program; the text names line and statement."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet that comes in."""

    line: int
    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """A packet that must go out.

    Attributes:
        digits: upper-case hex digits with `*` for any; None: any packet.
        exact: whether it must end there.
    """

    line: int
    port: int
    digits: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class Add:
    """An entry: fields and arguments by name, values as they are written."""

    line: int
    table: str
    priority: int | None
    matches: tuple[tuple[str, str], ...]
    action: str
    args: tuple[tuple[str, str], ...]
    label: str | None


@dataclass(frozen=True, slots=True)
class SetDefault:
    """A default action."""

    line: int
    table: str
    action: str
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """What a counter must stand at; `index` is a number, or `$` and the label of an entry."""

    line: int
    counter: str
    index: str
    unit: str | None
    relation: str
    value: int


@dataclass(frozen=True, slots=True)
class Command:
    """Any other statement: its name and its words."""

    line: int
    name: str
    words: tuple[str, ...]


Statement = Packet | Expect | Add | SetDefault | CheckCounter | Command

COMMANDS: Final = {  # with the number of words that follow, or None: one or more
    "wait": 0,
    "remove": 1,
    "no_packet": 0,
    "mirroring_add": 2,
    "mirroring_add_mc": 2,
    "mirroring_delete": 1,
    "mirroring_get": 1,
    "mc_mgrp_create": 1,
    "mc_node_create": None,
    "mc_node_update": None,
    "mc_node_associate": 2,
    "counter_read": 2,
    "counter_write": 4,
    "register_read": 2,
    "register_write": 3,
    "register_reset": 1,
    "meter_get_rates": 2,
    "meter_set_rates": None,
    "meter_array_set_rates": None,
}
_KEYWORDS: Final = {"packet", "expect", "add", "setdefault", "check_counter", *COMMANDS}

_NAME: Final = r'(?:"[^"]+"|[A-Za-z_$][\w$]*(?:\[\d+\])?)(?:\.(?:"[^"]+"|[A-Za-z_$][\w$]*(?:\[\d+\])?))*'
_NUMBER: Final = r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)"
_PATTERN: Final = r"(?:0[xX][0-9a-fA-F*]+|0[bB][01*]+|[0-9]+)"  # `*`: a digit that does not matter
_CALL: Final = re.compile(rf"({_NAME})\s*\(([^()]*)\)\s*(?:=\s*({_NAME}))?\s*$")
_MATCH: Final = re.compile(rf"({_NAME})\s*:\s*({_PATTERN}(?:\s*/\s*[0-9]+)?)")
_ARG: Final = re.compile(rf"\s*({_NAME})\s*:\s*({_NUMBER})\s*$")
_ADD: Final = re.compile(rf"({_NAME})\s+(?:(\d+)\s+)?(.*)$", re.DOTALL)
_CHECK: Final = re.compile(
    rf"({_NAME})\s*\(\s*(\$?\w+)\s*\)\s*(?:(packets|bytes)\s*(==|!=|<=|>=|<|>)\s*({_NUMBER}))?\s*$", re.IGNORECASE
)


def parse_stf(text: str) -> list[Statement]:
    """All statements of a file.

    Raises:
        StfError: a statement cannot be understood.
    """
    lines: list[tuple[int, str]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        if lines and line.split()[0].lower() not in _KEYWORDS:
            lines[-1] = (lines[-1][0], f"{lines[-1][1]} {line}")
        else:
            lines.append((number, line))
    return [_statement(number, line) for number, line in lines]


def number(text: str) -> int:
    """A number as STF files write it.

    Raises:
        ValueError: it is none.
    """
    if not re.fullmatch(_NUMBER, text):
        raise ValueError(text)
    return int(text, 0) if text[:2].lower() in ("0x", "0b") else int(text)


def _statement(line: int, text: str) -> Statement:
    word, _, rest = text.partition(" ")
    keyword, rest = word.lower(), rest.strip()
    if keyword in ("packet", "expect"):
        return _frame(line, keyword, rest)
    if keyword == "add":
        return _add(line, rest)
    if keyword == "setdefault":
        table, _, call = rest.partition(" ")
        action, args, _ = _call(line, call.strip())
        return SetDefault(line, _plain(table), action, args)
    if keyword == "check_counter":
        found = _CHECK.match(rest)
        if found is None:
            raise StfError(f"line {line}: expected check_counter NAME(INDEX) [packets|bytes == NUMBER], got {text!r}")
        name, index, unit, relation, value = found.groups()
        return CheckCounter(line, _plain(name), index, unit and unit.lower(), relation or "==", number(value or "0"))
    if keyword not in COMMANDS:
        raise StfError(f"line {line}: unknown statement {word!r}")
    words, expected = rest.split(), COMMANDS[keyword]
    if len(words) != expected if expected is not None else not words:
        raise StfError(f"line {line}: {keyword} takes {expected or 'some'} words, got {len(words)}")
    return Command(line, keyword, tuple(_plain(each) for each in words))


def _frame(line: int, keyword: str, rest: str) -> Statement:
    port, _, digits = rest.partition(" ")
    if not port.isdigit():
        raise StfError(f"line {line}: expected a port number after {keyword}, got {port!r}")
    digits = "".join(digits.split()).upper()
    if keyword == "packet":
        try:
            return Packet(line, int(port), bytes.fromhex(digits))
        except ValueError:
            raise StfError(f"line {line}: {digits!r} is no packet: expected an even number of hex digits") from None
    exact = digits.endswith("$")
    digits = digits.removesuffix("$")
    if not set(digits) <= set("0123456789ABCDEF*"):
        raise StfError(f"line {line}: {digits!r} is no packet: expected hex digits and *")
    return Expect(line, int(port), digits if digits or exact else None, exact)


def _add(line: int, rest: str) -> Add:
    found = _ADD.match(rest)
    if found is None:
        raise StfError(f"line {line}: expected add TABLE [PRIORITY] FIELD:VALUE... ACTION(...), got {rest!r}")
    table, priority, rest = found.groups()
    matches: list[tuple[str, str]] = []
    while match := _MATCH.match(rest):
        matches.append((_plain(match[1]), match[2].replace(" ", "")))
        rest = rest[match.end() :].lstrip()
    action, args, label = _call(line, rest)
    return Add(line, _plain(table), None if priority is None else int(priority), tuple(matches), action, args, label)


def _call(line: int, text: str) -> tuple[str, tuple[tuple[str, str], ...], str | None]:
    found = _CALL.match(text)
    if found is None:
        raise StfError(f"line {line}: expected ACTION(NAME:VALUE, ...), got {text!r}")
    args: list[tuple[str, str]] = []
    for each in found[2].split(",") if found[2].strip() else []:
        arg = _ARG.match(each)
        if arg is None:
            raise StfError(f"line {line}: expected NAME:VALUE, got {each.strip()!r}")
        args.append((_plain(arg[1]), arg[2]))
    return _plain(found[1]), tuple(args), found[3]


def _plain(name: str) -> str:
    return name.replace('"', "")
