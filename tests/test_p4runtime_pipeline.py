import json
from collections.abc import Callable
from typing import Any

import pytest

from switch.p4runtime.errors import BatchError, Code, P4RuntimeError
from switch.p4runtime.messages import p4info_pb2
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import (
    DELETE,
    DEVICE,
    INSERT,
    MODIFY,
    Controller,
    Rig,
    arbitration,
    bits,
    config_of,
    frame,
    json_of,
    p4info_of,
    ports,
    updates,
)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def empty() -> Rig:
    return Rig(None)


def entry(rig: Rig, key: int, port: int = 2, **more: Any) -> Any:
    return rig.names.entry("exact_t", {"key": key, "src": 0x0A}, rig.names.action("forward", port=port), **more)


def code_of(function: Callable[[], object]) -> Code:
    with pytest.raises(P4RuntimeError) as caught:
        function()
    return caught.value.code


# Configurations


def test_before_a_pipeline_there_is_nothing_to_read_or_write(empty: Rig) -> None:
    assert not empty.get_pipeline().HasField("config")
    assert code_of(lambda: empty.write((INSERT, entry(empty, 1)))) is Code.FAILED_PRECONDITION
    assert code_of(lambda: empty.read(pb.TableEntry())) is Code.FAILED_PRECONDITION
    empty.service.receive(empty.primary, pb.StreamMessageRequest(packet=pb.PacketOut()))
    assert empty.primary.take("error")[0].canonical_code == Code.FAILED_PRECONDITION


def test_a_committed_pipeline_is_given_back_as_it_came(empty: Rig) -> None:
    config = config_of(cookie=0x1234)
    empty.set_pipeline(config)
    assert empty.get_pipeline().config == config
    only_cookie = pb.ForwardingPipelineConfig(cookie=config.cookie)
    assert empty.get_pipeline("COOKIE_ONLY").config == only_cookie
    assert empty.get_pipeline("P4INFO_AND_COOKIE").config == pb.ForwardingPipelineConfig(
        p4info=config.p4info, cookie=config.cookie
    )
    assert empty.get_pipeline("DEVICE_CONFIG_AND_COOKIE").config == pb.ForwardingPipelineConfig(
        p4_device_config=config.p4_device_config, cookie=config.cookie
    )
    empty.set_pipeline(config_of())
    assert not empty.get_pipeline().config.HasField("cookie")


def test_verify_changes_nothing(rig: Rig) -> None:
    rig.insert(entry(rig, 1))
    rig.set_pipeline(config_of(cookie=5), "VERIFY")
    assert not rig.get_pipeline().config.HasField("cookie")
    assert ports(rig.ask(0, frame(0, key=1))) == [2]


def test_commit_clears_the_state(rig: Rig) -> None:
    rig.insert(entry(rig, 1))
    rig.set_pipeline(config_of())
    assert rig.read(rig.names.entry("exact_t")) == []
    assert rig.ask(0, frame(0, key=1)) == []


def test_a_saved_pipeline_is_written_before_it_runs(rig: Rig) -> None:
    rig.insert(entry(rig, 1, port=2))
    assert code_of(lambda: rig.set_pipeline(None, "COMMIT")) is Code.NOT_FOUND
    rig.set_pipeline(config_of(cookie=5), "VERIFY_AND_SAVE")
    assert rig.get_pipeline("COOKIE_ONLY").config.cookie.cookie == 5
    assert rig.read(rig.names.entry("exact_t")) == []
    rig.insert(entry(rig, 1, port=3))
    assert ports(rig.ask(0, frame(0, key=1))) == [2]
    assert code_of(lambda: rig.set_pipeline(config_of(), "COMMIT")) is Code.INVALID_ARGUMENT
    rig.set_pipeline(None, "COMMIT")
    assert ports(rig.ask(0, frame(0, key=1))) == [3]
    assert code_of(lambda: rig.set_pipeline(None, "COMMIT")) is Code.NOT_FOUND


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


def test_reconciling_keeps_the_state(rig: Rig) -> None:
    requests = fill(rig)
    before = rig.read(*requests)
    rig.set_pipeline(config_of(cookie=9), "RECONCILE_AND_COMMIT")
    assert rig.read(*requests) == before
    assert rig.get_pipeline("COOKIE_ONLY").config.cookie.cookie == 9
    assert ports(rig.ask(0, frame(5, key=1))) == [4]


