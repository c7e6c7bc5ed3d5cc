from typing import Any

import pytest

from switch.p4runtime.errors import Code
from switch.p4runtime.messages import p4data_pb2
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import DELETE, INSERT, MODIFY, Rig, arbitration, frame, ports, value_of


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


# Arrays


def counter(rig: Rig, index: int | None = None, data: Any = None) -> Any:
    message = pb.CounterEntry(counter_id=rig.names.id("counters", "by_port"), data=data)
    if index is not None:
        message.index.index = index
    return message


def test_counters(rig: Rig) -> None:
    rig.ask(3, frame(9))
    (found,) = rig.read(counter(rig, 3))
    assert found == counter(rig, 3, pb.CounterData(packet_count=1, byte_count=18))
    assert len(rig.read(counter(rig))) == 8
    assert rig.read(pb.CounterEntry()) == rig.read(counter(rig))
    rig.modify(counter(rig, 3, pb.CounterData(packet_count=1 << 40, byte_count=2)))
    assert rig.read(counter(rig, 3))[0].data == pb.CounterData(packet_count=1 << 40, byte_count=2)
    rig.modify(counter(rig, 3))
    assert rig.read(counter(rig, 3))[0].data.byte_count == 2
    rig.modify(counter(rig, None, pb.CounterData(packet_count=7)))
    assert {entry.data.packet_count for entry in rig.read(counter(rig))} == {7}


def test_meters(rig: Rig) -> None:
    rates = pb.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)

    def meter(index: int | None = None, config: Any = None) -> Any:
        message = pb.MeterEntry(meter_id=rig.names.id("meters", "by_op"), config=config)
        if index is not None:
            message.index.index = index
        return message

    assert rig.read(meter(1)) == [meter(1)]
    rig.modify(meter(1, rates))
    assert rig.read(pb.MeterEntry()) == [meter(0), meter(1, rates), meter(2), meter(3)]
    rig.modify(meter(None, rates))
    assert rig.read(meter()) == [meter(i, rates) for i in range(4)]
    rig.modify(meter(2))
    assert rig.read(meter(2)) == [meter(2)]
    with_counters = meter(1, rates)
    with_counters.counter_data.SetInParent()
    assert rig.refused(MODIFY, with_counters)[0] is Code.UNIMPLEMENTED
    assert rig.read_refused(with_counters)[0] is Code.UNIMPLEMENTED
    assert rig.refused(MODIFY, meter(1, pb.MeterConfig(cir=2, pir=1)))[0] is Code.INVALID_ARGUMENT


def register(rig: Rig, name: str, index: int | None = None, data: bytes | None = None) -> Any:
    message = pb.RegisterEntry(register_id=rig.names.id("registers", name))
    if index is not None:
        message.index.index = index
    if data is not None:
        message.data.bitstring = data
    return message


def test_registers_are_shared_with_packets(rig: Rig) -> None:
    rig.ask(1, frame(9, key=5, value=0xABCD))
    assert rig.read(register(rig, "last", 5)) == [register(rig, "last", 5, b"\xab\xcd")]
    rig.modify(register(rig, "last", 5, b"\x00\x00\x12"))
    assert rig.read(register(rig, "last", 5)) == [register(rig, "last", 5, b"\x12")]
    ((_, data),) = rig.ask(1, frame(9, key=5))
    assert value_of(data) == 0x12
    rig.modify(register(rig, "last", None, b"\x07"))
    assert rig.read(register(rig, "last")) == [register(rig, "last", i, b"\x07") for i in range(8)]
    assert len(rig.read(pb.RegisterEntry())) == 8 + 4


def test_signed_registers(rig: Rig) -> None:
    rig.ask(1, frame(9, key=1))
    assert rig.read(register(rig, "signs", 1)) == [register(rig, "signs", 1, b"\xff")]
    rig.modify(register(rig, "signs", 1, b"\xf8\x00"))
    assert rig.read(register(rig, "signs", 1)) == [register(rig, "signs", 1, b"\xf8\x00")]
    rig.ask(1, frame(9, key=1))
    assert rig.read(register(rig, "signs", 1)) == [register(rig, "signs", 1, b"\x07\xff")]
    assert rig.refused(MODIFY, register(rig, "signs", 1, b"\x08\x00"))[0] is Code.OUT_OF_RANGE


