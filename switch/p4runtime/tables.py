"""TableEntry: what it says is written to tables, and read from them."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from switch.model.entries import NO_ACTION, Entry
from switch.model.errors import NotFoundError
from switch.model.externs import MeterRates
from switch.model.matching import Match, checked
from switch.model.state import SwitchState
from switch.model.tables import Table
from switch.p4runtime import arrays
from switch.p4runtime.actions import (
    DELETE,
    INSERT,
    Undo,
    action_of,
    check_modify,
    decode_key,
    encode_action,
    encode_key,
    refuse_meter_counters,
)
from switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.profiles import Profiles
from switch.p4runtime.schema import Schema, TableInfo, lookup
from switch.p4runtime.targets import Notes, Target, Targets, notes_of

_Entity = p4runtime_pb2.Entity
_NANOSECONDS: Final = 1_000_000_000


class Tables:
    """TableEntry, and the idle time-outs of entries.

    Args:
        now: the switch's time in seconds.
    """

    def __init__(self, schema: Schema, state: SwitchState, profiles: Profiles, now: Callable[[], float]) -> None:
        self._schema, self._state, self._now = schema, state, now
        self._targets = Targets(schema, profiles)
        self._timed: dict[int, tuple[TableInfo, Entry]] = {}

    # Writing

    def write(self, type_: int, message: Any) -> Undo:
        """Adds, changes or removes an entry."""
        info, table = self.table(message.table_id)
        where = f"table {info.name}"
        if message.is_const:
            raise invalid(f"{where}: is_const must not be set in a write")
        if message.is_default_action:
            return self._write_default(type_, message, info, table)
        matches = decode_key(info.fields, message.match, where)
        if type_ == DELETE:
            return self._delete(info, table, matches, message.priority)
        rates = self._check_resources(message, info, table)
        target = self._targets.decode(info, message.action, where) if message.HasField("action") else None
        if type_ == INSERT:
            if target is None:
                raise invalid(f"{where}: the action is missing")
            entry = self._targets.insert(info, table, matches, message.priority, target)
            self._set(info, entry, message, rates, target)
            return lambda: _ignore(self._delete(info, table, matches, message.priority))
        entry = table.find(matches, message.priority)
        if target is not None and (entry.is_const or table.is_const):
            raise P4RuntimeError(Code.PERMISSION_DENIED, f"{where}: the entry's action is constant in the program")
        before, restore = self._targets.of(info, table, entry), self._saved(info, entry)
        if target is not None:
            self._targets.redirect(info, table, entry, matches, message.priority, target)
        self._set(info, entry, message, rates, target)

        def undo() -> None:
            again = table.find(matches, message.priority)  # another one, if it was deleted and put back since
            if target is not None and before is not None:
                self._targets.redirect(info, table, again, matches, message.priority, before)
            restore(again)

        return undo

    def _write_default(self, type_: int, message: Any, info: TableInfo, table: Table) -> Undo:
        where = f"table {info.name}: the default entry"
        check_modify(type_, where)
        if message.match or message.priority:
            raise invalid(f"{where} has neither match fields nor priority")
        if message.idle_timeout_ns or message.HasField("time_since_last_hit"):
            raise invalid(f"{where} has no idle time-out")
        if message.HasField("meter_config"):
            raise unimplemented(f"{where}: BMv2 has no direct meter for it, nor has this switch")
        if message.HasField("counter_data"):
            raise unimplemented(f"{where}: BMv2 does not count for it, nor does this switch")
        if info.profile:
            raise P4RuntimeError(Code.PERMISSION_DENIED, f"{where} of a table with an action profile is constant")
        old, old_notes = table.default, table.default.metadata
        if message.HasField("action"):
            target = self._targets.decode(info, message.action, where, default=True)
            entry = table.set_default(target.name, target.args)
            entry.metadata = Notes(message.controller_metadata, message.metadata)
        else:
            table.reset_default()

        def undo() -> None:
            entry = table.reset_default()
            if old.action != NO_ACTION:
                entry = table.set_default(table.actions[old.action].name, old.args)
            entry.metadata = old_notes

        return undo

    def _delete(self, info: TableInfo, table: Table, matches: list[Match], priority: int) -> Undo:
        entry = table.find(matches, priority)
        if entry.is_const:
            raise P4RuntimeError(Code.PERMISSION_DENIED, f"table {info.name}: the entry is constant in the program")
        target, restore = self._targets.of(info, table, entry), self._saved(info, entry)
        meter, group = entry.meter, None if entry.group is None else entry.group.number
        table.delete(matches, priority=priority)
        self._timed.pop(id(entry), None)
        self._targets.removed(info, entry, group)

        def undo() -> None:
            assert target is not None
            again = self._targets.insert(info, table, matches, priority, target)
            again.meter = meter
            restore(again)

        return undo

    def _check_resources(self, message: Any, info: TableInfo, table: Table) -> MeterRates | None:
        """The rates of the direct meter, with everything else checked that a write may bring along."""
        where = f"table {info.name}"
        if message.HasField("time_since_last_hit"):
            raise invalid(f"{where}: time_since_last_hit must not be set in a write")
        if message.idle_timeout_ns and not info.idle_timeout:
            raise invalid(f"{where} does not support idle time-outs")
        if message.idle_timeout_ns < 0:
            raise invalid(f"{where}: idle time-out {message.idle_timeout_ns} ns is negative")
        refuse_meter_counters(message, "meter_counter_data", where)
        if message.HasField("counter_data"):
            if not info.counter:
                raise invalid(f"{where} has no direct counter")
            arrays.decode_counts(message.counter_data, where)
        if not message.HasField("meter_config"):
            return None
        if not info.meter:
            raise invalid(f"{where} has no direct meter")
        return arrays.checked_rates(message.meter_config, self._schema.direct_meters[info.meter].type, where)

    def _set(
        self, info: TableInfo, entry: Entry, message: Any, rates: MeterRates | None, target: Target | None
    ) -> None:
        """What an insert or a modify says besides the action."""
        notes = notes_of(entry)
        notes.controller_metadata, notes.metadata = message.controller_metadata, message.metadata
        if target is not None:
            notes.action_set = target.action_set
        self._set_timeout(info, entry, message.idle_timeout_ns)
        if message.HasField("counter_data"):
            entry.packets, entry.bytes = arrays.decode_counts(message.counter_data, f"table {info.name}")
        if entry.meter is not None and (rates is not None or entry.meter.rates is not None):
            entry.meter.set_rates(rates, name=f"of table {info.name}")

    def _set_timeout(self, info: TableInfo, entry: Entry, idle_ns: int) -> None:
        notes = notes_of(entry)
        if idle_ns != notes.idle_ns or not entry.last_hit:
            entry.last_hit = entry.last_hit or self._now()
            notes.notified = self._now()
        notes.idle_ns, entry.timeout = idle_ns, idle_ns / _NANOSECONDS
        if idle_ns:
            self._timed[id(entry)] = info, entry
        else:
            self._timed.pop(id(entry), None)

    def _saved(self, info: TableInfo, entry: Entry) -> Callable[[Entry], None]:
        """What makes an entry, or another one in its place, again what it is now, its action excepted."""
        old = notes_of(entry)
        notes = Notes(old.controller_metadata, old.metadata, old.idle_ns, old.notified, old.action_set)
        packets, size, last_hit = entry.packets, entry.bytes, entry.last_hit
        rates = entry.meter.rates if entry.meter is not None else None

        def restore(to: Entry) -> None:
            to.metadata = notes
            to.packets, to.bytes, to.last_hit = packets, size, last_hit
            self._set_timeout(info, to, notes.idle_ns)
            if to.meter is not None and to.meter.rates != rates:
                to.meter.set_rates(rates, name=f"of table {info.name}")

        return restore

    # Reading

    def read(self, message: Any) -> Iterator[Any]:
        """The entries that a request asks for."""
        if not message.table_id:
            if message.match:
                raise invalid("a read of all tables takes no match fields")
            infos = list(self._schema.tables.values())
        else:
            infos = [self.table(message.table_id)[0]]
            if message.HasField("time_since_last_hit") and not infos[0].idle_timeout:
                raise invalid(f"table {infos[0].name} does not support idle time-outs")
            if message.is_default_action and message.HasField("time_since_last_hit"):
                raise invalid(f"table {infos[0].name}: the default entry has no idle time-out")
        refuse_meter_counters(message, "meter_counter_data", "TableEntry")
        for info in infos:
            for entry in self.selected(info, message):
                if not self._passes(info, entry, message):
                    continue
                entity = _Entity()
                self.encode(info, entry, entity.table_entry)
                self._encode_resources(info, entry, message, entity.table_entry)
                yield entity

    def table(self, number: int) -> tuple[TableInfo, Table]:
        """A table by P4Runtime's number."""
        info = lookup(self._schema.tables, number, "table")
        return info, self._state.tables[info.name]

    def selected(self, info: TableInfo, message: Any) -> list[Entry]:
        """Entries by key, priority and whether they are the default."""
        table = self._state.tables[info.name]
        if message.is_default_action:
            return [table.default]
        if not message.match:
            priority = message.priority
            return [entry for entry in table.entries() if priority in (0, entry.priority)]
        where = f"table {info.name}"
        matches = decode_key(info.fields, message.match, where)
        if message.priority or not table.needs_priority:
            try:
                return [table.find(matches, message.priority)]
            except NotFoundError:
                return []
        wanted = tuple(checked(match, key, info.name) for match, key in zip(matches, table.keys, strict=True))
        return [entry for entry in table.entries() if entry.matches == wanted]

    def one(self, message: Any) -> tuple[TableInfo, Entry]:
        """The one entry that a TableEntry inside of another message names.

        Raises:
            P4RuntimeError, StateError: there is none.
        """
        info, table = self.table(message.table_id)
        if message.is_default_action:
            return info, table.default
        return info, table.find(decode_key(info.fields, message.match, f"table {info.name}"), message.priority)

    def _passes(self, info: TableInfo, entry: Entry, message: Any) -> bool:
        notes = notes_of(entry)
        if message.controller_metadata not in (0, notes.controller_metadata):
            return False
        if message.metadata not in (b"", notes.metadata):
            return False
        if message.action.action.action_id:
            action, _ = action_of(info, message.action.action.action_id, f"table {info.name}")
            table = self._state.tables[info.name]
            return entry.action != NO_ACTION and table.actions[entry.action].name == action.name
        return True

    def encode(self, info: TableInfo, entry: Entry, message: Any) -> None:
        """Writes an entry without its direct resources into a message."""
        table, notes = self._state.tables[info.name], notes_of(entry)
        message.table_id = info.number
        if entry.hit:
            encode_key(info.fields, entry.matches, message.match)
            message.priority = entry.priority
        else:
            message.is_default_action = True
        if notes.action_set is not None:
            message.action.action_profile_action_set.CopyFrom(notes.action_set)
        elif entry.group is not None:
            message.action.action_profile_group_id = entry.group.number
        elif entry.member is not None:
            message.action.action_profile_member_id = entry.member.number
        elif entry.action != NO_ACTION:
            number = info.action_numbers.get(table.actions[entry.action].name)
            if number is not None:
                encode_action(info.actions[number][0], entry.args, message.action.action)
        message.controller_metadata, message.metadata = notes.controller_metadata, notes.metadata
        message.idle_timeout_ns = notes.idle_ns
        message.is_const = entry.is_const or (not entry.hit and table.default_is_const)

    def _encode_resources(self, info: TableInfo, entry: Entry, request: Any, message: Any) -> None:
        if request.HasField("counter_data") and info.counter and entry.hit:
            arrays.encode_counts(message.counter_data, entry.packets, entry.bytes)
        if request.HasField("meter_config") and entry.meter is not None and entry.meter.rates is not None:
            arrays.encode_rates(message.meter_config, entry.meter.rates)
        if request.HasField("time_since_last_hit") and info.idle_timeout and entry.hit:
            elapsed = max(0.0, self._now() - entry.last_hit)
            message.time_since_last_hit.elapsed_ns = int(elapsed * _NANOSECONDS)

    # Idle time-outs

    @property
    def has_timeouts(self) -> bool:
        """Whether any entry has one."""
        return bool(self._timed)

    def expired(self) -> list[Any]:
        """The entries, as TableEntry messages, that were not hit for their time; their time begins anew."""
        now, found = self._now(), []
        for info, entry in self._timed.values():
            notes = notes_of(entry)
            if now - max(entry.last_hit, notes.notified) >= entry.timeout:
                notes.notified = now
                message = p4runtime_pb2.TableEntry()
                self.encode(info, entry, message)
                message.ClearField("action")
                found.append(message)
        return found


def _ignore(_: object) -> None:
    """Makes a statement of an expression."""
