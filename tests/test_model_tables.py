"""Tables of the programmable switch: what a key finds, and what writes are refused."""

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switch.model.entries import NO_ACTION, Entry
from switch.model.errors import (
    ExistsError,
    FullError,
    ImmutableError,
    InUseError,
    InvalidError,
    NotFoundError,
    StateError,
)
from switch.model.matching import Exact, KeyField, Lpm, Match, MatchKind, Range, Ternary, matches, prefix_mask
from switch.model.profiles import Action, ActionProfile
from switch.model.tables import Table

GO = Action("ingress.go", (("port", 9),))
DROP = Action("ingress.drop")
BITS = 4  # of the fields that hypothesis draws: few values, many collisions


def make_table(*kinds: MatchKind, width: int = 8, size: int = 16, profile: ActionProfile | None = None) -> Table:
    keys = [KeyField(f"hdr.h.f{i}", kind, width) for i, kind in enumerate(kinds)]
    return Table("ingress.t", keys=keys, actions=(GO, DROP), size=size, default_action=(1, ()), profile=profile)


def port(entry: Entry) -> int | None:
    return entry.args[0] if entry.hit else None


# What a key finds


def test_miss_gives_the_default_entry() -> None:
    table = make_table(MatchKind.EXACT)
    entry = table.lookup((7,))
    assert entry is table.default
    assert not entry.hit
    assert table.action_of(entry) == DROP
    table.set_default("ingress.go", [3])
    assert table.lookup((7,)).args == (3,)
    table.reset_default()
    assert table.action_of(table.lookup((7,))) == DROP


def test_table_without_default_action_does_nothing_on_a_miss() -> None:
    table = Table("t", keys=[KeyField("f", MatchKind.EXACT, 8)], actions=[GO], size=1)
    assert table.lookup((0,)).action == NO_ACTION
    assert table.action_of(table.default) is None


def test_exact_fields_all_count() -> None:
    table = make_table(MatchKind.EXACT, MatchKind.VALID)
    table.insert([Exact(5), Exact(1)], "ingress.go", [1])
    assert [port(table.lookup(key)) for key in ((5, 1), (5, 0), (4, 1))] == [1, None, None]


def test_longest_prefix_wins_whatever_came_first() -> None:
    table = make_table(MatchKind.EXACT, MatchKind.LPM, width=32)
    network = 0x0A000000
    table.insert([Exact(1), Lpm(network, 8)], "ingress.go", [8])
    table.insert([Exact(1), Lpm(network + 1, 32)], "ingress.go", [32])
    table.insert([Exact(1), None], "ingress.go", [0])
    table.insert([Exact(1), Lpm(network, 24)], "ingress.go", [24])
    keys = [(1, network + 1), (1, network + 2), (1, network + 256), (1, 0x0B000000), (2, network)]
    assert [port(table.lookup(key)) for key in keys] == [32, 24, 8, 0, None]
    table.delete([Exact(1), Lpm(network, 24)])
    assert port(table.lookup((1, network + 2))) == 8


def test_largest_priority_wins_and_the_older_among_equals() -> None:
    table = make_table(MatchKind.TERNARY)
    table.insert([Ternary(0x10, 0xF0)], "ingress.go", [1], priority=10)
    table.insert([Ternary(0x01, 0x0F)], "ingress.go", [2], priority=10)
    table.insert([None], "ingress.go", [3], priority=1)
    assert [port(table.lookup((key,))) for key in (0x11, 0x21, 0x12, 0x22)] == [1, 2, 1, 3]
    table.insert([None], "ingress.go", [4], priority=11)
    assert [port(table.lookup((key,))) for key in (0x11, 0x22)] == [4, 4]


def test_among_equal_priorities_the_lowest_handle_wins_and_handles_are_used_again() -> None:
    table = make_table(MatchKind.TERNARY)
    table.insert([Ternary(0x10, 0xF0)], "ingress.go", [1], priority=1)
    table.insert([Ternary(0x01, 0x0F)], "ingress.go", [2], priority=1)
    table.delete([Ternary(0x10, 0xF0)], priority=1)
    table.insert([None], "ingress.go", [3], priority=1)  # younger, but in the place that became free, as in BMv2
    assert port(table.lookup((0x11,))) == 3


def test_exact_match_of_a_ternary_field_is_the_whole_field() -> None:
    table = make_table(MatchKind.TERNARY)
    assert table.insert([Exact(5)], "ingress.go", [1], priority=1).matches == (Ternary(5, 0xFF),)