def test_indexes_and_types_of_arrays(rig: Rig) -> None:
    for message in (counter(rig, 8), register(rig, "last", 8, b"\x01")):
        assert rig.refused(MODIFY, message)[0] is Code.OUT_OF_RANGE
        assert rig.read_refused(message)[0] is Code.OUT_OF_RANGE
        message.index.index = -1
        assert rig.refused(MODIFY, message)[0] is Code.INVALID_ARGUMENT
        assert rig.read_refused(message)[0] is Code.INVALID_ARGUMENT
        message.index.index = 1
        for type_ in (INSERT, DELETE):
            assert rig.refused(type_, message)[0] is Code.INVALID_ARGUMENT
    assert rig.refused(MODIFY, register(rig, "last", 1))[0] is Code.INVALID_ARGUMENT
    assert rig.refused(MODIFY, register(rig, "last", 1, b"\x01\x00\x00"))[0] is Code.OUT_OF_RANGE
    as_bool = register(rig, "last", 1)
    as_bool.data.CopyFrom(p4data_pb2.P4Data(bool=True))
    assert rig.refused(MODIFY, as_bool) == (
        Code.INVALID_ARGUMENT,
        "register MyIngress.last: expected bitstring, got bool",
    )
    assert rig.refused(MODIFY, pb.CounterEntry(counter_id=4))[0] is Code.INVALID_ARGUMENT


# Replication


def multicast(number: int, *replicas: tuple[int, int], metadata: bytes = b"") -> Any:
    message = pb.MulticastGroupEntry(multicast_group_id=number, metadata=metadata)
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)
    return message


def test_multicast_groups(rig: Rig) -> None:
    names = rig.names
    written = multicast(5, (1, 10), (2, 20), metadata=b"all")
    written.replicas.add(port=b"\x00\x03", instance=30)
    rig.insert(written, multicast(6))
    key = {"key": 1, "src": 0x0A}
    rig.insert(names.entry("exact_t", key, names.action("multicast", group=5)))
    sent = rig.ask(0, frame(0, key=1))
    assert [(port, value_of(data)) for port, data in sent] == [(1, 10), (2, 20), (3, 30)]
    assert rig.read(multicast(5)) == [written]
    assert rig.read(multicast(0)) == [written, multicast(6)]
    rig.modify(multicast(5, (4, 1)))
    assert ports(rig.ask(0, frame(0, key=1))) == [4]
    rig.delete(multicast(5))
    assert rig.ask(0, frame(0, key=1)) == []
    for type_, message, code in (
        (INSERT, multicast(6), Code.ALREADY_EXISTS),
        (MODIFY, multicast(7), Code.NOT_FOUND),
        (DELETE, multicast(7), Code.NOT_FOUND),
        (INSERT, multicast(0), Code.INVALID_ARGUMENT),
        (INSERT, multicast(1 << 16), Code.INVALID_ARGUMENT),
        (INSERT, multicast(7, (1, 1), (1, 1)), Code.INVALID_ARGUMENT),
        (INSERT, multicast(7, (512, 1)), Code.INVALID_ARGUMENT),
        (INSERT, multicast(7, (1, 1 << 16)), Code.INVALID_ARGUMENT),
        (INSERT, pb.MulticastGroupEntry(multicast_group_id=7, replicas=[pb.Replica()]), Code.INVALID_ARGUMENT),
        (INSERT, pb.PacketReplicationEngineEntry(), Code.INVALID_ARGUMENT),
    ):
        assert rig.refused(type_, message)[0] is code


def test_clone_sessions(rig: Rig) -> None:
    names = rig.names
    session = pb.CloneSessionEntry(session_id=7, class_of_service=2, packet_length_bytes=14)
    session.replicas.add(egress_port=6, instance=1)
    rig.insert(session, names.entry("exact_t", {"key": 1, "src": 0x0A}, names.action("mirror", port=2)))
    sent = dict(rig.ask(0, frame(0, key=1)))
    assert (len(sent[6]), len(sent[2])) == (14, 18)
    assert rig.read(pb.CloneSessionEntry()) == [session]
    assert rig.read(pb.CloneSessionEntry(session_id=8)) == []
    rig.modify(pb.CloneSessionEntry(session_id=7, replicas=[pb.Replica(egress_port=9)]))
    assert ports(rig.ask(0, frame(0, key=1))) == [2, 9]
    rig.delete(pb.CloneSessionEntry(session_id=7))
    assert ports(rig.ask(0, frame(0, key=1))) == [2]
    assert rig.refused(INSERT, pb.CloneSessionEntry())[0] is Code.INVALID_ARGUMENT
    assert rig.refused(DELETE, session)[0] is Code.NOT_FOUND


