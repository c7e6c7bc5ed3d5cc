"""Match kinds, and the rule by which each matches one field of a key."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from switch.model.errors import InvalidError


class MatchKind(StrEnum):
    """How a field of a key is matched, by the name that p4c writes."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"
    VALID = "valid"


# Tables with a field of these kinds need a priority for each entry: several entries can match the same key.
PRIORITY_KINDS: Final = frozenset({MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL})


@dataclass(frozen=True, slots=True)
class Exact:
    """Matches one value: exact and valid fields (0 or 1), and optional fields that are cared about."""

    value: int


@dataclass(frozen=True, slots=True)
class Lpm:
    """Matches the upper `prefix` bits of `value`, whose other bits are 0."""

    value: int
    prefix: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """Matches the bits that are set in `mask`; `value` has no others."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """Matches `low` to `high`, both included."""

    low: int
    high: int


Match = Exact | Lpm | Ternary | Range | None  # None: do not care


@dataclass(frozen=True, slots=True)
class KeyField:
    """One field of a table's key.

    Attributes:
        name: as in the P4 source, or as its annotation says.
        width: in bits.
        mask: bits of the field that are part of the key; None: all.
    """

    name: str
    kind: MatchKind
    width: int
    mask: int | None = None


def fits(value: int, width: int) -> bool:
    """Whether an unsigned number has room in so many bits."""
    return value >= 0 and value.bit_length() <= width


def prefix_mask(prefix: int, width: int) -> int:
    """A mask of `width` bits whose upper `prefix` bits are set."""
    return ((1 << prefix) - 1) << (width - prefix)


_CLASSES: Final[dict[MatchKind, type[Exact] | type[Lpm] | type[Ternary] | type[Range]]] = {
    MatchKind.EXACT: Exact,
    MatchKind.VALID: Exact,
    MatchKind.OPTIONAL: Exact,
    MatchKind.LPM: Lpm,
    MatchKind.TERNARY: Ternary,
    MatchKind.RANGE: Range,
}


def checked(match: Match, field: KeyField, table: str) -> Match:
    """The match in its one canonical form: what matches every value is None.

    Raises:
        InvalidError: it does not fit the field.
    """
    where = f"table {table}: field {field.name}"
    if match is None:
        if field.kind in (MatchKind.EXACT, MatchKind.VALID):
            raise InvalidError(f"{where}: {field.kind} match needs a value, got none")
        return None
    if isinstance(match, Exact) and field.kind is MatchKind.TERNARY:
        match = Ternary(
            match.value, max(match.value, (1 << field.width) - 1)
        )  # p4c makes ternary fields of optional ones
    expected = _CLASSES[field.kind]
    if not isinstance(match, expected):
        raise InvalidError(f"{where}: expected {field.kind} match, got {type(match).__name__.lower()}")
    width = field.width
    for value in (match.low, match.high) if isinstance(match, Range) else (match.value,):
        if not fits(value, width):
            raise InvalidError(f"{where}: value {value:#x} does not fit {width} bits")
    if isinstance(match, Lpm):
        if not 0 <= match.prefix <= width:
            raise InvalidError(f"{where}: prefix length {match.prefix} is not between 0 and {width}")
        if match.value & ~prefix_mask(match.prefix, width):
            raise InvalidError(f"{where}: value {match.value:#x} has bits set beyond its prefix of {match.prefix} bits")
        return match if match.prefix else None
    if isinstance(match, Ternary):
        if not fits(match.mask, width):
            raise InvalidError(f"{where}: mask {match.mask:#x} does not fit {width} bits")
        if match.value & ~match.mask:
            raise InvalidError(f"{where}: value {match.value:#x} has bits set outside its mask {match.mask:#x}")
        return match if match.mask else None
    if isinstance(match, Range):
        if match.low > match.high:
            raise InvalidError(f"{where}: range {match.low:#x} to {match.high:#x} is empty")
        return match if (match.low, match.high) != (0, (1 << width) - 1) else None
    return match if field.mask is None else Exact(match.value & field.mask)


def as_mask(match: Match, field: KeyField) -> tuple[int, int]:
    """(value, mask) that says the same; the whole field is cared about where the match is a range."""
    everything = (1 << field.width) - 1 if field.mask is None else field.mask
    if match is None:
        return 0, 0
    if isinstance(match, Range):
        raise TypeError("a range has no mask")
    if isinstance(match, Exact):
        mask = everything
    elif isinstance(match, Lpm):
        mask = prefix_mask(match.prefix, field.width) & everything
    else:
        mask = match.mask & everything
    return match.value & mask, mask


def matches(match: Match, value: int, field: KeyField) -> bool:
    """Whether a value of the field matches: the rule itself, which tables look up by faster means."""
    if isinstance(match, Range):
        return match.low <= value <= match.high
    wanted, mask = as_mask(match, field)
    return value & mask == wanted
