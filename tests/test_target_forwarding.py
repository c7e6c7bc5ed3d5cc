"""What is not for the switch's slots, on the targets that run the P4 program: forwarding, ARP, ping."""

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from tests.packet_targets import PORTS, PROBE_PORT, SWITCH_IP, SWITCH_MAC, P4Target, frame, make_job
from tests.test_target_sums import chunk

A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
EVERYONE = "ff:ff:ff:ff:ff:ff"
FLOODED = (*PORTS, PROBE_PORT)


def flooded(packet: bytes, source: int) -> list[tuple[int, bytes]]:
    return sorted((port, packet) for port in FLOODED if port != source)


FOREIGN = {
    "tcp": Ether(src=A, dst=B) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=80) / Raw(b"x" * 500),
    "udp": Ether(src=A, dst=B) / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=53) / Raw(b"question"),
    "ping to another": Ether(src=A, dst=B) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP() / Raw(b"data"),
    "wiresum's port elsewhere": Ether(src=A, dst=B) / IP(dst="10.0.0.2") / UDP(dport=48864) / Raw(b"\x11" + bytes(300)),
    "arp for another": Ether(src=A, dst=EVERYONE) / ARP(op=1, hwsrc=A, psrc="10.0.0.1", pdst="10.0.0.2"),
    "ipv6": Ether(src=A, dst=B) / IPv6(dst="fd00::2") / UDP() / Raw(b"six"),
    "options": Ether(src=A, dst=B) / IP(dst="10.0.0.2", options=b"\x07\x07\x04\0\0\0\0\0") / UDP(dport=48864),
    "a fragment": Ether(src=A, dst=B) / IP(dst="10.0.0.2", frag=100) / Raw(b"\xff" * 99),
    "a wrong IPv4 checksum": Ether(src=A, dst=B) / IP(dst="10.0.0.2", chksum=1) / UDP() / Raw(b"as it is"),
    "an unknown type": Ether(src=A, dst=B, type=0x88B5) / Raw(b"experiment"),
    "nothing but a header": Ether(src=A, dst=B, type=0x0800),
    "half an IPv4 header": Ether(src=A, dst=B, type=0x0800) / Raw(bytes(IP(dst="10.0.0.2"))[:11]),
    "half an ARP packet": Ether(src=A, dst=EVERYONE) / Raw(bytes(ARP())[:20]),
}


@pytest.mark.parametrize("packet", FOREIGN.values(), ids=FOREIGN.keys())
def test_everything_else_passes_unchanged(p4_target: P4Target, packet: Ether) -> None:
    raw = bytes(packet)
    assert p4_target.send(1, raw) == flooded(raw, 1)
    p4_target.learn(B, 3)
    if packet.dst == B:
        assert p4_target.send(1, raw) == [(3, raw)]
    assert p4_target.drops() == {}


def test_a_switch_that_learned_floods_no_more(p4_target: P4Target) -> None:
    p4_target.learn(A, 1)
    p4_target.learn(B, 2)
    there = bytes(Ether(src=A, dst=B, type=0x88B5) / Raw(b"there"))
    back = bytes(Ether(src=B, dst=A, type=0x88B5) / Raw(b"back"))
    assert p4_target.send(1, there) == [(2, there)]
    assert p4_target.send(2, back) == [(1, back)]


def test_a_frame_does_not_go_back_to_where_it_came_from(p4_target: P4Target) -> None:
    """Another switch, which had to flood it, would learn that its sender is here: both would pass it on for ever."""
    p4_target.learn(B, 1)
    packet = bytes(Ether(src=A, dst=B, type=0x88B5) / Raw(b"flooded to here"))
    assert p4_target.send(1, packet) == []
    assert p4_target.send(2, packet) == [(1, packet)]
    assert p4_target.drops() == {}


