"""DirectCounterEntry and DirectMeterEntry: what counts and meters the packets of single table entries."""

from collections.abc import Iterator, Mapping
from typing import Any

from switch.model.entries import Entry
from switch.p4runtime import arrays
from switch.p4runtime.actions import Undo, check_modify, refuse_meter_counters
from switch.p4runtime.errors import invalid, unimplemented
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.schema import ArrayInfo, Schema, TableInfo
from switch.p4runtime.tables import Tables

_Entity = p4runtime_pb2.Entity


class DirectCounters:
    """DirectCounterEntry."""

    def __init__(self, schema: Schema, tables: Tables) -> None:
        self._schema, self._tables = schema, tables

    def write(self, type_: int, message: Any) -> Undo:
        """Sets the counter of an entry."""
        info, entry = _one(self._tables, message, "counter")
        where = f"direct counter of table {info.name}"
        check_modify(type_, where)
        if not entry.hit:
            raise unimplemented(f"{where}: the default entry is not counted")
        if not message.HasField("data"):
            return lambda: None
        before = entry.packets, entry.bytes
        entry.packets, entry.bytes = arrays.decode_counts(message.data, where)

        def undo() -> None:
            _, again = _one(self._tables, message, "counter")  # another one, if it was deleted and put back since
            again.packets, again.bytes = before

        return undo

    def read(self, message: Any) -> Iterator[Any]:
        """The counters of one entry, of a table, or of all tables."""
        for info, entry in _selected(self._schema.direct_counters, self._tables, message, "counter"):
            entity = _Entity()
            found = entity.direct_counter_entry
            self._tables.encode(info, entry, found.table_entry)
            _keep_key(found.table_entry)
            arrays.encode_counts(found.data, entry.packets, entry.bytes)
            yield entity


class DirectMeters:
    """DirectMeterEntry."""

    def __init__(self, schema: Schema, tables: Tables) -> None:
        self._schema, self._tables = schema, tables

    def write(self, type_: int, message: Any) -> Undo:
        """Sets the rates of the meter of an entry; none: every packet is green."""
        info, entry = _one(self._tables, message, "meter")
        where = f"direct meter of table {info.name}"
        check_modify(type_, where)
        refuse_meter_counters(message, "counter_data", where)
        meter = entry.meter
        if meter is None:
            raise unimplemented(f"{where}: the default entry is not metered")
        rates = None
        if message.HasField("config"):
            rates = arrays.checked_rates(message.config, self._schema.direct_meters[info.meter].type, where)
        before = meter.rates
        meter.set_rates(rates, name=where)

        def undo() -> None:
            _, again = _one(self._tables, message, "meter")
            if again.meter is not None:
                again.meter.set_rates(before, name=where)

        return undo

    def read(self, message: Any) -> Iterator[Any]:
        """The meters of one entry, of a table, or of all tables; those without rates have no configuration."""
        refuse_meter_counters(message, "counter_data", "DirectMeterEntry")
        for info, entry in _selected(self._schema.direct_meters, self._tables, message, "meter"):
            entity = _Entity()
            found = entity.direct_meter_entry
            self._tables.encode(info, entry, found.table_entry)
            _keep_key(found.table_entry)
            if entry.meter is not None and entry.meter.rates is not None:
                arrays.encode_rates(found.config, entry.meter.rates)
            yield entity


def _one(tables: Tables, message: Any, kind: str) -> tuple[TableInfo, Entry]:
    if not message.HasField("table_entry"):
        raise invalid(f"direct {kind}: the table entry is missing")
    info, entry = tables.one(message.table_entry)
    if not (info.counter if kind == "counter" else info.meter):
        raise invalid(f"table {info.name} has no direct {kind}")
    return info, entry


def _selected(
    arrays_: Mapping[int, ArrayInfo], tables: Tables, message: Any, kind: str
) -> Iterator[tuple[TableInfo, Entry]]:
    request = message.table_entry
    if request.table_id and (request.match or request.is_default_action):
        if request.priority or request.is_default_action or not _needs_priority(tables, request):
            info, entry = _one(tables, message, kind)
            if entry.hit:
                yield info, entry
            return
    elif request.match:
        raise invalid(f"direct {kind}: a read of all tables takes no match fields")
    if request.table_id:
        infos = [tables.table(request.table_id)[0]]
        if not (infos[0].counter if kind == "counter" else infos[0].meter):
            raise invalid(f"table {infos[0].name} has no direct {kind}")
    else:
        infos = [tables.table(each.table)[0] for each in arrays_.values()]
    for info in infos:
        for entry in tables.selected(info, request):
            yield info, entry


def _needs_priority(tables: Tables, request: Any) -> bool:
    return tables.table(request.table_id)[1].needs_priority


def _keep_key(message: Any) -> None:
    """Leaves of a TableEntry what names the entry."""
    for member in ("action", "controller_metadata", "metadata", "idle_timeout_ns", "is_const"):
        message.ClearField(member)
