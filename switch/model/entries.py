"""Entries of tables, and structures that find the entry for a key.

- exact keys: one dictionary;
- a longest-prefix field: a dictionary for each prefix length in use, longest first;
- ternary and optional fields: a dictionary for each combination of masks in use, highest priority first;
- range fields: a list in the order of priority.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from switch.model.externs import MeterCell
from switch.model.matching import PRIORITY_KINDS, KeyField, Lpm, Match, MatchKind, as_mask, matches
from switch.model.profiles import Group, Member

Key = tuple[int, ...]
NO_ACTION = -1  # index of the action of an entry that does nothing: an empty group, a table without default action


class Entry:
    """One entry of one table; its identity is the object.

    Attributes:
        matches: one for each field of the key, in canonical form: what matches everything is None.
        priority: the larger wins; 0 in tables whose keys need none. Among equals the lowest handle wins, as in BMv2.
        action: index into the table's actions, or NO_ACTION; of the last choice where it refers to a group.
        hit: False for the default entry.
        packets, bytes: the direct counter, if the table has one.
        meter: the direct meter, if the table has one.
        last_hit: seconds, kept by compiled programs for tables with idle time-outs.
        timeout: idle time-out in seconds; 0: none.
        handle: BMv2's: the lowest number that was free.
        member, group: what an entry of an indirect table refers to.
        metadata: for the control plane to keep what it likes.
    """

    __slots__ = (
        "action",
        "args",
        "bytes",
        "group",
        "handle",
        "hit",
        "is_const",
        "last_hit",
        "matches",
        "member",
        "metadata",
        "meter",
        "packets",
        "priority",
        "timeout",
    )

    def __init__(
        self,
        entry_matches: tuple[Match, ...] = (),
        *,
        priority: int = 0,
        action: int = NO_ACTION,
        args: tuple[int, ...] = (),
        hit: bool = True,
        is_const: bool = False,
    ) -> None:
        self.matches, self.priority, self.action, self.args = entry_matches, priority, action, args
        self.hit, self.is_const = hit, is_const
        self.packets = self.bytes = 0
        self.meter: MeterCell | None = None
        self.last_hit = self.timeout = 0.0
        self.handle = -1
        self.member: Member | None = None
        self.group: Group | None = None
        self.metadata: Any = None


class Index(Protocol):
    """Finds the entry that wins for a key."""

    find: Callable[[Key], Entry | None]

    def add(self, entry: Entry) -> None:
        """Takes an entry in."""

    def remove(self, entry: Entry) -> None:
        """Takes an entry out again."""


def index_for(keys: Sequence[KeyField]) -> Index:
    """What finds entries for keys of these fields."""
    kinds = {field.kind for field in keys}
    if MatchKind.RANGE in kinds:
        return _RangeIndex(keys)
    if kinds & PRIORITY_KINDS:
        return _TernaryIndex(keys)
    return _PrefixIndex(keys) if MatchKind.LPM in kinds else _ExactIndex(keys)


def _rank(entry: Entry) -> tuple[int, int]:
    """The smallest wins."""
    return -entry.priority, entry.handle


def _masked(entry: Entry, keys: Sequence[KeyField]) -> tuple[Key, Key]:
    """Values and masks of an entry."""
    pairs = [as_mask(match, field) for match, field in zip(entry.matches, keys, strict=True)]
    return tuple([value for value, _ in pairs]), tuple([mask for _, mask in pairs])


class _ExactIndex:
    def __init__(self, keys: Sequence[KeyField]) -> None:
        self._keys = keys
        self._entries: dict[Key, Entry] = {}
        self.find: Callable[[Key], Entry | None] = self._entries.get

    def add(self, entry: Entry) -> None:
        self._entries[_masked(entry, self._keys)[0]] = entry

    def remove(self, entry: Entry) -> None:
        del self._entries[_masked(entry, self._keys)[0]]


class _PrefixIndex:
    """A table has at most one field of this kind where no other needs a priority."""

    def __init__(self, keys: Sequence[KeyField]) -> None:
        self._keys = keys
        self._at = next(i for i, field in enumerate(keys) if field.kind is MatchKind.LPM)
        self._lengths: list[tuple[int, Key, dict[Key, Entry]]] = []  # longest first, as negative numbers
        self.find: Callable[[Key], Entry | None] = self._find if len(keys) > 1 else self._find_single

    def add(self, entry: Entry) -> None:
        values, masks = _masked(entry, self._keys)
        length = self._length(entry)
        entries = next((entries for known, _, entries in self._lengths if known == -length), None)
        if entries is None:
            entries = {}
            insort(self._lengths, (-length, masks, entries), key=lambda item: item[0])
        entries[values] = entry

    def remove(self, entry: Entry) -> None:
        values, _ = _masked(entry, self._keys)
        length = self._length(entry)
        entries = next(entries for known, _, entries in self._lengths if known == -length)
        del entries[values]
        if not entries:
            self._lengths = [item for item in self._lengths if item[2]]

    def _length(self, entry: Entry) -> int:
        match = entry.matches[self._at]
        return match.prefix if isinstance(match, Lpm) else 0

    def _find(self, key: Key) -> Entry | None:
        for _, masks, entries in self._lengths:
            entry = entries.get(tuple([value & mask for value, mask in zip(key, masks, strict=True)]))
            if entry is not None:
                return entry
        return None

    def _find_single(self, key: Key) -> Entry | None:
        value = key[0]
        for _, masks, entries in self._lengths:
            entry = entries.get((value & masks[0],))
            if entry is not None:
                return entry
        return None


class _Masks:
    """Entries that care about the same bits, and how many there are of each priority."""

    def __init__(self, masks: Key) -> None:
        self.masks = masks
        self.entries: dict[Key, list[Entry]] = {}
        self.priorities: Counter[int] = Counter()
        self.top = 0


class _TernaryIndex:
    def __init__(self, keys: Sequence[KeyField]) -> None:
        self._keys = keys
        self._by_masks: dict[Key, _Masks] = {}
        self._ordered: list[_Masks] = []
        self.find: Callable[[Key], Entry | None] = self._find

    def add(self, entry: Entry) -> None:
        values, masks = _masked(entry, self._keys)
        same = self._by_masks.get(masks)
        if same is None:
            same = self._by_masks[masks] = _Masks(masks)
        insort(same.entries.setdefault(values, []), entry, key=_rank)
        same.priorities[entry.priority] += 1
        self._order(same)

    def remove(self, entry: Entry) -> None:
        values, masks = _masked(entry, self._keys)
        same = self._by_masks[masks]
        same.entries[values].remove(entry)
        if not same.entries[values]:
            del same.entries[values]
        if not same.entries:
            del self._by_masks[masks]
        same.priorities[entry.priority] -= 1
        if not same.priorities[entry.priority]:
            del same.priorities[entry.priority]
        self._order(same)

    def _order(self, changed: _Masks) -> None:
        changed.top = max(changed.priorities, default=0)
        self._ordered = sorted(self._by_masks.values(), key=lambda same: -same.top)

    def _find(self, key: Key) -> Entry | None:
        found: Entry | None = None
        for same in self._ordered:
            if found is not None and same.top < found.priority:
                break
            entries = same.entries.get(tuple([value & mask for value, mask in zip(key, same.masks, strict=True)]))
            if entries is not None and (found is None or _rank(entries[0]) < _rank(found)):
                found = entries[0]
        return found


class _RangeIndex:
    def __init__(self, keys: Sequence[KeyField]) -> None:
        self._keys = keys
        self._entries: list[Entry] = []
        self.find: Callable[[Key], Entry | None] = self._find

    def add(self, entry: Entry) -> None:
        insort(self._entries, entry, key=_rank)

    def remove(self, entry: Entry) -> None:
        self._entries.remove(entry)

    def _find(self, key: Key) -> Entry | None:
        for entry in self._entries:
            for match, value, field in zip(entry.matches, key, self._keys, strict=True):
                if match is not None and not matches(match, value, field):
                    break
            else:
                return entry
        return None
