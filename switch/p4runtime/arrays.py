"""Counters, meters and registers: entries of arrays that are written and read by index."""

from collections.abc import Iterator
from typing import Any

from switch.model.externs import MeterRates
from switch.model.state import SwitchState
from switch.p4runtime.actions import Undo, check_modify, checked_index, refuse_meter_counters
from switch.p4runtime.errors import invalid, unimplemented
from switch.p4runtime.messages import p4info_pb2, p4runtime_pb2
from switch.p4runtime.schema import ArrayInfo, Schema, lookup

_Entity = p4runtime_pb2.Entity
_MAX_COUNT = (1 << 63) - 1  # CounterData has signed fields


def decode_counts(data: Any, where: str) -> tuple[int, int]:
    """(packets, bytes).

    Raises:
        P4RuntimeError: one is negative.
    """
    if data.packet_count < 0 or data.byte_count < 0:
        raise invalid(f"{where}: counts must not be negative")
    return data.packet_count, data.byte_count


def encode_counts(data: Any, packets: int, size: int) -> None:
    """Writes counts into a CounterData message."""
    data.SetInParent()
    data.packet_count, data.byte_count = packets & _MAX_COUNT, size & _MAX_COUNT


def decode_rates(config: Any, meter_type: int, where: str) -> MeterRates:
    """The rates of a MeterConfig message.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT, they do not fit the type of the meter; UNIMPLEMENTED, an excess burst size.
    """
    spec = p4info_pb2.MeterSpec
    single = meter_type in (spec.SINGLE_RATE_TWO_COLOR, spec.SINGLE_RATE_THREE_COLOR)
    if single and (config.pir, config.pburst) != (config.cir, config.cburst):
        raise invalid(f"{where}: a meter of one rate needs pir and pburst equal to cir and cburst")
    if config.eburst:
        if meter_type == spec.SINGLE_RATE_THREE_COLOR:
            raise unimplemented(f"{where}: excess burst sizes (RFC 2697) are not supported")
        raise invalid(f"{where}: eburst is only for meters of one rate and three colours")
    return MeterRates(cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)


def checked_rates(config: Any, meter_type: int, where: str) -> MeterRates:
    """The rates of a direct meter, so that nothing is left to refuse when they are set.

    Raises:
        P4RuntimeError: see `decode_rates`; or a rate is negative, or the committed rate above the peak rate.
    """
    rates = decode_rates(config, meter_type, where)
    if min(rates.cir, rates.cburst, rates.pir, rates.pburst) < 0:
        raise invalid(f"{where}: rates and bursts of a meter must not be negative")
    if rates.cir > rates.pir:
        raise invalid(f"{where}: committed rate {rates.cir} is above peak rate {rates.pir}")
    return rates


def encode_rates(config: Any, rates: MeterRates) -> None:
    """Writes rates into a MeterConfig message."""
    config.SetInParent()
    config.cir, config.cburst, config.pir, config.pburst = int(rates.cir), rates.cburst, int(rates.pir), rates.pburst


class Counters:
    """CounterEntry."""

    def __init__(self, schema: Schema, state: SwitchState) -> None:
        self._infos, self._state = schema.counters, state

    def write(self, type_: int, entry: Any) -> Undo:
        """Sets one counter, or all of an array."""
        info = lookup(self._infos, entry.counter_id, "counter")
        where = f"counter {info.name}"
        check_modify(type_, where)
        counter = self._state.counters[info.name]
        index = checked_index(entry, len(counter), where)
        if not entry.HasField("data"):
            return lambda: None
        packets, size = decode_counts(entry.data, where)
        places = slice(index, index + 1) if index is not None else slice(0, len(counter))
        before = counter.packets[places], counter.bytes[places]
        counter.packets[places] = [packets] * len(before[0])
        counter.bytes[places] = [size] * len(before[0])

        def undo() -> None:
            counter.packets[places], counter.bytes[places] = before

        return undo

    def read(self, entry: Any) -> Iterator[Any]:
        """One counter, all of an array, or all."""
        for info in _selected(self._infos, entry.counter_id, "counter"):
            counter = self._state.counters[info.name]
            index = checked_index(entry, len(counter), f"counter {info.name}") if entry.counter_id else None
            for i in range(len(counter)) if index is None else (index,):
                entity = _Entity()
                found = entity.counter_entry
                found.counter_id, found.index.index = info.number, i
                encode_counts(found.data, counter.packets[i], counter.bytes[i])
                yield entity


class Meters:
    """MeterEntry."""

    def __init__(self, schema: Schema, state: SwitchState) -> None:
        self._infos, self._state = schema.meters, state

    def write(self, type_: int, entry: Any) -> Undo:
        """Sets the rates of one meter, or of all of an array."""
        info = lookup(self._infos, entry.meter_id, "meter")
        where = f"meter {info.name}"
        check_modify(type_, where)
        refuse_meter_counters(entry, "counter_data", where)
        meter = self._state.meters[info.name]
        index = checked_index(entry, len(meter), where)
        rates = decode_rates(entry.config, info.type, where) if entry.HasField("config") else None
        indexes = range(len(meter)) if index is None else (index,)
        before = {i: meter.rates(i) for i in indexes}
        for i in indexes:
            meter.set_rates(i, rates)

        def undo() -> None:
            for i, old in before.items():
                meter.set_rates(i, old)

        return undo

    def read(self, entry: Any) -> Iterator[Any]:
        """One meter, all of an array, or all; those without rates have no configuration."""
        for info in _selected(self._infos, entry.meter_id, "meter"):
            refuse_meter_counters(entry, "counter_data", f"meter {info.name}")
            meter = self._state.meters[info.name]
            index = checked_index(entry, len(meter), f"meter {info.name}") if entry.meter_id else None
            for i in range(len(meter)) if index is None else (index,):
                entity = _Entity()
                found = entity.meter_entry
                found.meter_id, found.index.index = info.number, i
                rates = meter.rates(i)
                if rates is not None:
                    encode_rates(found.config, rates)
                yield entity


class Registers:
    """RegisterEntry."""

    def __init__(self, schema: Schema, state: SwitchState) -> None:
        self._infos, self._state = schema.registers, state

    def write(self, type_: int, entry: Any) -> Undo:
        """Sets one cell, or all of an array."""
        info = lookup(self._infos, entry.register_id, "register")
        where = f"register {info.name}"
        check_modify(type_, where)
        cells = self._state.registers[info.name].cells
        index = checked_index(entry, len(cells), where)
        if not entry.HasField("data"):
            raise invalid(f"{where}: there is no data to write")
        (value,) = info.codec.decode(entry.data)
        places = slice(index, index + 1) if index is not None else slice(0, len(cells))
        before = cells[places]
        cells[places] = [value] * len(before)

        def undo() -> None:
            cells[places] = before

        return undo

    def read(self, entry: Any) -> Iterator[Any]:
        """One cell, all of an array, or all."""
        for info in (
            self._infos.values() if not entry.register_id else [lookup(self._infos, entry.register_id, "register")]
        ):
            cells = self._state.registers[info.name].cells
            index = checked_index(entry, len(cells), f"register {info.name}") if entry.register_id else None
            for i in range(len(cells)) if index is None else (index,):
                entity = _Entity()
                found = entity.register_entry
                found.register_id, found.index.index = info.number, i
                found.data.CopyFrom(info.codec.encode((cells[i],)))
                yield entity


def _selected(infos: dict[int, ArrayInfo], number: int, kind: str) -> list[ArrayInfo]:
    return [lookup(infos, number, kind)] if number else list(infos.values())
