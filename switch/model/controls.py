"""Parsers, actions, tables, pipelines and the deparser of a compiled P4 program, as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from switch.model.expressions import NOWHERE, Expr, FieldRef, Lookahead, Primitive, Source, StackField, UnionStackField


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
