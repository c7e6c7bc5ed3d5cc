"""A compiled P4 program: what stands in BMv2's JSON, checked, as frozen dataclasses.

`switch.model.load` builds a `Program` and refuses what it cannot; everything here may be relied on: names resolve,
indexes are in range, widths are positive.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from switch.model.expressions import (
    NOWHERE as NOWHERE,
)
from switch.model.expressions import (
    VALID as VALID,
)
from switch.model.expressions import (
    Bool as Bool,
)
from switch.model.expressions import (
    Const as Const,
)
from switch.model.expressions import (
    Expr as Expr,
)
from switch.model.expressions import (
    FieldRef as FieldRef,
)
from switch.model.expressions import (
    Lookahead as Lookahead,
)
from switch.model.expressions import (
    Op as Op,
)
from switch.model.expressions import (
    Param as Param,
)
from switch.model.expressions import (
    Payload as Payload,
)
from switch.model.expressions import (
    Primitive as Primitive,
)
from switch.model.expressions import (
    Ref as Ref,
)
from switch.model.expressions import (
    RegisterCell as RegisterCell,
)
from switch.model.expressions import (
    Source as Source,
)
from switch.model.expressions import (
    StackField as StackField,
)
from switch.model.expressions import (
    Text as Text,
)
from switch.model.expressions import (
    UnionStackField as UnionStackField,
)
from switch.model.expressions import (
    Vector as Vector,
)


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
class ActionParam:
    """A parameter that the control plane gives; width in bits."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Action:
    """An action. p4c writes some more than once under one name: `id` tells them apart."""

    name: str
    id: int
    params: tuple[ActionParam, ...]
    body: tuple[Primitive, ...]
    source: Source


@dataclass(frozen=True, slots=True)
class ParserOp:
    """A statement of a parser state.

    Attributes:
        op: extract, extract_vl, set, verify, advance, or the name of a primitive.
        args: extract: (Ref,), or a Ref and a member's name as Text for union stacks; extract_vl: its length besides;
            set: target and value; verify: condition and error; advance: bits; else those of the primitive.
    """

    op: str
    args: tuple[Expr, ...]
    source: Source = NOWHERE


@dataclass(frozen=True, slots=True)
class Transition:
    """One case of a select.

    Attributes:
        values: a value for each key field; None: the default; a name: a value set.
        masks: a mask for each key field, or None: all bits.
        next: a state, or None: accept.
    """

    values: tuple[int, ...] | str | None
    masks: tuple[int, ...] | None
    next: str | None


@dataclass(frozen=True, slots=True)
class ParserState:
    """A parser state. Widths of `keys` in bits."""

    name: str
    ops: tuple[ParserOp, ...]
    keys: tuple[FieldRef | StackField | UnionStackField | Lookahead, ...]
    key_widths: tuple[int, ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser; `start` None: it does nothing."""

    name: str
    start: str | None
    states: Mapping[str, ParserState]


@dataclass(frozen=True, slots=True)
class ValueSet:
    """A parser value set; width in bits of all its fields together."""

    name: str
    width: int
    size: int


@dataclass(frozen=True, slots=True)
class Deparser:
    """Headers to emit, in order, after running primitives."""

    name: str
    order: tuple[str, ...]
    body: tuple[Primitive, ...]


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
class Key:
    """A key field of a table.

    Attributes:
        name: as p4info has it.
        kind: exact, lpm, ternary, range or valid. p4c writes optional keys as ternary.
        target: the field; a header's `$valid$` for kind valid.
        width: bits.
        mask: the key's bits that count, or None: all.
    """

    name: str
    kind: Literal["exact", "lpm", "ternary", "range", "valid"]
    target: FieldRef
    width: int
    mask: int | None


@dataclass(frozen=True, slots=True)
class ConstMatch:
    """How a const entry matches a field: `value`, with lpm `prefix`, with ternary `mask`, with range to `high`."""

    kind: str
    value: int
    mask: int = 0
    prefix: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """An entry of the program. `action`: position in the table's actions; SMALLER priority wins, as in BMv2."""

    matches: tuple[ConstMatch, ...]
    action: int
    args: tuple[int, ...]
    priority: int


@dataclass(frozen=True, slots=True)
class DefaultEntry:
    """The default action of the program. `action` is a position in the table's actions."""

    action: int
    args: tuple[int, ...]
    const_action: bool
    const_entry: bool


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        kind: simple, indirect (action profile) or indirect_ws (profile with selector).
        next_action: the node after each of `actions`; None: the end.
        next_hit, next_miss: instead, if `by_hit`.
        next_default: the node after a miss without a default action.
        entries_const: the control plane may not touch the entries.
    """

    name: str
    kind: Literal["simple", "indirect", "indirect_ws"]
    match: str
    keys: tuple[Key, ...]
    actions: tuple[Action, ...]
    size: int
    counters: bool
    timeouts: bool
    meter: str | None
    profile: str | None
    default: DefaultEntry | None
    entries: tuple[ConstEntry, ...]
    entries_const: bool
    by_hit: bool
    next_action: tuple[str | None, ...]
    next_hit: str | None
    next_miss: str | None
    next_default: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Conditional:
    """An if of a control."""

    name: str
    condition: Expr
    next_true: str | None
    next_false: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action that is called without a table."""

    name: str
    action: Action
    next: str | None


@dataclass(frozen=True, slots=True)
class Profile:
    """An action profile; a selector has `algorithm` and `inputs`."""

    name: str
    size: int
    algorithm: str | None
    inputs: tuple[FieldRef, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Ingress or egress; `start` and every `next` name a table, a conditional or an action call."""

    name: str
    start: str | None
    tables: Mapping[str, Table]
    conditionals: Mapping[str, Conditional]
    calls: Mapping[str, ActionCall]


@dataclass(frozen=True, slots=True)
class FieldList:
    """Fields that resubmit, recirculate or clone keep, or that a digest carries."""

    name: str
    id: int
    fields: tuple[FieldRef | Const, ...]


@dataclass(frozen=True, eq=False)
class Program:
    """A v1model program as p4c-bm2-ss compiled it. Every mapping is by name, in the JSON's order."""

    name: str
    version: tuple[int, int]
    header_types: Mapping[str, HeaderType]
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

        return load_program(source if isinstance(source, bytes) else Path(source).read_bytes())