def test_value_sets(rig: Rig) -> None:
    number = rig.names.id("value_sets", "special_types")

    def values(*members: int) -> Any:
        message = pb.ValueSetEntry(value_set_id=number)
        for value in members:
            message.members.add().match.add(field_id=1).exact.value = value.to_bytes(2, "big")
        return message

    assert rig.ask(0, frame(ether_type=0x9999)) == []
    rig.modify(values(0x9999, 0x8888))
    ((_, data),) = rig.ask(0, frame(ether_type=0x9999))
    assert data[14] == 0xAA
    assert rig.read(pb.ValueSetEntry()) == [values(0x8888, 0x9999)]
    assert rig.refused(MODIFY, values(1, 1))[0] is Code.ALREADY_EXISTS
    assert rig.refused(MODIFY, values(1, 2, 3, 4, 5))[0] is Code.RESOURCE_EXHAUSTED
    assert rig.refused(INSERT, values(1))[0] is Code.INVALID_ARGUMENT
    rig.modify(values())
    assert rig.ask(0, frame(ether_type=0x9999)) == []


def test_what_is_not_supported_says_so(rig: Rig) -> None:
    assert rig.refused(INSERT, pb.ExternEntry(extern_type_id=1)) == (
        Code.UNIMPLEMENTED,
        "extern_entry is not supported",
    )
    assert rig.read_refused(pb.ExternEntry())[0] is Code.UNIMPLEMENTED


# Digests


def learn(rig: Rig, **config: int) -> Any:
    return pb.DigestEntry(digest_id=rig.names.id("digests", "learned_t"), config=pb.DigestEntry.Config(**config))


def learning(rig: Rig, **config: int) -> None:
    names = rig.names
    for src in (0x0A, 0x0C, 0x0D):
        rig.insert(names.entry("exact_t", {"key": 1, "src": src}, names.action("learn", port=1)))
    rig.insert(learn(rig, **config))


def digests(rig: Rig) -> list[Any]:
    rig.service.notifier.tick()
    return rig.primary.take("digest")


def learned(digest: Any) -> list[tuple[bytes, bytes]]:
    return [tuple(member.bitstring for member in data.struct.members) for data in digest.data]


def test_digests_come_in_lists_without_duplicates(rig: Rig) -> None:
    learning(rig, max_timeout_ns=1_000_000_000, max_list_size=2, ack_timeout_ns=5_000_000_000)
    for src in (0x0A, 0x0A):
        rig.ask(4, frame(0, key=1, src=src))
    assert digests(rig) == []
    rig.ask(4, frame(0, key=1, src=0x0C))
    (first,) = digests(rig)
    assert learned(first) == [(b"\x0a", b"\x04"), (b"\x0c", b"\x04")]
    assert first.timestamp > 0
    rig.ask(4, frame(0, key=1, src=0x0A))  # not acknowledged: still known
    rig.ask(4, frame(0, key=1, src=0x0D))
    rig.device.now += 1.1
    (second,) = digests(rig)
    assert learned(second) == [(b"\x0d", b"\x04")]
    assert second.list_id != first.list_id
    ack = pb.StreamMessageRequest(digest_ack=pb.DigestListAck(digest_id=first.digest_id, list_id=first.list_id))
    rig.service.receive(rig.primary, ack)
    rig.ask(4, frame(0, key=1, src=0x0A))
    rig.ask(4, frame(0, key=1, src=0x0D))
    rig.device.now += 1.1
    (third,) = digests(rig)
    assert learned(third) == [(b"\x0a", b"\x04")]
    rig.device.now += 5
    rig.ask(4, frame(0, key=1, src=0x0D))  # the time to acknowledge is over
    rig.device.now += 1.1
    assert [learned(each) for each in digests(rig)] == [[(b"\x0d", b"\x04")]]


