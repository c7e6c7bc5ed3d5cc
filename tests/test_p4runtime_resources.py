"""What comes along with table entries: metadata, direct counters and meters, idle time-outs."""

import pytest

from switch.p4runtime.errors import Code
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import DELETE, INSERT, MODIFY, Rig, frame, value_of
from tests.p4runtime_samples import exact


@pytest.fixture
def rig() -> Rig:
    return Rig()


# What comes along with entries


def test_metadata_are_given_back_and_select(rig: Rig) -> None:
    one = exact(rig.names, 1, controller_metadata=17, metadata=b"red")
    two = exact(rig.names, 2, controller_metadata=18, metadata=b"blue")
    rig.insert(one, two)
    assert rig.read(rig.names.entry("exact_t")) == [one, two]
    assert rig.read(rig.names.entry("exact_t", controller_metadata=18)) == [two]
    assert rig.read(rig.names.entry("exact_t", metadata=b"red")) == [one]
    rig.modify(exact(rig.names, 1, metadata=b"green"))
    assert rig.read(exact(rig.names, 1))[0].metadata == b"green"
    assert rig.read(exact(rig.names, 1))[0].controller_metadata == 0


def test_a_modify_without_action_leaves_the_action(rig: Rig) -> None:
    rig.insert(exact(rig.names))
    without = rig.names.entry("exact_t", {"key": 1, "src": 0x0A}, metadata=b"new")
    rig.modify(without)
    assert rig.read(without) == [exact(rig.names, metadata=b"new")]


def test_entries_are_selected_by_action(rig: Rig) -> None:
    names = rig.names
    rig.insert(exact(names, 1), exact(names, 2, action=names.action("mark", value=1, port=1)))
    (found,) = rig.read(names.entry("exact_t", action=pb.Action(action_id=names.id("actions", "mark"))))
    assert found.action.action == names.action("mark", value=1, port=1)


def test_all_tables_are_read_at_once(rig: Rig) -> None:
    rig.insert(exact(rig.names), rig.names.entry("lpm_t", {"dst": (0, 8)}, rig.names.action("forward", port=1)))
    found = rig.read(pb.TableEntry())
    assert len(found) == 4  # with the two of the program
    defaults = rig.read(pb.TableEntry(is_default_action=True))
    assert len(defaults) == len(rig.names.p4info.tables)
    assert rig.read_refused(pb.TableEntry(match=[pb.FieldMatch(field_id=1)]))[0] is Code.INVALID_ARGUMENT


def test_direct_counters_come_when_they_are_asked_for(rig: Rig) -> None:
    entry = exact(rig.names, counter_data=pb.CounterData(packet_count=5, byte_count=100))
    rig.insert(entry)
    rig.ask(1, frame(0, key=1))
    assert not rig.read(exact(rig.names))[0].HasField("counter_data")
    asked = rig.names.entry("exact_t", counter_data=pb.CounterData())
    assert rig.read(asked)[0].counter_data == pb.CounterData(packet_count=6, byte_count=118)
    direct = pb.DirectCounterEntry(table_entry=rig.names.entry("exact_t", {"key": 1, "src": 0x0A}))
    (found,) = rig.read(direct)
    assert found.data == pb.CounterData(packet_count=6, byte_count=118)
    assert found.table_entry == direct.table_entry
    assert rig.read(pb.DirectCounterEntry()) == [found]
    assert rig.read(pb.DirectCounterEntry(table_entry=rig.names.entry("exact_t"))) == [found]
    rig.modify(exact(rig.names))  # without counter data the counter stays
    assert rig.read(direct) == [found]
    rig.modify(pb.DirectCounterEntry(table_entry=direct.table_entry, data=pb.CounterData(packet_count=1)))
    assert rig.read(direct)[0].data == pb.CounterData(packet_count=1)
    rig.modify(pb.DirectCounterEntry(table_entry=direct.table_entry))
    assert rig.read(direct)[0].data == pb.CounterData(packet_count=1)