def test_key_fields_with_a_mask_ignore_the_other_bits() -> None:
    table = Table("t", keys=[KeyField("f", MatchKind.EXACT, 8, mask=0x0F)], actions=[GO], size=4)
    table.insert([Exact(0x35)], "ingress.go", [1])
    assert port(table.lookup((0x05,))) == 1
    with pytest.raises(ExistsError):
        table.insert([Exact(0x45)], "ingress.go", [1])


def values() -> st.SearchStrategy[int]:
    return st.integers(0, 2**BITS - 1)


def match_of(kind: MatchKind) -> st.SearchStrategy[Match]:
    if kind is MatchKind.LPM:
        return st.builds(lambda v, n: Lpm(v & prefix_mask(n, BITS), n), values(), st.integers(0, BITS))
    if kind is MatchKind.TERNARY:
        return st.builds(lambda v, m: Ternary(v & m, m), values(), values())
    if kind is MatchKind.RANGE:
        return st.builds(lambda a, b: Range(min(a, b), max(a, b)), values(), values())
    if kind is MatchKind.OPTIONAL:
        return st.none() | st.builds(Exact, values())
    return st.builds(Exact, values())


KEYS = st.one_of(
    st.lists(st.just(MatchKind.EXACT), min_size=1, max_size=3),
    st.integers(0, 2).map(lambda at: [MatchKind.LPM if i == at else MatchKind.EXACT for i in range(at + 1)]),
    st.lists(st.sampled_from([kind for kind in MatchKind if kind is not MatchKind.VALID]), min_size=1, max_size=3),
).filter(lambda kinds: kinds.count(MatchKind.LPM) <= 1)


def winner(entries: Sequence[Entry], key: tuple[int, ...], fields: Sequence[KeyField], ranked: bool) -> Entry | None:
    """The matching rules as the P4 language states them, over all entries."""
    found = [e for e in entries if all(matches(*each) for each in zip(e.matches, key, fields, strict=True))]
    if ranked:
        return min(found, key=lambda entry: (-entry.priority, entry.handle), default=None)
    return max(
        found, key=lambda entry: max((m.prefix for m in entry.matches if isinstance(m, Lpm)), default=0), default=None
    )


@given(st.data())
def test_lookup_finds_what_the_rules_say(data: st.DataObject) -> None:
    kinds = data.draw(KEYS)
    table = make_table(*kinds, width=BITS, size=12)
    for _ in range(data.draw(st.integers(0, 16))):
        priority = data.draw(st.integers(1, 3)) if table.needs_priority else 0
        if len(table) and data.draw(st.integers(0, 3)) == 0:
            gone = data.draw(st.sampled_from(table.entries()))
            assert table.delete(gone.matches, priority=gone.priority) is gone
        with suppress(ExistsError, FullError):
            table.insert([data.draw(match_of(kind)) for kind in kinds], "ingress.go", [1], priority=priority)
    for _ in range(8):
        key = tuple(data.draw(values()) for _ in kinds)
        expected = winner(table.entries(), key, table.keys, table.needs_priority)
        assert table.lookup(key) is (expected or table.default)


@given(st.sampled_from(list(MatchKind)), st.data())
def test_entry_is_found_again_under_what_it_was_written_with(kind: MatchKind, data: st.DataObject) -> None:
    table = make_table(kind, width=BITS)
    match, priority = data.draw(match_of(kind)), int(table.needs_priority)
    entry = table.insert([match], "ingress.go", [1], priority=priority)
    assert table.find([match], priority) is entry
    with pytest.raises(ExistsError):
        table.insert([match], "ingress.drop", priority=priority)
    assert table.modify([match], "ingress.go", [2], priority=priority) is entry
    assert entry.args == (2,)
    table.delete([match], priority=priority)
    with pytest.raises(NotFoundError):
        table.find([match], priority)


# What is refused


