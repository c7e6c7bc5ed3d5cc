"""Packets that a switch must not take, on every target: nothing comes out, registers stay, the cause is counted."""

from collections.abc import Callable

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from tests.packet_targets import SWITCH_IP, Job, Target, Worker, frame, make_job
from tests.test_target_sums import chunk, send, to_all

Damage = Callable[[bytes], bytes]


def at(place: int, value: int) -> Damage:
    return lambda payload: payload[:place] + bytes([value]) + payload[place + 1 :]


def flip(place: int, bits: int) -> Damage:
    return lambda payload: payload[:place] + bytes([payload[place] ^ bits]) + payload[place + 1 :]


@pytest.fixture
def job(target: Target) -> Job:
    made = make_job(2)
    target.add_job(made)
    send(target, made.workers[0], chunk(target, made, 1, 5))
    return made


def assert_untouched(target: Target, job: Job, packet: bytes, port: int) -> None:
    """Nothing comes out for a frame, no register changes, and the round that was under way still ends well."""
    before = target.registers(job)
    assert target.send(port, packet) == []
    assert before.differences(target.registers(job)) == []
    answer = to_all(job, chunk(target, job, 1, 12))
    assert send(target, job.workers[1], chunk(target, job, 1, 7)) == answer


@pytest.mark.parametrize(
    ("cause", "damage"),
    [
        ("wrong_size", lambda payload: payload[:1]),
        ("wrong_size", lambda payload: payload[:9]),
        ("wrong_size", lambda payload: payload[:10]),
        ("wrong_size", lambda payload: payload[:-1]),
        ("wrong_size", lambda payload: payload[:-4]),
        ("wrong_size", lambda payload: payload + b"\0"),
        ("wrong_size", lambda payload: payload + bytes(128)),
        ("wrong_size", flip(0, 0x01)),  # another size
        ("wrong_size", flip(0, 0x04)),
        ("wrong_size", flip(0, 0x10)),  # type 0
        ("wrong_size", flip(0, 0x20)),  # type 3
        ("wrong_size", flip(0, 0x80)),  # type 9
        ("wrong_size", flip(0, 0x30)),  # exponents only, with values
        ("wrong_job", at(1, 8)),
        ("reserved_bits", flip(0, 0x08)),
        ("reserved_bits", flip(6, 0x40)),
        ("outside_pool", at(7, 4)),
        ("outside_pool", at(6, 0x3F)),
        ("wrong_index", flip(6, 0x80)),
        ("wrong_index", at(7, 2)),
        ("wrong_index", flip(5, 0x02)),  # the chunk's number
        ("stale", flip(5, 0x08)),  # two generations ahead
        ("stale", flip(2, 0x80)),  # half the numbers away
    ],
)
def test_each_cause(target: Target, job: Job, cause: str, damage: Damage) -> None:
    b = job.workers[1]
    packet = frame(b, damage(chunk(target, job, 1, 7)))
    assert_untouched(target, job, packet, b.port)
    assert target.counters(job) == {"received": 3, "contributions": 2, cause: 1, "results": 1}
    assert target.drops() == {}


@pytest.mark.parametrize("size", [0, 10])
def test_exponents_alone_of_a_wrong_length(target: Target, job: Job, size: int) -> None:
    b = job.workers[1]
    payload = chunk(target, job, 1, None) + bytes(4) if size else chunk(target, job, 1, None)[:9]
    assert_untouched(target, job, frame(b, payload), b.port)
    assert target.counters(job)["wrong_size"] == 1


@pytest.mark.parametrize("field", ["ip", "udp", "both"])
def test_an_unknown_source(target: Target, job: Job, field: str) -> None:
    b = job.workers[1]
    stranger = Worker(
        b.rank, b.member, "10.0.0.77" if field != "udp" else b.ip, b.mac, 1234 if field != "ip" else b.udp, b.port
    )
    assert_untouched(target, job, frame(stranger, chunk(target, job, 1, 7)), b.port)
    assert target.drops() == {"unknown_source": 1}


def test_the_causes_have_an_order(target: Target, job: Job) -> None:
    """A packet with all faults is counted once, under the first in the order that the protocol tells them in."""
    b = job.workers[1]
    everything = at(6, 0xFF)(at(1, 99)(flip(0, 0x08)(chunk(target, job, 1, 7))))
    assert_untouched(target, job, frame(b, everything), b.port)
    assert target.counters(job)["wrong_job"] == 1


