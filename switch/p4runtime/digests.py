"""Digests on their way to the controller: buffered, without duplicates, and remembered until acknowledged.

A state machine without clock: the time is an argument, in seconds. The rules are those of the specification's section
on DigestEntry.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from switch.p4runtime.actions import DELETE, INSERT, Undo
from switch.p4runtime.errors import Code, P4RuntimeError, invalid
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.schema import Schema, TypedInfo, lookup

_Entity = p4runtime_pb2.Entity
_Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Config:
    """Times in seconds; max_list_size 0: no limit. `message` is what was written, None if nothing was."""

    max_timeout: float
    max_list_size: int
    ack_timeout: float
    message: Any | None


@dataclass(slots=True)
class _Stream:
    """One digest that is enabled.

    Attributes:
        buffer: messages that wait, in order; a dict for its order.
        first: when the first of them came.
        cache: messages sent and not acknowledged, by list.
    """

    info: TypedInfo
    config: _Config
    buffer: dict[_Values, None] = field(default_factory=dict)
    first: float = 0.0
    cache: dict[int, tuple[float, frozenset[_Values]]] = field(default_factory=dict)
    last_list: int = 0


class Digests:
    """DigestEntry, and the lists that are sent for it."""

    def __init__(self, schema: Schema) -> None:
        self._infos = schema.digests
        self._by_name = {info.name: number for number, info in schema.digests.items()}
        self._streams: dict[int, _Stream] = {}

    # Configuration

    def write(self, type_: int, message: Any) -> Undo:
        """Enables, configures or disables a digest."""
        info = lookup(self._infos, message.digest_id, "digest")
        where = f"digest {info.name}"
        stream = self._streams.get(info.number)
        if type_ == INSERT and stream is not None:
            raise P4RuntimeError(Code.ALREADY_EXISTS, f"{where} is enabled already")
        if type_ != INSERT and stream is None:
            raise P4RuntimeError(Code.NOT_FOUND, f"{where} is not enabled")
        if type_ == DELETE:
            del self._streams[info.number]
        else:
            info.codec.check_supported()
            config = _decode(message, where)
            if stream is None:
                self._streams[info.number] = _Stream(info, config)
            else:
                old = stream.config
                stream.config = config

        def undo() -> None:
            if stream is None:
                del self._streams[info.number]
            else:
                self._streams[info.number] = stream
                if type_ != DELETE:
                    stream.config = old

        return undo

    def read(self, message: Any) -> Iterator[Any]:
        """The configuration of a digest, or of all that are enabled."""
        if message.digest_id:
            lookup(self._infos, message.digest_id, "digest")
        for number, stream in list(self._streams.items()):
            if message.digest_id in (0, number):
                entity = _Entity()
                entity.digest_entry.digest_id = number
                if stream.config.message is not None:
                    entity.digest_entry.config.CopyFrom(stream.config.message)
                yield entity

    # Messages

    def add(self, name: str, values: _Values, now: float) -> list[Any]:
        """Takes a message of the program; returns the lists to send now."""
        stream = self._streams.get(self._by_name.get(name, 0))
        if stream is None:
            return []
        self._forget(stream, now)
        if values in stream.buffer or any(values in sent for _, sent in stream.cache.values()):
            return []
        if not stream.buffer:
            stream.first = now
        stream.buffer[values] = None
        return [self._flush(stream, now)] if self._is_due(stream, now) else []

    def due(self, now: float) -> list[Any]:
        """The lists that have waited long enough."""
        found = []
        for stream in self._streams.values():
            self._forget(stream, now)
            if stream.buffer and self._is_due(stream, now):
                found.append(self._flush(stream, now))
        return found

    def next_due(self) -> float | None:
        """When `due` has something next, or None."""
        return min((s.first + s.config.max_timeout for s in self._streams.values() if s.buffer), default=None)

    def acknowledge(self, digest_id: int, list_id: int) -> None:
        """The controller has acted on a list.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT; there is no such digest.
        """
        lookup(self._infos, digest_id, "digest")
        stream = self._streams.get(digest_id)
        if stream is not None:
            stream.cache.pop(list_id, None)

    def forget(self) -> None:
        """Forgets what was sent, for a controller that is new."""
        for stream in self._streams.values():
            stream.cache.clear()

    def _is_due(self, stream: _Stream, now: float) -> bool:
        config = stream.config
        return 0 < config.max_list_size <= len(stream.buffer) or now - stream.first >= config.max_timeout

    def _forget(self, stream: _Stream, now: float) -> None:
        for list_id, (sent, _) in list(stream.cache.items()):
            if now - sent >= stream.config.ack_timeout:
                del stream.cache[list_id]

    def _flush(self, stream: _Stream, now: float) -> Any:
        stream.last_list += 1
        message = p4runtime_pb2.DigestList(digest_id=stream.info.number, list_id=stream.last_list)
        for values in stream.buffer:
            message.data.append(stream.info.codec.encode(values))
        if stream.config.ack_timeout > 0:
            stream.cache[stream.last_list] = now, frozenset(stream.buffer)
        stream.buffer.clear()
        return message


def _decode(entry: Any, where: str) -> _Config:
    given = entry.config
    for name in ("max_timeout_ns", "max_list_size", "ack_timeout_ns"):
        value = getattr(given, name)
        if value < 0:
            raise invalid(f"{where}: {name} {value} is negative")
    message = None
    if entry.HasField("config"):
        message = p4runtime_pb2.DigestEntry.Config()
        message.CopyFrom(given)
    return _Config(given.max_timeout_ns / 1e9, given.max_list_size, given.ack_timeout_ns / 1e9, message)