@pytest.mark.parametrize(
    ("kind", "match", "priority", "says"),
    [
        (MatchKind.EXACT, Exact(256), 0, "value 0x100 does not fit 8 bits"),
        (MatchKind.EXACT, Exact(-1), 0, "value -0x1 does not fit 8 bits"),
        (MatchKind.EXACT, None, 0, "exact match needs a value"),
        (MatchKind.EXACT, Lpm(0, 8), 0, "expected exact match, got lpm"),
        (MatchKind.EXACT, Exact(1), 1, "takes no priority"),
        (MatchKind.LPM, Lpm(0, 9), 0, "prefix length 9 is not between 0 and 8"),
        (MatchKind.LPM, Lpm(0x11, 4), 0, "value 0x11 has bits set beyond its prefix of 4 bits"),
        (MatchKind.LPM, Lpm(0x10, 4), 5, "takes no priority"),
        (MatchKind.TERNARY, Ternary(3, 1), 1, "value 0x3 has bits set outside its mask 0x1"),
        (MatchKind.TERNARY, Ternary(1, 0x1FF), 1, "mask 0x1ff does not fit 8 bits"),
        (MatchKind.TERNARY, Exact(256), 1, "value 0x100 does not fit 8 bits"),
        (MatchKind.TERNARY, Ternary(1, 1), 0, "needs a priority above 0 because of ternary fields, got 0"),
        (MatchKind.RANGE, Range(5, 4), 1, "range 0x5 to 0x4 is empty"),
        (MatchKind.RANGE, Range(5, 256), 1, "value 0x100 does not fit 8 bits"),
        (MatchKind.OPTIONAL, Ternary(1, 1), 1, "expected optional match, got ternary"),
        (MatchKind.OPTIONAL, Exact(1), -1, "needs a priority above 0"),
    ],
)
def test_match_that_does_not_fit_is_refused(kind: MatchKind, match: Match, priority: int, says: str) -> None:
    table = make_table(kind)
    with pytest.raises(InvalidError, match=says) as caught:
        table.insert([match], "ingress.drop", priority=priority)
    assert "ingress.t" in str(caught.value)
    assert len(table) == 0


def test_wrong_number_of_fields_names_and_arguments() -> None:
    table = make_table(MatchKind.EXACT, MatchKind.EXACT)
    with pytest.raises(InvalidError, match=r"2 key fields \(hdr.h.f0, hdr.h.f1\), got 1"):
        table.insert([Exact(1)], "ingress.drop")
    both = [Exact(1), Exact(2)]
    with pytest.raises(InvalidError, match=r"no action 'other'; its actions are ingress\.go, ingress\.drop"):
        table.insert(both, "other")
    with pytest.raises(InvalidError, match=r"takes 1 parameters \(port\), got 2"):
        table.insert(both, "ingress.go", [1, 2])
    with pytest.raises(InvalidError, match=r"parameter port of action ingress\.go: value 0x200 does not fit 9 bits"):
        table.set_default("ingress.go", [512])
    assert len(table) == 0
    assert table.action_of(table.default) == DROP


def test_full_table() -> None:
    table = make_table(MatchKind.EXACT, size=1)
    table.insert([Exact(1)], "ingress.drop")
    with pytest.raises(FullError, match="room for 1 entries"):
        table.insert([Exact(2)], "ingress.drop")
    table.clear()
    table.insert([Exact(2)], "ingress.drop")


def test_table_without_key_has_only_a_default() -> None:
    table = make_table()
    assert table.lookup(()) is table.default
    with pytest.raises(InvalidError, match="no key"):
        table.insert([], "ingress.drop")


def test_entries_of_the_program_stay() -> None:
    table = make_table(MatchKind.EXACT)
    table.insert_initial([([Exact(1)], 0, 0, (5,))], const=True)
    for write in (
        lambda: table.insert([Exact(2)], "ingress.drop"),
        lambda: table.modify([Exact(1)], "ingress.drop"),
        lambda: table.delete([Exact(1)]),
        table.clear,
    ):
        with pytest.raises(ImmutableError, match="constant"):
            write()
    table.reset()
    assert port(table.lookup((1,))) == 5
    assert table.entries()[0].is_const


def test_initial_entries_that_are_not_constant_come_back_with_a_reset() -> None:
    table = make_table(MatchKind.EXACT)
    table.insert_initial([([Exact(1)], 0, 0, (5,))], const=False)
    table.delete([Exact(1)])
    table.insert([Exact(2)], "ingress.drop")
    table.reset()
    assert [port(table.lookup((key,))) for key in (1, 2)] == [5, None]


def test_constant_default() -> None:
    key = [KeyField("f", MatchKind.EXACT, 8)]
    fixed = Table("t", keys=key, actions=[GO, DROP], size=1, default_action=(0, (1,)), default_is_const=True)
    with pytest.raises(ImmutableError):
        fixed.set_default("ingress.go", [2])
    with pytest.raises(ImmutableError):
        fixed.reset_default()
    action = Table("t", keys=key, actions=[GO, DROP], size=1, default_action=(0, (1,)), default_action_is_const=True)
    action.set_default("ingress.go", [2])
    with pytest.raises(ImmutableError):
        action.set_default("ingress.drop")
    assert action.default.args == (2,)


