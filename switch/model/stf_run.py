"""Runs STF statements against a switch, as p4c's runner does with BMv2's command line and files as ports."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from switch.model.core import ModelSwitch
from switch.model.entries import Entry
from switch.model.errors import StateError
from switch.model.externs import MeterRates
from switch.model.matching import Exact, KeyField, Lpm, Match, MatchKind, Ternary, prefix_mask
from switch.model.profiles import Action
from switch.model.replication import CloneSession, Replica
from switch.model.state import PRIORITY_PIVOT
from switch.model.stf_syntax import Add, CheckCounter, Command, Expect, Packet, SetDefault, Statement, StfError, number
from switch.model.tables import Table

_RELATIONS: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PACKET_SECONDS: Final = 1e-4  # from one packet to the next
_COMMAND_SECONDS: Final = 1.0  # p4c's runner waits as long before the packet after a command
_LOWEST_PRIORITY: Final = 10_000  # p4c's runner writes the difference to it, for BMv2 lets the smallest number win

T = TypeVar("T")


@dataclass
class Outcome:
    """What came of a test.

    Attributes:
        failures: empty if all was as expected.
        notes: writes that were refused (p4c's runner goes on, as BMv2's command line does), and what was read.
        traces: of each packet, if they were asked for.
    """

    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all was as expected."""
        return not self.failures


