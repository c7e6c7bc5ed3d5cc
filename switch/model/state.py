"""All that the control plane can read and write of a switch that runs a program."""

from collections.abc import Iterator, Sequence
from typing import Final

from switch.model import controls as compiled
from switch.model.errors import ProgramError, StateError
from switch.model.externs import Counter, Meter, Register
from switch.model.matching import Exact, KeyField, Lpm, Match, MatchKind, Range, Ternary
from switch.model.profiles import Action, ActionProfile
from switch.model.program import Program
from switch.model.replication import Replication
from switch.model.tables import Table

# BMv2 lets the smallest number win; P4Runtime, and the tables here, the largest. Its own server converts like this.
PRIORITY_PIVOT: Final = 2**31 - 1


class SwitchState:
    """Tables, action profiles and externs of a program, by their P4 names, and replication.

    Attributes:
        counters, meters: arrays; direct ones are part of the entries of their tables.
        direct_counters, direct_meters: their tables by the names of the externs.
    """

    def __init__(self, program: Program) -> None:
        self.tables: dict[str, Table] = {}
        self.profiles: dict[str, ActionProfile] = {}
        self.registers: dict[str, Register] = {}
        self.counters: dict[str, Counter] = {}
        self.meters: dict[str, Meter] = {}
        self.direct_counters: dict[str, Table] = {}
        self.direct_meters: dict[str, Table] = {}
        self.replication = Replication()
        for profile in program.profiles.values():
            users = [table for table in program.tables.values() if table.profile == profile.name]
            self.profiles[profile.name] = ActionProfile(
                profile.name,
                actions=[_action(action) for table in users for action in table.actions],
                size=profile.size,
                selector=profile.algorithm is not None,
            )
        for declared in program.tables.values():
            try:
                self.tables[declared.name] = self._table(declared, program)
            except StateError as error:
                raise ProgramError(f"{declared.source}: {error}") from error
        for register in program.registers.values():
            self.registers[register.name] = Register(register.name, width=register.width, size=register.size)
        for counter in program.counters.values():
            if counter.table is None:
                self.counters[counter.name] = Counter(counter.name, size=counter.size)
            else:
                self.direct_counters[counter.name] = self.tables[counter.table]
        for meter in program.meters.values():
            if meter.table is None:
                self.meters[meter.name] = Meter(meter.name, size=meter.size, kind=meter.unit)
            else:
                self.direct_meters[meter.name] = self.tables[meter.table]

    def reset(self) -> None:
        """Back to what the program says: its entries and default actions, and nothing in externs and groups.

        All objects stay the same, those of entries excepted.
        """
        for table in self.tables.values():
            table.reset()
        for profile in self.profiles.values():
            profile.reset()
        externs: Sequence[Register | Counter | Meter] = [
            *self.registers.values(),
            *self.counters.values(),
            *self.meters.values(),
        ]
        for extern in externs:
            extern.reset()
        self.replication.reset()

    def _table(self, declared: compiled.Table, program: Program) -> Table:
        default, meter = declared.default, declared.meter
        table = Table(
            declared.name,
            keys=[KeyField(key.name, MatchKind(key.kind), key.width, key.mask) for key in declared.keys],
            actions=[_action(action) for action in declared.actions],
            size=declared.size,
            default_action=None if default is None else (default.action, default.args),
            default_is_const=default is not None and default.const_entry,
            default_action_is_const=default is not None and default.const_action,
            has_counter=declared.counters,
            meter=meter,
            meter_by_packets=meter is not None and program.meters[meter].unit == "packets",
            support_timeout=declared.timeouts,
            profile=None if declared.profile is None else self.profiles[declared.profile],
        )
        table.insert_initial(_entries(declared, table.needs_priority), const=declared.entries_const)
        return table


def build_state(program: Program) -> SwitchState:
    """A fresh state for a program.

    Raises:
        ProgramError: entries of the program do not fit their table.
    """
    return SwitchState(program)


def _action(action: compiled.Action) -> Action:
    return Action(action.name, tuple((param.name, param.width) for param in action.params))


def _entries(declared: compiled.Table, needs_priority: bool) -> Iterator[tuple[list[Match], int, int, tuple[int, ...]]]:
    for entry in declared.entries:
        found = [_match(match, key) for match, key in zip(entry.matches, declared.keys, strict=True)]
        yield found, PRIORITY_PIVOT - entry.priority if needs_priority else 0, entry.action, entry.args


def _match(match: compiled.ConstMatch, key: compiled.Key) -> Match:
    """The match, with the bits away that do not count: p4c leaves them in."""
    if key.kind == "lpm":
        rest = key.width - match.prefix
        return Lpm(match.value >> rest << rest, match.prefix)
    if key.kind == "ternary":
        return Ternary(match.value & match.mask, match.mask)
    if key.kind == "range":
        return Range(match.value, match.high)
    return Exact(match.value)
