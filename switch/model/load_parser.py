"""Parsers of BMv2's JSON."""

from __future__ import annotations

from collections.abc import Mapping

from switch.model.controls import Parser, ParserOp, ParserState, Transition, ValueSet
from switch.model.expressions import Expr, FieldRef, Lookahead, Ref, StackField, Text, UnionStackField
from switch.model.json_reader import Node
from switch.model.load_expressions import ExpressionLoader, Scope
from switch.model.program import HeaderType


def load_parser(node: Node, scope: Scope, value_sets: Mapping[str, ValueSet]) -> Parser:
    """Reads a parser."""
    loader = _ParserLoader(scope, value_sets)
    states: dict[str, ParserState] = {}
    nodes = list(node.items("parse_states"))
    loader.names = {each.text("name") for each in nodes}
    for each in nodes:
        state = loader.state(each)
        if state.name in states:
            each.fail(f"the name {state.name!r} is there twice")
        states[state.name] = state
    start = node.name_or_none("init_state")
    if start is not None and start not in states:
        node["init_state"].fail(f"there is no state {start!r}")
    return Parser(node.text("name"), start, states)


class _ParserLoader:
    def __init__(self, scope: Scope, value_sets: Mapping[str, ValueSet]) -> None:
        self.scope, self.value_sets = scope, value_sets
        self.expressions = ExpressionLoader(scope)
        self.names: set[str] = set()

    def state(self, node: Node) -> ParserState:
        ops = tuple(self._op(each) for each in node.items("parser_ops"))
        keys: list[FieldRef | StackField | UnionStackField | Lookahead] = []
        widths: list[int] = []
        for each in node.items("transition_key"):
            key, width = self._key(each)
            keys.append(key)
            widths.append(width)
        transitions = tuple(self._transition(each, widths) for each in node.items("transitions"))
        return ParserState(node.text("name"), ops, tuple(keys), tuple(widths), transitions)

    def _key(self, node: Node) -> tuple[FieldRef | StackField | UnionStackField | Lookahead, int]:
        kind = node.text("type")
        value = node["value"]
        if kind == "lookahead":
            return Lookahead(value[0].within(0, 1 << 16), value[1].width()), value[1].width()
        if kind == "field":
            ref = self.scope.field(value)
            return ref, self.scope.field_of(value, ref.header, ref.field).width
        if kind == "stack_field":
            last, field = self.scope.stack_field(value)
            return last, field.width
        if kind == "union_stack_field":
            deep, field = self.scope.union_stack_field(value)
            return deep, field.width
        return node.unsupported(f"a select over {kind!r}")

    def _transition(self, node: Node, widths: list[int]) -> Transition:
        following = node.name_or_none("next_state")
        if following is not None and following not in self.names:
            node["next_state"].fail(f"there is no state {following!r}")
        kind = node.text("type") if node.has("type") else "hexstr"
        if kind == "default" or (kind == "hexstr" and node["value"].value == "default"):
            return Transition(None, None, following)
        if kind == "parse_vset":
            name = node.text("value")
            if name not in self.value_sets:
                node["value"].fail(f"there is no value set {name!r}")
            if node.has("mask"):
                node.unsupported("a value set with a mask")
            if sum(widths) != self.value_sets[name].width:
                node.fail(f"value set {name!r} has {self.value_sets[name].width} bits, the select {sum(widths)}")
            return Transition(name, None, following)
        if kind != "hexstr":
            node.unsupported(f"a transition of type {kind!r}")
        masks = self._split(node["mask"], widths) if node.has("mask") else None
        return Transition(self._split(node["value"], widths), masks, following)

    @staticmethod
    def _split(node: Node, widths: list[int]) -> tuple[int, ...]:
        """The value for each key field; in the JSON each is padded to whole bytes."""
        rest = node.hex()
        values = []
        for width in reversed(widths):
            padded = (width + 7) // 8 * 8
            values.append(rest & ((1 << padded) - 1) & ((1 << width) - 1))
            rest >>= padded
        if rest:
            node.fail(f"{node.value} is wider than the fields of the select ({widths} bits)")
        return tuple(reversed(values))

    def _op(self, node: Node) -> ParserOp:
        name = node.text("op")
        expressions = self.expressions
        if name == "primitive":
            primitive = expressions.primitive(node["parameters"][0])
            if primitive.op.startswith("_jump"):
                node.unsupported("a jump in a parser")
            return ParserOp(primitive.op, primitive.args, primitive.source)
        args = node["parameters"]
        source = node.source()
        if name in ("extract", "extract_VL"):
            ref, kind = self._extracted(args[0])
            if name == "extract" and kind.varbit is not None:
                node.fail(f"header type {kind.name!r} has a varbit field, whose length is not given")
            if name == "extract":
                return ParserOp(name, ref, source)
            if kind.varbit is None:
                node.fail(f"header type {kind.name!r} has no varbit field")
            return ParserOp("extract_vl", (*ref, expressions.data(args[1])), source)
        if name == "set":
            if args[0].text("type") != "field":
                node.unsupported("a set of something that is not a field", source)
            return ParserOp(name, (self.scope.field(args[0]["value"]), expressions.data(args[1])), source)
        if name == "verify":
            return ParserOp(name, (expressions.condition(args[0]), expressions.data(args[1])), source)
        if name == "advance":
            return ParserOp(name, (expressions.data(args[0]),), source)
        return node.unsupported(f"parser operation {name!r}", source)

    def _extracted(self, node: Node) -> tuple[tuple[Expr, ...], HeaderType]:
        kind, value, scope = node.text("type"), node["value"], self.scope
        if kind == "regular":
            if value.as_(str) not in scope.headers:
                value.fail(f"there is no header {value.value!r}")
            return (Ref("header", value.value),), scope.headers[value.value].type
        if kind == "stack":
            if value.as_(str) not in scope.stacks:
                value.fail(f"there is no header stack {value.value!r}")
            return (Ref("stack", value.value),), scope.stacks[value.value].type
        if kind == "union_stack":
            stack, part = value.pair()
            union = scope.unions[scope.union_stacks[stack].unions[0]] if stack in scope.union_stacks else None
            if union is None or part not in union.members:
                value.fail(f"there is no stack of unions {stack!r} with a header {part!r}")
            header = scope.headers[union.headers[union.members.index(part)]]
            return (Ref("union_stack", stack), Text(part)), header.type
        return node.unsupported(f"an extraction into {kind!r}")
