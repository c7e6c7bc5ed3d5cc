"""Expressions and statements of a compiled P4 program, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VALID = "$valid$"  # the hidden field that BMv2 gives every header


@dataclass(frozen=True, slots=True)
class Source:
    """A place in the P4 source, as p4c writes it down."""

    file: str = ""
    line: int = 0
    fragment: str = ""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.file else "(place in the source unknown)"


NOWHERE = Source()


@dataclass(frozen=True, slots=True)
class Const:
    """A number; `width` in bits where the JSON gives it (inputs of calculations), else 0."""

    value: int
    width: int = 0


@dataclass(frozen=True, slots=True)
class Bool:
    """A truth value."""

    value: bool


@dataclass(frozen=True, slots=True)
class Text:
    """A string, for log_msg."""

    value: str


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field of a header instance; `field` may be `$valid$`."""

    header: str
    field: str


@dataclass(frozen=True, slots=True)
class StackField:
    """A field of the last element of a stack that was extracted."""

    stack: str
    field: str


@dataclass(frozen=True, slots=True)
class UnionStackField:
    """A field of a member of the last union of a stack that was extracted."""

    stack: str
    member: str
    field: str


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the enclosing action, by position."""

    index: int


@dataclass(frozen=True, slots=True)
class RegisterCell:
    """A cell of a register array, as an operand."""

    register: str
    index: Expr


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Bits of the packet that are not yet parsed."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Ref:
    """A named object. `kind` says which: a header, a stack, a calculation, a counter, ..."""

    kind: Literal["header", "stack", "union", "union_stack", "calculation", "register", "counter", "meter"]
    name: str


@dataclass(frozen=True, slots=True)
class Op:
    """An operation. Unary ones have `right` only; `?` has `condition`; access_field, access_union_header `index`."""

    op: str
    left: Expr | None
    right: Expr | None
    condition: Expr | None = None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Vector:
    """Several expressions: the values of log_msg."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Payload:
    """What follows the parsed headers, as input of a calculation."""


Expr = (
    Const
    | Bool
    | Text
    | FieldRef
    | StackField
    | UnionStackField
    | Param
    | RegisterCell
    | Lookahead
    | Ref
    | Op
    | Vector
    | Payload
)


@dataclass(frozen=True, slots=True)
class Primitive:
    """One statement of an action, of a parser state or of a deparser."""

    op: str
    args: tuple[Expr, ...]
    source: Source
