"""Expressions and primitives of BMv2's JSON, checked against the names that the program declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from switch.model.controls import ActionParam
from switch.model.expressions import (
    VALID,
    Bool,
    Const,
    Expr,
    FieldRef,
    Lookahead,
    Op,
    Param,
    Primitive,
    Ref,
    RegisterCell,
    Source,
    StackField,
    Text,
    UnionStackField,
    Vector,
)
from switch.model.json_reader import Node
from switch.model.program import Field, Header, HeaderType, Stack, Union, UnionStack

DATA, BOOL = "data", "bool"
_NUMBERS = (DATA, BOOL)

# op -> (kind of left or None, kind of right or None, kind of the result)
_OPERATIONS: dict[str, tuple[str | None, str | None, str]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"), (DATA, DATA, DATA)),
    **dict.fromkeys(("two_comp_mod", "usat_cast", "sat_cast"), (DATA, DATA, DATA)),
    **dict.fromkeys((">", "<", ">=", "<="), (DATA, DATA, BOOL)),
    **dict.fromkeys(("and", "or"), (BOOL, BOOL, BOOL)),
    "~": (None, DATA, DATA),
    "not": (None, BOOL, BOOL),
    "valid": (None, "header", BOOL),
    "valid_union": (None, "union", BOOL),
    "d2b": (None, DATA, BOOL),
    "b2d": (None, BOOL, DATA),
    "dereference_header_stack": ("stack", DATA, "header"),
    "dereference_stack": ("stack", DATA, "header"),
    "dereference_union_stack": ("union_stack", DATA, "union"),
    "last_stack_index": (None, "stack", DATA),
    "size_stack": (None, "stack", DATA),
}

# What each primitive takes: d number, l assignable number, h header, u union, s stack, t stack of unions, a either,
# k calculation, r register, c counter, m meter, x text, v vector, n constant number, f field list, g digest
_PRIMITIVES: dict[str, str] = {
    **dict.fromkeys(("assign", "modify_field", "add_to_field", "subtract_from_field"), "ld"),
    **dict.fromkeys(("add", "subtract", "bit_xor", "bit_or", "bit_and", "shift_left", "shift_right"), "ldd"),
    **dict.fromkeys(("assign_header", "copy_header"), "hh"),
    **dict.fromkeys(("add_header", "add_header_fast", "remove_header", "mark_to_drop"), "h"),
    **dict.fromkeys(("drop", "no_op", "exit"), ""),
    **dict.fromkeys(("assert", "assume", "truncate"), "d"),
    **dict.fromkeys(("push", "pop"), "an"),
    **dict.fromkeys(("resubmit", "recirculate"), "f"),
    **dict.fromkeys(("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"), "df"),
    "assign_VL": "ll",
    "assign_union": "uu",
    "assign_header_stack": "ss",
    "assign_union_stack": "tt",
    "_jump": "n",
    "_jump_if_zero": "dn",
    "log_msg": "xv",
    "modify_field_rng_uniform": "ldd",
    "modify_field_with_hash_based_offset": "ldkd",
    "generate_digest": "dg",
    "execute_meter": "mdl",
    "count": "cd",
    "register_read": "lrd",
    "register_write": "rdd",
}
_KIND_OF_LETTER = {
    "h": "header",
    "u": "union",
    "s": "stack",
    "t": "union_stack",
    "k": "calculation",
    "r": "register",
    "c": "counter",
    "m": "meter",
    "x": "text",
    "v": "vector",
}
_COPIES = ("hh", "uu", "ss", "tt")
_SHAPED = ("header", "union", "stack", "union_stack")
_ARRAYS = {
    "calculation": "calculation",
    "meter_array": "meter",
    "counter_array": "counter",
    "register_array": "register",
}


@dataclass
class Scope:
    """The names that expressions may use."""

    headers: Mapping[str, Header]
    stacks: Mapping[str, Stack]
    unions: Mapping[str, Union]
    union_stacks: Mapping[str, UnionStack]
    objects: dict[str, set[str]] = field(default_factory=dict)  # kind -> names
    lists: dict[str, set[int]] = field(default_factory=dict)  # f and g -> ids

    def field(self, node: Node) -> FieldRef:
        """A reference to a field, by header and name."""
        header, name = node.pair()
        self.field_of(node, header, name)
        return FieldRef(header, name)

    def field_of(self, node: Node, header: str, name: str) -> Field:
        """The field of a header instance."""
        if header not in self.headers:
            node.fail(f"there is no header {header!r}")
        return member(node, self.headers[header].type, name)

    def stack_field(self, node: Node) -> tuple[StackField, Field]:
        """A field of the last header of a stack."""
        stack, name = node.pair()
        if stack not in self.stacks:
            node.fail(f"there is no header stack {stack!r}")
        return StackField(stack, name), member(node, self.stacks[stack].type, name)

    def union_stack_field(self, node: Node) -> tuple[UnionStackField, Field]:
        """A field of the last union of a stack."""
        stack, part, name = (node[place].as_(str) for place in range(3))
        union = self.unions[self.union_stacks[stack].unions[0]] if stack in self.union_stacks else None
        if union is None or part not in union.members:
            node.fail(f"there is no stack of unions {stack!r} with a header {part!r}")
        header = self.headers[union.headers[union.members.index(part)]]
        return UnionStackField(stack, part, name), member(node, header.type, name)


def member(node: Node, kind: HeaderType, name: str) -> Field:
    """The field `name` of a header type."""
    place = kind.index(name)
    if place is None and name != VALID:
        node.fail(f"header type {kind.name!r} has no field {name!r}")
    return Field(VALID, 1) if place is None else kind.fields[place]


class ExpressionLoader:
    """Reads expressions and primitives inside of one action, or outside of actions with no parameters."""

    def __init__(self, scope: Scope, params: tuple[ActionParam, ...] = ()) -> None:
        self.scope, self.params = scope, params

    def data(self, node: Node) -> Expr:
        """An expression that gives a number."""
        return self.of_kind(node, DATA)

    def condition(self, node: Node) -> Expr:
        """An expression that gives a truth value."""
        return self.of_kind(node, BOOL)

    def of_kind(self, node: Node, kind: str) -> Expr:
        """An expression of a kind; numbers and truth values stand for each other."""
        found, expr = self.expression(node)
        if found != kind and not (found in _NUMBERS and kind in _NUMBERS):
            node.fail(f"expected a {kind}, found a {found}")
        return expr

    def expression(self, node: Node) -> tuple[str, Expr]:
        """An expression and its kind."""
        kind = node.text("type")
        value = node["value"]
        scope = self.scope
        if kind == "expression":
            inner = value.as_(dict)
            return self.expression(value) if "type" in inner else self._operation(value)
        if kind == "field":
            return DATA, scope.field(value)
        if kind == "hexstr":
            width = node.number("bitwidth", 1) if node.has("bitwidth") else 0
            return DATA, Const(value.hex(), width)
        if kind == "bool":
            return BOOL, Bool(value.as_(bool))
        if kind in ("local", "runtime_data"):
            index = value.as_(int)
            if not 0 <= index < len(self.params):
                value.fail(f"the action has {len(self.params)} parameters, there is none at {index}")
            return DATA, Param(index)
        if kind == "stack_field":
            return DATA, scope.stack_field(value)[0]
        if kind == "union_stack_field":
            return DATA, scope.union_stack_field(value)[0]
        if kind == "register":
            name = value[0].as_(str)
            self._known(value, "register", name)
            return DATA, RegisterCell(name, self.data(value[1]))
        if kind == "lookahead":
            return DATA, Lookahead(value[0].within(0, 1 << 16), value[1].width())
        if kind == "string":
            return "text", Text(value.as_(str))
        if kind == "parameters_vector":
            found = value.value or []
            items = Node(found, value.path)
            return "vector", Vector(tuple(self.data(items[place]) for place in range(len(items.as_(list)))))
        return self._reference(node, kind, value)

    def _reference(self, node: Node, kind: str, value: Node) -> tuple[str, Expr]:
        scope = self.scope
        name = value.as_(str)
        if kind == "header":
            if name not in scope.headers:
                value.fail(f"there is no header {name!r}")
            return "header", Ref("header", name)
        if kind == "header_stack":
            if name in scope.union_stacks:
                return "union_stack", Ref("union_stack", name)
            if name not in scope.stacks:
                value.fail(f"there is no header stack {name!r}")
            return "stack", Ref("stack", name)
        if kind == "header_union":
            if name not in scope.unions:
                value.fail(f"there is no header union {name!r}")
            return "union", Ref("union", name)
        if kind == "header_union_stack":
            if name not in scope.union_stacks:
                value.fail(f"there is no stack of header unions {name!r}")
            return "union_stack", Ref("union_stack", name)
        if kind in _ARRAYS:
            self._known(value, _ARRAYS[kind], name)
            return _ARRAYS[kind], Ref(_ARRAYS[kind], name)  # type: ignore[arg-type]
        return node.unsupported(f"an operand of type {kind!r}")

    def _known(self, node: Node, kind: str, name: str) -> None:
        if name not in self.scope.objects.get(kind, ()):
            node.fail(f"there is no {kind} {name!r}")

    def _operation(self, node: Node) -> tuple[str, Expr]:
        name = node.text("op")
        if name == "?":
            condition = self.condition(node["cond"])
            kind, left = self.expression(node["left"])
            if kind not in _NUMBERS:
                node.unsupported(f"a {kind} that depends on a condition")
            return kind, Op("?", left, self.of_kind(node["right"], kind), condition)
        if name in ("==", "!="):
            kind, left = self.expression(node["left"])
            right = self.of_kind(node["right"], kind)
            self._check_alike(node, kind, left, right)
            return BOOL, Op(f"{name}{kind}", left, right)
        if name == "access_field":
            header = self.of_kind(node["left"], "header")
            fields = self._type_of(node, header).fields
            return DATA, Op(name, header, None, index=node.number("right", 0, len(fields) - 1))
        if name == "access_union_header":
            union = self.of_kind(node["left"], "union")
            return "header", Op(name, union, None, index=node.number("right", 0, 1 << 10))
        if name not in _OPERATIONS:
            node.unsupported(f"operation {name!r}")
        left_kind, right_kind, result = _OPERATIONS[name]
        operand: Expr | None = None
        if name in "+-" and not node.has("left"):
            operand = Const(0)
        elif left_kind is not None:
            operand = self.of_kind(node["left"], left_kind)
        assert right_kind is not None
        return result, Op(name, operand, self.of_kind(node["right"], right_kind))

    def _type_of(self, node: Node, header: Expr) -> HeaderType:
        """The type of a header that may be known only when a packet comes."""
        scope = self.scope
        if isinstance(header, Ref):
            return scope.headers[header.name].type
        if isinstance(header, Op) and header.op.startswith("dereference") and isinstance(header.left, Ref):
            return scope.stacks[header.left.name].type
        if isinstance(header, Op) and header.op == "access_union_header":
            union: Expr | None = header.left
            if isinstance(union, Op) and isinstance(union.left, Ref):
                union = Ref("union", scope.union_stacks[union.left.name].unions[0])
            if isinstance(union, Ref) and header.index < len(scope.unions[union.name].headers):
                return scope.headers[scope.unions[union.name].headers[header.index]].type
        return node.unsupported("a field of such a header")

    def _check_alike(self, node: Node, kind: str, left: Expr, right: Expr) -> None:
        """Headers, unions and stacks are assigned to, and compared with, others of the same type only."""
        if kind in _SHAPED and self._shape(node, left) != self._shape(node, right):
            node.fail(f"the two {kind}s are not of the same type")

    def _shape(self, node: Node, expr: Expr) -> object:
        """What must be the same of two."""
        scope = self.scope
        if isinstance(expr, Ref) and expr.kind == "stack":
            return scope.stacks[expr.name].type.name, len(scope.stacks[expr.name].headers)
        if isinstance(expr, Ref) and expr.kind == "union_stack":
            unions = scope.union_stacks[expr.name].unions
            return self._shape(node, Ref("union", unions[0])), len(unions)
        if isinstance(expr, Op) and expr.op == "dereference_union_stack" and isinstance(expr.left, Ref):
            expr = Ref("union", scope.union_stacks[expr.left.name].unions[0])
        if isinstance(expr, Ref) and expr.kind == "union":
            return [scope.headers[each].type.name for each in scope.unions[expr.name].headers]
        return self._type_of(node, expr).name

    def primitive(self, node: Node) -> Primitive:
        """A primitive with its arguments."""
        name = node.text("op")
        source = node.source()
        if name not in _PRIMITIVES:
            node.unsupported(f"primitive {name!r}", source)
        letters = _PRIMITIVES[name]
        given = list(node.items("parameters", needed=bool(letters)))
        if len(given) != len(letters):
            node.fail(f"{name!r} takes {len(letters)} parameters, found {len(given)}")
        args = tuple(self._argument(*each, source) for each in zip(given, letters, strict=True))
        if letters in _COPIES:
            self._check_alike(node, _KIND_OF_LETTER[letters[0]], args[0], args[1])
        return Primitive(name, args, source)

    def _argument(self, node: Node, letter: str, source: Source) -> Expr:
        if letter in _KIND_OF_LETTER:
            return self.of_kind(node, _KIND_OF_LETTER[letter])
        if letter == "a":
            kind, expr = self.expression(node)
            if kind not in ("stack", "union_stack"):
                node.fail(f"expected a stack, found a {kind}")
            return expr
        expr = self.data(node)
        if letter == "l" and not isinstance(expr, FieldRef | StackField | RegisterCell | UnionStackField):
            target = expr
            while isinstance(target, Op) and target.op == "access_field":
                return expr
            node.unsupported("an assignment to such an expression", source)
        if letter in "nfg":
            if not isinstance(expr, Const):
                node.unsupported("a parameter that is not a constant", source)
            if letter in "fg" and expr.value not in self.scope.lists.get(letter, ()):
                node.fail(f"there is no {'digest' if letter == 'g' else 'field list'} with id {expr.value}")
        return expr