class StfRun:
    """One run of one file. Ports exist that a packet or an expectation names; what leaves by others is lost."""

    def __init__(self, switch: ModelSwitch, *, trace: bool = False) -> None:
        self._switch = switch
        self._trace = trace
        self._now = 1.0
        self._out: dict[int, list[bytes]] = {}
        self._ports: set[int] = set()
        self._expected: dict[int, list[Expect]] = {}
        self._nodes: list[tuple[int, list[int], int | None]] = []  # replication id, ports, group
        self._groups: dict[int, list[int]] = {}  # nodes of each multicast group
        self._labels: dict[str, Entry] = {}
        self.outcome = Outcome()

    def run(self, statements: Iterable[Statement]) -> Outcome:
        """Runs all statements, then compares what left by each port with what was expected there, in order.

        Raises:
            StfError: a statement does not fit the program.
        """
        for statement in statements:
            if isinstance(statement, Packet):
                self._packet(statement)
            elif isinstance(statement, Expect):
                self._expected.setdefault(statement.port, []).append(statement)
                self._ports.add(statement.port)
            elif isinstance(statement, CheckCounter):
                self._check_counter(statement)
            else:
                self._write(statement)
        for port in sorted(self._ports):
            self._compare(port)
        return self.outcome

    def _packet(self, packet: Packet) -> None:
        self._now += _PACKET_SECONDS
        self._ports.add(packet.port)
        if self._trace:
            trace = self._switch.trace(packet.port, packet.data, self._now)
            self.outcome.traces.append(f"line {packet.line}: packet on port {packet.port}\n{trace}")
            out = trace.out
        else:
            out = self._switch.receive(packet.port, packet.data, self._now)
        for port, data in out:
            self._out.setdefault(port, []).append(data)

    def _compare(self, port: int) -> None:
        expected, got = self._expected.get(port, []), self._out.get(port, [])
        if len(expected) != len(got):
            shown = ", ".join(data.hex() for data in got[:4]) or "none"
            self.outcome.failures.append(f"port {port}: expected {len(expected)} packets, got {len(got)}: {shown}")
            return
        for wanted, data in zip(expected, got, strict=True):
            problem = difference(wanted, data)
            if problem:
                self.outcome.failures.append(f"line {wanted.line}: packet on port {port}: {problem}")

    def _write(self, statement: Add | SetDefault | Command) -> None:
        if not (isinstance(statement, Command) and statement.name == "no_packet"):
            self._now += _COMMAND_SECONDS
        try:
            if isinstance(statement, Add):
                self._add(statement)
            elif isinstance(statement, SetDefault):
                table = named(self._switch.state.tables, statement.table, "table", statement.line)
                action = _action(table, statement.action, statement.line)
                table.set_default(action.name, _arguments(action, statement.args, statement.line))
            else:
                self._command(statement)
        except StateError as error:
            self.outcome.notes.append(f"line {statement.line}: refused: {error}")

    def _add(self, add: Add) -> None:
        table = named(self._switch.state.tables, add.table, "table", add.line)
        values = {_field(table, name, add.line): value for name, value in add.matches}
        action = _action(table, add.action, add.line)
        priority = 0
        if table.needs_priority:
            if add.priority is None:
                raise StfError(f"line {add.line}: table {table.name} needs a priority")
            priority = PRIORITY_PIVOT - _LOWEST_PRIORITY + add.priority
        left_out = [Exact(0) if key.kind in (MatchKind.EXACT, MatchKind.VALID) else None for key in table.keys]
        found = [_match(values[i], key, add.line) if i in values else left_out[i] for i, key in enumerate(table.keys)]
        args = _arguments(action, add.args, add.line)
        entry = table.insert(found, action.name, args, priority=priority)
        if add.label is not None:
            self._labels[add.label] = entry

    def _check_counter(self, check: CheckCounter) -> None:
        if check.unit is None:
            return
        state = self._switch.state
        if check.index.startswith("$"):
            entry = self._labels.get(check.index[1:])
            if entry is None:
                raise StfError(f"line {check.line}: no entry is called {check.index[1:]!r}")
            packets, size = entry.packets, entry.bytes
        else:
            packets, size = named(state.counters, check.counter, "counter", check.line).read(
                _number(check.index, check.line)
            )
        value = packets if check.unit == "packets" else size
        if not _RELATIONS[check.relation](value, check.value):
            self.outcome.failures.append(
                f"line {check.line}: counter {check.counter}({check.index}): "
                f"expected {check.unit} {check.relation} {check.value}, got {value}"
            )

    def _command(self, command: Command) -> None:
        name, words, line, state = command.name, command.words, command.line, self._switch.state
        replication = state.replication
        numbers = _numbers(command)
        if name == "mirroring_add":
            replication.set_session(numbers[0], CloneSession(port=numbers[1]))
        elif name == "mirroring_add_mc":
            replication.set_session(numbers[0], CloneSession(group=numbers[1]))
        elif name == "mirroring_delete":
            replication.delete_session(numbers[0])
        elif name == "mirroring_get":
            self._note(line, f"clone session {numbers[0]}: {replication.clone_sessions.get(numbers[0])}")
        elif name == "mc_mgrp_create":
            self._groups.setdefault(numbers[0], [])
            self._replicate(numbers[0])
        elif name == "mc_node_create":
            self._nodes.append((numbers[0], sorted(set(numbers[1:])), None))
        elif name in ("mc_node_update", "mc_node_associate"):
            self._node(command, numbers)
        elif name == "remove":
            for table in state.tables.values():
                if not table.is_const:
                    table.clear()
        elif name.startswith("counter_"):
            counter = named(state.counters, words[0], "counter", line)
            if name == "counter_write":
                counter.write(numbers[1], numbers[2], numbers[3])
            self._note(line, f"counter {counter.name}[{numbers[1]}] = {counter.read(numbers[1])}")
        elif name.startswith("register_"):
            register = named(state.registers, words[0], "register", line)
            if name == "register_write":
                register.write(numbers[1], numbers[2])
            elif name == "register_reset":
                register.reset()
            else:
                self._note(line, f"register {register.name}[{numbers[1]}] = {register.read(numbers[1])}")
        elif name.startswith("meter_"):
            self._meter(command)

    def _node(self, command: Command, numbers: list[int]) -> None:
        associate = command.name == "mc_node_associate"
        handle = numbers[1] if associate else numbers[0]
        if handle >= len(self._nodes) or (associate and numbers[0] not in self._groups):
            self._note(command.line, f"refused: no such node or group: {' '.join(command.words)}")
            return
        rid, ports, group = self._nodes[handle]
        if associate:
            if group is not None:
                self._note(command.line, f"refused: node {handle} is in group {group} already")
                return
            group = numbers[0]
            self._groups[group].append(handle)
        else:
            ports = sorted(set(numbers[1:]))
        self._nodes[handle] = (rid, ports, group)
        if group is not None:
            self._replicate(group)

    def _replicate(self, group: int) -> None:
        """Nodes one after the other, ports of each ascending; unlike in P4Runtime, a copy may be there twice."""
        copies: list[Replica] = []
        for handle in self._groups[group]:
            rid, ports, _ = self._nodes[handle]
            copies += [(port, rid) for port in ports]
        self._switch.state.replication.groups[group] = copies

    def _meter(self, command: Command) -> None:
        meter = named(self._switch.state.meters, command.words[0], "meter", command.line)
        if command.name == "meter_get_rates":
            index = _number(command.words[1], command.line)
            self._note(command.line, f"meter {meter.name}[{index}]: {meter.rates(index)}")
            return
        single = command.name == "meter_set_rates"
        pairs = [word.partition(":") for word in command.words[2 if single else 1 :]]
        if len(pairs) != 2:
            raise StfError(f"line {command.line}: expected two RATE:BURST, got {' '.join(command.words)!r}")
        try:
            (cir, cburst), (pir, pburst) = [(float(rate) * 1e6, int(burst)) for rate, _, burst in pairs]
        except ValueError:
            raise StfError(f"line {command.line}: expected two RATE:BURST, got {' '.join(command.words)!r}") from None
        for index in [_number(command.words[1], command.line)] if single else range(len(meter)):
            meter.set_rates(index, MeterRates(cir, cburst, pir, pburst))

    def _note(self, line: int, text: str) -> None:
        self.outcome.notes.append(f"line {line}: {text}")


