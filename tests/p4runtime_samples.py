"""Requests on p4rt_all that several tests make: entries, what is wrong with entries, and something of everything."""

from collections.abc import Callable
from typing import Any

import pytest

from switch.p4runtime.errors import Code, P4RuntimeError
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import DELETE, INSERT, MODIFY, Names, Rig


def code_of(function: Callable[[], object]) -> Code:
    with pytest.raises(P4RuntimeError) as caught:
        function()
    return caught.value.code


def exact(names: Names, key: int = 1, **more: Any) -> Any:
    action = more.pop("action", names.action("forward", port=2))
    return names.entry("exact_t", {"key": key, "src": 0x0A}, action, **more)


def entry(rig: Rig, key: int, port: int = 2, **more: Any) -> Any:
    return rig.names.entry("exact_t", {"key": key, "src": 0x0A}, rig.names.action("forward", port=port), **more)


def change(path: str, value: Any) -> Callable[[Any], None]:
    def apply(entry: Any) -> None:
        parts = path.split(".")
        for part in parts[:-1]:
            entry = entry[int(part)] if part.isdecimal() else getattr(entry, part)
        setattr(entry, parts[-1], value)

    return apply


BAD_EXACT: list[tuple[Callable[[Any], object], Code, str]] = [
    (change("table_id", 5), Code.INVALID_ARGUMENT, "no table with id 5"),
    (change("table_id", 0), Code.INVALID_ARGUMENT, "no table with id 0"),
    (change("priority", 1), Code.INVALID_ARGUMENT, "takes no priority"),
    (change("match.0.field_id", 9), Code.INVALID_ARGUMENT, "hdr.probe.key is missing"),
    (change("match.1.field_id", 1), Code.INVALID_ARGUMENT, "match field 1 stands twice"),
    (change("match.0.exact.value", b""), Code.OUT_OF_RANGE, "hdr.probe.key: the byte string is empty"),
    (change("match.0.exact.value", b"\x01\x00"), Code.OUT_OF_RANGE, "value 0x100 does not fit 8 bits"),
    (change("match.0.lpm.prefix_len", 3), Code.INVALID_ARGUMENT, "expected EXACT match, got LPM"),
    (lambda entry: entry.match[0].ClearField("exact"), Code.INVALID_ARGUMENT, "expected EXACT match, got NONE"),
    (lambda entry: entry.match.add(field_id=3), Code.INVALID_ARGUMENT, "no match field with id 3"),
    (lambda entry: entry.match.__delitem__(1), Code.INVALID_ARGUMENT, "exact match field src is missing"),
    (lambda entry: entry.ClearField("action"), Code.INVALID_ARGUMENT, "the action is missing"),
    (change("action.action.action_id", 77), Code.INVALID_ARGUMENT, "no action with id 77; it has MyIngress.forward"),
    (
        change("action.action.params.0.param_id", 2),
        Code.INVALID_ARGUMENT,
        "port of action MyIngress.forward is missing",
    ),
    (change("action.action.params.0.value", b"\x02\x00"), Code.OUT_OF_RANGE, "value 0x200 does not fit 9 bits"),
    (change("action.action.params.0.value", b""), Code.OUT_OF_RANGE, "the byte string is empty"),
    (lambda entry: entry.action.action.params.add(param_id=1, value=b"1"), Code.INVALID_ARGUMENT, "stands twice"),
    (
        lambda entry: entry.action.action.params.add(param_id=4, value=b"1"),
        Code.INVALID_ARGUMENT,
        "with id 4",
    ),
    (change("action.action_profile_member_id", 4), Code.INVALID_ARGUMENT, "expected an action, got action_profile_mem"),
    (change("is_const", True), Code.INVALID_ARGUMENT, "is_const"),
    (change("idle_timeout_ns", 5), Code.INVALID_ARGUMENT, "does not support idle time-outs"),
    (lambda entry: entry.time_since_last_hit.SetInParent(), Code.INVALID_ARGUMENT, "time_since_last_hit must not"),
    (lambda entry: entry.meter_config.SetInParent(), Code.INVALID_ARGUMENT, "has no direct meter"),
    (lambda entry: entry.meter_counter_data.SetInParent(), Code.UNIMPLEMENTED, "colour are not counted"),
    (change("counter_data.packet_count", -1), Code.INVALID_ARGUMENT, "must not be negative"),
]