def test_reconciling_with_a_program_that_has_no_place_for_the_state(rig: Rig) -> None:
    rig.insert(entry(rig, 1))
    small = json.loads(json_of())
    for pipeline in small["pipelines"]:
        for table in pipeline["tables"]:
            if table["name"] == "MyIngress.exact_t":
                table["max_size"] = 0
    config = config_of()
    config.p4_device_config = json.dumps(small).encode()
    with pytest.raises(P4RuntimeError, match=r"the state cannot be kept: table MyIngress\.exact_t is full") as caught:
        rig.set_pipeline(config, "RECONCILE_AND_COMMIT")
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert ports(rig.ask(0, frame(0, key=1))) == [2]


def test_only_the_primary_sets_the_pipeline(empty: Rig) -> None:
    request = pb.SetForwardingPipelineConfigRequest(device_id=DEVICE, config=config_of())
    assert code_of(lambda: empty.service.set_pipeline(request)) is Code.PERMISSION_DENIED
    request.election_id.low = 2
    assert code_of(lambda: empty.service.set_pipeline(request)) is Code.PERMISSION_DENIED
    request.device_id = 4
    assert code_of(lambda: empty.service.set_pipeline(request)) is Code.NOT_FOUND
    assert code_of(lambda: empty.set_pipeline(config_of(), "UNSPECIFIED")) is Code.INVALID_ARGUMENT
    assert code_of(lambda: empty.set_pipeline(None)) is Code.INVALID_ARGUMENT
    assert code_of(lambda: empty.service.get_pipeline(pb.GetForwardingPipelineConfigRequest())) is Code.NOT_FOUND


def test_a_configuration_without_device_data_means_the_program_that_runs(empty: Rig) -> None:
    config = pb.ForwardingPipelineConfig(p4info=p4info_of())
    with pytest.raises(P4RuntimeError, match="no p4_device_config"):
        empty.set_pipeline(config)
    empty.service.run_program(json_of())
    assert ports(empty.ask(5, frame(8, key=1))) == [5]
    assert not empty.get_pipeline().HasField("config")
    empty.set_pipeline(config)
    empty.insert(entry(empty, 1))
    assert ports(empty.ask(0, frame(0, key=1))) == [2]
    empty.set_pipeline(config)  # the one that runs by now
    assert empty.read(empty.names.entry("exact_t")) == []


def action_in(p4info: Any, name: str) -> Any:
    return next(action for action in p4info.actions if action.preamble.alias == name)


def set_first(kind: str, path: str, value: Any) -> Callable[[Any], None]:
    def apply(p4info: Any) -> None:
        found = getattr(p4info, kind)[0]
        *parts, last = path.split(".")
        for part in parts:
            found = getattr(found, part)
        setattr(found, last, value)

    return apply


