"""PacketReplicationEngineEntry and ValueSetEntry."""

from collections.abc import Iterator
from typing import Any, Final

from switch.model.matching import Exact
from switch.model.replication import CloneSession, Replica, Replication
from switch.p4runtime import bytestrings
from switch.p4runtime.actions import DELETE, INSERT, Undo, check_modify, decode_key, encode_key
from switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.schema import Schema, ValueSetInfo, lookup

_Entity = p4runtime_pb2.Entity
_PORT_BITS: Final = 32


class ReplicationEntries:
    """Multicast groups and clone sessions; they are given back as they were written."""

    def __init__(self, replication: Replication) -> None:
        self._replication = replication
        self._groups: dict[int, Any] = {}
        self._sessions: dict[int, Any] = {}

    def write(self, type_: int, message: Any) -> Undo:
        """Adds, changes or removes a group or session."""
        kind = message.WhichOneof("type")
        if kind == "multicast_group_entry":
            return self._write_group(type_, message.multicast_group_entry)
        if kind == "clone_session_entry":
            return self._write_session(type_, message.clone_session_entry)
        raise invalid("packet replication: expected a multicast group or a clone session, got neither")

    def _write_group(self, type_: int, message: Any) -> Undo:
        number, replication = message.multicast_group_id, self._replication
        where = f"multicast group {number}"
        if not number:
            raise invalid("multicast group 0 is no id")
        before = replication.groups.get(number)
        if type_ == DELETE:
            replication.delete_group(number)
        else:
            replicas = _replicas(message, where)
            (replication.insert_group if type_ == INSERT else replication.modify_group)(number, replicas)
        old = self._groups.pop(number, None)
        if type_ != DELETE:
            self._groups[number] = _copied(message)

        def undo() -> None:
            if before is None:
                replication.delete_group(number)
            else:
                replication.set_group(number, before)
            self._groups.pop(number, None)
            if old is not None:
                self._groups[number] = old

        return undo

    def _write_session(self, type_: int, message: Any) -> Undo:
        number, replication = message.session_id, self._replication
        where = f"clone session {number}"
        if not number:
            raise invalid("clone session 0 is no id")
        before = replication.clone_sessions.get(number)
        if type_ == DELETE:
            replication.delete_session(number)
        else:
            session = CloneSession(
                replicas=tuple(_replicas(message, where)),
                truncate_bytes=message.packet_length_bytes,
                class_of_service=message.class_of_service,
            )
            (replication.insert_session if type_ == INSERT else replication.modify_session)(number, session)
        old = self._sessions.pop(number, None)
        if type_ != DELETE:
            self._sessions[number] = _copied(message)

        def undo() -> None:
            if before is None:
                replication.delete_session(number)
            else:
                replication.set_session(number, before)
            self._sessions.pop(number, None)
            if old is not None:
                self._sessions[number] = old

        return undo

    def read(self, message: Any) -> Iterator[Any]:
        """A group or session, or all groups or sessions."""
        kind = message.WhichOneof("type")
        if kind == "multicast_group_entry":
            yield from self._read_groups(message.multicast_group_entry.multicast_group_id)
        elif kind == "clone_session_entry":
            yield from self._read_sessions(message.clone_session_entry.session_id)
        else:
            raise invalid("packet replication: expected a multicast group or a clone session, got neither")

    def _read_groups(self, wanted: int) -> Iterator[Any]:
        for number, replicas in list(self._replication.groups.items()):
            if wanted not in (0, number):
                continue
            entity = _Entity()
            found = entity.packet_replication_engine_entry.multicast_group_entry
            written = self._groups.get(number)
            if written is not None and _replicas(written, "") == replicas:
                found.CopyFrom(written)
            else:  # the program's side of the switch was changed past P4Runtime
                found.multicast_group_id = number
                _add_replicas(found, replicas)
            yield entity

    def _read_sessions(self, wanted: int) -> Iterator[Any]:
        for number, session in list(self._replication.clone_sessions.items()):
            if wanted not in (0, number):
                continue
            entity = _Entity()
            found = entity.packet_replication_engine_entry.clone_session_entry
            written = self._sessions.get(number)
            if written is not None and tuple(_replicas(written, "")) == session.replicas:
                found.CopyFrom(written)
            else:
                found.session_id, found.packet_length_bytes = number, session.truncate_bytes
                found.class_of_service = session.class_of_service
                _add_replicas(found, self._replication.clones(number))
            yield entity


class ValueSets:
    """ValueSetEntry: the numbers that a parser's value set holds."""

    def __init__(self, schema: Schema, values: dict[str, set[int]]) -> None:
        self._infos, self._values = schema.value_sets, values

    def write(self, type_: int, message: Any) -> Undo:
        """Replaces the members of a value set."""
        info = lookup(self._infos, message.value_set_id, "value set")
        where = f"value set {info.name}"
        check_modify(type_, where)
        if info.size and len(message.members) > info.size:
            raise P4RuntimeError(
                Code.RESOURCE_EXHAUSTED, f"{where} has room for {info.size} members, got {len(message.members)}"
            )
        new: set[int] = set()
        for member in message.members:
            value = self._decode(info, member, where)
            if value in new:
                raise P4RuntimeError(Code.ALREADY_EXISTS, f"{where}: member {value:#x} stands twice")
            new.add(value)
        values = self._values[info.name]
        before = set(values)

        def become(wanted: set[int]) -> None:
            values.clear()  # the parser holds the set itself
            values.update(wanted)

        become(new)
        return lambda: become(before)

    def read(self, message: Any) -> Iterator[Any]:
        """The members of one value set, or of all."""
        number = message.value_set_id
        for info in [lookup(self._infos, number, "value set")] if number else self._infos.values():
            entity = _Entity()
            found = entity.value_set_entry
            found.value_set_id = info.number
            for value in sorted(self._values[info.name]):
                self._encode(info, value, found.members.add())
            yield entity

    def _decode(self, info: ValueSetInfo, member: Any, where: str) -> int:
        value = 0
        for field, match in zip(info.fields, decode_key(info.fields, member.match, where), strict=True):
            if field.match != "EXACT" or not isinstance(match, Exact):
                raise unimplemented(f"{where}: {field.match} match in value sets is not supported")
            value = value << field.width | match.value
        return value

    def _encode(self, info: ValueSetInfo, value: int, member: Any) -> None:
        matches = []
        for field in reversed(info.fields):
            matches.append(Exact(value & (1 << field.width) - 1))
            value >>= field.width
        encode_key(info.fields, reversed(matches), member.match)


def _replicas(message: Any, where: str) -> list[Replica]:
    found = []
    for replica in message.replicas:
        # Fields that P4Runtime has since 1.5.
        if "backup_replicas" in replica.DESCRIPTOR.fields_by_name and replica.backup_replicas:
            raise unimplemented(f"{where}: backup replicas are not supported")
        kind = replica.WhichOneof("port_kind")
        if kind == "port":
            port = bytestrings.decode(replica.port, _PORT_BITS, f"{where}: port")
        elif kind == "egress_port":
            port = replica.egress_port
        else:
            raise invalid(f"{where}: a replica has no port")
        found.append((port, replica.instance))
    return found


def _add_replicas(message: Any, replicas: list[Replica]) -> None:
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)


def _copied(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy
