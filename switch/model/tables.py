"""Match-action tables: what the control plane writes, and what a packet's key finds."""

import heapq
from collections.abc import Callable, Iterable, Sequence

from switch.model.entries import NO_ACTION, Entry, Key, index_for
from switch.model.errors import ExistsError, FullError, ImmutableError, InvalidError, NotFoundError
from switch.model.externs import MeterCell
from switch.model.matching import PRIORITY_KINDS, KeyField, Match, checked
from switch.model.profiles import Action, ActionProfile, Group, Member, check_arguments

__all__ = ["NO_ACTION", "Action", "Entry", "Key", "KeyField", "Table"]


class Table:
    """A table of the program.

    Args:
        size: the largest number of entries.
        default_action: index into `actions` and arguments; None: a miss does nothing.
        default_is_const: whether the default entry is part of the program.
        default_action_is_const: whether only its arguments may change.
        meter: name of the direct meter; `meter_by_packets` says what it counts.
        profile: where actions come from if the table is indirect.
    """

    # For a miss it gives `default`. The second argument is the hash of the packet's selector fields, for groups.
    # Fields with a mask must be masked in the key.
    lookup: Callable[..., Entry]

    def __init__(
        self,
        name: str,
        *,
        keys: Sequence[KeyField],
        actions: Sequence[Action],
        size: int,
        default_action: tuple[int, tuple[int, ...]] | None = None,
        default_is_const: bool = False,
        default_action_is_const: bool = False,
        has_counter: bool = False,
        meter: str | None = None,
        meter_by_packets: bool = False,
        support_timeout: bool = False,
        profile: ActionProfile | None = None,
    ) -> None:
        self.name, self.keys, self.actions, self.size = name, tuple(keys), tuple(actions), size
        self.has_counter, self.support_timeout, self.profile = has_counter, support_timeout, profile
        self.meter, self.meter_by_packets = meter, meter_by_packets
        self.default_is_const, self.default_action_is_const = default_is_const, default_action_is_const
        self.is_const = False  # whether the program declares the entries
        self._index: dict[str, int] = {}
        for i, action in enumerate(self.actions):
            self._index.setdefault(action.name, i)
        self.needs_priority = any(key.kind in PRIORITY_KINDS for key in self.keys)
        self._entries: dict[tuple[tuple[Match, ...], int], Entry] = {}
        self._free: list[int] = []  # handles of entries that were deleted
        self._initial: list[tuple[tuple[Match, ...], int, int, tuple[int, ...], bool]] = []
        self._default_action = default_action
        self.default = self.initial_default()
        self._clear()

    # What packets do

    def _lookup_direct(self, key: Key) -> Entry:
        return self._find(key) or self.default

    def _lookup_indirect(self, key: Key, selector_hash: int = 0) -> Entry:
        entry = self._find(key) or self.default
        member = entry.member
        if entry.group is not None:
            member = entry.group.choose(selector_hash)
            if member is None:
                entry.action, entry.args = NO_ACTION, ()
                return entry
        if member is not None:
            entry.action, entry.args = self._index[member.action.name], member.args
        return entry

    # What the control plane does

    def insert(
        self, entry_matches: Iterable[Match], action_name: str, args: Iterable[int] = (), *, priority: int = 0
    ) -> Entry:
        """Adds an entry.

        Raises:
            InvalidError: matches, priority, action or arguments do not fit the table.
            ExistsError, FullError: there is such an entry; there is no room.
            ImmutableError: the entries are part of the program.
        """
        self._check_direct()
        self._check_mutable()
        entry = self._new(entry_matches, priority)
        entry.action, entry.args = self._action(action_name, args)
        return self._add(entry)

    def insert_member(self, entry_matches: Iterable[Match], member: int, *, priority: int = 0) -> Entry:
        """Adds an entry that refers to a member of the profile.

        Raises:
            NotFoundError: there is no such member; otherwise see `insert`.
        """
        profile = self._check_indirect()
        entry = self._new(entry_matches, priority)
        referred = profile.member(member)
        self._add(entry)
        self._refer(entry, referred, None)
        return entry

    def insert_group(self, entry_matches: Iterable[Match], group: int, *, priority: int = 0) -> Entry:
        """Adds an entry that refers to a group of the profile.

        Raises:
            NotFoundError: there is no such group; otherwise see `insert`.
        """
        profile = self._check_indirect()
        entry = self._new(entry_matches, priority)
        referred = profile.group(group)
        self._add(entry)
        self._refer(entry, None, referred)
        return entry

    def insert_initial(
        self, entries: Iterable[tuple[Sequence[Match], int, int, tuple[int, ...]]], *, const: bool
    ) -> None:
        """Adds the entries that stand in the program, as (matches, priority, index of the action, arguments).

        Args:
            const: whether the control plane may not change the table's entries from now on.

        Raises:
            InvalidError, ExistsError, FullError: see `insert`.
        """
        for entry_matches, priority, index, args in entries:
            self._initial.append((tuple(entry_matches), priority, index, args, const))
            self._add_initial(*self._initial[-1])
        self.is_const = const

    def modify(
        self, entry_matches: Iterable[Match], action_name: str, args: Iterable[int] = (), *, priority: int = 0
    ) -> Entry:
        """Gives an entry another action.

        Raises:
            NotFoundError: there is no such entry.
            InvalidError, ImmutableError: see `insert`.
        """
        self._check_direct()
        self._check_mutable()
        entry = self.find(entry_matches, priority)
        entry.action, entry.args = self._action(action_name, args)
        return entry

    def modify_member(self, entry_matches: Iterable[Match], member: int, *, priority: int = 0) -> Entry:
        """Lets an entry refer to another member.

        Raises:
            NotFoundError: there is no such entry or member.
            InvalidError: see `insert`.
        """
        profile = self._check_indirect()
        entry = self.find(entry_matches, priority)
        self._refer(entry, profile.member(member), None)
        return entry

    def modify_group(self, entry_matches: Iterable[Match], group: int, *, priority: int = 0) -> Entry:
        """Lets an entry refer to another group.

        Raises:
            NotFoundError: there is no such entry or group.
            InvalidError: see `insert`.
        """
        profile = self._check_indirect()
        entry = self.find(entry_matches, priority)
        self._refer(entry, None, profile.group(group))
        return entry

    def delete(self, entry_matches: Iterable[Match], priority: int = 0) -> Entry:
        """Removes an entry and returns it.

        Raises:
            NotFoundError: there is no such entry.
            InvalidError, ImmutableError: see `insert`.
        """
        self._check_mutable()
        entry = self.find(entry_matches, priority)
        del self._entries[entry.matches, entry.priority]
        self._lookup.remove(entry)
        heapq.heappush(self._free, entry.handle)
        self._refer(entry, None, None)
        return entry

    def find(self, entry_matches: Iterable[Match], priority: int = 0) -> Entry:
        """The entry with exactly these matches and this priority.

        Raises:
            NotFoundError: there is none.
            InvalidError: matches or priority do not fit the table.
        """
        wanted = self._canonical(entry_matches, priority)
        entry = self._entries.get((wanted, priority))
        if entry is None:
            with_priority = f", priority {priority}" if self.needs_priority else ""
            raise NotFoundError(f"table {self.name} has no entry {self._shown(wanted)}{with_priority}")
        return entry

    def entries(self) -> list[Entry]:
        """All entries but the default, in the order in which they came."""
        return list(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def action_of(self, entry: Entry) -> Action | None:
        """The action of an entry; None if it does nothing, or refers to a group."""
        if entry.group is not None:
            return None
        if entry.member is not None:
            return entry.member.action
        return self.actions[entry.action] if entry.action != NO_ACTION else None

    def set_default(self, action_name: str, args: Iterable[int] = ()) -> Entry:
        """Sets what happens on a miss.

        Raises:
            InvalidError: action or arguments do not fit.
            ImmutableError: the default is part of the program.
        """
        index, values = self._action(action_name, args)
        other = self._default_action is not None and self._default_action[0] != index
        if self.default_is_const or (self.default_action_is_const and other):
            raise ImmutableError(f"table {self.name}: the default action is constant in the program")
        return self._replace_default(Entry(action=index, args=values, hit=False))

    def set_default_member(self, member: int) -> Entry:
        """Lets the default entry of an indirect table refer to a member.

        Raises:
            NotFoundError, InvalidError, ImmutableError: see `set_default`, `insert_member`.
        """
        profile = self._check_indirect()
        if self.default_is_const:
            raise ImmutableError(f"table {self.name}: the default action is constant in the program")
        entry = Entry(hit=False)
        self._refer(entry, profile.member(member), None)
        return self._replace_default(entry)

    def reset_default(self) -> Entry:
        """Back to the default of the program.

        Raises:
            ImmutableError: the default is part of the program; it was never changed.
        """
        if self.default_is_const:
            raise ImmutableError(f"table {self.name}: the default action is constant in the program")
        return self._replace_default(self.initial_default())

    def initial_default(self) -> Entry:
        """A new entry that does what the program says of a miss."""
        if self._default_action is None:
            return Entry(hit=False)
        index, args = self._default_action
        values = check_arguments(self.actions[index], args, f"table {self.name}")
        return Entry(action=index, args=values, hit=False, is_const=self.default_is_const)

    def clear(self) -> None:
        """Removes all entries.

        Raises:
            ImmutableError: the entries are part of the program.
        """
        self._check_mutable()
        self._clear()

    def reset(self) -> None:
        """Back to the entries and the default of the program, with fresh counters and meters."""
        self._clear()
        self._replace_default(self.initial_default())
        for initial in self._initial:
            self._add_initial(*initial)

    def _clear(self) -> None:
        for entry in self._entries.values():
            self._refer(entry, None, None)
        self._entries.clear()
        self._free.clear()
        self._lookup = index_for(self.keys)
        self._find = self._lookup.find
        self.lookup = self._lookup_direct if self.profile is None else self._lookup_indirect

    def _check_direct(self) -> None:
        if self.profile is not None:
            raise InvalidError(
                f"table {self.name} takes actions from action profile {self.profile.name}: expected a member or group"
            )

    def _check_indirect(self) -> ActionProfile:
        if self.profile is None:
            raise InvalidError(f"table {self.name} has no action profile: expected an action, not a member or group")
        self._check_mutable()
        return self.profile

    def _check_mutable(self) -> None:
        if self.is_const:
            raise ImmutableError(f"table {self.name}: its entries are constant in the program")

    def _action(self, name: str, args: Iterable[int]) -> tuple[int, tuple[int, ...]]:
        index = self._index.get(name)
        if index is None:
            raise InvalidError(f"table {self.name} has no action {name!r}; its actions are {', '.join(self._index)}")
        return index, check_arguments(self.actions[index], args, f"table {self.name}")

    def _canonical(self, entry_matches: Iterable[Match], priority: int) -> tuple[Match, ...]:
        given = tuple(entry_matches)
        if len(given) != len(self.keys):
            names = ", ".join(key.name for key in self.keys) or "none"
            raise InvalidError(f"table {self.name} has {len(self.keys)} key fields ({names}), got {len(given)} matches")
        if self.needs_priority and priority < 1:
            kinds = ", ".join(sorted({key.kind for key in self.keys} & PRIORITY_KINDS))
            raise InvalidError(f"table {self.name} needs a priority above 0 because of {kinds} fields, got {priority}")
        if not self.needs_priority and priority:
            raise InvalidError(f"table {self.name} takes no priority: its keys leave one winner; got {priority}")
        return tuple(checked(match, field, self.name) for match, field in zip(given, self.keys, strict=True))

    def _new(self, entry_matches: Iterable[Match], priority: int) -> Entry:
        if not self.keys:
            raise InvalidError(f"table {self.name} has no key, so only its default action can be set")
        return Entry(self._canonical(entry_matches, priority), priority=priority)

    def _add(self, entry: Entry) -> Entry:
        if (entry.matches, entry.priority) in self._entries:
            raise ExistsError(f"table {self.name} has an entry {self._shown(entry.matches)} already")
        if len(self._entries) >= self.size:
            raise FullError(f"table {self.name} is full: it has room for {self.size} entries")
        entry.handle = heapq.heappop(self._free) if self._free else len(self._entries)
        entry.meter = None if self.meter is None else MeterCell(by_packets=self.meter_by_packets)
        self._entries[entry.matches, entry.priority] = entry
        self._lookup.add(entry)
        return entry

    def _add_initial(
        self, entry_matches: tuple[Match, ...], priority: int, index: int, args: tuple[int, ...], const: bool
    ) -> None:
        entry = self._new(entry_matches, priority)
        entry.action, entry.is_const = index, const
        entry.args = check_arguments(self.actions[index], args, f"table {self.name}")
        self._add(entry)

    def _refer(self, entry: Entry, member: Member | None, group: Group | None) -> None:
        for new in (member, group):
            if new is not None:
                new.references += 1
        for old in (entry.member, entry.group):
            if old is not None:
                old.references -= 1
        entry.member, entry.group = member, group

    def _replace_default(self, entry: Entry) -> Entry:
        self._refer(self.default, None, None)
        self.default = entry
        return entry

    def _shown(self, entry_matches: tuple[Match, ...]) -> str:
        return ", ".join(f"{key.name}={match}" for key, match in zip(self.keys, entry_matches, strict=True))