DAMAGE: list[tuple[Callable[[Any], object], str]] = [
    (set_first("tables", "preamble.name", "MyIngress.other"), "table MyIngress.other, which the program has not"),
    (set_first("tables", "preamble.id", 0), "MyIngress.exact_t has no id"),
    (lambda i: i.tables.add().CopyFrom(i.tables[0]), "have the same id"),
    (lambda i: i.tables[0].match_fields.__delitem__(0), "table MyIngress.exact_t: its key is src in p4info, hdr"),
    (
        lambda i: setattr(i.tables[0].match_fields[0], "bitwidth", 7),
        "hdr.probe.key has 7 bits in p4info, 8 in the",
    ),
    (lambda i: setattr(i.tables[0].match_fields[0], "match_type", 3), "hdr.probe.key is LPM in p4info, exact in the"),
    (lambda i: setattr(i.tables[0].match_fields[0], "match_type", 0), "hdr.probe.key is UNSPECIFIED in p4info"),
    (lambda i: i.tables[0].action_refs.add(id=5), "table MyIngress.exact_t: p4info has no action with id 5"),
    (
        lambda i: i.tables[1].action_refs.add(id=action_in(i, "mark").preamble.id),
        "table MyIngress.lpm_t: p4info has action MyIngress.mark; the program has MyIngress.drop, MyIngress.forward",
    ),
    (lambda i: setattr(i.tables[0], "implementation_id", 5), "has an action profile in p4info, which is not so"),
    (
        lambda i: action_in(i, "use_label").params.add(id=9, name="x", bitwidth=1),
        "its parameters are label, x in p4info, label in",
    ),
    (lambda i: setattr(i.actions[2].params[0], "bitwidth", 8), "port has 8 bits in p4info, 9 in the program"),
    (set_first("counters", "size", 4), "counter MyIngress.by_port has size 4 in p4info, 8 in the program"),
    (set_first("registers", "type_spec.bitstring.bit.bitwidth", 8), "MyIngress.last has cells of 8 bits in p4info, 16"),
    (lambda i: i.registers.__delitem__(0), "the program has register MyIngress.last, which p4info has not"),
    (lambda i: i.digests.__delitem__(0), "the program has digest learned_t, which p4info has not; it has none"),
    (set_first("digests", "type_spec.struct.name", "other_t"), "digest learned_t: type other_t is not described"),
    (
        lambda i: i.type_info.structs["learned_t"].members.__delitem__(0),
        "digest learned_t has 1 fields in p4info, 2 in the program",
    ),
    (lambda i: setattr(i.value_sets[0].match[0], "bitwidth", 8), "MyParser.special_types has 8 bits in p4info"),
    (set_first("action_profiles", "with_selector", True), "MyIngress.plain has a selector in p4info only"),
    (lambda i: setattr(i.controller_packet_metadata[0].metadata[0], "bitwidth", 0), "ingress_port has no bit width"),
]


@pytest.mark.parametrize(("damage", "text"), DAMAGE)
def test_p4info_that_does_not_fit_is_refused_by_name(empty: Rig, damage: Callable[[Any], object], text: str) -> None:
    config = config_of()
    damage(config.p4info)
    with pytest.raises(P4RuntimeError) as caught:
        empty.set_pipeline(config)
    assert (caught.value.code, text in caught.value.message) == (Code.INVALID_ARGUMENT, True), caught.value.message
    assert not empty.get_pipeline().HasField("config")


def test_programs_that_are_none(empty: Rig) -> None:
    for data in (b"{", b"{}", b"nonsense", b'{"program": 3}'):
        config = pb.ForwardingPipelineConfig(p4info=p4info_of(), p4_device_config=data)
        with pytest.raises(P4RuntimeError, match=r"^p4_device_config") as caught:
            empty.set_pipeline(config)
        assert caught.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(P4RuntimeError, match="no p4info"):
        empty.set_pipeline(pb.ForwardingPipelineConfig(p4_device_config=json_of()))
    with pytest.raises(P4RuntimeError, match="which p4info has not"):
        empty.set_pipeline(pb.ForwardingPipelineConfig(p4info=p4info_pb2.P4Info(), p4_device_config=json_of()))


# Batches


def test_every_update_has_its_error(rig: Rig) -> None:
    with pytest.raises(BatchError, match="2 of 4 updates failed") as caught:
        rig.write((INSERT, entry(rig, 1)), (INSERT, entry(rig, 1)), (INSERT, entry(rig, 2)), (DELETE, entry(rig, 9)))
    assert [error and error.code for error in caught.value.errors] == [None, Code.ALREADY_EXISTS, None, Code.NOT_FOUND]
    assert caught.value.code is Code.UNKNOWN
    assert len(rig.read(rig.names.entry("exact_t"))) == 2


def test_large_batches_are_carried_out_in_pieces(rig: Rig) -> None:
    entries = [rig.names.entry("lpm_t", {"dst": (i << 40, 16)}, rig.names.action("forward", port=i)) for i in range(64)]
    rig.insert(*entries)
    rig.write(*((MODIFY, each) for each in entries * 4))
    assert rig.read(rig.names.entry("lpm_t")) == entries


def test_updates_without_type_or_entity(rig: Rig) -> None:
    assert rig.refused(0, entry(rig, 1))[0] is Code.INVALID_ARGUMENT
    request = pb.WriteRequest(device_id=DEVICE, election_id=bits(1), updates=[pb.Update(type=INSERT)])
    with pytest.raises(BatchError) as caught:
        rig.service.write(request)
    assert caught.value.errors[0] is not None
    assert caught.value.errors[0].message == "the entity is empty"
    with pytest.raises(BatchError):
        list(rig.service.read(pb.ReadRequest(device_id=DEVICE, entities=[pb.Entity()])))


