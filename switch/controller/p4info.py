"""A compiled P4 program as its p4info describes it: names to numbers and back, in P4Runtime's messages."""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf import text_format

from switch.controller.errors import ProgramError
from switch.p4runtime.messages import p4info_pb2
from switch.p4runtime.messages import p4runtime_pb2 as pb

_MAC_BITS: Final = 48
_IPV4_BITS: Final = 32
_Fields = Mapping[str, int]


class P4Info:
    """Looks up what messages need, and builds and reads them.

    Args:
        text: of a .p4info.txtpb file.
        name: what messages call it.

    Attributes:
        message: the p4info itself.

    Raises:
        ProgramError: the text is no p4info.
    """

    def __init__(self, text: str, *, name: str) -> None:
        self.name = name
        try:
            self.message: Any = text_format.Parse(text, p4info_pb2.P4Info())
        except text_format.ParseError as error:
            raise ProgramError(f"{name} is not a p4info in text form: {error}") from None
        self._by_name: dict[tuple[str, str], Any] = {}
        self._by_id: dict[int, Any] = {}
        for kind in ("tables", "actions", "counters", "registers", "digests", "controller_packet_metadata"):
            for item in getattr(self.message, kind):
                self._by_name[kind, item.preamble.name] = item
                self._by_id[item.preamble.id] = item

    def find(self, kind: str, name: str) -> Any:
        """The description of a table, register, ...

        Args:
            kind: name of a field of the p4info message, such as "tables".
            name: full name in P4.

        Raises:
            ProgramError: there is none.
        """
        try:
            return self._by_name[kind, name]
        except KeyError:
            raise ProgramError(f"{self.name} has no {name} among its {kind.replace('_', ' ')}") from None

    def names(self, kind: str) -> list[str]:
        """All names of a kind."""
        return [name for k, name in self._by_name if k == kind]

    # Entities

    def entry(self, table: str, keys: _Fields, action: str | None = None, params: _Fields | None = None) -> Any:
        """A table entry with exact matches; without an action it only names the entry, and without keys all entries."""
        described = self.find("tables", table)
        entity = pb.Entity()
        made = entity.table_entry
        made.table_id = described.preamble.id
        self._set_keys(made, described, keys)
        if action is not None:
            found = self.find("actions", action)
            made.action.action.action_id = found.preamble.id
            for param in found.params:
                value = encode(params[param.name] if params else 0, param.bitwidth, param.name)
                made.action.action.params.add(param_id=param.id, value=value)
        return entity

    def direct_counters(self, table: str) -> Any:
        """The direct counters of all entries of a table."""
        entity = pb.Entity()
        entity.direct_counter_entry.table_entry.table_id = self.find("tables", table).preamble.id
        return entity

    def counter(self, name: str, index: int | None = None) -> Any:
        """A cell of a counter, or all."""
        entity = pb.Entity()
        entity.counter_entry.counter_id = self.find("counters", name).preamble.id
        if index is not None:
            entity.counter_entry.index.index = index
        return entity

    def register(self, name: str, index: int) -> Any:
        """A cell of a register."""
        entity = pb.Entity()
        entity.register_entry.register_id = self.find("registers", name).preamble.id
        entity.register_entry.index.index = index
        return entity

    def digest(self, name: str) -> Any:
        """A digest, sent when 32 have come together or after 10 ms; the same one again after a second, if at all."""
        entity = pb.Entity()
        entity.digest_entry.digest_id = self.find("digests", name).preamble.id
        config = entity.digest_entry.config
        config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns = 10_000_000, 32, 1_000_000_000
        return entity

    def _set_keys(self, made: Any, described: Any, keys: _Fields) -> None:
        for field in described.match_fields if keys else ():
            match = made.match.add(field_id=field.id)
            match.exact.value = encode(keys[field.name], field.bitwidth, field.name)

    # Packets between control plane and target

    def packet_out(self, payload: bytes, fields: _Fields) -> Any:
        """A packet for the target."""
        packet = pb.PacketOut(payload=payload)
        for field in self.find("controller_packet_metadata", "packet_out").metadata:
            value = encode(fields.get(field.name, 0), field.bitwidth, field.name)
            packet.metadata.add(metadata_id=field.id, value=value)
        return packet

    def read_packet_in(self, packet: Any) -> dict[str, int]:
        """The header that the program has put before a packet for the control plane."""
        names = {field.id: field.name for field in self.find("controller_packet_metadata", "packet_in").metadata}
        return {
            names[field.metadata_id]: decode(field.value) for field in packet.metadata if field.metadata_id in names
        }

    # Reading

    def keys_of(self, table_entry: Any) -> dict[str, int]:
        """The exact matches of an entry, by the names of their fields."""
        described = self._by_id[table_entry.table_id]
        names = {field.id: field.name for field in described.match_fields}
        return {names[match.field_id]: decode(match.exact.value) for match in table_entry.match}

    def describe(self, entity: Any) -> str:
        """What an entity is, for messages: "table WiresumIngress.workers, entry hdr.ipv4.src=10.0.0.1 ..."."""
        kind = entity.WhichOneof("entity")
        if kind == "table_entry":
            return self._describe_entry(entity.table_entry)
        if kind == "direct_counter_entry":
            return f"the counters of {self._describe_entry(entity.direct_counter_entry.table_entry)}"
        if kind == "packet_replication_engine_entry":
            group = entity.packet_replication_engine_entry.multicast_group_entry
            return f"multicast group {group.multicast_group_id} with {len(group.replicas)} replicas"
        for name in ("counter", "register", "digest"):
            if kind == f"{name}_entry":
                number = getattr(getattr(entity, kind), f"{name}_id")
                return f"{name} {self._name(number)}"
        return kind or "an entity of no kind"

    def _describe_entry(self, table_entry: Any) -> str:
        described = self._by_id.get(table_entry.table_id)
        if described is None:
            return f"table {table_entry.table_id}"
        fields = {field.id: field for field in described.match_fields}
        keys = (
            f"{fields[match.field_id].name}={_show(match.exact.value, fields[match.field_id].bitwidth)}"
            for match in table_entry.match
        )
        which = "entry " + " ".join(keys) if table_entry.match else "all entries"
        return f"table {described.preamble.name}, {which}"

    def _name(self, number: int) -> str:
        found = self._by_id.get(number)
        return str(number) if found is None else str(found.preamble.name)


def multicast_group(number: int, replicas: Iterable[tuple[int, int]] = ()) -> Any:
    """A multicast group of (port, instance) replicas."""
    entity = pb.Entity()
    group = entity.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = number
    for port, instance in replicas:
        group.replicas.add(egress_port=port, instance=instance)
    return entity


def encode(value: int, bits: int, name: str) -> bytes:
    """A number as P4Runtime's canonical byte string: the shortest that holds it.

    Raises:
        ControllerError: it has more bits than the field `name`.
    """
    if not 0 <= value < 1 << bits:
        raise ProgramError(f"{name} has {bits} bits, which do not hold {value}")
    return value.to_bytes(max(1, -(-value.bit_length() // 8)), "big")


def decode(value: bytes) -> int:
    """The number in a byte string of any length."""
    return int.from_bytes(value, "big")


def _show(value: bytes, bits: int) -> str:
    number = decode(value)
    if bits == _IPV4_BITS:
        return str(ipaddress.IPv4Address(number))
    if bits == _MAC_BITS:
        return number.to_bytes(6, "big").hex(":")
    return str(number)