def test_digests_without_buffering(rig: Rig) -> None:
    learning(rig)
    for _ in range(2):
        rig.ask(4, frame(0, key=1))
    assert [learned(each) for each in digests(rig)] == [[(b"\x0a", b"\x04")]] * 2


def test_digests_are_enabled_changed_and_disabled(rig: Rig) -> None:
    assert rig.refused(MODIFY, learn(rig))[0] is Code.NOT_FOUND
    assert rig.refused(DELETE, learn(rig))[0] is Code.NOT_FOUND
    learning(rig, max_list_size=1)
    assert rig.read(pb.DigestEntry()) == [learn(rig, max_list_size=1)]
    assert rig.refused(INSERT, learn(rig))[0] is Code.ALREADY_EXISTS
    assert rig.refused(MODIFY, learn(rig, max_timeout_ns=-1))[0] is Code.INVALID_ARGUMENT
    rig.modify(learn(rig, max_list_size=5, max_timeout_ns=10**9))
    assert rig.read(learn(rig)) == [learn(rig, max_list_size=5, max_timeout_ns=10**9)]
    rig.delete(learn(rig))
    rig.ask(4, frame(0, key=1))
    rig.later(10)
    assert rig.primary.take("digest") == []
    assert rig.read(pb.DigestEntry()) == []


# Packets


def packet_out(rig: Rig, payload: bytes, **metadata: int) -> Any:
    message = pb.StreamMessageRequest(packet=pb.PacketOut(payload=payload))
    numbers = {"egress_port": 1, "rest": 2}
    for name, value in metadata.items():
        message.packet.metadata.add(metadata_id=numbers[name], value=value.to_bytes(2, "big"))
    return message


def test_packets_go_out_with_metadata_in_front(rig: Rig) -> None:
    rig.service.receive(rig.primary, packet_out(rig, frame(), rest=0, egress_port=0x105))
    assert rig.device.sent == [(0x105, frame())]


def test_packets_come_in_with_metadata(rig: Rig) -> None:
    names = rig.names
    rig.insert(names.entry("exact_t", {"key": 1, "src": 0x0A}, names.action("to_controller")))
    rig.ask(0x101, frame(0, key=1))
    rig.service.notifier.tick()
    (packet,) = rig.primary.take("packet")
    assert packet.payload == frame(0, key=1)
    assert [(each.metadata_id, each.value) for each in packet.metadata] == [
        (1, b"\x01\x01"),
        (2, b"\x05"),
        (3, b"\x00"),
    ]


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"egress_port": 1}, "packet_out: rest (id 2) is missing"),
        ({"egress_port": 512, "rest": 0}, "packet_out: egress_port: value 0x200 does not fit 9 bits"),
    ],
)
def test_bad_packet_outs_are_reported_and_dropped(rig: Rig, metadata: dict[str, int], text: str) -> None:
    message = packet_out(rig, frame(), **metadata)
    rig.service.receive(rig.primary, message)
    (error,) = rig.primary.take("error")
    assert error.message == text
    assert error.packet_out.packet_out == message.packet
    assert rig.device.sent == []


def test_only_the_primary_takes_part_in_packets(rig: Rig) -> None:
    from tests.p4runtime_rig import Controller

    backup = Controller()
    rig.service.receive(backup, arbitration(0))
    backup.take("arbitration")
    rig.service.receive(backup, packet_out(rig, frame(), egress_port=1, rest=0))
    assert backup.take("error")[0].canonical_code == Code.PERMISSION_DENIED
    names = rig.names
    rig.insert(names.entry("exact_t", {"key": 1, "src": 0x0A}, names.action("to_controller")))
    rig.ask(1, frame(0, key=1))
    rig.service.notifier.tick()
    assert backup.messages == []
    assert len(rig.primary.take("packet")) == 1


def test_other_stream_messages_are_answered_with_errors(rig: Rig) -> None:
    other = pb.StreamMessageRequest()
    other.other.type_url = "x"
    rig.service.receive(rig.primary, other)
    assert rig.primary.take("error")[0].canonical_code == Code.UNIMPLEMENTED
    rig.service.receive(rig.primary, pb.StreamMessageRequest(digest_ack=pb.DigestListAck(digest_id=5)))
    (error,) = rig.primary.take("error")
    assert (error.canonical_code, error.digest_list_ack.digest_list_ack.digest_id) == (Code.INVALID_ARGUMENT, 5)
