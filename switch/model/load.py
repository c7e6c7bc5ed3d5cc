"""Reads the JSON that p4c-bm2-ss writes for v1model and checks all of it.

The format is BMv2's (docs/JSON_format.md of its sources), major version 2.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TypeVar

from switch.model.checksums import ALGORITHMS
from switch.model.controls import Action, ActionParam, Deparser, ValueSet
from switch.model.errors import ProgramError
from switch.model.expressions import Const, Expr, FieldRef, Payload
from switch.model.json_reader import Node, looked_up, named
from switch.model.load_expressions import ExpressionLoader, Scope, member
from switch.model.load_headers import load_headers
from switch.model.load_parser import load_parser
from switch.model.load_pipeline import load_pipeline, load_profiles
from switch.model.program import Calculation, Checksum, Counter, FieldList, Meter, Program, Register

T = TypeVar("T")

MAJOR, MINOR = 2, 24  # the newest version that is known to be read right
CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
_NEEDED = ("ingress_port", "packet_length", "instance_type", "egress_spec", "egress_port")


def load_program(text: bytes) -> Program:
    """Reads a program.

    Raises:
        ProgramError, UnsupportedError: see `Program.load`.
    """
    try:
        root = Node(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"not JSON: {error}") from None
    try:
        return _program(root)
    except RecursionError:
        raise ProgramError("expressions in the file are nested too deeply") from None


def _version(root: Node) -> tuple[int, int]:
    if not isinstance(root.value, dict) or not root.has("__meta__"):
        raise ProgramError("not the JSON that p4c-bm2-ss writes: '__meta__' is missing")
    version = root["__meta__"]["version"]
    major, minor = version[0].as_(int), version[1].as_(int)
    if major != MAJOR or minor > MINOR:
        version.fail(f"version {major}.{minor} of the format; {MAJOR}.0 to {MAJOR}.{MINOR} are understood")
    return major, minor


def _program(root: Node) -> Program:
    version = _version(root)
    _check_architecture(root)
    scope = load_headers(root)
    headers = scope.headers
    aliases = {each[0].as_(str): scope.field(each[1]) for each in root.items("field_aliases", needed=False)}
    for name in _NEEDED:
        if not _has_standard(scope, aliases, name):
            root.unsupported(f"an architecture without standard_metadata.{name} (only v1model is)")
    errors = {each[0].as_(str): each[1].within(0, 1 << 31) for each in root.items("errors", needed=False)}
    for name in CORE_ERRORS:
        errors.setdefault(name, max(errors.values(), default=-1) + 1)
    enums = named(
        root.items("enums", needed=False),
        lambda node: {each[0].as_(str): each[1].as_(int) for each in node.items("entries")},
    )
    extern = next(root.items("extern_instances", needed=False), None)
    if extern is not None:
        extern.unsupported(f"extern {extern.text('type')!r}")

    value_sets = named(
        root.items("parse_vsets", needed=False),
        lambda node: ValueSet(
            node.text("name"),
            node["compressed_bitwidth"].width(),
            node.number("max_size") if node.has("max_size") else 1024,
        ),
    )
    registers = named(root.items("register_arrays"), _register)
    counters = named(root.items("counter_arrays"), _counter)
    meters = named(root.items("meter_arrays"), lambda node: _meter(node, scope))
    calculations = named(root.items("calculations"), lambda node: _calculation(node, scope))
    scope.objects.update(
        register=set(registers),
        counter={name for name, each in counters.items() if each.table is None},
        meter=set(meters),
        calculation=set(calculations),
        value_set=set(value_sets),
    )
    learn_lists = _field_lists(root, "learn_lists", scope)
    field_lists = _field_lists(root, "field_lists", scope)
    scope.lists.update(f=set(field_lists), g=set(learn_lists))
    actions = _actions(root, scope)
    expressions = ExpressionLoader(scope)
    pipelines = {each.text("name"): each for each in root.items("pipelines")}
    profiles = {**load_profiles(pipelines["ingress"], scope), **load_profiles(pipelines["egress"], scope)}
    if unknown := [p for p in profiles.values() if p.algorithm is not None and p.algorithm not in ALGORITHMS]:
        root.unsupported(f"hash algorithm {unknown[0].algorithm!r} of action selector {unknown[0].name!r}")
    ingress, egress = (
        load_pipeline(pipelines[name], scope, actions, profiles, meters) for name in ("ingress", "egress")
    )
    deparser = next(each for each in root.items("deparsers") if each.text("name") == "deparser")
    parser = next(each for each in root.items("parsers") if each.text("name") == "parser")
    return Program(
        name=root.name_or_none("program") or "",
        version=version,
        headers=MappingProxyType(headers),
        stacks=MappingProxyType(dict(scope.stacks)),
        unions=MappingProxyType(dict(scope.unions)),
        union_stacks=MappingProxyType(dict(scope.union_stacks)),
        aliases=MappingProxyType(aliases),
        errors=MappingProxyType(errors),
        enums=MappingProxyType(enums),
        parser=load_parser(parser, scope, value_sets),
        value_sets=MappingProxyType(value_sets),
        deparser=_deparser(deparser, scope),
        calculations=MappingProxyType(calculations),
        checksums=tuple(_checksum(each, scope, expressions, calculations) for each in root.items("checksums")),
        registers=MappingProxyType(registers),
        counters=MappingProxyType(counters),
        meters=MappingProxyType(meters),
        actions=MappingProxyType(actions),
        ingress=ingress,
        egress=egress,
        profiles=MappingProxyType(profiles),
        learn_lists=MappingProxyType(learn_lists),
        field_lists=MappingProxyType(field_lists),
    )


def _check_architecture(root: Node) -> None:
    for key, needed in (("parsers", {"parser"}), ("deparsers", {"deparser"}), ("pipelines", {"ingress", "egress"})):
        found = [each.text("name") for each in root.items(key)]
        if set(found) != needed:
            root.unsupported(
                f"an architecture whose {key} are {', '.join(found) or 'none'} "
                f"(only v1model, with {', '.join(sorted(needed))}, is)"
            )


def _has_standard(scope: Scope, aliases: dict[str, FieldRef], name: str) -> bool:
    if f"standard_metadata.{name}" in aliases:
        return True
    header = scope.headers.get("standard_metadata")
    return header is not None and header.type.index(name) is not None


def _register(node: Node) -> Register:
    return Register(node.text("name"), node.number("size"), node["bitwidth"].width(), node.source())


def _counter(node: Node) -> Counter:
    direct = node.flag("is_direct")
    size = 0 if direct else node.number("size")
    return Counter(node.text("name"), size, node.text("binding") if direct else None, node.source())


def _meter(node: Node, scope: Scope) -> Meter:
    unit = node.text("type")
    if unit not in ("packets", "bytes"):
        node["type"].fail(f"a meter counts packets or bytes, not {unit!r}")
    direct = node.flag("is_direct")
    result = scope.field(node["result_target"]) if direct else None
    rates = node.number("rate_count", 1, 16)
    size, table = node.number("size"), node.text("binding") if direct else None
    return Meter(node.text("name"), size, unit, rates, table, result, node.source())  # type: ignore[arg-type]


def _calculation(node: Node, scope: Scope) -> Calculation:
    algorithm = node.text("algo")
    if algorithm not in ALGORITHMS:
        node.unsupported(f"hash algorithm {algorithm!r}")
    inputs: list[Expr] = []
    expressions = ExpressionLoader(scope)
    for each in node.items("input"):
        kind = each.text("type")
        if kind == "payload":
            inputs.append(Payload())
        elif kind in ("field", "header"):
            inputs.append(expressions.expression(each)[1])
        elif kind == "hexstr":
            inputs.append(Const(each["value"].hex(), each["bitwidth"].width()))
        else:
            each.unsupported(f"an input of type {kind!r} of a calculation", node.source())
    return Calculation(node.text("name"), algorithm, tuple(inputs), node.source())


def _checksum(
    node: Node, scope: Scope, expressions: ExpressionLoader, calculations: dict[str, Calculation]
) -> Checksum:
    if node.text("type") != "generic":
        node.unsupported(f"a checksum of type {node.text('type')!r}")
    looked_up(node, "calculation", calculations)
    condition = expressions.condition(node["if_cond"]) if node.has("if_cond") else None
    return Checksum(
        node.text("name"),
        scope.field(node["target"]),
        node.text("calculation"),
        node.flag("update", True),
        node.flag("verify", True),
        condition,
        node.source(),
    )


def _field_lists(root: Node, key: str, scope: Scope) -> dict[int, FieldList]:
    found: dict[int, FieldList] = {}
    for node in root.items(key, needed=False):
        fields: list[FieldRef | Const] = []
        for each in node.items("elements"):
            if each.text("type") == "hexstr":
                fields.append(Const(each["value"].hex(), each["bitwidth"].width() if each.has("bitwidth") else 0))
            elif each.text("type") == "field":
                ref = scope.field(each["value"])
                member(each, scope.headers[ref.header].type, ref.field)
                fields.append(ref)
            else:
                each.unsupported(f"a {each.text('type')} in a field list", node.source())
        number = node.number("id")
        if number in found:
            node.fail(f"the id {number} is there twice")
        found[number] = FieldList(node.text("name"), number, tuple(fields))
    return found


def _actions(root: Node, scope: Scope) -> dict[int, Action]:
    found: dict[int, Action] = {}
    for node in root.items("actions"):
        number = node.number("id")
        if number in found:
            node.fail(f"the id {number} is there twice")
        params = tuple(ActionParam(each.text("name"), each["bitwidth"].width()) for each in node.items("runtime_data"))
        expressions = ExpressionLoader(scope, params)
        body = tuple(expressions.primitive(each) for each in node.items("primitives"))
        for place, each in enumerate(body):
            target = each.args[-1] if each.op.startswith("_jump") else None
            if isinstance(target, Const) and not 0 <= target.value <= len(body):
                node.fail(f"primitive {place} jumps out of the action, to {target.value}")
        found[number] = Action(node.text("name"), number, params, body, node.source())
    return found


def _deparser(node: Node, scope: Scope) -> Deparser:
    order = []
    for each in node.items("order"):
        if each.as_(str) not in scope.headers:
            each.fail(f"there is no header {each.value!r}")
        order.append(each.value)
    expressions = ExpressionLoader(scope)
    body = tuple(expressions.primitive(each) for each in node.items("primitives", needed=False))
    return Deparser(node.text("name"), tuple(order), body)