def test_senders_are_told_to_the_control_plane_until_they_are_known(p4_target: P4Target) -> None:
    newcomer = "02:00:00:00:00:0c"  # what other tests' senders have caused may still be on its way
    packet = bytes(Ether(src=newcomer, dst=B, type=0x88B5) / Raw(b"hello"))

    def learned() -> list[tuple[str, int]]:
        return [(mac, port) for mac, port in p4_target.learned() if mac == newcomer]

    p4_target.send(2, packet)
    assert learned() == [(newcomer, 2)]
    p4_target.learn(newcomer, 2)
    p4_target.send(2, packet)
    assert learned() == []
    p4_target.send(3, packet)  # it has moved
    assert learned() == [(newcomer, 3)]


def test_arp_for_the_switch_is_answered(p4_target: P4Target) -> None:
    request = bytes(Ether(src=A, dst=EVERYONE) / ARP(op=1, hwsrc=A, psrc="10.0.0.1", pdst=SWITCH_IP))
    reply = bytes(Ether(src=SWITCH_MAC, dst=A) / ARP(op=2, hwsrc=SWITCH_MAC, psrc=SWITCH_IP, hwdst=A, pdst="10.0.0.1"))
    assert p4_target.send(3, request) == [(3, reply)]
    assert p4_target.send(3, request + bytes(18)) == [(3, reply + bytes(18))]


def test_arp_answers_to_the_switch_go_to_the_control_plane(p4_target: P4Target) -> None:
    reply = bytes(Ether(src=A, dst=SWITCH_MAC) / ARP(op=2, hwsrc=A, psrc="10.0.0.1", hwdst=SWITCH_MAC, pdst=SWITCH_IP))
    assert p4_target.send(3, reply) == []
    assert p4_target.packet_ins() == [bytes([0, 0, 3, 0, 0]) + reply]


def test_the_control_plane_sends_and_floods(p4_target: P4Target) -> None:
    packet = bytes(Ether(src=SWITCH_MAC, dst=A, type=0x88B5) / Raw(b"from above"))
    assert p4_target.packet_out(bytes([0, 0, 2, 0, 0, 0, 0]) + packet) == [(2, packet)]
    assert p4_target.packet_out(bytes([1, 0, 0, 0, 0, 0, 0]) + packet) == [(port, packet) for port in FLOODED]


@pytest.mark.parametrize("size", [0, 1, 56, 1400])
def test_ping(p4_target: P4Target, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    request = Ether(src=A, dst=SWITCH_MAC) / IP(src="10.0.0.1", dst=SWITCH_IP, ttl=3, id=9) / ICMP(id=7, seq=2) / data
    reply = (
        Ether(src=SWITCH_MAC, dst=A)
        / IP(src=SWITCH_IP, dst="10.0.0.1", ttl=64, id=9)
        / ICMP(type=0, id=7, seq=2)
        / data
    )
    assert p4_target.send(2, bytes(request)) == [(2, bytes(reply))]


@pytest.mark.parametrize("sequence", [0xF7FE, 0xF7FF, 0xF800, 0xFFFF, 0])
def test_the_checksum_of_a_ping_comes_out_right(p4_target: P4Target, sequence: int) -> None:
    """The sum is adjusted, not computed, with carries that wrap around."""
    request = Ether(src=A, dst=SWITCH_MAC) / IP(src="10.0.0.1", dst=SWITCH_IP) / ICMP(id=0, seq=sequence)
    ((_, reply),) = p4_target.send(2, bytes(request))
    total = sum(int.from_bytes(reply[place : place + 2], "big") for place in range(34, len(reply), 2))
    assert (total & 0xFFFF) + (total >> 16) == 0xFFFF


def test_other_icmp_for_the_switch_is_dropped(p4_target: P4Target) -> None:
    packet = Ether(src=A, dst=SWITCH_MAC) / IP(src="10.0.0.1", dst=SWITCH_IP) / ICMP(type=13)
    assert p4_target.send(2, bytes(packet)) == []
    assert p4_target.drops() == {"no_service": 1}


def test_a_contribution_to_another_address_is_only_forwarded(p4_target: P4Target) -> None:
    job = make_job(1)
    p4_target.add_job(job)
    (worker,) = job.workers
    packet = frame(worker, chunk(p4_target, job, 0), ip={"dst": "10.0.0.253"}, ether={"dst": B})
    assert p4_target.send(worker.port, packet) == flooded(packet, worker.port)
    assert p4_target.counters(job) == {}
