"""Frames of several packets, cut in software; scapy makes the frames and checks every length and checksum."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrHopByHop
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from switch.model.segmentation import TCP_IN_IPV4, TCP_IN_IPV6, segments
from switch.model.segmentation import UDP as UDP_KIND

NEEDS_CHECKSUM, CONGESTION = 1, 0x80
FIN, PUSH, ACK, WINDOW_REDUCED = 0x01, 0x08, 0x10, 0x80

ports = st.integers(0, 0xFFFF)
addresses = {
    IP: st.integers(0, 2**32 - 1).map(lambda n: ".".join(map(str, n.to_bytes(4, "big")))),
    IPv6: st.integers(0, 2**128 - 1).map(lambda n: n.to_bytes(16, "big").hex(":", 2)),
}


@st.composite
def networks(draw: st.DrawFn) -> Packet:
    """Ethernet, perhaps with VLAN tags, and IP."""
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    for vlan in draw(st.lists(st.integers(0, 4095), max_size=2)):
        packet /= Dot1Q(vlan=vlan)
    kind = draw(st.sampled_from([IP, IPv6]))
    source, target, hops = draw(addresses[kind]), draw(addresses[kind]), draw(st.integers(1, 255))
    if kind is IPv6:
        return packet / IPv6(src=source, dst=target, hlim=hops, tc=draw(st.integers(0, 255)))
    options = draw(st.sampled_from([[], [b"\x94\x04\x00\x00"]]))
    return packet / IP(src=source, dst=target, ttl=hops, id=draw(ports), flags="DF", options=options)


payloads = st.binary(min_size=1, max_size=3000)
sizes = st.integers(1, 1500)


def header(kind: int, size: int, *, flags: int = 0, start: int = 0) -> bytes:
    """Virtio's."""
    return struct.pack("=BBHHHH", flags, kind, 0, size, start, 0)


def as_the_kernel_leaves_it(packet: Packet) -> bytes:
    """The frame, its transport checksum not filled in."""
    layer = packet[TCP] if TCP in packet else packet[UDP]
    layer.chksum = 0xABCD
    return bytes(packet)


def recomputed(data: bytes) -> bytes:
    """A packet with its lengths and checksums as scapy has them."""
    packet = Ether(data)
    for layer, names in ((IP, ("len", "chksum")), (IPv6, ("plen",)), (UDP, ("len", "chksum")), (TCP, ("chksum",))):
        if layer in packet:
            for name in names:
                packet[layer].delfieldval(name)
    return bytes(packet)


@given(networks(), ports, ports, payloads, sizes, st.booleans())
def test_datagrams(network: Packet, source: int, target: int, payload: bytes, size: int, marked: bool) -> None:
    frame = as_the_kernel_leaves_it(network / UDP(sport=source, dport=target) / Raw(payload))
    start = len(frame) - len(payload) - 8
    packets = segments(frame, header(UDP_KIND, size, flags=NEEDS_CHECKSUM if marked else 0, start=start))
    assert [packet[start + 8 :] for packet in packets] == [payload[i : i + size] for i in range(0, len(payload), size)]
    for number, packet in enumerate(packets):
        assert packet == recomputed(packet)
        assert packet[: len(network) - len(network.lastlayer())] == frame[: len(network) - len(network.lastlayer())]
        check_network(Ether(packet), network, number)
        assert packet[start : start + 4] == frame[start : start + 4]


