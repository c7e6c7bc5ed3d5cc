"""A compiled P4 program: what stands in BMv2's JSON, checked, as frozen dataclasses.

`switch.model.load` builds a `Program` and refuses what it cannot; everything here may be relied on: names resolve,
indexes are in range, widths are positive.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from switch.model.controls import Action, Deparser, Parser, Pipeline, Profile, Table, ValueSet
from switch.model.expressions import VALID, Const, Expr, FieldRef, Source


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a header type; `width` in bits, at most so many if `varbit`."""

    name: str
    width: int
    signed: bool = False
    varbit: bool = False
    saturating: bool = False


@dataclass(frozen=True, slots=True)
class HeaderType:
    """Fields in the order of the wire.

    Attributes:
        max_bytes: the longest that a header with a varbit field can be; 0 without one.
    """

    name: str
    fields: tuple[Field, ...]
    max_bytes: int = 0

    @property
    def varbit(self) -> Field | None:
        """The varbit field, if there is one; never more than one."""
        return next((each for each in self.fields if each.varbit), None)

    @property
    def fixed_bits(self) -> int:
        """Bits of all fields but the varbit one."""
        return sum(each.width for each in self.fields if not each.varbit)

    def index(self, name: str) -> int | None:
        """The position of a field, or None."""
        return next((place for place, each in enumerate(self.fields) if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Header:
    """A header or metadata instance; elements of stacks and members of unions are instances of their own."""

    name: str
    type: HeaderType
    metadata: bool


@dataclass(frozen=True, slots=True)
class Stack:
    """A header stack; `headers` are the names of its elements in order."""

    name: str
    type: HeaderType
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Union:
    """A header union: at most one of `headers` is valid. `members` are their names inside of the union."""

    name: str
    members: tuple[str, ...]
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnionStack:
    """A stack of header unions, by name."""

    name: str
    unions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Calculation:
    """A hash or checksum over fields, headers, constants and the payload."""

    name: str
    algorithm: str
    inputs: tuple[Expr, ...]
    source: Source


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum that the parser verifies or the deparser updates, or both, if `condition` holds."""

    name: str
    target: FieldRef
    calculation: str
    update: bool
    verify: bool
    condition: Expr | None
    source: Source


@dataclass(frozen=True, slots=True)
class Register:
    """A register array: cells of `width` bits, unsigned (the JSON does not say that they are signed)."""

    name: str
    size: int
    width: int
    source: Source


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter array; BMv2 always counts both packets and bytes. `table`: the table of a direct one."""

    name: str
    size: int
    table: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Meter:
    """A meter array. A direct one has its table and the field that takes the colour."""

    name: str
    size: int
    unit: Literal["packets", "bytes"]
    rates: int
    table: str | None
    result: FieldRef | None
    source: Source


@dataclass(frozen=True, slots=True)
class FieldList:
    """Fields that resubmit, recirculate or clone keep, or that a digest carries."""

    name: str
    id: int
    fields: tuple[FieldRef | Const, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """A v1model program as p4c-bm2-ss compiled it. Every mapping is by name, in the JSON's order.

    `folder` is where the file was, if it was one; the P4 source may be near.
    """

    name: str
    version: tuple[int, int]
    headers: Mapping[str, Header]
    stacks: Mapping[str, Stack]
    unions: Mapping[str, Union]
    union_stacks: Mapping[str, UnionStack]
    aliases: Mapping[str, FieldRef]
    errors: Mapping[str, int]
    enums: Mapping[str, Mapping[str, int]]
    parser: Parser
    value_sets: Mapping[str, ValueSet]
    deparser: Deparser
    calculations: Mapping[str, Calculation]
    checksums: tuple[Checksum, ...]
    registers: Mapping[str, Register]
    counters: Mapping[str, Counter]
    meters: Mapping[str, Meter]
    actions: Mapping[int, Action]
    ingress: Pipeline
    egress: Pipeline
    profiles: Mapping[str, Profile]
    learn_lists: Mapping[int, FieldList]
    field_lists: Mapping[int, FieldList]
    folder: Path | None = None
    compiled: dict[str, Any] = field(default_factory=dict, repr=False)  # generated code, made once

    @property
    def tables(self) -> dict[str, Table]:
        """The tables of ingress and egress."""
        return {**self.ingress.tables, **self.egress.tables}

    def field(self, ref: FieldRef) -> Field:
        """The field that `ref` names."""
        if ref.field == VALID:
            return Field(VALID, 1)
        kind = self.headers[ref.header].type
        place = kind.index(ref.field)
        assert place is not None  # the loader looked
        return kind.fields[place]

    def standard(self, name: str) -> FieldRef | None:
        """A field under the name that simple_switch knows it by (`intrinsic_metadata.mcast_grp`), or None."""
        if name in self.aliases:
            return self.aliases[name]
        header, _, member = name.partition(".")
        if header in self.headers and self.headers[header].type.index(member) is not None:
            return FieldRef(header, member)
        return None

    @classmethod
    def load(cls, source: str | os.PathLike[str] | bytes) -> Program:
        """Reads a program from a file, by path, or from the file's bytes.

        Raises:
            ProgramError: not BMv2's JSON, damaged, or of another version; the message says what and where.
            UnsupportedError: something that this switch does not run; the message says what and where in the P4 source.
            OSError: the file cannot be read.
        """
        from switch.model.load import load_program

        if isinstance(source, bytes):
            return load_program(source)
        path = Path(source)
        return replace(load_program(path.read_bytes()), folder=path.resolve().parent)
