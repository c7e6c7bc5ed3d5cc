"""Members and groups of action profiles, and the sets of actions that entries bring along ("one shots")."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from switch.model.profiles import ActionProfile
from switch.model.state import SwitchState
from switch.p4runtime import bytestrings
from switch.p4runtime.actions import DELETE, INSERT, Undo, decode_action, encode_action
from switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.schema import ProfileInfo, Schema, lookup

_Entity = p4runtime_pb2.Entity
_FIRST_ONE_SHOT: Final = 1 << 32  # numbers of their members and groups, beyond those that clients can choose
_PORT_BITS: Final = 32


@dataclass(slots=True)
class _Book:
    """What P4Runtime wants to know of a profile besides what the switch does.

    Attributes:
        groups: as they were written: sizes, watch ports, the order of members.
        one_shots: members, by the number of the group.
    """

    info: ProfileInfo
    profile: ActionProfile
    groups: dict[int, Any] = field(default_factory=dict)
    one_shots: dict[int, list[int]] = field(default_factory=dict)
    next_number: int = _FIRST_ONE_SHOT


class Profiles:
    """ActionProfileMember and ActionProfileGroup, and what tables need for one shots.

    Watch ports are kept and given back; the switch does not know which ports are up, so all members always take part.
    """

    def __init__(self, schema: Schema, state: SwitchState) -> None:
        self._books = {number: _Book(info, state.profiles[info.name]) for number, info in schema.profiles.items()}

    # Members

    def write_member(self, type_: int, message: Any) -> Undo:
        """Adds, changes or removes a member."""
        book = self._manual(message.action_profile_id)
        profile, number = book.profile, message.member_id
        where = f"action profile {book.info.name}: member {number}"
        if not number:
            raise invalid(f"{where}: 0 is no id")
        if type_ == DELETE:
            old = profile.member(number)
            profile.delete_member(number)
            return lambda: _ignore(profile.insert_member(number, old.action.name, old.args))
        if not message.HasField("action"):
            raise invalid(f"{where}: the action is missing")
        name, args = self._action(book, message.action, where)
        if type_ == INSERT:
            profile.insert_member(number, name, args)
            return lambda: profile.delete_member(number)
        member = profile.member(number)
        before = member.action.name, member.args
        profile.modify_member(number, name, args)
        return lambda: profile.modify_member(number, *before)

    def read_members(self, message: Any) -> Iterator[Any]:
        """A member, those of a profile, or all."""
        for book in self._selected(message.action_profile_id):
            for number, member in list(book.profile.members.items()):
                if number >= _FIRST_ONE_SHOT or message.member_id not in (0, number):
                    continue
                entity = _Entity()
                found = entity.action_profile_member
                found.action_profile_id, found.member_id = book.info.number, number
                action = book.info.actions[book.info.action_numbers[member.action.name]]
                encode_action(action, member.args, found.action)
                yield entity

    # Groups

    def write_group(self, type_: int, message: Any) -> Undo:
        """Adds, changes or removes a group."""
        book = self._manual(message.action_profile_id)
        profile, number = book.profile, message.group_id
        where = f"action profile {book.info.name}: group {number}"
        if not number:
            raise invalid(f"{where}: 0 is no id")
        if not book.info.selector:
            raise invalid(f"{where}: the profile has no selector and thus no groups")
        if type_ == DELETE:
            weights = dict(profile.group(number).weights)
            profile.delete_group(number)
            old = book.groups.pop(number, None)

            def undo_delete() -> None:
                profile.insert_group(number, weights)
                _restore(book.groups, number, old)

            return undo_delete
        new = p4runtime_pb2.ActionProfileGroup()
        new.CopyFrom(message)
        if type_ == INSERT:
            weights = self._weights(book, message, message.max_size, where)
            profile.insert_group(number, weights)
            book.groups[number] = new

            def undo_insert() -> None:
                profile.delete_group(number)
                del book.groups[number]

            return undo_insert
        before, old = dict(profile.group(number).weights), book.groups.get(number)
        if old is not None and message.max_size != old.max_size:
            raise invalid(f"{where}: max_size {message.max_size} is not that of the group, {old.max_size}")
        profile.modify_group(number, self._weights(book, message, message.max_size, where))
        book.groups[number] = new

        def undo_modify() -> None:
            profile.modify_group(number, before)
            _restore(book.groups, number, old)

        return undo_modify

    def read_groups(self, message: Any) -> Iterator[Any]:
        """A group, those of a profile, or all."""
        for book in self._selected(message.action_profile_id):
            for number, group in list(book.profile.groups.items()):
                if number >= _FIRST_ONE_SHOT or message.group_id not in (0, number):
                    continue
                entity = _Entity()
                found = entity.action_profile_group
                written = book.groups.get(number)
                if written is not None:
                    found.CopyFrom(written)
                else:
                    found.action_profile_id, found.group_id = book.info.number, number
                    for member, weight in group.weights.items():
                        found.members.add(member_id=member, weight=weight)
                yield entity

    # One shots

    def add_one_shot(self, number: int, action_set: Any, where: str) -> int:
        """Makes members and a group of a set of actions, and returns the group's number, which no client sees.

        Raises:
            P4RuntimeError: the set does not fit the profile, or the profile has members of its own.
        """
        book = self._books[number]
        info = book.info
        if not info.selector:
            raise invalid(f"{where}: action profile {info.name} has no selector and thus takes no sets of actions")
        if any(each < _FIRST_ONE_SHOT for each in (*book.profile.members, *book.profile.groups)):
            raise invalid(
                f"{where}: action profile {info.name} has members or groups; sets of actions cannot be mixed in"
            )
        _check_selection(info, action_set, where)
        actions = action_set.action_profile_actions
        weights = [self._checked_weight(info, each, f"{where}: action {i}") for i, each in enumerate(actions)]
        for each in actions:
            _check_watch(each, where)
        size = sum(weights) if info.sizes_by_weight else len(weights)
        if info.max_group_size and size > info.max_group_size:
            raise invalid(f"{where}: the set has size {size}; action profile {info.name} allows {info.max_group_size}")
        decoded = [self._action(book, each.action, where) for each in actions]
        members: dict[int, int] = {}
        group = book.next_number
        try:
            for (name, args), weight in zip(decoded, weights, strict=True):
                book.profile.insert_member(book.next_number, name, args)
                members[book.next_number] = weight
                book.next_number += 1
            group = book.next_number
            book.profile.insert_group(group, members)
            book.next_number += 1
        except Exception:
            for member in members:
                book.profile.delete_member(member)
            raise
        book.one_shots[group] = list(members)
        return group

    def remove_one_shot(self, number: int, group: int) -> None:
        """Removes such a group with its members; nothing may refer to it."""
        book = self._books[number]
        book.profile.delete_group(group)
        for member in book.one_shots.pop(group):
            book.profile.delete_member(member)

    def check_manual(self, number: int) -> None:
        """Refuses references to members and groups while sets of actions are in use.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT.
        """
        self._manual(number)

    # Everything else

    def _manual(self, number: int) -> _Book:
        book = lookup(self._books, number, "action profile")
        if book.one_shots:
            raise invalid(
                f"action profile {book.info.name} is used with sets of actions; members cannot be mixed with them"
            )
        return book

    def _selected(self, number: int) -> Iterable[_Book]:
        return [lookup(self._books, number, "action profile")] if number else self._books.values()

    def _action(self, book: _Book, message: Any, where: str) -> tuple[str, tuple[int, ...]]:
        action = book.info.actions.get(message.action_id)
        if action is None:
            raise invalid(f"{where}: the profile's tables have no action with id {message.action_id}")
        return action.name, decode_action(action, message, where)

    def _weights(self, book: _Book, message: Any, max_size: int, where: str) -> dict[int, int]:
        info = book.info
        if max_size < 0 or (info.max_group_size and not 0 < max_size <= info.max_group_size):
            limits = f"between 1 and {info.max_group_size}" if info.max_group_size else "0 or more"
            raise invalid(f"{where}: max_size {max_size} is not {limits}")
        found: dict[int, int] = {}
        for member in message.members:
            if member.member_id in found:
                raise invalid(f"{where}: member {member.member_id} stands twice; give it a weight")
            _check_watch(member, where)
            found[member.member_id] = self._checked_weight(info, member, f"{where}: member {member.member_id}")
        size = sum(found.values()) if info.sizes_by_weight else len(found)
        if max_size and size > max_size:
            raise P4RuntimeError(Code.RESOURCE_EXHAUSTED, f"{where} has room for {max_size}, got {size}")
        return found

    def _checked_weight(self, info: ProfileInfo, message: Any, where: str) -> int:
        weight: int = message.weight
        if weight < 1:
            raise invalid(f"{where}: weight {weight} is below 1")
        if not info.sizes_by_weight and 0 < info.max_member_weight < weight:
            raise invalid(f"{where}: weight {weight} is above {info.max_member_weight}")
        return weight


def _check_watch(message: Any, where: str) -> None:
    if message.WhichOneof("watch_kind") == "watch_port":
        bytestrings.decode(message.watch_port, _PORT_BITS, f"{where}: watch_port")


def _check_selection(info: ProfileInfo, action_set: Any, where: str) -> None:
    """Refuses what P4Runtime has since 1.5 and this switch has not; older messages have no such fields."""
    fields = action_set.DESCRIPTOR.fields_by_name
    if "group_action" in fields and action_set.HasField("group_action"):
        raise unimplemented(f"{where}: an action of the group is not supported")
    if "action_selection_mode" in fields:
        modes = type(action_set)
        if action_set.action_selection_mode not in (modes.DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR, modes.HASH):
            raise unimplemented(f"{where}: choosing members at random is not supported")
        own = modes.SUM_OF_WEIGHTS if info.sizes_by_weight else modes.SUM_OF_MEMBERS
        if action_set.size_semantics not in (modes.DEFAULT_SIZE_DETERMINED_BY_ACTION_SELECTOR, own):
            raise unimplemented(f"{where}: other size semantics than those of {info.name} are not supported")


def _restore(found: dict[int, Any], number: int, old: Any) -> None:
    if old is None:
        found.pop(number, None)
    else:
        found[number] = old


def _ignore(_: object) -> None:
    """Makes a statement of an expression."""
