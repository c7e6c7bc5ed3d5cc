"""What goes over a stream: digests, packets, errors."""

from typing import Any

import pytest

from switch.model.core import ModelSwitch
from switch.model.matching import Exact
from switch.p4runtime.errors import Code
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import DELETE, INSERT, MODIFY, Controller, Rig, arbitration, frame, json_of, ports


@pytest.fixture
def rig() -> Rig:
    return Rig()


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


def test_a_program_without_p4info_keeps_nothing_for_controllers() -> None:
    rig = Rig(None)
    rig.service.run_program(json_of())
    core = rig.device.core
    assert isinstance(core, ModelSwitch)
    core.state.tables["MyIngress.exact_t"].insert([Exact(1), Exact(0x0A)], "MyIngress.learn", (1,))
    assert ports(rig.ask(4, frame(0, key=1))) == [1]
    assert core.take_digests() == []
    rig.service.notifier.packet_in(frame())
    rig.service.notifier.tick()
    assert (rig.primary.messages, rig.service.notifier.dropped) == ([], 1)


def test_packets_shorter_than_their_metadata_are_dropped(rig: Rig) -> None:
    rig.service.notifier.packet_in(b"\x01")
    rig.service.notifier.tick()
    assert (rig.primary.messages, rig.service.notifier.dropped) == ([], 1)


def test_packets_that_nobody_sends_on_do_not_pile_up(rig: Rig) -> None:
    for _ in range(5000):
        rig.service.notifier.packet_in(frame())
    rig.service.notifier.tick()
    assert len(rig.primary.take("packet")) + rig.service.notifier.dropped == 5000
    assert rig.service.notifier.dropped > 0
