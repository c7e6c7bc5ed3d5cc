"""A walk through JSON that knows where it is, so that what is missing or wrong is named by its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from switch.model.errors import ProgramError, UnsupportedError
from switch.model.expressions import NOWHERE, Source

T = TypeVar("T")

_KINDS = {str: "a string", int: "a whole number", bool: "true or false", list: "a list", dict: "an object"}
_BITS = 1 << 16  # wider than p4c lets anything be
_MAX_SIZE = 1 << 28  # elements of a table or register array; more is a damaged file, not a program


class Node:
    """A value in the JSON and the path to it."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str = "") -> None:
        self.value, self.path = value, path

    def fail(self, problem: str) -> NoReturn:
        """Refuses the file for what stands here."""
        raise ProgramError(f"{self.path or 'the file'}: {problem}")

    def unsupported(self, construct: str, source: Source | None = None) -> NoReturn:
        """Refuses the program for something that the switch does not run."""
        place = source if source is not None and source.file else self.source()
        raise UnsupportedError(f"{construct} is not supported, at {place if place.file else self.path}")

    def source(self) -> Source:
        """The place in the P4 source that the compiler noted here, if it did."""
        info = self.value.get("source_info") if isinstance(self.value, dict) else None
        if not isinstance(info, dict):
            return NOWHERE
        line, column = (found if isinstance(found := info.get(key), int) else 0 for key in ("line", "column"))
        return Source(str(info.get("filename", "")), line, str(info.get("source_fragment", "")), column)

    def as_(self, kind: type[T]) -> T:
        """The value, which must be of `kind`."""
        value = self.value
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.fail(f"expected {_KINDS[kind]}, found {_shown(value)}")
        return value

    def has(self, key: str) -> bool:
        """Whether the object has `key` and it is not null."""
        return isinstance(self.value, dict) and self.value.get(key) is not None

    def __getitem__(self, key: str | int) -> Node:
        if isinstance(key, int):
            items = self.as_(list)
            if key >= len(items):
                self.fail(f"expected at least {key + 1} elements, found {len(items)}")
            return Node(items[key], f"{self.path}[{key}]")
        members = self.as_(dict)
        if key not in members:
            self.fail(f"{key!r} is missing")
        return Node(members[key], f"{self.path}.{key}" if self.path else key)

    def items(self, key: str, *, needed: bool = True) -> Iterator[Node]:
        """The elements of the list under `key`."""
        if not needed and not self.has(key):
            return
        found = self[key]
        for place, each in enumerate(found.as_(list)):
            yield Node(each, f"{found.path}[{place}]")

    def text(self, key: str) -> str:
        """The string under `key`."""
        return self[key].as_(str)

    def name_or_none(self, key: str) -> str | None:
        """The string under `key`, or None if it is null or missing."""
        return self.text(key) if self.has(key) else None

    def number(self, key: str, low: int = 0, high: int = _MAX_SIZE) -> int:
        """The whole number under `key`, within limits."""
        return self[key].within(low, high)

    def within(self, low: int, high: int) -> int:
        """The whole number here, within limits."""
        value = self.as_(int)
        if not low <= value <= high:
            self.fail(f"{value} is not within {low} and {high}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """The truth value under `key`; `default` if it is missing."""
        return self[key].as_(bool) if self.has(key) else default

    def hex(self) -> int:
        """The number that a hexstr stands for; it may be negative."""
        text = self.as_(str)
        try:
            return int(text, 16)
        except ValueError:
            self.fail(f"expected a hexadecimal number, found {_shown(text)}")

    def pair(self) -> tuple[str, str]:
        """Two strings: a header and a field."""
        found = self.as_(list)
        if len(found) != 2:
            self.fail(f"expected a header and a field, found {_shown(found)}")
        return self[0].as_(str), self[1].as_(str)

    def width(self) -> int:
        """A width in bits."""
        return self.within(1, _BITS)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


def named(nodes: Iterable[Node], build: Callable[[Node], T]) -> dict[str, T]:
    """The objects of a list by name, each name once."""
    found: dict[str, T] = {}
    for node in nodes:
        name = node.text("name")
        if name in found:
            node.fail(f"the name {name!r} is there twice")
        found[name] = build(node)
    return found


def looked_up(node: Node, key: str, names: Mapping[str, T]) -> T:
    """What the name under `key` stands for."""
    name = node.text(key)
    if name not in names:
        node[key].fail(f"there is no {name!r}")
    return names[name]
