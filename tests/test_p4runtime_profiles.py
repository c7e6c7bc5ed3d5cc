"""Action profiles and selectors: members, groups, and entries that bring their actions along."""

from typing import Any

import pytest

from switch.p4runtime.errors import Code
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import DELETE, INSERT, MODIFY, Rig, frame, ports


@pytest.fixture
def rig() -> Rig:
    return Rig()


# Members and groups


def member(rig: Rig, profile: str, number: int, port: int = 0) -> Any:
    action = rig.names.action("forward", port=port) if port else None
    return pb.ActionProfileMember(
        action_profile_id=rig.names.id("action_profiles", profile), member_id=number, action=action
    )


def group(rig: Rig, number: int, *members: tuple[int, int], max_size: int = 0, profile: str = "choice") -> Any:
    found = pb.ActionProfileGroup(
        action_profile_id=rig.names.id("action_profiles", profile), group_id=number, max_size=max_size
    )
    for each, weight in members:
        found.members.add(member_id=each, weight=weight)
    return found


def test_entries_follow_the_members_that_they_refer_to(rig: Rig) -> None:
    one, two = member(rig, "plain", 1, port=4), member(rig, "plain", 2, port=5)
    rig.insert(one, two)
    entry = rig.names.entry("plain_t", {"key": 9}, member=1)
    rig.insert(entry)
    assert ports(rig.ask(0, frame(5, key=9))) == [4]
    rig.modify(member(rig, "plain", 1, port=6))
    assert ports(rig.ask(0, frame(5, key=9))) == [6]
    rig.modify(rig.names.entry("plain_t", {"key": 9}, member=2))
    assert ports(rig.ask(0, frame(5, key=9))) == [5]
    assert rig.read(pb.ActionProfileMember()) == [member(rig, "plain", 1, port=6), two]
    assert rig.read(member(rig, "plain", 0)) == [member(rig, "plain", 1, port=6), two]
    assert rig.read(member(rig, "plain", 2)) == [two]
    assert rig.read(rig.names.entry("plain_t")) == [rig.names.entry("plain_t", {"key": 9}, member=2)]
    assert rig.refused(DELETE, two)[0] is Code.FAILED_PRECONDITION
    rig.delete(entry)
    rig.delete(member(rig, "plain", 2))
    assert rig.read(member(rig, "plain", 2)) == []


def test_members_that_cannot_be(rig: Rig) -> None:
    assert rig.refused(INSERT, member(rig, "plain", 0, port=1))[0] is Code.INVALID_ARGUMENT
    assert rig.refused(INSERT, member(rig, "plain", 1))[0] is Code.INVALID_ARGUMENT
    assert rig.refused(MODIFY, member(rig, "plain", 1, port=1))[0] is Code.NOT_FOUND
    assert rig.refused(DELETE, member(rig, "plain", 1))[0] is Code.NOT_FOUND
    assert rig.refused(INSERT, pb.ActionProfileMember(action_profile_id=4, member_id=1))[0] is Code.INVALID_ARGUMENT
    assert rig.refused(INSERT, rig.names.entry("plain_t", {"key": 9}, member=1))[0] is Code.NOT_FOUND
    rig.insert(*(member(rig, "plain", number, port=1) for number in range(1, 9)))
    assert rig.refused(INSERT, member(rig, "plain", 1, port=1))[0] is Code.ALREADY_EXISTS
    assert rig.refused(INSERT, member(rig, "plain", 9, port=1))[0] is Code.RESOURCE_EXHAUSTED
    wrong = member(rig, "plain", 1, port=1)
    wrong.action.action_id = rig.names.id("actions", "paced")
    assert rig.refused(MODIFY, wrong)[0] is Code.INVALID_ARGUMENT
    assert rig.refused(INSERT, rig.names.entry("plain_t", {"key": 9}, group=1))[0] is Code.INVALID_ARGUMENT
    direct = rig.names.entry("plain_t", {"key": 9}, rig.names.action("forward", port=1))
    assert rig.refused(INSERT, direct)[0] is Code.INVALID_ARGUMENT


def test_groups_spread_packets_by_weight(rig: Rig) -> None:
    rig.insert(member(rig, "choice", 1, port=4), member(rig, "choice", 2, port=5))
    written = group(rig, 1, (2, 1), (1, 3), max_size=6)
    written.members[0].watch_port = b"\x05"
    rig.insert(written)
    entry = rig.names.entry("choice_t", {"key": 9}, group=1)
    rig.insert(entry)
    seen = [rig.ask(0, frame(6, key=9, value=value))[0][0] for value in range(0, 1 << 16, 251)]
    assert seen.count(4) / len(seen) == pytest.approx(0.75, abs=0.15)
    assert set(seen) == {4, 5}
    assert rig.read(pb.ActionProfileGroup()) == [written]
    assert rig.read(rig.names.entry("choice_t")) == [entry]
    rig.modify(group(rig, 1, (2, 1), max_size=6))
    assert {rig.ask(0, frame(6, key=9, value=value))[0][0] for value in range(64)} == {5}
    rig.modify(rig.names.entry("choice_t", {"key": 9}, member=1))
    assert ports(rig.ask(0, frame(6, key=9))) == [4]
    rig.delete(entry)
    rig.delete(group(rig, 1))
    rig.delete(member(rig, "choice", 1), member(rig, "choice", 2))
    assert rig.read(pb.ActionProfileGroup(), pb.ActionProfileMember()) == []


