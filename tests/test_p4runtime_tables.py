from collections.abc import Callable
from typing import Any

import pytest

from switch.p4runtime.errors import BatchError, Code
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import DELETE, INSERT, MODIFY, Rig, frame, ports, value_of
from tests.p4runtime_samples import BAD_EXACT, exact


@pytest.fixture
def rig() -> Rig:
    return Rig()


# The kinds of matches


def test_exact_entries_forward_until_they_are_deleted(rig: Rig) -> None:
    entry = exact(rig.names)
    rig.insert(entry)
    assert ports(rig.ask(1, frame(0, key=1))) == [2]
    assert rig.ask(1, frame(0, key=2)) == []
    assert rig.read(entry) == [entry]
    rig.modify(exact(rig.names, action=rig.names.action("mark", value=0x1234, port=5)))
    ((port, data),) = rig.ask(1, frame(0, key=1))
    assert (port, value_of(data)) == (5, 0x1234)
    rig.delete(rig.names.entry("exact_t", {"key": 1, "src": 0x0A}))
    assert rig.ask(1, frame(0, key=1)) == []
    assert rig.read(rig.names.entry("exact_t")) == []


def test_the_longest_prefix_wins_and_all_of_a_table_is_read(rig: Rig) -> None:
    names = rig.names
    entries = [
        names.entry("lpm_t", {"dst": (0x0A0000000000, 8)}, names.action("forward", port=1)),
        names.entry("lpm_t", {"dst": (0x0A0B00000000, 16)}, names.action("forward", port=2)),
        names.entry("lpm_t", {}, names.action("forward", port=3)),
    ]
    rig.insert(*entries)
    for dst, port in ((0x0A0000000001, 1), (0x0A0B00000001, 2), (1, 3)):
        assert ports(rig.ask(4, frame(1, dst=dst))) == [port]
    assert rig.read(names.entry("lpm_t")) == entries
    assert rig.read(entries[1]) == [entries[1]]


def test_the_highest_priority_wins_among_ternary_optional_and_prefix_fields(rig: Rig) -> None:
    names = rig.names
    low = names.entry("ternary_t", {"value": (0x0100, 0xFF00)}, names.action("forward", port=1), priority=5)
    high = names.entry("ternary_t", {"value": (0x0001, 0x000F), "key": 7}, names.action("forward", port=2), priority=9)
    prefix = names.entry("ternary_t", {"dst": (0xFF0000000000, 8)}, names.action("forward", port=3), priority=1)
    everything = names.entry("ternary_t", {}, names.action("forward", port=4), priority=1)
    rig.insert(low, high, prefix, everything)
    assert ports(rig.ask(0, frame(2, key=7, value=0x0101))) == [2]
    assert ports(rig.ask(0, frame(2, key=8, value=0x0101))) == [1]
    assert ports(rig.ask(0, frame(2, dst=0xFF0000000000))) == [3]
    assert ports(rig.ask(0, frame(2))) == [4]
    assert rig.read(high) == [high]
    assert rig.read(names.entry("ternary_t", priority=1)) == [prefix, everything]
    with_match_only = names.entry("ternary_t", {"value": (0x0100, 0xFF00)})
    assert rig.read(with_match_only) == [low]


def test_ranges(rig: Rig) -> None:
    names = rig.names
    entry = names.entry("range_t", {"value": (10, 20), "key": 1}, names.action("paced", port=3), priority=1)
    rig.insert(entry)
    for value, expected in ((9, []), (10, [3]), (20, [3]), (21, [])):
        assert ports(rig.ask(0, frame(3, key=1, value=value))) == expected
    assert rig.read(names.entry("range_t")) == [entry]


def test_byte_strings_are_taken_with_leading_zeros_and_given_back_without(rig: Rig) -> None:
    entry = exact(rig.names)
    for match in entry.match:
        match.exact.value = bytes(9) + match.exact.value
    entry.action.action.params[0].value = b"\x00\x00\x02"
    rig.insert(entry)
    assert rig.read(rig.names.entry("exact_t")) == [exact(rig.names)]


@pytest.mark.parametrize(("damage", "code", "text"), BAD_EXACT)
def test_what_is_wrong_with_an_entry_is_named_and_nothing_changes(
    rig: Rig, damage: Callable[[Any], object], code: Code, text: str
) -> None:
    entry = exact(rig.names)
    damage(entry)
    found, message = rig.refused(INSERT, entry)
    assert (found, text in message) == (code, True), message
    assert rig.read(rig.names.entry("exact_t")) == []


