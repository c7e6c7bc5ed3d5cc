"""Joins p4info with the compiled program, or says why they do not belong together."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from switch.model.program import Program
from switch.model.state import SwitchState
from switch.p4runtime.errors import P4RuntimeError, invalid
from switch.p4runtime.messages import p4info_pb2
from switch.p4runtime.p4data import DataCodec
from switch.p4runtime.schema import (
    ActionInfo,
    ArrayInfo,
    FieldInfo,
    ProfileInfo,
    Schema,
    TableInfo,
    TypedInfo,
    ValueSetInfo,
)

T = TypeVar("T")

# What kind of key in the compiled program each match type of p4info may be.
_KINDS: Final = {
    "EXACT": ("exact", "valid"),
    "LPM": ("lpm",),
    "TERNARY": ("ternary",),
    "RANGE": ("range",),
    "OPTIONAL": ("ternary", "optional"),
}


def build_schema(p4info: Any, program: Program, state: SwitchState) -> Schema:
    """Joins p4info with the program.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT; they do not belong together. The text names what does not fit.
    """
    return _Joiner(p4info, program, state).join()


class _Joiner:
    def __init__(self, p4info: Any, program: Program, state: SwitchState) -> None:
        self._p4info, self._program, self._state = p4info, program, state
        self._schema = Schema(p4info)
        self._actions: dict[int, Any] = {action.preamble.id: action for action in p4info.actions}
        self._seen: dict[int, str] = {}

    def join(self) -> Schema:
        info, schema, state = self._p4info, self._schema, self._state
        self._check_numbers()
        for counter in info.direct_counters:
            schema.direct_counters[counter.preamble.id] = self._direct(counter, "direct counter", state.direct_counters)
        for meter in info.direct_meters:
            schema.direct_meters[meter.preamble.id] = self._direct(meter, "direct meter", state.direct_meters)
        for table in info.tables:
            if not table.match_fields and table.preamble.name not in state.tables:
                continue  # p4c replaces tables without a key, with one constant action, by a call of it
            schema.tables[table.preamble.id] = self._table(table)
        for profile in info.action_profiles:
            schema.profiles[profile.preamble.id] = self._profile(profile)
        for table in schema.tables.values():
            if table.profile and table.profile not in schema.profiles:
                raise invalid(f"table {table.name}: p4info has no action profile with id {table.profile}")
        for counter in info.counters:
            schema.counters[counter.preamble.id] = self._array(counter, "counter", state.counters)
        for meter in info.meters:
            schema.meters[meter.preamble.id] = self._array(meter, "meter", state.meters)
        for register in info.registers:
            schema.registers[register.preamble.id] = self._register(register)
        for digest in info.digests:
            schema.digests[digest.preamble.id] = self._digest(digest)
        for values in info.value_sets:
            schema.value_sets[values.preamble.id] = self._value_set(values)
        for header in info.controller_packet_metadata:
            fields = tuple(self._field(each, header.preamble.name) for each in header.metadata)
            if header.preamble.name == "packet_in":
                schema.packet_in = fields
            elif header.preamble.name == "packet_out":
                schema.packet_out = fields
        self._check_complete()
        return schema

    def _check_complete(self) -> None:
        """Whether p4info has everything that the program has; p4c makes tables of its own, which it hides."""
        info, state = self._p4info, self._state
        learned = [learned.name for learned in self._program.learn_lists.values()]
        kinds: list[tuple[str, Iterable[str], Iterable[Any]]] = [
            ("register", state.registers, info.registers),
            ("counter", state.counters, info.counters),
            ("meter", state.meters, info.meters),
            ("direct counter", state.direct_counters, info.direct_counters),
            ("direct meter", state.direct_meters, info.direct_meters),
            ("action profile", state.profiles, info.action_profiles),
            ("digest", learned, info.digests),
            ("value set", self._program.value_sets, info.value_sets),
        ]
        for kind, names, described in kinds:
            known = {each.preamble.name for each in described}
            for name in names:
                if name not in known:
                    raise invalid(f"the program has {kind} {name}, which p4info has not; it has {_names(known)}")

    def _check_numbers(self) -> None:
        info = self._p4info
        named: list[Iterable[Any]] = [
            info.tables,
            info.actions,
            info.action_profiles,
            info.counters,
            info.direct_counters,
            info.meters,
            info.direct_meters,
            info.controller_packet_metadata,
            info.value_sets,
            info.registers,
            info.digests,
        ]
        for each in (each for group in named for each in group):
            number, name = each.preamble.id, each.preamble.name
            if not number:
                raise invalid(f"p4info: {name or 'an object'} has no id")
            if number in self._seen:
                raise invalid(f"p4info: {name} and {self._seen[number]} have the same id {number}")
            self._seen[number] = name

    def _field(self, each: Any, where: str, match: str = "", width: int = 0) -> FieldInfo:
        text = False
        if each.HasField("type_name"):
            new_type = self._p4info.type_info.new_types.get(each.type_name.name)
            if new_type is not None and new_type.WhichOneof("representation") == "translated_type":
                text = new_type.translated_type.WhichOneof("sdn_type") == "sdn_string"
        width = each.bitwidth or width  # p4c writes none for keys of type error
        if width < 1 and not text:
            raise invalid(f"p4info: {where}: {each.name} has no bit width")
        return FieldInfo(each.id, each.name, width, match, text)

    def _translated(self, each: Any) -> bool:
        if not each.HasField("type_name"):
            return False
        new_type = self._p4info.type_info.new_types.get(each.type_name.name)
        return new_type is not None and new_type.WhichOneof("representation") == "translated_type"

    def _check_width(self, each: Any, width: int, where: str) -> None:
        if each.bitwidth not in (0, width) and not self._translated(each):
            raise invalid(f"{where}: {each.name} has {each.bitwidth} bits in p4info, {width} in the program")

    def _known(self, found: Mapping[str, T], name: str, kind: str) -> T:
        try:
            return found[name]
        except KeyError:
            raise invalid(f"p4info has {kind} {name}, which the program has not; it has {_names(found)}") from None

    def _table(self, info: Any) -> TableInfo:
        name = info.preamble.name
        table = self._known(self._state.tables, name, "table")
        fields = []
        by_name = {each.name: each for each in info.match_fields}
        keys = {key.name: key for key in table.keys}
        if by_name.keys() != keys.keys():
            raise invalid(f"table {name}: its key is {_names(by_name)} in p4info, {_names(keys)} in the program")
        for key in table.keys:
            each = by_name[key.name]
            match = _match_name(each.match_type)
            if key.kind not in _KINDS.get(match, ()):
                raise invalid(f"table {name}: {key.name} is {match} in p4info, {key.kind} in the program")
            self._check_width(each, key.width, f"table {name}")
            fields.append(self._field(each, f"table {name}", match, key.width))
        actions = {}
        program_actions = {action.name: action for action in table.actions}
        for ref in info.action_refs:
            action = self._action(ref.id, f"table {name}")
            if action.name not in program_actions:
                raise invalid(
                    f"table {name}: p4info has action {action.name}; the program has {_names(program_actions)}"
                )
            actions[ref.id] = (self._ordered(action, program_actions[action.name].parameters), ref.scope)
        profile = info.implementation_id
        if bool(profile) != (table.profile is not None):
            has = "an" if profile else "no"
            raise invalid(f"table {name} has {has} action profile in p4info, which is not so in the program")
        direct = set(info.direct_resource_ids)
        return TableInfo(
            info.preamble.id,
            name,
            tuple(fields),
            actions,
            {action.name: number for number, (action, _) in actions.items()},
            profile,
            self._direct_of(direct, self._schema.direct_counters, table.has_counter, name, "direct counter"),
            self._direct_of(direct, self._schema.direct_meters, table.meter is not None, name, "direct meter"),
            table.support_timeout,
        )

    def _direct_of(
        self, numbers: set[int], found: Mapping[int, ArrayInfo], is_there: bool, table: str, kind: str
    ) -> int:
        number = next((number for number in numbers if number in found), 0)
        if number and not is_there:
            raise invalid(f"table {table} has {kind} {found[number].name} in p4info, none in the program")
        return number

    def _action(self, number: int, where: str) -> ActionInfo:
        if number not in self._actions:
            raise invalid(f"{where}: p4info has no action with id {number}")
        action = self._actions[number]
        name = action.preamble.name
        return ActionInfo(number, name, tuple(self._field(each, f"action {name}") for each in action.params))

    def _ordered(self, action: ActionInfo, parameters: tuple[tuple[str, int], ...]) -> ActionInfo:
        given = {each.name: each for each in self._actions[action.number].params}
        if given.keys() != {name for name, _ in parameters}:
            expected = ", ".join(name for name, _ in parameters) or "none"
            raise invalid(
                f"action {action.name}: its parameters are {_names(given)} in p4info, {expected} in the program"
            )
        for name, width in parameters:
            self._check_width(given[name], width, f"action {action.name}")
        by_name = {param.name: param for param in action.params}
        return ActionInfo(action.number, action.name, tuple(by_name[name] for name, _ in parameters))

    def _profile(self, info: Any) -> ProfileInfo:
        name = info.preamble.name
        profile = self._known(self._state.profiles, name, "action profile")
        if info.with_selector != profile.selector:
            raise invalid(
                f"action profile {name} has a selector in {'p4info' if info.with_selector else 'the program'} only"
            )
        users = [self._schema.tables[number] for number in info.table_ids if number in self._schema.tables]
        actions = {number: action for table in users for number, (action, _) in table.actions.items()}
        return ProfileInfo(
            info.preamble.id,
            name,
            info.with_selector,
            info.size,
            info.max_group_size,
            info.WhichOneof("selector_size_semantics") != "sum_of_members",
            info.sum_of_members.max_member_weight,
            tuple(info.table_ids),
            actions,
            {action.name: number for number, action in actions.items()},
        )

    def _direct(self, info: Any, kind: str, found: Mapping[str, Any]) -> ArrayInfo:
        self._known(found, info.preamble.name, kind)
        type_ = info.spec.type if kind == "direct meter" else 0
        return ArrayInfo(info.preamble.id, info.preamble.name, info.direct_table_id, type_)

    def _array(self, info: Any, kind: str, found: Mapping[str, Any]) -> ArrayInfo:
        self._check_size(info, kind, len(self._known(found, info.preamble.name, kind)))
        return ArrayInfo(info.preamble.id, info.preamble.name, type=info.spec.type if kind == "meter" else 0)

    def _check_size(self, info: Any, kind: str, size: int) -> None:
        if info.size != size:
            raise invalid(f"{kind} {info.preamble.name} has size {info.size} in p4info, {size} in the program")

    def _codec(self, info: Any, where: str) -> DataCodec:
        try:
            return DataCodec(info.type_spec, self._p4info.type_info, where)
        except P4RuntimeError as error:
            raise invalid(f"p4info: {error}") from None

    def _register(self, info: Any) -> TypedInfo:
        name = info.preamble.name
        register = self._known(self._state.registers, name, "register")
        self._check_size(info, "register", len(register))
        codec = self._codec(info, f"register {name}")
        if codec.widths is not None and codec.widths != (register.width,):
            bits = ", ".join(map(str, codec.widths))
            raise invalid(f"register {name} has cells of {bits} bits in p4info, {register.width} in the program")
        return TypedInfo(info.preamble.id, name, codec)

    def _digest(self, info: Any) -> TypedInfo:
        name = info.preamble.name
        lists = {learned.name: learned for learned in self._program.learn_lists.values()}
        learned = self._known(lists, name, "digest")
        codec = self._codec(info, f"digest {name}")
        if codec.widths is not None and len(codec.widths) != len(learned.fields):
            raise invalid(
                f"digest {name} has {len(codec.widths)} fields in p4info, {len(learned.fields)} in the program"
            )
        return TypedInfo(info.preamble.id, name, codec)

    def _value_set(self, info: Any) -> ValueSetInfo:
        name = info.preamble.name
        declared = self._known(self._program.value_sets, name, "value set")
        fields = tuple(self._field(each, f"value set {name}", _match_name(each.match_type)) for each in info.match)
        width = sum(each.width for each in fields)
        if width != declared.width:
            raise invalid(f"value set {name} has {width} bits in p4info, {declared.width} in the program")
        return ValueSetInfo(info.preamble.id, name, fields, info.size)


def _match_name(number: int) -> str:
    known = p4info_pb2.MatchField.MatchType.values()
    return str(p4info_pb2.MatchField.MatchType.Name(number) if number in known else number)


def _names(found: Iterable[str]) -> str:
    names = sorted(found)
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more or "none"
