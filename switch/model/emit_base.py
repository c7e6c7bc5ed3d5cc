"""What all parts of the code generator share: lines of Python, names of variables, ranges of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from switch.model.expressions import VALID, FieldRef
from switch.model.program import Field, Header, Program

MAX_DEPTH = 70  # Python takes a hundred levels of indentation


_LONG, _DEEP = 300, 60  # letters and parentheses; Python takes 200 parentheses


class TooDeepError(Exception):
    """Nested deeper than Python allows; the caller has a flat way to write the same."""


class Writer:
    """Lines of Python with their indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def line(self, text: str) -> None:
        """Adds a line."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Adds a line that opens a block, and `pass` if nothing comes inside of it."""
        self.line(header)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooDeepError
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1


class Value(NamedTuple):
    """Code that gives a number, and limits that the number is known to keep; None: no limit is known.

    `code` is an atom or in parentheses.
    """

    code: str
    low: int | None = None
    high: int | None = None

    @property
    def constant(self) -> int | None:
        """The number itself if it is known."""
        return self.low if self.low is not None and self.low == self.high else None

    def within(self, low: int, high: int) -> bool:
        """Whether the number is known to be from `low` to `high`."""
        return self.low is not None and self.high is not None and low <= self.low and self.high <= high


def constant(number: int) -> Value:
    """A number that is known."""
    return Value(str(number) if number >= 0 else f"({number})", number, number)


def field_limits(field: Field) -> tuple[int, int]:
    """The smallest and the largest number that a field holds."""
    if field.signed:
        return -(1 << (field.width - 1)), (1 << (field.width - 1)) - 1
    return 0, (1 << field.width) - 1


def wrapped(value: Value, width: int, *, signed: bool) -> Value:
    """The value cut to a width; in two's complement if signed."""
    mask = (1 << width) - 1
    if not signed:
        if value.within(0, mask):
            return value
        known = value.constant
        return constant(known & mask) if known is not None else Value(f"({value.code} & {mask:#x})", 0, mask)
    half = 1 << (width - 1)
    if value.within(-half, half - 1):
        return value
    known = value.constant
    if known is not None:
        return constant(((known + half) & mask) - half)
    if value.within(0, mask):
        return Value(f"(({value.code} ^ {half:#x}) - {half:#x})", -half, half - 1)
    return Value(f"(({value.code} + {half:#x} & {mask:#x}) - {half:#x})", -half, half - 1)


class Names:
    """The names of variables of one program: the same in all its generated functions."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._names: dict[tuple[str, ...], str] = {}
        self._taken: set[str] = set()
        self.of_header: dict[str, str] = {}  # variable -> header

    def _name(self, kind: str, *parts: str) -> str:
        key = (kind, *parts)
        if key not in self._names:
            base = f"{kind}_" + "_".join(re.sub(r"\W+", "_", part).strip("_") for part in parts)
            name, number = base, 1
            while name in self._taken:
                number += 1
                name = f"{base}__{number}"
            self._taken.add(name)
            self._names[key] = name
            if kind in "hlv":
                self.of_header[name] = parts[0]
        return self._names[key]

    def field(self, header: str, field: str) -> str:
        """The variable of a field."""
        return self._name("h", header, field)

    def valid(self, header: str) -> str:
        """The variable that says whether a header is valid."""
        return self._name("v", header)

    def length(self, header: str) -> str:
        """The variable with the bits that a header's varbit field has."""
        return self._name("l", header)

    def next(self, stack: str) -> str:
        """The variable with a stack's next index."""
        return self._name("n", stack)

    def bytes(self, header: str) -> str:
        """The variable with the bytes of a header that egress does not look into."""
        return self._name("b", header)

    def object(self, kind: str, name: str) -> str:
        """The global name of a table, register array, ..."""
        return self._name(kind, name)


class Frame:
    """One generated function in the making.

    Attributes:
        used: the variables that it reads or writes, in the order of their first use.
        objects: global name -> what it stands for; bound when a switch is made.
    """

    def __init__(self, program: Program, names: Names, *, trace: bool) -> None:
        self.program, self.names, self.trace = program, names, trace
        self.w = Writer()
        self.used: dict[str, None] = {}
        self.objects: dict[str, tuple[Any, ...]] = {}
        self.tracks_length = False  # whether somebody wants to know how long the packet gets
        self._temporaries = 0

    def use(self, name: str) -> str:
        """Notes that a variable is used."""
        self.used[name] = None
        return name

    def field(self, ref: FieldRef) -> str:
        """The variable of a field, or of a header's validity."""
        if ref.field == VALID:
            return self.valid(ref.header)
        return self.use(self.names.field(ref.header, ref.field))

    def valid(self, header: str) -> str:
        """Code that says whether a header is valid; metadata always is."""
        if self.program.headers[header].metadata:
            return "True"
        return self.use(self.names.valid(header))

    def length(self, header: str) -> str:
        """The variable with the length of a header's varbit field, in bits."""
        return self.use(self.names.length(header))

    def next(self, stack: str) -> str:
        """The variable with a stack's next index."""
        return self.use(self.names.next(stack))

    def object(self, kind: str, name: str, *more: Any) -> str:
        """The global name of an object that is bound when a switch is made."""
        found = self.names.object(kind, name)
        self.objects[found] = (kind, name, *more)
        return found

    def temporary(self) -> str:
        """The name of a variable that lives for a few lines."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    def header_variables(self, header: Header) -> list[str]:
        """All variables of a header's content: fields, and the length of a varbit one."""
        found = [self.use(self.names.field(header.name, each.name)) for each in header.type.fields]
        if header.type.varbit is not None:
            found.append(self.length(header.name))
        return found


def saturated(frame: Frame, value: Value, width: int, *, signed: bool) -> Value:
    """The value, or the nearest that fits the width."""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    if value.within(low, high):
        return value
    name = frame.temporary()
    code = f"({high} if ({name} := {value.code}) > {high} else {low} if {name} < {low} else {name})"
    return Value(code, low, high)


def is_deep(code: str) -> bool:
    """Whether parentheses are nested so that Python may soon refuse the code."""
    if len(code) < _LONG:
        return False
    depth = 0
    for letter in code:
        depth += (letter == "(") - (letter == ")")
        if depth > _DEEP:
            return True
    return False