class TestWhatNeverReachesASocket:
    """The kernel drops these before the software switch sees them; the P4 program must do so itself."""

    def test_udp_checksum(self, target: Target, job: Job) -> None:
        b = job.workers[1]
        packet = bytearray(frame(b, chunk(target, job, 1, 7)))
        packet[-1] ^= 1
        assert_untouched(target, job, bytes(packet), b.port)

    def test_ipv4_checksum(self, target: Target, job: Job) -> None:
        b = job.workers[1]
        assert_untouched(target, job, frame(b, chunk(target, job, 1, 7), ip={"chksum": 0x1234}), b.port)

    def test_a_frame_that_was_cut(self, target: Target, job: Job) -> None:
        b = job.workers[1]
        packet = frame(b, chunk(target, job, 1, 7))
        assert_untouched(target, job, packet[:-8], b.port)

    @pytest.mark.parametrize("length", [34, 40, 42, 45, 51])
    def test_a_frame_that_ends_in_its_headers(self, target: Target, job: Job, length: int) -> None:
        b = job.workers[1]
        assert_untouched(target, job, frame(b, chunk(target, job, 1, 7))[:length], b.port)

    def test_lengths_that_disagree(self, target: Target, job: Job) -> None:
        b = job.workers[1]
        payload = chunk(target, job, 1, 7)
        assert_untouched(target, job, frame(b, payload, len=len(payload) + 8 - 4, chksum=0), b.port)
        assert target.send(b.port, frame(b, payload, ip={"len": 20 + 8 + len(payload) - 4}, chksum=0)) == []

    def test_a_fragment(self, target: Target, job: Job) -> None:
        b = job.workers[1]
        packet = frame(b, chunk(target, job, 1, 7), ip={"flags": "MF"})
        assert target.send(b.port, packet) == []


def test_a_packet_without_a_checksum_is_taken(target: Target, job: Job) -> None:
    b = job.workers[1]
    packet = frame(b, chunk(target, job, 1, 7), chksum=0)
    assert target.send(b.port, packet) == to_all(job, chunk(target, job, 1, 12))


def test_a_checksum_that_comes_to_zero_is_sent_as_all_ones(target: Target, job: Job) -> None:
    """RFC 768; one packet in 65,536 has it, and would never get through."""
    b = job.workers[1]
    values = np.full(target.values, 7)
    values[-1] = 0
    checksum = int.from_bytes(frame(b, chunk(target, job, 1, values))[40:42], "big")
    values[-1] = checksum
    packet = frame(b, chunk(target, job, 1, values))
    assert packet[40:42] == b"\xff\xff"
    assert target.send(b.port, packet) == to_all(job, chunk(target, job, 1, values + 5))


def test_padding_to_the_least_frame_changes_nothing(target: Target, job: Job) -> None:
    """Ethernet cards pad frames to 60 bytes, and an exponents-only packet has 52."""
    a, b = job.workers
    assert target.send(a.port, frame(a, chunk(target, job, 2, None, e0=1)) + bytes(8)) == []
    answers = target.send(b.port, frame(b, chunk(target, job, 2, None, e0=5)) + bytes(8))
    assert [(port, answer[:52]) for port, answer in answers] == to_all(job, chunk(target, job, 2, None, e0=5))


def test_another_port_is_not_the_switch(target: Target, job: Job) -> None:
    b = job.workers[1]
    assert_untouched(target, job, frame(b, chunk(target, job, 1, 7), dport=48865), b.port)


def test_another_protocol_is_not_the_switch(target: Target, job: Job) -> None:
    b = job.workers[1]
    packet = bytes(Ether(src=b.mac, dst="02:00:00:00:be:e0") / IP(src=b.ip, dst=SWITCH_IP, proto=6) / bytes(40))
    assert_untouched(target, job, packet, b.port)


def test_what_the_program_drops_itself_is_counted(p4_target: Target) -> None:
    """Bad checksums, and packets for the switch that it has no use for: the kernel's business elsewhere."""
    job = make_job(2)
    p4_target.add_job(job)
    b = job.workers[1]
    packet = bytearray(frame(b, chunk(p4_target, job, 1, 7)))
    packet[-1] ^= 1
    p4_target.send(b.port, bytes(packet))
    p4_target.send(b.port, frame(b, chunk(p4_target, job, 1, 7), ip={"chksum": 0x1234}))
    p4_target.send(b.port, frame(b, chunk(p4_target, job, 1, 7), dport=1))
    p4_target.send(b.port, bytes(Ether(src=b.mac) / IP(src=b.ip, dst=SWITCH_IP) / UDP(sport=1, dport=2)))
    assert p4_target.drops() == {"bad_checksum": 2, "no_service": 2}
    assert p4_target.counters(job) == {}
