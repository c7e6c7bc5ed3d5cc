"""What table entries do: an action, or what an action profile has for them."""

from dataclasses import dataclass
from typing import Any

from switch.model.entries import NO_ACTION, Entry
from switch.model.matching import Match
from switch.model.tables import Table
from switch.p4runtime.actions import action_of, decode_action
from switch.p4runtime.errors import Code, P4RuntimeError, invalid
from switch.p4runtime.messages import p4info_pb2, p4runtime_pb2
from switch.p4runtime.profiles import Profiles
from switch.p4runtime.schema import Schema, TableInfo


@dataclass(slots=True)
class Notes:
    """What the control plane keeps with an entry.

    Attributes:
        idle_ns: time-out as it was written.
        notified: when the last notification of idleness was made, in seconds.
        action_set: the message of a one shot.
    """

    controller_metadata: int = 0
    metadata: bytes = b""
    idle_ns: int = 0
    notified: float = 0.0
    action_set: Any = None


@dataclass(frozen=True, slots=True)
class Target:
    """What an entry does: an action, or a member, a group or a set of actions of the profile."""

    kind: str
    name: str = ""
    args: tuple[int, ...] = ()
    number: int = 0
    action_set: Any = None


def notes_of(entry: Entry) -> Notes:
    """What is kept with an entry; made when it is first asked for."""
    if not isinstance(entry.metadata, Notes):
        entry.metadata = Notes()
    return entry.metadata


class Targets:
    """Gives entries something to do, and says what they do."""

    def __init__(self, schema: Schema, profiles: Profiles) -> None:
        self._schema, self._profiles = schema, profiles

    def insert(self, info: TableInfo, table: Table, matches: list[Match], priority: int, target: Target) -> Entry:
        """Adds an entry."""
        if target.kind == "action":
            return table.insert(matches, target.name, target.args, priority=priority)
        if target.kind == "member":
            return table.insert_member(matches, target.number, priority=priority)
        if target.kind == "group":
            return table.insert_group(matches, target.number, priority=priority)
        group = self._profiles.add_one_shot(info.profile, target.action_set, f"table {info.name}")
        try:
            return table.insert_group(matches, group, priority=priority)
        except Exception:
            self._profiles.remove_one_shot(info.profile, group)
            raise

    def redirect(
        self, info: TableInfo, table: Table, entry: Entry, matches: list[Match], priority: int, target: Target
    ) -> None:
        """Gives an entry something else to do."""
        old = entry.group.number if entry.group is not None and notes_of(entry).action_set is not None else None
        if target.kind == "action":
            table.modify(matches, target.name, target.args, priority=priority)
        elif target.kind == "member":
            table.modify_member(matches, target.number, priority=priority)
        elif target.kind == "group":
            table.modify_group(matches, target.number, priority=priority)
        else:
            group = self._profiles.add_one_shot(info.profile, target.action_set, f"table {info.name}")
            table.modify_group(matches, group, priority=priority)
        if old is not None:
            self._profiles.remove_one_shot(info.profile, old)

    def decode(self, info: TableInfo, message: Any, where: str, *, default: bool = False) -> Target:
        """What a TableAction message says.

        Args:
            default: whether it is for the default entry.

        Raises:
            P4RuntimeError: it does not fit the table.
        """
        kind = message.WhichOneof("type")
        if kind is None:
            raise invalid(f"{where}: the action is missing")
        if (kind == "action") == bool(info.profile):
            expected = "a member, a group or a set of actions" if info.profile else "an action"
            raise invalid(f"{where}: expected {expected}, got {kind}")
        if kind == "action":
            action, scope = action_of(info, message.action.action_id, where)
            scopes = p4info_pb2.ActionRef
            if scope == (scopes.TABLE_ONLY if default else scopes.DEFAULT_ONLY):
                only = "for entries, not for the default" if default else "as default action"
                raise P4RuntimeError(Code.PERMISSION_DENIED, f"{where}: action {action.name} is only allowed {only}")
            return Target("action", action.name, decode_action(action, message.action, where))
        if kind == "action_profile_action_set":
            copy = p4runtime_pb2.ActionProfileActionSet()
            copy.CopyFrom(message.action_profile_action_set)
            return Target("set", action_set=copy)
        self._profiles.check_manual(info.profile)
        number = message.action_profile_member_id or message.action_profile_group_id
        if not number:
            raise invalid(f"{where}: 0 is no id of a member or group")
        if kind == "action_profile_group_id" and not self._schema.profiles[info.profile].selector:
            raise invalid(f"{where}: its action profile has no selector and thus no groups")
        return Target("member" if kind == "action_profile_member_id" else "group", number=number)

    def of(self, info: TableInfo, table: Table, entry: Entry) -> Target | None:
        """What an entry does; None: nothing."""
        notes = notes_of(entry)
        if notes.action_set is not None:
            return Target("set", action_set=notes.action_set)
        if entry.group is not None:
            return Target("group", number=entry.group.number)
        if entry.member is not None:
            return Target("member", number=entry.member.number)
        if entry.action == NO_ACTION:
            return None
        return Target("action", table.actions[entry.action].name, entry.args)

    def removed(self, info: TableInfo, entry: Entry, group: int | None) -> None:
        """An entry that referred to this group was deleted: what it brought along goes with it."""
        if group is not None and notes_of(entry).action_set is not None:
            self._profiles.remove_one_shot(info.profile, group)
