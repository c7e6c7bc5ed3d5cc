"""What a pipeline consists of, by P4Runtime's numbers, with the names and orders of the program beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from switch.p4runtime.errors import invalid, unimplemented
from switch.p4runtime.p4data import DataCodec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldInfo:
    """A field of a key, a parameter of an action, or a field of a packet's metadata.

    Attributes:
        number: its id.
        width: bits, as P4Runtime has it.
        match: EXACT, LPM, TERNARY, RANGE or OPTIONAL; "" if it is no key.
        text: whether values are text of the controller's world, which nobody here can translate.
    """

    number: int
    name: str
    width: int
    match: str = ""
    text: bool = False

    def check_number(self, where: str) -> None:
        """Refuses a field whose values are no numbers.

        Raises:
            P4RuntimeError: UNIMPLEMENTED.
        """
        if self.text:
            raise unimplemented(f"{where}: {self.name} is translated from text (sdn_string), which is not supported")


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action; `params` in the order in which the program takes them."""

    number: int
    name: str
    params: tuple[FieldInfo, ...]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table.

    Attributes:
        fields: in the order of the program's key.
        actions: by number, with their scope as in p4info.
        action_numbers: by name.
        profile: number of the action profile, or 0.
        counter, meter: numbers of the direct ones, or 0.
    """

    number: int
    name: str
    fields: tuple[FieldInfo, ...]
    actions: Mapping[int, tuple[ActionInfo, int]]
    action_numbers: Mapping[str, int]
    profile: int
    counter: int
    meter: int
    idle_timeout: bool


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """An action profile; `sizes_by_weight`: limits are for sums of weights and not for numbers of members."""

    number: int
    name: str
    selector: bool
    size: int
    max_group_size: int
    sizes_by_weight: bool
    max_member_weight: int
    tables: tuple[int, ...]
    actions: Mapping[int, ActionInfo]
    action_numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A counter or meter. `type`: a meter's MeterSpec.Type."""

    number: int
    name: str
    table: int = 0
    type: int = 0


@dataclass(frozen=True, slots=True)
class TypedInfo:
    """A register or a digest, with the codec of its data."""

    number: int
    name: str
    codec: DataCodec


@dataclass(frozen=True, slots=True)
class ValueSetInfo:
    """A parser value set; all fields side by side make one number of the program."""

    number: int
    name: str
    fields: tuple[FieldInfo, ...]
    size: int


@dataclass(slots=True)
class Schema:
    """Everything by P4Runtime's numbers."""

    p4info: Any
    tables: dict[int, TableInfo] = field(default_factory=dict)
    profiles: dict[int, ProfileInfo] = field(default_factory=dict)
    counters: dict[int, ArrayInfo] = field(default_factory=dict)
    meters: dict[int, ArrayInfo] = field(default_factory=dict)
    direct_counters: dict[int, ArrayInfo] = field(default_factory=dict)
    direct_meters: dict[int, ArrayInfo] = field(default_factory=dict)
    registers: dict[int, TypedInfo] = field(default_factory=dict)
    digests: dict[int, TypedInfo] = field(default_factory=dict)
    value_sets: dict[int, ValueSetInfo] = field(default_factory=dict)
    packet_in: tuple[FieldInfo, ...] | None = None
    packet_out: tuple[FieldInfo, ...] | None = None


def lookup(found: Mapping[int, T], number: int, kind: str) -> T:
    """What there is under a number.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT; there is nothing.
    """
    try:
        return found[number]
    except KeyError:
        raise invalid(f"there is no {kind} with id {number}") from None
