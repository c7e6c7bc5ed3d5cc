"""Action profiles and selectors: actions that entries of one or several tables refer to by number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from switch.model.errors import ExistsError, FullError, InUseError, InvalidError, NotFoundError
from switch.model.matching import fits


@dataclass(frozen=True, slots=True)
class Action:
    """An action that entries can name; `parameters` are (name, width in bits)."""

    name: str
    parameters: tuple[tuple[str, int], ...] = ()


def check_arguments(action: Action, args: Iterable[int], where: str) -> tuple[int, ...]:
    """The arguments as a tuple.

    Raises:
        InvalidError: their number or a width is not the action's.
    """
    values = tuple(args)
    if len(values) != len(action.parameters):
        names = ", ".join(name for name, _ in action.parameters) or "none"
        raise InvalidError(
            f"{where}: action {action.name} takes {len(action.parameters)} parameters ({names}), got {len(values)}"
        )
    for (name, width), value in zip(action.parameters, values, strict=True):
        if not fits(value, width):
            raise InvalidError(
                f"{where}: parameter {name} of action {action.name}: value {value:#x} does not fit {width} bits"
            )
    return values


class Member:
    """An action with arguments that entries refer to.

    Attributes:
        references: from entries of tables and from groups.
    """

    __slots__ = ("action", "args", "number", "references")

    def __init__(self, number: int, action: Action, args: tuple[int, ...]) -> None:
        self.number, self.action, self.args = number, action, args
        self.references = 0


class Group:
    """Members, one of which is chosen for each packet.

    Attributes:
        weights: of each member, by its number.
        max_size: limit for the sum of weights; 0: the profile's.
        references: from entries of tables.
    """

    __slots__ = ("_choices", "max_size", "number", "references", "weights")

    def __init__(self, number: int, max_size: int) -> None:
        self.number, self.max_size = number, max_size
        self.weights: dict[int, int] = {}
        self.references = 0
        self._choices: list[Member] = []

    def choose(self, hash_value: int) -> Member | None:
        """The member for a hash value, as BMv2: remainder by the size, members in the order of their numbers.

        A member of weight n counts as n members. An empty group gives None.
        """
        choices = self._choices
        return choices[hash_value % len(choices)] if choices else None

    def set_members(self, weights: Mapping[int, int], members: Mapping[int, Member]) -> None:
        """Takes these members in place of those it has; for the profile, which counts references."""
        self.weights = dict(sorted(weights.items()))
        self._choices = [members[number] for number, weight in self.weights.items() for _ in range(weight)]


class ActionProfile:
    """Members, and with a selector also groups of them.

    Args:
        actions: that members may have.
        size: the largest number of members; 0: no limit.
        selector: whether there are groups.
        max_group_size: limit for the sum of weights in one group; 0: no limit.
    """

    def __init__(
        self,
        name: str,
        *,
        actions: Iterable[Action] = (),
        size: int = 0,
        selector: bool = False,
        max_group_size: int = 0,
    ) -> None:
        self.name, self.size, self.selector, self.max_group_size = name, size, selector, max_group_size
        self.actions: dict[str, Action] = {action.name: action for action in actions}
        self.members: dict[int, Member] = {}
        self.groups: dict[int, Group] = {}

    def insert_member(self, number: int, action_name: str, args: Iterable[int] = ()) -> Member:
        """Adds a member.

        Raises:
            ExistsError, FullError: there is one of that number; there is no room.
            InvalidError: action or arguments do not fit.
        """
        if number in self.members:
            raise ExistsError(f"{self._where}: member {number} exists already")
        action, values = self._check(action_name, args)
        if self.size and len(self.members) >= self.size:
            raise FullError(f"{self._where} is full: it has room for {self.size} members")
        member = self.members[number] = Member(number, action, values)
        return member

    def modify_member(self, number: int, action_name: str, args: Iterable[int] = ()) -> None:
        """Gives a member another action; entries and groups that refer to it follow.

        Raises:
            NotFoundError: there is none of that number.
            InvalidError: action or arguments do not fit.
        """
        member = self.member(number)
        member.action, member.args = self._check(action_name, args)

    def delete_member(self, number: int) -> None:
        """Removes a member.

        Raises:
            NotFoundError: there is none of that number.
            InUseError: an entry or a group refers to it.
        """
        member = self.member(number)
        if member.references:
            raise InUseError(f"{self._where}: member {number} is referred to {member.references} times")
        del self.members[number]

    def insert_group(self, number: int, weights: Mapping[int, int] | None = None, *, max_size: int = 0) -> Group:
        """Adds a group; `weights` maps members to their weights.

        Raises:
            ExistsError, NotFoundError: there is a group of that number; there is no such member.
            FullError: the sum of weights is above a limit.
            InvalidError: the profile has no selector, or a weight or `max_size` is out of range.
        """
        if not self.selector:
            raise InvalidError(f"{self._where} has no selector and thus no groups")
        if number in self.groups:
            raise ExistsError(f"{self._where}: group {number} exists already")
        if max_size < 0 or (self.max_group_size and max_size > self.max_group_size):
            raise InvalidError(
                f"{self._where}: group {number}: size {max_size} is not between 0 and {self.max_group_size}"
            )
        group = Group(number, max_size)
        self._fill(group, weights or {})
        self.groups[number] = group
        return group

    def modify_group(self, number: int, weights: Mapping[int, int]) -> None:
        """Replaces the members of a group.

        Raises:
            NotFoundError: there is no such group or member.
            FullError: the sum of weights is above a limit.
            InvalidError: a weight is below 1.
        """
        self._fill(self.group(number), weights)

    def delete_group(self, number: int) -> None:
        """Removes a group.

        Raises:
            NotFoundError: there is none of that number.
            InUseError: an entry refers to it.
        """
        group = self.group(number)
        if group.references:
            raise InUseError(f"{self._where}: group {number} is referred to {group.references} times")
        self._fill(group, {})
        del self.groups[number]

    def member(self, number: int) -> Member:
        """The member of that number.

        Raises:
            NotFoundError: there is none.
        """
        try:
            return self.members[number]
        except KeyError:
            raise NotFoundError(f"{self._where} has no member {number}") from None

    def group(self, number: int) -> Group:
        """The group of that number.

        Raises:
            NotFoundError: there is none.
        """
        try:
            return self.groups[number]
        except KeyError:
            raise NotFoundError(f"{self._where} has no group {number}") from None

    def reset(self) -> None:
        """Removes everything; call it after the tables that refer to it were cleared."""
        self.members.clear()
        self.groups.clear()

    @property
    def _where(self) -> str:
        return f"action profile {self.name}"

    def _check(self, action_name: str, args: Iterable[int]) -> tuple[Action, tuple[int, ...]]:
        action = self.actions.get(action_name)
        if action is None:
            known = ", ".join(self.actions)
            raise InvalidError(f"{self._where} has no action {action_name!r}; its actions are {known}")
        return action, check_arguments(action, args, self._where)

    def _fill(self, group: Group, weights: Mapping[int, int]) -> None:
        for number, weight in weights.items():
            self.member(number)
            if weight < 1:
                raise InvalidError(
                    f"{self._where}: group {group.number}: weight {weight} of member {number} is below 1"
                )
        limit = group.max_size or self.max_group_size
        if limit and sum(weights.values()) > limit:
            total = sum(weights.values())
            raise FullError(f"{self._where}: group {group.number} has room for {limit} members by weight, got {total}")
        for number in weights:
            self.members[number].references += 1
        for number in group.weights:
            self.members[number].references -= 1
        group.set_members(weights, self.members)
