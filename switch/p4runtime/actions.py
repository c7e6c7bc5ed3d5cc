"""Keys and actions, between P4Runtime's messages and the terms of the program."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from switch.model.matching import Exact, Lpm, Match, Range, Ternary
from switch.p4runtime import bytestrings
from switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.schema import ActionInfo, FieldInfo, TableInfo

Undo = Callable[[], None]  # takes a write back; called before anything else is written

INSERT: Final = p4runtime_pb2.Update.INSERT
MODIFY: Final = p4runtime_pb2.Update.MODIFY
DELETE: Final = p4runtime_pb2.Update.DELETE


def check_modify(type_: int, what: str) -> None:
    """Refuses other types of update.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT.
    """
    if type_ != MODIFY:
        raise invalid(f"{what} can only be modified, not inserted or deleted")


def decode_key(fields: Iterable[FieldInfo], given: Iterable[Any], where: str) -> list[Match]:
    """The matches for a key's fields in the program's order; None where the client does not care.

    Raises:
        P4RuntimeError: a field is missing, stands twice, is unknown, of another match type, or breaks the rules of the
            specification's section 9.1.1.
    """
    by_number: dict[int, Any] = {}
    for match in given:
        if match.field_id in by_number:
            raise invalid(f"{where}: match field {match.field_id} stands twice")
        by_number[match.field_id] = match
    found: list[Match] = []
    for field in fields:
        match = by_number.pop(field.number, None)
        if match is None and field.match == "EXACT":
            raise invalid(f"{where}: exact match field {field.name} is missing")
        found.append(None if match is None else _decode_match(field, match, f"{where}: {field.name}"))
    if by_number:
        raise invalid(f"{where}: there is no match field with id {next(iter(by_number))}")
    return found


def _decode_match(field: FieldInfo, match: Any, where: str) -> Match:
    kind = match.WhichOneof("field_match_type")
    if kind != field.match.lower():
        raise invalid(f"{where}: expected {field.match} match, got {(kind or 'none').upper()}")
    field.check_number(where)
    width = field.width
    if kind == "exact":
        return Exact(bytestrings.decode(match.exact.value, width, where))
    if kind == "optional":
        return Exact(bytestrings.decode(match.optional.value, width, where))
    if kind == "lpm":
        prefix = match.lpm.prefix_len
        if not 1 <= prefix <= width:
            hint = "; leave the field out to match everything" if not prefix else ""
            raise invalid(f"{where}: prefix length {prefix} is not between 1 and {width}{hint}")
        value = bytestrings.decode(match.lpm.value, width, where)
        if value & (1 << (width - prefix)) - 1:
            raise invalid(f"{where}: value {value:#x} has bits set beyond its prefix of {prefix} bits")
        return Lpm(value, prefix)
    if kind == "ternary":
        mask = bytestrings.decode(match.ternary.mask, width, f"{where}: mask")
        value = bytestrings.decode(match.ternary.value, width, where)
        if not mask:
            raise invalid(f"{where}: mask is 0; leave the field out to match everything")
        if value & ~mask:
            raise invalid(f"{where}: value {value:#x} has bits set outside its mask {mask:#x}")
        return Ternary(value, mask)
    low = bytestrings.decode(match.range.low, width, f"{where}: low")
    high = bytestrings.decode(match.range.high, width, f"{where}: high")
    if low > high:
        raise invalid(f"{where}: range {low:#x} to {high:#x} is empty")
    if low == 0 and high == (1 << width) - 1:
        raise invalid(f"{where}: the range contains every value; leave the field out to match everything")
    return Range(low, high)


def encode_key(fields: Iterable[FieldInfo], matches: Iterable[Match], message: Any) -> None:
    """Adds the matches to a repeated field; those that do not care are left out."""
    encode = bytestrings.encode
    for field, match in zip(fields, matches, strict=True):
        if match is None:
            continue
        added = message.add(field_id=field.number)
        if field.match == "EXACT" and isinstance(match, Exact):
            added.exact.value = encode(match.value)
        elif field.match == "OPTIONAL" and isinstance(match, Exact | Ternary):
            added.optional.value = encode(match.value)
        elif isinstance(match, Lpm):
            added.lpm.value, added.lpm.prefix_len = encode(match.value), match.prefix
        elif isinstance(match, Ternary):
            added.ternary.value, added.ternary.mask = encode(match.value), encode(match.mask)
        elif isinstance(match, Range):
            added.range.low, added.range.high = encode(match.low), encode(match.high)
        else:
            raise TypeError(f"{field.name}: {match} for a {field.match} field")


def decode_action(action: ActionInfo, message: Any, where: str) -> tuple[int, ...]:
    """The arguments in the program's order.

    Raises:
        P4RuntimeError: one is missing, stands twice, is unknown, or does not fit.
    """
    given: dict[int, bytes] = {}
    for param in message.params:
        if param.param_id in given:
            raise invalid(f"{where}: parameter {param.param_id} of action {action.name} stands twice")
        given[param.param_id] = param.value
    args = []
    for info in action.params:
        what = f"{where}: parameter {info.name} of action {action.name}"
        if info.number not in given:
            raise invalid(f"{what} is missing")
        info.check_number(what)
        args.append(bytestrings.decode(given.pop(info.number), info.width, what))
    if given:
        raise invalid(f"{where}: action {action.name} has no parameter with id {next(iter(given))}")
    return tuple(args)


def encode_action(action: ActionInfo, args: Iterable[int], message: Any) -> None:
    """Writes an action with its arguments into a message, parameters in the order of their numbers."""
    message.action_id = action.number
    pairs = sorted((param.number, value) for param, value in zip(action.params, args, strict=True))
    for number, value in pairs:
        message.params.add(param_id=number, value=bytestrings.encode(value))


def action_of(table: TableInfo, number: int, where: str) -> tuple[ActionInfo, int]:
    """An action of a table, with its scope.

    Raises:
        P4RuntimeError: the table has no such action.
    """
    if number not in table.actions:
        raise invalid(f"{where}: the table has no action with id {number}; {_listed(table.action_numbers)}")
    return table.actions[number]


def _listed(numbers: Mapping[str, int]) -> str:
    return "it has " + (", ".join(f"{name} ({number})" for name, number in numbers.items()) or "none")


def refuse_meter_counters(message: Any, member: str, where: str) -> None:
    """Refuses counters by colour.

    Raises:
        P4RuntimeError: UNIMPLEMENTED; they are set.
    """
    if message.HasField(member):
        raise unimplemented(f"{where}: packets of each meter colour are not counted")


def checked_index(message: Any, size: int, where: str) -> int | None:
    """The index of a cell; None: all of them.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT, it is negative; OUT_OF_RANGE.
    """
    if not message.HasField("index"):
        return None
    index = int(message.index.index)
    if index < 0:
        raise invalid(f"{where}: index {index} is negative")
    if index >= size:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{where}: index {index} is not between 0 and {size - 1}")
    return index
