"""A forwarding pipeline: p4info and a compiled program that belong together, and the switch that runs them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from switch.model.core import DROP_PORT, ModelSwitch
from switch.model.errors import ProgramError
from switch.model.program import Program
from switch.p4runtime.actions import INSERT, MODIFY
from switch.p4runtime.entities import Entities
from switch.p4runtime.errors import Code, P4RuntimeError, invalid
from switch.p4runtime.joining import build_schema
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.packets import PacketCodec

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DEVICE_DATA: Final = 3  # number of the field in p4.tmp.P4DeviceConfig


@dataclass(frozen=True, slots=True)
class SwitchOptions:
    """Of every switch that a pipeline makes. `cpu_port` None: there are no packets to and from the controller."""

    cpu_port: int | None = None
    drop_port: int = DROP_PORT
    seed: int = 0

    def switch(self, program: Program) -> ModelSwitch:
        """A switch that runs a program."""
        return ModelSwitch(program, cpu_port=self.cpu_port, drop_port=self.drop_port, seed=self.seed, started=0.0)


class Pipeline:
    """A configuration, verified, with a switch of its own whose state is fresh.

    Args:
        config: a ForwardingPipelineConfig message.
        options: for the switch.
        now: the time that the switch will have, in seconds.
        running: the program that runs already, which a configuration without device data means, as in BMv2.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT; p4info or program are missing, damaged, or do not belong together.
    """

    def __init__(
        self, config: Any, options: SwitchOptions, now: Callable[[], float], running: bytes | None = None
    ) -> None:
        if not config.HasField("p4info"):
            raise invalid("the configuration has no p4info")
        self.config = p4runtime_pb2.ForwardingPipelineConfig()
        self.config.CopyFrom(config)
        data = unwrapped(config.p4_device_config) or running
        if not data:
            raise invalid("the configuration has no p4_device_config: expected BMv2's JSON, as p4c-bm2-ss writes it")
        self.json = data
        try:
            program = Program.load(data)
        except ProgramError as error:
            raise invalid(f"p4_device_config: {error}") from None
        self.switch = options.switch(program)
        self.schema = build_schema(self.config.p4info, program, self.switch.state)
        self.entities = Entities(self.schema, self.switch, now)
        self.packets = PacketCodec(self.schema.packet_in, self.schema.packet_out)

    def adopt(self, old: "Pipeline") -> None:
        """Takes the state of another pipeline over, as far as it differs from a fresh one.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT; a part of the state does not fit here, which the text names.
        """
        for table in self.switch.state.tables.values():
            for entry in table.entries():
                if not (entry.is_const or table.is_const):
                    table.delete(entry.matches, priority=entry.priority)
        for entity in _state_of(old):
            update = p4runtime_pb2.Update(type=_update_type(entity), entity=entity)
            try:
                self.entities.write(update)
            except Exception as error:
                raise invalid(f"the state cannot be kept: {error}") from None


def _state_of(pipeline: Pipeline) -> Iterator[Any]:
    """Entities that make a fresh pipeline what this one is, in the order in which they depend on each other."""
    read = pipeline.entities.read

    def entities(**request: Any) -> Iterator[Any]:
        return read(p4runtime_pb2.Entity(**request))

    messages = p4runtime_pb2
    yield from entities(action_profile_member=messages.ActionProfileMember())
    yield from entities(action_profile_group=messages.ActionProfileGroup())
    for default in (False, True):
        request = messages.TableEntry(is_default_action=default)
        request.meter_config.SetInParent()
        request.counter_data.SetInParent()
        for entity in entities(table_entry=request):
            if _is_own(entity.table_entry, pipeline):
                entity.table_entry.ClearField("counter_data" if default else "is_const")
                yield entity
    for entity in entities(counter_entry=messages.CounterEntry()):
        if entity.counter_entry.data.packet_count or entity.counter_entry.data.byte_count:
            yield entity
    for entity in entities(meter_entry=messages.MeterEntry()):
        if entity.meter_entry.HasField("config"):
            yield entity
    for number, info in pipeline.schema.registers.items():
        if not any(pipeline.switch.state.registers[info.name].cells):
            continue
        request = messages.RegisterEntry(register_id=number)
        zero = info.codec.encode((0,))
        for entity in entities(register_entry=request):
            if entity.register_entry.data != zero:
                yield entity
    groups, sessions = messages.MulticastGroupEntry(), messages.CloneSessionEntry()
    for engine in (
        messages.PacketReplicationEngineEntry(multicast_group_entry=groups),
        messages.PacketReplicationEngineEntry(clone_session_entry=sessions),
    ):
        yield from entities(packet_replication_engine_entry=engine)
    yield from entities(value_set_entry=messages.ValueSetEntry())
    yield from entities(digest_entry=messages.DigestEntry())


def _is_own(entry: Any, pipeline: Pipeline) -> bool:
    """Whether an entry is of the control plane and not of the program."""
    if not entry.is_default_action:
        return not entry.is_const
    info, table = pipeline.entities.tables.table(entry.table_id)
    if info.profile or table.default_is_const:
        return False
    initial = table.initial_default()
    return (initial.action, initial.args) != (table.default.action, table.default.args)


def _update_type(entity: Any) -> int:
    kind = entity.WhichOneof("entity")
    modified = kind in ("counter_entry", "meter_entry", "register_entry", "value_set_entry")
    is_default = kind == "table_entry" and entity.table_entry.is_default_action
    return int(MODIFY if modified or is_default else INSERT)


def unwrapped(data: bytes) -> bytes:
    """BMv2's JSON of a p4_device_config, in which older controllers wrap it into p4.tmp.P4DeviceConfig.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT; it is neither.
    """
    if not data.strip() or data.lstrip()[:1] == b"{":
        return data.strip() and data
    found = b""
    try:
        for number, wire_type, value in _fields(data):
            if (number, wire_type) == (_DEVICE_DATA, _LENGTH):
                found = value
    except (IndexError, P4RuntimeError):
        raise P4RuntimeError(
            Code.INVALID_ARGUMENT, "p4_device_config is neither BMv2's JSON nor a P4DeviceConfig message with it"
        ) from None
    return found


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The fields of a serialized message, as (number, wire type, bytes)."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(data):
        tag = varint()
        wire_type = tag & 7
        if wire_type == _VARINT:
            varint()
            size = 0
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        elif wire_type == _LENGTH:
            size = varint()
        else:
            raise invalid(f"wire type {wire_type}")
        if place + size > len(data):
            raise invalid("the message is cut short")
        yield tag >> 3, wire_type, data[place : place + size]
        place += size