@given(
    networks(),
    st.integers(0, 2**32 - 1),
    st.integers(0, 255),
    payloads,
    sizes,
    st.sampled_from([[], [("Timestamp", (5, 6)), ("EOL", None)]]),
)
def test_stream(network: Packet, number: int, flags: int, payload: bytes, size: int, options: list[object]) -> None:
    segment = TCP(seq=number, ack=7, flags=flags, window=99, options=options)
    frame = as_the_kernel_leaves_it(network / segment / Raw(payload))
    start = len(frame) - len(payload) - len(segment)
    kind = (TCP_IN_IPV4 if IP in network else TCP_IN_IPV6) | (CONGESTION if flags & WINDOW_REDUCED else 0)
    packets = segments(frame, header(kind, size, flags=NEEDS_CHECKSUM, start=start))
    assert b"".join(packet[start + len(segment) :] for packet in packets) == payload
    for i, packet in enumerate(packets):
        assert packet == recomputed(packet)
        found = Ether(packet)
        check_network(found, network, i)
        last, first = i == len(packets) - 1, i == 0
        assert len(found[TCP].payload) == (len(payload) - i * size if last else size)
        assert found[TCP].seq == (number + i * size) % 2**32
        kept = 0xFF ^ (0 if last else FIN | PUSH) ^ (0 if first else WINDOW_REDUCED)
        assert int(found[TCP].flags) == flags & kept
        assert (found[TCP].ack, found[TCP].window) == (7, 99)
        assert packet[start + 20 : start + len(segment)] == frame[start + 20 : start + len(segment)]


def check_network(found: Packet, network: Packet, number: int) -> None:
    """Checks that the network header is the frame's, with the number of the packet."""
    if IP in network:
        want, got = network[IP], found[IP]
        assert got.id == (want.id + number) % 2**16
        assert (got.src, got.dst, got.ttl, got.flags) == (want.src, want.dst, want.ttl, want.flags)
        assert len(got.options) == len(want.options)
    else:
        want, got = network[IPv6], found[IPv6]
        assert (got.src, got.dst, got.tc, got.hlim) == (want.src, want.dst, want.tc, want.hlim)


ETHER, DATAGRAM = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02"), UDP(sport=1, dport=2) / Raw(bytes(100))


@pytest.mark.parametrize(
    ("packet", "kind", "size"),
    [
        pytest.param(ETHER / IP() / DATAGRAM, UDP_KIND, 0, id="no size"),
        pytest.param(ETHER / IP() / DATAGRAM, 3, 50, id="fragments of a datagram"),
        pytest.param(ETHER / IP() / DATAGRAM, TCP_IN_IPV4, 50, id="TCP said, UDP there"),
        pytest.param(ETHER / IP() / TCP() / Raw(bytes(100)), TCP_IN_IPV6, 50, id="the other IP"),
        pytest.param(ETHER / IP() / IP() / DATAGRAM, UDP_KIND, 50, id="in a tunnel"),
        pytest.param(ETHER / IPv6() / IPv6ExtHdrHopByHop() / DATAGRAM, UDP_KIND, 50, id="extension header"),
        pytest.param(Ether(type=0x8847) / Raw(bytes(100)), UDP_KIND, 50, id="another protocol"),
    ],
)
def test_what_is_not_known_is_not_cut(packet: Packet, kind: int, size: int) -> None:
    assert segments(bytes(packet), header(kind, size)) == []


def test_datagram_that_is_a_tunnel_is_not_cut() -> None:
    inner = bytes(ETHER / IP() / DATAGRAM)
    frame = bytes(ETHER / IP() / UDP(dport=4789) / Raw(bytes(8) + inner))
    start = len(frame) - len(bytes(DATAGRAM))
    assert segments(frame, header(UDP_KIND, 50, flags=NEEDS_CHECKSUM, start=start)) == []


@given(networks(), st.sampled_from([UDP, TCP]), st.integers(0, 200), st.integers(0, 255))
def test_frame_that_is_cut_off_does_no_harm(network: Packet, layer: type[Packet], length: int, kind: int) -> None:
    frame = bytes(network / layer() / Raw(bytes(50)))[:length]
    for known in (UDP_KIND, TCP_IN_IPV4, TCP_IN_IPV6, kind):
        assert all(segments(frame, header(known, 10)))


def test_datagram_whose_sum_is_zero_says_so_by_all_ones() -> None:
    """0 would mean that there is no checksum."""
    packet = Ether(recomputed(bytes(ETHER / IP() / UDP(sport=1, dport=2) / Raw(bytes(2)))))
    # The checksum as payload makes the sum of everything zero.
    whole = ETHER / IP() / UDP(sport=1, dport=2) / Raw(struct.pack("!H", packet[UDP].chksum) * 2)
    for each in segments(bytes(whole), header(UDP_KIND, 2)):
        assert each[40:42] == b"\xff\xff"