# Action profiles


def make_profile(**options: int) -> ActionProfile:
    return ActionProfile("ingress.ap", actions=(GO, DROP), selector=True, **options)


def test_entries_follow_their_member() -> None:
    profile = make_profile()
    table = make_table(MatchKind.EXACT, profile=profile)
    profile.insert_member(7, "ingress.go", [1])
    table.insert_member([Exact(1)], 7)
    assert table.lookup((1,)).args == (1,)
    profile.modify_member(7, "ingress.drop")
    assert table.actions[table.lookup((1,)).action] == DROP
    profile.insert_member(8, "ingress.go", [9])
    table.modify_member([Exact(1)], 8)
    assert table.lookup((1,)).args == (9,)
    profile.delete_member(7)
    with pytest.raises(InUseError, match="member 8 is referred to 1 times"):
        profile.delete_member(8)
    table.delete([Exact(1)])
    profile.delete_member(8)


def test_group_chooses_by_remainder_in_the_order_of_members_and_weights() -> None:
    profile = make_profile()
    table = make_table(MatchKind.EXACT, profile=profile)
    for number in (5, 3, 4):
        profile.insert_member(number, "ingress.go", [number])
    profile.insert_group(1, {5: 2, 3: 1, 4: 1})
    entry = table.insert_group([Exact(1)], 1)
    found = [table.lookup((1,), value) for value in range(5)]
    assert [each.args[0] for each in (table.lookup((1,), value) for value in range(5))] == [3, 4, 5, 5, 3]
    assert all(each is entry for each in found)
    profile.modify_group(1, {4: 1})
    assert table.lookup((1,), 3).args == (4,)
    profile.delete_member(5)
    profile.modify_group(1, {})
    assert table.lookup((1,), 3).action == NO_ACTION
    assert table.action_of(entry) is None
    with pytest.raises(InUseError, match="group 1"):
        profile.delete_group(1)
    table.clear()
    profile.delete_group(1)
    profile.delete_member(4)


def test_profile_limits() -> None:
    profile = make_profile(size=2, max_group_size=3)
    profile.insert_member(1, "ingress.drop")
    with pytest.raises(ExistsError):
        profile.insert_member(1, "ingress.drop")
    profile.insert_member(2, "ingress.drop")
    with pytest.raises(FullError, match="room for 2 members"):
        profile.insert_member(3, "ingress.drop")
    with pytest.raises(FullError, match="room for 3 members by weight, got 4"):
        profile.insert_group(1, {1: 3, 2: 1})
    with pytest.raises(InvalidError, match="weight 0 of member 1"):
        profile.insert_group(1, {1: 0})
    with pytest.raises(InvalidError, match="size 4 is not between 0 and 3"):
        profile.insert_group(1, max_size=4)
    with pytest.raises(NotFoundError, match="no member 9"):
        profile.insert_group(1, {9: 1})
    profile.insert_group(1, {1: 1}, max_size=1)
    with pytest.raises(FullError):
        profile.modify_group(1, {1: 1, 2: 1})
    assert profile.group(1).weights == {1: 1}
    assert [member.references for member in profile.members.values()] == [1, 0]
    with pytest.raises(InvalidError, match="no selector"):
        ActionProfile("p").insert_group(1)


def test_direct_and_indirect_writes_are_not_mixed() -> None:
    profile = make_profile()
    indirect, direct = make_table(MatchKind.EXACT, profile=profile), make_table(MatchKind.EXACT)
    with pytest.raises(InvalidError, match="expected a member or group"):
        indirect.insert([Exact(1)], "ingress.drop")
    with pytest.raises(InvalidError, match="expected an action"):
        direct.insert_member([Exact(1)], 1)
    with pytest.raises(NotFoundError):
        indirect.insert_member([Exact(1)], 1)
    with pytest.raises(NotFoundError):
        indirect.insert_group([Exact(1)], 1)
    assert len(indirect) == 0


def test_refused_insert_leaves_no_reference_behind() -> None:
    profile = make_profile()
    table = make_table(MatchKind.EXACT, profile=profile)
    profile.insert_member(1, "ingress.drop")
    table.insert_member([Exact(1)], 1)
    for matches_ in ([Exact(1)], [Exact(256)]):
        with pytest.raises(StateError):
            table.insert_member(matches_, 1)
    assert profile.member(1).references == 1
    table.set_default_member(1)
    assert profile.member(1).references == 2
    table.reset_default()
    assert profile.member(1).references == 1