@pytest.mark.parametrize(
    ("table", "match", "priority", "text"),
    [
        ("lpm_t", {"dst": (0, 0)}, 0, "prefix length 0 is not between 1 and 48; leave the field out"),
        ("lpm_t", {"dst": (0, 49)}, 0, "prefix length 49 is not between 1 and 48"),
        ("lpm_t", {"dst": (1, 8)}, 0, "bits set beyond its prefix"),
        ("ternary_t", {"value": (0, 0)}, 1, "mask is 0; leave the field out"),
        ("ternary_t", {"value": (3, 1)}, 1, "bits set outside its mask"),
        ("ternary_t", {"value": (1, 1)}, 0, "needs a priority above 0"),
        ("ternary_t", {"value": (1, 1)}, -4, "needs a priority above 0"),
        ("range_t", {"value": (3, 2), "key": 0}, 1, "range 0x3 to 0x2 is empty"),
        ("range_t", {"value": (0, 0xFFFF), "key": 0}, 1, "leave the field out"),
        ("flood", {}, 0, "has no key"),
    ],
)
def test_matches_that_break_the_rules(rig: Rig, table: str, match: dict[str, Any], priority: int, text: str) -> None:
    action = {"range_t": ("paced", {"port": 1}), "flood": ("multicast", {"group": 1})}.get(
        table, ("forward", {"port": 1})
    )
    entry = rig.names.entry(table, match, rig.names.action(action[0], **action[1]), priority=priority)
    code, message = rig.refused(INSERT, entry)
    assert (code, text in message) == (Code.INVALID_ARGUMENT, True), message


def test_entries_that_are_there_or_not_or_too_many(rig: Rig) -> None:
    rig.insert(*(exact(rig.names, key) for key in range(4)))
    assert rig.refused(INSERT, exact(rig.names, 0))[0] is Code.ALREADY_EXISTS
    assert rig.refused(INSERT, exact(rig.names, 4))[0] is Code.RESOURCE_EXHAUSTED
    assert rig.refused(MODIFY, exact(rig.names, 4))[0] is Code.NOT_FOUND
    assert rig.refused(DELETE, exact(rig.names, 4))[0] is Code.NOT_FOUND
    assert rig.read(exact(rig.names, 4)) == []


def test_actions_only_where_the_program_allows_them(rig: Rig) -> None:
    names = rig.names
    assert rig.refused(INSERT, exact(names, action=names.action("drop")))[0] is Code.PERMISSION_DENIED
    default = names.entry("exact_t", action=names.action("nothing"), is_default_action=True)
    assert rig.refused(MODIFY, default)[0] is Code.PERMISSION_DENIED


# Default entries, and those of the program


def test_the_default_entry_is_modified_and_reset(rig: Rig) -> None:
    names = rig.names
    drop = names.entry("exact_t", action=names.action("drop"), is_default_action=True)
    assert rig.read(names.entry("exact_t", is_default_action=True)) == [drop]
    changed = names.entry("exact_t", action=names.action("forward", port=6), is_default_action=True, metadata=b"mine")
    rig.modify(changed)
    assert ports(rig.ask(1, frame(0, key=1))) == [6]
    assert rig.read(names.entry("exact_t", is_default_action=True)) == [changed]
    rig.modify(names.entry("exact_t", is_default_action=True))
    assert rig.ask(1, frame(0, key=1)) == []
    assert rig.read(names.entry("exact_t", is_default_action=True)) == [drop]


def test_a_table_without_a_key_has_a_default_action(rig: Rig) -> None:
    rig.insert(pb.MulticastGroupEntry(multicast_group_id=1, replicas=[pb.Replica(egress_port=4)]))
    rig.modify(rig.names.entry("flood", action=rig.names.action("multicast", group=1), is_default_action=True))
    assert ports(rig.ask(0, frame(ether_type=0x0800))) == [4]


@pytest.mark.parametrize("type_", [INSERT, DELETE])
def test_the_default_entry_cannot_be_inserted_or_deleted(rig: Rig, type_: int) -> None:
    entry = rig.names.entry("exact_t", action=rig.names.action("drop"), is_default_action=True)
    assert rig.refused(type_, entry)[0] is Code.INVALID_ARGUMENT


