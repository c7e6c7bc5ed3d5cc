"""Header types, headers, stacks and unions of BMv2's JSON."""

from __future__ import annotations

from switch.model.json_reader import Node, T, looked_up, named
from switch.model.load_expressions import Scope
from switch.model.program import Field, Header, HeaderType, Stack, Union, UnionStack


def load_headers(root: Node) -> Scope:
    """Reads all instances that can hold fields, for references to them."""
    types = named(root.items("header_types"), _header_type)
    by_id: dict[int, Header] = {}

    def header(node: Node) -> Header:
        found = Header(node.text("name"), looked_up(node, "header_type", types), node.flag("metadata"))
        if not found.metadata and found.type.fixed_bits % 8:
            node.fail(f"a header of {found.type.fixed_bits} bits does not end at a byte")
        number = node.number("id")
        if number in by_id:
            node.fail(f"the id {number} is there twice")
        by_id[number] = found
        return found

    headers = named(root.items("headers"), header)
    return _compound(root, types, headers, by_id)


def _header_type(node: Node) -> HeaderType:
    fields: list[Field] = []
    longest = node.number("max_length") if node.has("max_length") else 0
    if node.has("length_exp"):
        node.unsupported("a header type that computes its own length (length_exp, from P4_14)")
    for each in node.items("fields"):
        values = each.as_(list)
        name = each[0].as_(str)
        if any(name == other.name for other in fields):
            each.fail(f"the field {name!r} is there twice")
        signed = len(values) > 2 and bool(values[2])
        saturating = len(values) > 3 and bool(values[3])
        if values[1:2] == ["*"]:
            if any(other.varbit for other in fields):
                each.fail("a header has at most one varbit field")
            fields.append(Field(name, 0, signed, True))
        else:
            fields.append(Field(name, each[1].width(), signed, False, saturating))
    bits = sum(each.width for each in fields)
    return HeaderType(
        node.text("name"),
        tuple(
            Field(each.name, max(0, longest * 8 - bits), each.signed, True) if each.varbit else each for each in fields
        ),
        longest,
    )


def _compound(root: Node, types: dict[str, HeaderType], headers: dict[str, Header], by_id: dict[int, Header]) -> Scope:
    """Stacks, unions and stacks of unions, which refer to headers by number."""

    def elements(node: Node, key: str, numbers: dict[int, T]) -> list[T]:
        found = []
        for each in node.items(key):
            if each.as_(int) not in numbers:
                each.fail(f"there is nothing with id {each.value}")
            found.append(numbers[each.value])
        if not found:
            node.fail(f"{key} is empty")
        return found

    def members_of(node: Node) -> list[Header]:
        """The headers of a stack or union; metadata, which is always valid, cannot be one."""
        found = elements(node, "header_ids", by_id)
        for each in found:
            if each.metadata:
                node.fail(f"{each.name} is metadata, so it cannot be in a stack or union")
        return found

    def stack(node: Node) -> Stack:
        kind = looked_up(node, "header_type", types)
        found = members_of(node)
        if any(each.type is not kind for each in found):
            node.fail("elements of a stack must be of its type")
        return Stack(node.text("name"), kind, tuple(each.name for each in found))

    stacks = named(root.items("header_stacks"), stack)
    union_types = named(
        root.items("header_union_types", needed=False),
        lambda node: tuple(each.pair() for each in node.items("headers")),
    )
    unions_by_id: dict[int, Union] = {}

    def union(node: Node) -> Union:
        members = looked_up(node, "union_type", union_types)
        found = members_of(node)
        if [each.type.name for each in found] != [kind for _, kind in members]:
            node.fail("members of a union must be of its type")
        made = Union(node.text("name"), tuple(name for name, _ in members), tuple(each.name for each in found))
        unions_by_id[node.number("id")] = made
        return made

    unions = named(root.items("header_unions", needed=False), union)
    union_stacks = named(
        root.items("header_union_stacks", needed=False),
        lambda node: UnionStack(
            node.text("name"), tuple(each.name for each in elements(node, "header_union_ids", unions_by_id))
        ),
    )
    return Scope(headers, stacks, unions, union_stacks)
