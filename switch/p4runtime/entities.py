"""What a Write and a Read can name, dispatched; and batches of updates that hold as a whole or not at all."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from switch.model.core import ModelSwitch
from switch.p4runtime.actions import DELETE, INSERT, MODIFY, Undo
from switch.p4runtime.arrays import Counters, Meters, Registers
from switch.p4runtime.digests import Digests
from switch.p4runtime.direct import DirectCounters, DirectMeters
from switch.p4runtime.errors import Code, P4RuntimeError, as_p4runtime, invalid, unimplemented
from switch.p4runtime.profiles import Profiles
from switch.p4runtime.replicas import ReplicationEntries, ValueSets
from switch.p4runtime.schema import Schema
from switch.p4runtime.tables import Tables

_Write = Callable[[int, Any], Undo]
_Read = Callable[[Any], Iterator[Any]]


class Entities:
    """Everything that P4Runtime can write and read of a switch.

    Args:
        now: the switch's time in seconds.
    """

    def __init__(self, schema: Schema, switch: ModelSwitch, now: Callable[[], float]) -> None:
        state = switch.state
        profiles = Profiles(schema, state)
        self.tables = Tables(schema, state, profiles, now)
        self.digests = Digests(schema)
        counters, meters, registers = Counters(schema, state), Meters(schema, state), Registers(schema, state)
        direct_counters, direct_meters = DirectCounters(schema, self.tables), DirectMeters(schema, self.tables)
        replication = ReplicationEntries(state.replication)
        value_sets = ValueSets(schema, switch.value_sets)
        self._handlers: dict[str, tuple[_Write, _Read]] = {
            "table_entry": (self.tables.write, self.tables.read),
            "action_profile_member": (profiles.write_member, profiles.read_members),
            "action_profile_group": (profiles.write_group, profiles.read_groups),
            "counter_entry": (counters.write, counters.read),
            "direct_counter_entry": (direct_counters.write, direct_counters.read),
            "meter_entry": (meters.write, meters.read),
            "direct_meter_entry": (direct_meters.write, direct_meters.read),
            "register_entry": (registers.write, registers.read),
            "packet_replication_engine_entry": (replication.write, replication.read),
            "value_set_entry": (value_sets.write, value_sets.read),
            "digest_entry": (self.digests.write, self.digests.read),
        }

    def write(self, update: Any) -> Undo:
        """Carries out one update.

        Raises:
            P4RuntimeError, StateError: it is refused, and nothing was changed.
        """
        if update.type not in (INSERT, MODIFY, DELETE):
            raise invalid("the type of the update is not given: expected INSERT, MODIFY or DELETE")
        kind, handlers = self._handlers_of(update.entity)
        return handlers[0](update.type, getattr(update.entity, kind))

    def read(self, entity: Any) -> Iterator[Any]:
        """The entities that one asks for, made while they are taken.

        Raises:
            P4RuntimeError, StateError: it is refused; at the latest with the first that is taken.
        """
        kind, handlers = self._handlers_of(entity)
        return handlers[1](getattr(entity, kind))

    def _handlers_of(self, entity: Any) -> tuple[str, tuple[_Write, _Read]]:
        kind = entity.WhichOneof("entity")
        if kind is None:
            raise invalid("the entity is empty")
        if kind not in self._handlers:
            raise unimplemented(f"{kind} is not supported")
        return kind, self._handlers[kind]

    def write_each(self, updates: Iterable[Any]) -> list[P4RuntimeError | None]:
        """Carries out updates one by one; an error for each, or None."""
        errors: list[P4RuntimeError | None] = []
        for update in updates:
            try:
                self.write(update)
            except Exception as error:
                errors.append(as_p4runtime(error))
            else:
                errors.append(None)
        return errors

    def write_all(self, updates: Iterable[Any]) -> list[P4RuntimeError | None]:
        """Carries out all updates or none; an error for each, or None for all."""
        undone: list[Undo] = []
        wanted = list(updates)
        for i, update in enumerate(wanted):
            try:
                undone.append(self.write(update))
            except Exception as error:
                for undo in reversed(undone):
                    undo()
                aborted = P4RuntimeError(Code.ABORTED, f"not carried out, because update {i} failed")
                return [as_p4runtime(error) if j == i else aborted for j in range(len(wanted))]
        return [None] * len(wanted)