def fill(rig: Rig) -> list[Any]:
    """Writes something of everything; returns requests that read it."""
    names = rig.names
    rates = pb.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    profile = names.id("action_profiles", "plain")
    forward = names.action("forward", port=4)
    rig.insert(
        entry(rig, 1, metadata=b"m", counter_data=pb.CounterData(packet_count=7)),
        names.entry(
            "range_t", {"value": (1, 2), "key": 0}, names.action("paced", port=1), priority=3, meter_config=rates
        ),
        names.entry("lpm_t", {"dst": (0, 8)}, forward, idle_timeout_ns=10**12),
        pb.ActionProfileMember(action_profile_id=profile, member_id=1, action=forward),
        names.entry("plain_t", {"key": 1}, member=1),
        pb.MulticastGroupEntry(multicast_group_id=4, replicas=[pb.Replica(egress_port=1)], metadata=b"g"),
        pb.CloneSessionEntry(session_id=7, replicas=[pb.Replica(egress_port=1)]),
        pb.DigestEntry(digest_id=names.id("digests", "learned_t")),
    )
    one_shot = names.entry("choice_t", {"key": 1})
    one_shot.action.action_profile_action_set.CopyFrom(names.action_set((forward, 2)))
    rig.insert(one_shot)
    register = pb.RegisterEntry(register_id=names.id("registers", "last"), index=pb.Index(index=2))
    register.data.bitstring = b"\x11"
    values = pb.ValueSetEntry(value_set_id=names.id("value_sets", "special_types"))
    values.members.add().match.add(field_id=1).exact.value = b"\x99\x99"
    rig.modify(
        names.entry("exact_t", action=names.action("forward", port=9), is_default_action=True, metadata=b"d"),
        register,
        values,
        pb.CounterEntry(
            counter_id=names.id("counters", "by_port"), index=pb.Index(index=1), data=pb.CounterData(packet_count=3)
        ),
        pb.MeterEntry(meter_id=names.id("meters", "by_op"), index=pb.Index(index=1), config=rates),
    )
    with_all = pb.TableEntry(counter_data=pb.CounterData(), meter_config=pb.MeterConfig())
    return [
        with_all,
        pb.TableEntry(is_default_action=True),
        pb.ActionProfileMember(),
        pb.ActionProfileGroup(),
        pb.RegisterEntry(),
        pb.CounterEntry(),
        pb.MeterEntry(),
        pb.ValueSetEntry(),
        pb.DigestEntry(),
        pb.MulticastGroupEntry(),
        pb.CloneSessionEntry(),
        pb.DirectCounterEntry(),
        pb.DirectMeterEntry(),
    ]


def everything_else(rig: Rig) -> list[tuple[int, Any]]:
    """Updates that change all of what `fill` writes, each type where it can be."""
    names = rig.names
    profile = names.id("action_profiles", "plain")
    forward = names.action("forward", port=5)
    digest = names.id("digests", "learned_t")
    two = pb.CounterData(packet_count=2, byte_count=2)
    register = pb.RegisterEntry(register_id=names.id("registers", "last"))
    register.data.bitstring = b"\x22"
    key = names.entry("range_t", {"value": (1, 2), "key": 0}, priority=3)
    one_shot = names.entry("choice_t", {"key": 1})
    one_shot.action.action_profile_action_set.CopyFrom(names.action_set((forward, 1), (forward, 1)))
    other_one_shot = names.entry("choice_t", {"key": 2})
    other_one_shot.action.action_profile_action_set.CopyFrom(names.action_set((forward, 1)))
    return [
        (MODIFY, entry(rig, 1, port=7, counter_data=two)),
        (INSERT, entry(rig, 2)),
        (DELETE, entry(rig, 1)),
        (MODIFY, names.entry("lpm_t", {"dst": (0, 8)}, forward, idle_timeout_ns=5)),
        (DELETE, names.entry("lpm_t", {"dst": (0, 8)})),
        (MODIFY, names.entry("exact_t", is_default_action=True)),
        (MODIFY, names.entry("lpm_t", action=forward, is_default_action=True)),
        (MODIFY, pb.DirectMeterEntry(table_entry=key)),
        (DELETE, key),
        (INSERT, pb.ActionProfileMember(action_profile_id=profile, member_id=2, action=forward)),
        (MODIFY, pb.ActionProfileMember(action_profile_id=profile, member_id=1, action=forward)),
        (MODIFY, names.entry("plain_t", {"key": 1}, member=2)),
        (DELETE, pb.ActionProfileMember(action_profile_id=profile, member_id=1)),
        (MODIFY, one_shot),
        (INSERT, other_one_shot),
        (DELETE, one_shot),
        (MODIFY, register),
        (MODIFY, pb.CounterEntry(counter_id=names.id("counters", "by_port"), data=two)),
        (MODIFY, pb.MeterEntry(meter_id=names.id("meters", "by_op"))),
        (MODIFY, pb.ValueSetEntry(value_set_id=names.id("value_sets", "special_types"))),
        (MODIFY, pb.MulticastGroupEntry(multicast_group_id=4)),
        (INSERT, pb.MulticastGroupEntry(multicast_group_id=5)),
        (DELETE, pb.MulticastGroupEntry(multicast_group_id=4)),
        (MODIFY, pb.CloneSessionEntry(session_id=7)),
        (INSERT, pb.CloneSessionEntry(session_id=8)),
        (DELETE, pb.CloneSessionEntry(session_id=7)),
        (MODIFY, pb.DigestEntry(digest_id=digest, config=pb.DigestEntry.Config(max_list_size=3))),
        (DELETE, pb.DigestEntry(digest_id=digest)),
    ]