def test_direct_counters_that_are_not_there(rig: Rig) -> None:
    names = rig.names
    missing = pb.DirectCounterEntry(table_entry=names.entry("exact_t", {"key": 1, "src": 0x0A}))
    assert rig.refused(MODIFY, missing)[0] is Code.NOT_FOUND
    assert rig.read_refused(missing)[0] is Code.NOT_FOUND
    assert rig.refused(MODIFY, pb.DirectCounterEntry())[0] is Code.INVALID_ARGUMENT
    rig.insert(exact(names))
    for type_ in (INSERT, DELETE):
        assert rig.refused(type_, missing)[0] is Code.INVALID_ARGUMENT
    uncounted = pb.DirectCounterEntry(table_entry=names.entry("lpm_t"))
    assert rig.read_refused(uncounted) == (Code.INVALID_ARGUMENT, "table MyIngress.lpm_t has no direct counter")


def test_direct_meters(rig: Rig) -> None:
    names = rig.names
    rates = pb.MeterConfig(cir=1, cburst=1, pir=2, pburst=2)
    key = {"value": (10, 20), "key": 1}
    entry = names.entry("range_t", key, names.action("paced", port=3), priority=1, meter_config=rates)
    rig.insert(entry)
    colours = [value_of(rig.ask(0, frame(3, key=1, value=15))[0][1]) for _ in range(3)]
    assert colours == [0, 1, 2]
    assert rig.read(names.entry("range_t", meter_config=pb.MeterConfig())) == [entry]
    direct = pb.DirectMeterEntry(table_entry=names.entry("range_t", key, priority=1))
    (found,) = rig.read(direct)
    assert (found.config, found.table_entry) == (rates, direct.table_entry)
    rig.modify(direct)  # no configuration: green
    assert not rig.read(direct)[0].HasField("config")
    assert not rig.read(names.entry("range_t", meter_config=pb.MeterConfig()))[0].HasField("meter_config")
    rig.modify(pb.DirectMeterEntry(table_entry=direct.table_entry, config=rates))
    assert rig.read(pb.DirectMeterEntry())[0].config == rates
    rig.modify(names.entry("range_t", key, priority=1))  # a modify without it takes it away
    assert not rig.read(direct)[0].HasField("config")
    for bad in (pb.MeterConfig(cir=3, pir=2), pb.MeterConfig(eburst=1), pb.MeterConfig(cir=-1)):
        assert (
            rig.refused(MODIFY, pb.DirectMeterEntry(table_entry=direct.table_entry, config=bad))[0]
            is Code.INVALID_ARGUMENT
        )
        entry.meter_config.CopyFrom(bad)
        assert rig.refused(MODIFY, entry)[0] is Code.INVALID_ARGUMENT


# Idle time-outs


def test_idle_entries_are_reported_until_they_are_hit_again(rig: Rig) -> None:
    entry = rig.names.entry("lpm_t", {"dst": (0, 8)}, rig.names.action("forward", port=1), metadata=b"m")
    entry.idle_timeout_ns = 2_000_000_000
    rig.insert(entry, rig.names.entry("lpm_t", {"dst": (1 << 40, 8)}, rig.names.action("forward", port=1)))
    rig.later(1.9)
    assert rig.primary.take("idle_timeout_notification") == []
    rig.later(0.2)
    (notice,) = rig.primary.take("idle_timeout_notification")
    expected = rig.names.entry("lpm_t", {"dst": (0, 8)}, metadata=b"m", idle_timeout_ns=2_000_000_000)
    assert list(notice.table_entry) == [expected]
    assert notice.timestamp > 0
    rig.later(1.0)
    rig.ask(0, frame(1))
    rig.later(1.5)
    assert rig.primary.take("idle_timeout_notification") == []
    asked = rig.names.entry("lpm_t", {"dst": (0, 8)})
    asked.time_since_last_hit.SetInParent()
    assert rig.read(asked)[0].time_since_last_hit.elapsed_ns == pytest.approx(1.5e9)
    assert rig.read(rig.names.entry("lpm_t", {"dst": (0, 8)})) == [entry]
    rig.delete(asked)
    rig.later(10)
    assert rig.primary.take("idle_timeout_notification") == []


def test_a_time_out_can_be_changed_and_taken_away(rig: Rig) -> None:
    entry = rig.names.entry("lpm_t", {}, rig.names.action("forward", port=1), idle_timeout_ns=1)
    rig.insert(entry)
    entry.idle_timeout_ns = 0
    rig.modify(entry)
    rig.later(10)
    assert rig.primary.take("idle_timeout_notification") == []
    entry.idle_timeout_ns = -1
    assert rig.refused(MODIFY, entry)[0] is Code.INVALID_ARGUMENT