def difference(wanted: Expect, data: bytes) -> str | None:
    """Why a packet is not what was expected, or None."""
    if wanted.digits is None:
        return None
    got = data.hex().upper()
    if wanted.exact and len(got) > len(wanted.digits):
        return f"expected {len(wanted.digits) / 2:g} bytes, got {len(data)}: {got}"
    if len(got) < len(wanted.digits):
        return f"expected at least {len(wanted.digits) / 2:g} bytes, got {len(data)}: {got}"
    for i, (digit, other) in enumerate(zip(wanted.digits, got, strict=False)):
        if digit not in ("*", other):
            return f"differs at byte {i // 2}: expected {wanted.digits}, got {got}"
    return None


def named(things: dict[str, T], name: str, kind: str, line: int) -> T:
    """What has this name, or else the one whose name ends in it.

    Raises:
        StfError: there is none, or more than one.
    """
    if name in things:
        return things[name]
    found = [thing for full, thing in things.items() if full.endswith(name)]
    if len(found) != 1:
        raise StfError(f"line {line}: {'no' if not found else 'more than one'} {kind} is called {name!r}")
    return found[0]


def _numbers(command: Command) -> list[int]:
    """The words as numbers; 0 where a command begins with a name, and for rates, which are read elsewhere."""
    if command.name == "remove" or command.name.startswith("meter_"):
        return [0 for _ in command.words]
    found = [0] if command.name.startswith(("counter_", "register_")) else []
    return found + [_number(word, command.line) for word in command.words[len(found) :]]


def _number(word: str, line: int) -> int:
    try:
        return number(word)
    except ValueError:
        raise StfError(f"line {line}: expected a number, got {word!r}") from None


def _action(table: Table, name: str, line: int) -> Action:
    return named({action.name: action for action in table.actions}, name, f"action of table {table.name}", line)


def _arguments(action: Action, args: tuple[tuple[str, str], ...], line: int) -> list[int]:
    given = dict(args)
    names = [name for name, _ in action.parameters]
    if set(given) != set(names):
        raise StfError(f"line {line}: action {action.name} takes {names}, got {sorted(given)}")
    return [_number(given[name], line) for name in names]


def _field(table: Table, name: str, line: int) -> int:
    """The position of a key field under the names that p4c's runner knows it by."""
    names = [key.name for key in table.keys]
    before, dollar, after = name.partition("$")
    if dollar and after[:1].isdigit():
        digits = after[: len(after) - len(after.lstrip("0123456789"))]
        name = f"{before}[{digits}]{after[len(digits) :]}"
    candidates = [name, f"{name}$", f"{name}.$valid$"]
    if name.endswith(".valid"):
        candidates.append(f"{name[:-5]}$valid$")
    for candidate in candidates:
        if candidate in names:
            return names.index(candidate)
    endings = (f".{name}", f".{name}$", ".$valid$") if name == "valid" else (f".{name}", f".{name}$")
    for i in reversed(range(len(names))):
        if names[i].endswith(endings):
            return i
    raise StfError(f"line {line}: table {table.name} has no key field {name!r}; its fields are {', '.join(names)}")


def _match(text: str, key: KeyField, line: int) -> Match:
    """A match as p4c's runner writes it: the mask of a ternary value covers its digits, not the field."""
    everything = (1 << key.width) - 1
    if key.kind is MatchKind.LPM:
        digits, slash, prefix = text.partition("/")
        bits = _bits_per_digit(digits)
        length = int(prefix) if slash else (len(digits) - 2 - digits.count("*")) * bits if bits else key.width
        if not 0 <= length <= key.width:
            raise StfError(f"line {line}: prefix length {length} of {text!r} is not between 0 and {key.width}")
        return Lpm(_number(digits.replace("*", "0"), line) & prefix_mask(length, key.width), length)
    if key.kind in (MatchKind.TERNARY, MatchKind.OPTIONAL):
        bits = _bits_per_digit(text)
        mask = everything
        if bits:
            mask = 0
            for digit in text[2:]:
                mask = mask << bits | (0 if digit == "*" else (1 << bits) - 1)
        value = _number(text.replace("*", "0"), line)
        return Ternary(value & mask & everything, mask & everything)
    if key.kind is MatchKind.RANGE:
        raise StfError(f"line {line}: field {key.name}: STF files cannot write ranges")
    return Exact(_number(text.replace("*", "0"), line))


def _bits_per_digit(text: str) -> int:
    return {"0x": 4, "0b": 1}.get(text[:2].lower(), 0)