def test_what_a_default_entry_cannot_have(rig: Rig) -> None:
    names = rig.names
    action = names.action("forward", port=1)
    for more, code in (
        ({"priority": 1}, Code.INVALID_ARGUMENT),
        ({"idle_timeout_ns": 1}, Code.INVALID_ARGUMENT),
        ({"counter_data": pb.CounterData()}, Code.UNIMPLEMENTED),
        ({"meter_config": pb.MeterConfig()}, Code.UNIMPLEMENTED),
    ):
        entry = names.entry("exact_t", action=action, is_default_action=True, **more)
        assert rig.refused(MODIFY, entry)[0] is code
    with_match = names.entry("exact_t", {"key": 1}, action, is_default_action=True)
    assert rig.refused(MODIFY, with_match)[0] is Code.INVALID_ARGUMENT
    const = names.entry("ternary_t", action=names.action("drop"), is_default_action=True)
    assert rig.refused(MODIFY, const)[0] is Code.PERMISSION_DENIED
    assert rig.read(names.entry("ternary_t", is_default_action=True))[0].is_const


def test_entries_of_the_program_are_read_and_stay(rig: Rig) -> None:
    names = rig.names
    first, second = rig.read(names.entry("const_t"))
    assert first.is_const
    assert second.is_const
    assert first.priority > second.priority > 0
    assert first.match[0].ternary == pb.FieldMatch.Ternary(value=b"\x10", mask=b"\xf0")
    assert not second.match
    assert first.action.action == names.action("forward", port=1)
    for type_, entry in (
        (INSERT, names.entry("const_t", {"value": (1, 1)}, names.action("drop"), priority=3)),
        (MODIFY, names.entry("const_t", {"value": (0x10, 0xF0)}, names.action("drop"), priority=first.priority)),
        (DELETE, names.entry("const_t", {"value": (0x10, 0xF0)}, priority=first.priority)),
    ):
        assert rig.refused(type_, entry)[0] is Code.PERMISSION_DENIED
    # Without an action nothing but direct resources is written, and there are none.
    rig.modify(names.entry("const_t", {"value": (0x10, 0xF0)}, priority=first.priority))


# Types that are translated


def test_translated_numbers_are_taken_as_they_are_if_they_fit(rig: Rig) -> None:
    names = rig.names
    rig.insert(exact(names, action=names.action("use_label", label=200)))
    assert value_of(rig.ask(1, frame(0, key=1))[0][1]) == 200
    code, message = rig.refused(INSERT, exact(names, 2, action=names.action("use_label", label=300)))
    assert (code, "label" in message) == (Code.INVALID_ARGUMENT, True)


def test_translated_text_is_refused(rig: Rig) -> None:
    entry = rig.names.entry("label_t_", {"label": 1, "name": 2}, rig.names.action("forward", port=1))
    assert rig.refused(INSERT, entry) == (
        Code.UNIMPLEMENTED,
        "table MyIngress.label_t_: meta.name: meta.name is translated from text (sdn_string), which is not supported",
    )


def test_reads_that_cannot_be(rig: Rig) -> None:
    asked = rig.names.entry("exact_t")
    asked.time_since_last_hit.SetInParent()
    assert rig.read_refused(asked)[0] is Code.INVALID_ARGUMENT
    assert rig.read_refused(pb.TableEntry(table_id=77))[0] is Code.INVALID_ARGUMENT
    assert rig.read_refused(rig.names.entry("exact_t", {"key": 1}))[0] is Code.INVALID_ARGUMENT


def test_a_read_gives_what_it_can_and_an_error_for_the_rest(rig: Rig) -> None:
    rig.insert(exact(rig.names))
    request = pb.ReadRequest(device_id=3)
    for table in (rig.names.id("tables", "exact_t"), 77):
        request.entities.add().table_entry.table_id = table
    found: list[Any] = []
    with pytest.raises(BatchError, match="1 of 2 entities failed") as caught:
        found.extend(rig.service.read(request))
    assert [error and error.code for error in caught.value.errors] == [None, Code.INVALID_ARGUMENT]
    assert [
        len(response.entities)
        for response in rig.service.read(pb.ReadRequest(device_id=3, entities=request.entities[:1]))
    ] == [1]
