from typing import Any

import pytest

from switch.p4runtime.errors import Code
from switch.p4runtime.messages import p4data_pb2
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import DELETE, INSERT, MODIFY, Rig, frame, ports, value_of


@pytest.fixture
def rig() -> Rig:
    return Rig()


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