def test_an_unknown_atomicity(rig: Rig) -> None:
    request = pb.WriteRequest(device_id=DEVICE, election_id=bits(1), atomicity=9)
    assert code_of(lambda: rig.service.write(request)) is Code.INVALID_ARGUMENT


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


def in_any_order(messages: list[Any]) -> list[bytes]:
    return sorted(message.SerializeToString(deterministic=True) for message in messages)


@pytest.mark.parametrize("atomicity", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_a_batch_that_fails_changes_nothing(rig: Rig, atomicity: str) -> None:
    requests = fill(rig)
    before = rig.read(*requests)
    batch = everything_else(rig)
    with pytest.raises(BatchError) as caught:
        rig.write(*batch, (INSERT, pb.ExternEntry()), (INSERT, entry(rig, 3)), atomicity=atomicity)
    codes = [error and error.code for error in caught.value.errors]
    assert codes == [Code.ABORTED] * len(batch) + [Code.UNIMPLEMENTED, Code.ABORTED]
    assert in_any_order(rig.read(*requests)) == in_any_order(before)
    assert ports(rig.ask(0, frame(5, key=1))) == [4]
    rig.write(*batch, atomicity=atomicity)
    assert in_any_order(rig.read(*requests)) != in_any_order(before)


def test_groups_are_rolled_back_too(rig: Rig) -> None:
    profile = rig.names.id("action_profiles", "choice")
    for number in (1, 2):
        rig.insert(
            pb.ActionProfileMember(
                action_profile_id=profile, member_id=number, action=rig.names.action("forward", port=number)
            )
        )

    def group(number: int, *members: int) -> Any:
        found = pb.ActionProfileGroup(action_profile_id=profile, group_id=number, max_size=4)
        for each in members:
            found.members.add(member_id=each, weight=1, watch_port=b"\x01")
        return found

    rig.insert(group(1, 1), group(2, 2, 1), rig.names.entry("choice_t", {"key": 1}, group=1))
    before = rig.read(pb.ActionProfileGroup(), rig.names.entry("choice_t"))
    with pytest.raises(BatchError):
        rig.write(
            (MODIFY, group(1, 2)),
            (DELETE, group(2)),
            (INSERT, group(3, 1)),
            (MODIFY, rig.names.entry("choice_t", {"key": 1}, group=3)),
            (DELETE, rig.names.entry("choice_t", {"key": 1})),
            (INSERT, pb.ExternEntry()),
            atomicity="ROLLBACK_ON_ERROR",
        )
    assert in_any_order(rig.read(pb.ActionProfileGroup(), rig.names.entry("choice_t"))) == in_any_order(before)
    assert ports(rig.ask(0, frame(6, key=1))) == [1]


# Who may write


def test_a_new_primary_takes_over(rig: Rig) -> None:
    new = Controller()
    rig.service.receive(new, arbitration(5))
    assert new.take("arbitration")[0].status.code == Code.OK
    (notice,) = rig.primary.take("arbitration")
    assert (notice.status.code, notice.election_id.low) == (Code.ALREADY_EXISTS, 5)
    assert code_of(lambda: rig.insert(entry(rig, 1))) is Code.PERMISSION_DENIED
    request = pb.WriteRequest(device_id=DEVICE, election_id=bits(5), updates=updates((INSERT, entry(rig, 1))))
    rig.service.write(request)
    rig.service.disconnect(new)
    assert rig.primary.take("arbitration")[0].status.code == Code.NOT_FOUND
    assert code_of(lambda: rig.service.write(request)) is Code.PERMISSION_DENIED
    assert len(rig.read(rig.names.entry("exact_t"))) == 1


def test_election_ids_have_128_bits(rig: Rig) -> None:
    new = Controller()
    rig.service.receive(new, arbitration(1 << 127))
    (notice,) = new.take("arbitration")
    assert (notice.election_id.high, notice.election_id.low, notice.device_id) == (1 << 63, 0, DEVICE)


def test_capabilities(rig: Rig) -> None:
    assert rig.service.capabilities(pb.CapabilitiesRequest()).p4runtime_api_version == "1.4.1"