def test_groups_that_cannot_be(rig: Rig) -> None:
    rig.insert(member(rig, "choice", 1, port=4), member(rig, "choice", 2, port=4))
    for bad, code in (
        (group(rig, 0, (1, 1)), Code.INVALID_ARGUMENT),
        (group(rig, 1, (3, 1)), Code.NOT_FOUND),
        (group(rig, 1, (1, 0)), Code.INVALID_ARGUMENT),
        (group(rig, 1, (1, 1), (1, 1)), Code.INVALID_ARGUMENT),
        (group(rig, 1, (1, 3), max_size=2), Code.RESOURCE_EXHAUSTED),
        (group(rig, 1, (1, 1), max_size=-1), Code.INVALID_ARGUMENT),
        (group(rig, 1, profile="plain"), Code.INVALID_ARGUMENT),
    ):
        assert rig.refused(INSERT, bad)[0] is code
    assert rig.refused(MODIFY, group(rig, 1))[0] is Code.NOT_FOUND
    assert rig.refused(DELETE, group(rig, 1))[0] is Code.NOT_FOUND
    rig.insert(group(rig, 1, (1, 1), max_size=2))
    assert rig.refused(INSERT, group(rig, 1))[0] is Code.ALREADY_EXISTS
    assert rig.refused(MODIFY, group(rig, 1, (1, 1), max_size=3))[0] is Code.INVALID_ARGUMENT
    assert rig.refused(DELETE, member(rig, "choice", 1))[0] is Code.FAILED_PRECONDITION
    rig.insert(rig.names.entry("choice_t", {"key": 1}, group=1))
    assert rig.refused(DELETE, group(rig, 1))[0] is Code.FAILED_PRECONDITION


def one_shot(rig: Rig, key: int, *pairs: tuple[int, int]) -> Any:
    entry = rig.names.entry("choice_t", {"key": key})
    actions = [(rig.names.action("forward", port=port), weight) for port, weight in pairs]
    entry.action.action_profile_action_set.CopyFrom(rig.names.action_set(*actions))
    return entry


def test_entries_bring_their_actions_along(rig: Rig) -> None:
    entry, other = one_shot(rig, 1, (4, 1), (5, 2), (4, 1)), one_shot(rig, 2, (6, 1))
    rig.insert(entry, other)
    seen = [rig.ask(0, frame(6, key=1, value=value))[0][0] for value in range(256)]
    assert set(seen) == {4, 5}
    assert rig.read(rig.names.entry("choice_t")) == [entry, other]
    assert rig.read(pb.ActionProfileMember(), pb.ActionProfileGroup()) == []
    rig.modify(one_shot(rig, 1, (7, 1)))
    assert ports(rig.ask(0, frame(6, key=1))) == [7]
    assert rig.read(entry) == [one_shot(rig, 1, (7, 1))]
    for mixed in (member(rig, "choice", 1, port=1), group(rig, 1), rig.names.entry("choice_t", {"key": 5}, member=1)):
        assert rig.refused(INSERT, mixed)[0] is Code.INVALID_ARGUMENT
    rig.delete(rig.names.entry("choice_t", {"key": 1}), other)
    rig.insert(member(rig, "choice", 1, port=1))
    assert rig.refused(INSERT, entry)[0] is Code.INVALID_ARGUMENT


def test_sets_of_actions_that_cannot_be(rig: Rig) -> None:
    assert rig.refused(INSERT, one_shot(rig, 1, (4, 0)))[0] is Code.INVALID_ARGUMENT
    wrong = one_shot(rig, 1, (4, 1))
    wrong.action.action_profile_action_set.action_profile_actions[0].action.action_id = 1
    assert rig.refused(INSERT, wrong)[0] is Code.INVALID_ARGUMENT
    plain = rig.names.entry("plain_t", {"key": 1})
    plain.action.action_profile_action_set.SetInParent()
    assert rig.refused(INSERT, plain)[0] is Code.INVALID_ARGUMENT
    too_many = one_shot(rig, 1, *((port, 1) for port in range(1, 18)))
    assert rig.refused(INSERT, too_many)[0] is Code.RESOURCE_EXHAUSTED
    rig.insert(one_shot(rig, 1, *((port, 1) for port in range(1, 17))))  # nothing of the failed one is left
    assert rig.refused(INSERT, one_shot(rig, 1, (4, 1)))[0] in (Code.RESOURCE_EXHAUSTED, Code.ALREADY_EXISTS)
