"""Ports of the programmable switch: interfaces, and the thread between them and the core."""

import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrHopByHop
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet

from switch.model.errors import ModelError
from switch.model.interfaces import InterfacePort, PairPort, Port, parse_interfaces
from switch.model.offloads import internet_checksum, with_checksum, with_vlan_tag
from switch.model.ports import PortSwitch
from tests.veths import MISSING, Veths, ip, veths
from tests.waiting import wait_until

needs_root = pytest.mark.skipif(bool(MISSING), reason=MISSING or "is there")

FRAME = bytes(range(64))
UDP_SEGMENT = 103


class Patch:
    """A core that is a cable: port 2n and 2n + 1 are its ends, as 3 and 2."""

    def __init__(self, ports: Callable[[int], list[int]] = lambda port: [port ^ 1]) -> None:
        self.ports = ports
        self.seen: list[tuple[int, bytes, float]] = []

    def receive(self, port: int, packet: bytes, now: float) -> list[tuple[int, bytes]]:
        self.seen.append((port, packet, now))
        if packet.startswith(b"bad"):
            raise RuntimeError("a fault")
        return [(out, packet) for out in self.ports(port)]


@pytest.fixture
def pairs() -> Iterator[list[PairPort]]:
    with ExitStack() as stack:
        ports = [stack.enter_context(PairPort()) for _ in range(2)]
        for port in ports:
            port.peer.settimeout(5)
        yield ports


# The thread


def test_frames_cross_with_the_time_since_the_start(pairs: list[PairPort]) -> None:
    core = Patch()
    with PortSwitch(core, dict(enumerate(pairs))) as switch:
        pairs[0].peer.send(FRAME)
        assert pairs[1].peer.recv(100) == FRAME
        (port, packet, now) = core.seen[0]
        assert (port, packet) == (0, FRAME)
        assert 0 <= now <= switch.now < 60
        counters = switch.statistics()
    assert (counters["port0_packets_in"], counters["port1_packets_out"], counters["port1_bytes_out"]) == (1, 1, 64)
    assert (counters["no_port"], counters["failed"], counters["port1_unsent"]) == (0, 0, 0)


def test_commands_run_on_the_thread_and_raise_in_the_caller(pairs: list[PairPort]) -> None:
    with PortSwitch(Patch(), dict(enumerate(pairs))) as switch:
        assert switch.call(lambda: threading.current_thread().name) == "wiresum-p4switch"
        assert switch.call(lambda: switch.call(lambda: 5)) == 5
        with pytest.raises(ZeroDivisionError):
            switch.call(lambda: 1 // 0)
        with pytest.raises(TimeoutError, match="its own"):
            switch.call(raise_time_out)
        assert switch.alive
    with pytest.raises(ModelError, match="stopped: it was closed"):
        switch.call(lambda: None)
    switch.close()


def is_at_rest(switch: PortSwitch) -> bool:
    """Whether the thread uses hardly any time while nothing comes."""
    before = switch.call(time.thread_time)
    time.sleep(0.2)
    return switch.call(time.thread_time) - before < 0.05


def raise_time_out() -> None:
    raise TimeoutError("its own")


def test_packet_in_packet_out_and_bursts(pairs: list[PairPort]) -> None:
    arrived: list[bytes] = []
    bursts: list[int] = []
    core = Patch(lambda port: [1] if port == 510 else [510, 1, 77])
    with PortSwitch(
        core, dict(enumerate(pairs)), receivers={510: arrived.append}, after_burst=lambda: bursts.append(len(arrived))
    ) as switch:
        pairs[0].peer.send(FRAME)
        assert pairs[1].peer.recv(100) == FRAME
        switch.inject(510, FRAME[:20])
        assert pairs[1].peer.recv(100) == FRAME[:20]
        switch.transmit(0, FRAME[:30])
        assert pairs[0].peer.recv(100) == FRAME[:30]
        assert switch.statistics()["no_port"] == 1
    assert arrived == [FRAME]
    assert bursts[0] == 1


def test_core_can_be_replaced(pairs: list[PairPort]) -> None:
    with PortSwitch(None, dict(enumerate(pairs))) as switch:
        pairs[0].peer.send(FRAME)
        wait_until(lambda: switch.statistics()["no_program"] == 1, "the frame is not counted")
        switch.replace(Patch())
        pairs[0].peer.send(FRAME)
        assert pairs[1].peer.recv(100) == FRAME


def test_packet_that_the_core_fails_on_does_not_stop_the_switch(
    pairs: list[PairPort], caplog: pytest.LogCaptureFixture
) -> None:
    with PortSwitch(Patch(), dict(enumerate(pairs))) as switch:
        pairs[0].peer.send(b"bad 1")
        pairs[0].peer.send(b"bad 2")
        pairs[0].peer.send(FRAME)
        assert pairs[1].peer.recv(100) == FRAME
        assert switch.statistics()["failed"] == 2
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "a packet of 5 bytes on port 0 was dropped: the switch failed"
    ]


def test_functions_that_fail_do_not_stop_the_switch(pairs: list[PairPort]) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    core = Patch(lambda port: [510, port ^ 1])
    with PortSwitch(core, dict(enumerate(pairs)), receivers={510: fail}, after_burst=fail) as switch:
        for _ in range(2):
            pairs[0].peer.send(FRAME)
            assert pairs[1].peer.recv(100) == FRAME
        wait_until(lambda: switch.statistics()["failed"] >= 4, "failures are not counted")


def test_port_whose_other_end_goes_leaves_the_thread_at_rest(pairs: list[PairPort]) -> None:
    with PortSwitch(Patch(), dict(enumerate(pairs))) as switch:
        pairs[0].peer.close()
        pairs[1].peer.send(FRAME)
        wait_until(lambda: switch.statistics()["port0_unsent"] == 1, "the frame is not counted as unsent")
        assert is_at_rest(switch)


# Interfaces


@pytest.mark.parametrize("spec", ["veth0", "0@", "@veth0", "-1@veth0", "512@veth0", "x@veth0", "0@a b"])
def test_interface_that_cannot_be_read(spec: str) -> None:
    with pytest.raises(ModelError, match="expected PORT@INTERFACE with a port from 0 to 511"):
        parse_interfaces([spec])


def test_interfaces_by_port() -> None:
    assert parse_interfaces(["0@veth0", "511@eth1.7"]) == {0: "veth0", 511: "eth1.7"}
    for second in ("0@veth1", "1@veth0"):
        with pytest.raises(ModelError, match="stands twice"):
            parse_interfaces(["0@veth0", second])


def test_checksum_is_filled_in_where_the_header_says() -> None:
    frame = bytes(30) + b"\x12\x34\x00\x05" + b"odd"
    header = struct.pack("=BBHHHH", 1, 0, 0, 0, 30, 2)
    done = with_checksum(frame, header)
    assert done[:32] + done[34:] == frame[:32] + frame[34:]
    # A receiver sums everything with the checksum in place, the pseudo-header's sum taken from where it came.
    assert internet_checksum(done[30:] + b"\x00" + b"\x00\x05") == 0xFFFF
    assert with_checksum(frame, bytes(10)) == frame
    assert with_checksum(frame[:33], header) == frame[:33]


def test_checksum_is_never_zero() -> None:
    assert internet_checksum(b"\xff\xff") == 0xFFFF
    assert internet_checksum(b"") == 0xFFFF
    assert internet_checksum(b"\x12\x34\xff") == 0xFFFF - (0x1234 + 0xFF00 - 0xFFFF)


def test_vlan_tag_is_put_back() -> None:
    assert with_vlan_tag(FRAME, 0x88A8, 0x2005) == FRAME[:12] + b"\x88\xa8\x20\x05" + FRAME[12:]


@pytest.fixture(scope="module")
def net() -> Iterator[Veths]:
    with veths(2) as made:
        yield made


@pytest.fixture
def core() -> Patch:
    return Patch()


@pytest.fixture
def wired(net: Veths, core: Patch) -> Iterator[PortSwitch]:
    def open_ports() -> dict[int, Port]:
        return {number: InterfacePort(name) for number, name in parse_interfaces(["0@port0", "1@port1"]).items()}

    ports = net.run_in(net.switch, open_ports)
    with PortSwitch(core, ports) as switch:
        yield switch


def udp(net: Veths, host: int) -> socket.socket:
    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((net.address(host), 0))
        made.settimeout(5)
        return made

    return net.run_in(net.hosts[host], make)


def raw(net: Veths, host: int) -> socket.socket:
    def make() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.setsockopt(263, 23, 1)  # SOL_PACKET, PACKET_IGNORE_OUTGOING
        made.bind(("eth0", 3))
        made.settimeout(5)
        return made

    return net.run_in(net.hosts[host], make)


@needs_root
def test_datagrams_cross_although_the_sender_leaves_checksums_to_hardware(net: Veths, wired: PortSwitch) -> None:
    with udp(net, 0) as one, udp(net, 1) as other, raw(net, 1) as tap:
        for size in (1, 2, 999, 1472):
            one.sendto(os.urandom(size), other.getsockname())
            data, source = other.recvfrom(2000)
            assert (len(data), source) == (size, one.getsockname())
            frame = tap.recv(2000)
            pseudo = frame[26:34] + struct.pack("!HH", 17, size + 8)
            assert frame[40:42] != bytes(2)
            assert internet_checksum(pseudo + frame[34:]) == 0xFFFF


@needs_root
def test_tcp_crosses_although_the_sender_leaves_segmentation_to_hardware(
    net: Veths, wired: PortSwitch, core: Patch
) -> None:
    sent = os.urandom(1_000_000)
    server = net.run_in(net.hosts[1], lambda: socket.create_server((net.address(1), 0)))
    with server:
        client = net.run_in(net.hosts[0], lambda: socket.create_connection(server.getsockname(), timeout=5))
        peer, _ = server.accept()
        with client, peer:
            peer.settimeout(5)
            thread = threading.Thread(target=client.sendall, args=(sent,))
            thread.start()
            got = b""
            while len(got) < len(sent):
                got += peer.recv(1 << 16)
            thread.join()
    assert got == sent
    counters = wired.statistics()
    assert counters["port0_unsegmented"] == counters["port0_oversized"] == counters["port1_unsent"] == 0
    # Frames of many packets came in, and left as packets.
    assert max(len(packet) for _, packet, _ in core.seen) == 1514


@needs_root
def test_vlan_tags_stay_in_place(net: Veths, wired: PortSwitch) -> None:
    frame = b"\xff" * 6 + net.mac(0) + bytes.fromhex("8100 2007 88b5") + bytes(range(60))
    with raw(net, 0) as one, closing(net.run_in(net.hosts[1], lambda: InterfacePort("eth0"))) as other:
        one.send(frame)
        assert select.select([other], [], [], 5)[0], "the frame does not arrive"
        assert other.receive() == (frame,)


@needs_root
@pytest.mark.parametrize(("size", "count"), [(10, 60), (1000, 4), (1000, 60), (1472, 44)])
def test_datagrams_that_are_sent_as_one_cross_one_by_one(
    net: Veths, wired: PortSwitch, core: Patch, size: int, count: int
) -> None:
    sent = os.urandom(size * count - 3)  # the last is shorter
    with udp(net, 0) as one, udp(net, 1) as other, raw(net, 1) as tap:
        one.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        one.sendto(sent, other.getsockname())
        got = [other.recv(2000) for _ in range(count)]
        assert got == [sent[i : i + size] for i in range(0, len(sent), size)]
        for _ in range(count):
            frame = tap.recv(2000)
            assert internet_checksum(frame[26:34] + struct.pack("!HH", 17, len(frame) - 34) + frame[34:]) == 0xFFFF
    datagrams = [packet for port, packet, _ in core.seen if port == 0 and packet[23] == socket.IPPROTO_UDP]
    assert len(datagrams) == count


@needs_root
def test_many_long_frames_keep_their_order(net: Veths, wired: PortSwitch) -> None:
    """Long ones come by another way than short ones."""
    with udp(net, 0) as one, udp(net, 1) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        one.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
        for number in range(40):
            one.sendto(bytes([number]) * (3000, 30_000, 500, 1000)[number % 4], other.getsockname())
        got = [other.recv(2000)[0] for _ in range(10 * (3 + 30 + 1 + 1))]
    assert got == sorted(got)
    assert wired.statistics()["port0_overflows"] == 0


def send_to_be_segmented(net: Veths, packet: Packet, size: int) -> None:
    """Sends a frame from the first host whose datagram hardware is to cut, as the kernel does itself."""
    frame = bytes(packet)
    start = frame.index(bytes(packet[UDP]))
    header = struct.pack("=BBHHHH", 1, 5, start + 8, size, start, 6)  # virtio's, for UDP without a checksum

    def make() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
        made.bind(("eth0", 0))
        return made

    with net.run_in(net.hosts[0], make) as one:
        one.send(header + frame)


def ethernet(net: Veths) -> Packet:
    return Ether(dst=net.mac(1).hex(":"), src=net.mac(0).hex(":"))


@needs_root
def test_segments_keep_their_vlan_tag(net: Veths) -> None:
    inside = IP(src=net.address(0), dst=net.address(1)) / UDP(sport=9, dport=9) / os.urandom(250)
    with closing(net.run_in(net.switch, lambda: InterfacePort("port0"))) as port:
        send_to_be_segmented(net, ethernet(net) / Dot1Q(vlan=7) / inside, 100)
        assert select.select([port], [], [], 5)[0], "the frame does not arrive"
        packets = port.receive()
    assert [len(packet) for packet in packets] == [18 + 28 + size for size in (100, 100, 50)]
    assert all(packet[12:18] == bytes.fromhex("8100 0007 0800") for packet in packets)


@needs_root
def test_frame_that_cannot_be_segmented_is_counted(
    net: Veths, wired: PortSwitch, caplog: pytest.LogCaptureFixture
) -> None:
    datagram = IPv6(src="fe80::1", dst="fe80::2") / IPv6ExtHdrHopByHop() / UDP(sport=9, dport=9) / bytes(4000)
    for _ in range(2):
        send_to_be_segmented(net, ethernet(net) / datagram, 1000)
    with udp(net, 0) as one, udp(net, 1) as other:
        one.sendto(b"next", other.getsockname())
        assert other.recv(100) == b"next"
    assert wired.statistics()["port0_unsegmented"] == 2
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("interface port0: a frame that holds several packets came in and was dropped")
    assert "ethtool -K INTERFACE tso off gso off" in warning


@needs_root
def test_frame_above_the_mtu_is_counted(net: Veths, wired: PortSwitch, caplog: pytest.LogCaptureFixture) -> None:
    ends = (net.switch, "port0"), (net.hosts[0], "eth0")
    for namespace, name in ends:  # after the port was opened, since veth pairs take none above that of the other end
        ip("-n", namespace, "link", "set", name, "mtu", "3000")
    try:
        with raw(net, 0) as one, raw(net, 1) as tap:
            for size in (1523, 3000, 60):
                one.send(net.mac(1) + net.mac(0) + b"\x88\xb5" + bytes(size - 14))
            assert len(tap.recv(4000)) == 60
    finally:
        for namespace, name in ends:
            ip("-n", namespace, "link", "set", name, "mtu", "1500")
    assert wired.statistics()["port0_oversized"] == 2
    assert "a frame of 1523 bytes came in and was dropped" in caplog.text


@needs_root
def test_frame_that_the_interface_does_not_take_is_counted(net: Veths, wired: PortSwitch) -> None:
    wired.transmit(0, bytes(1514))
    wired.transmit(0, bytes(1600))
    wired.transmit(0, b"short")
    counters = wired.statistics()
    assert (counters["port0_packets_out"], counters["port0_unsent"]) == (1, 2)


@needs_root
def test_interface_may_go_down_and_come_back(net: Veths, wired: PortSwitch, caplog: pytest.LogCaptureFixture) -> None:
    with udp(net, 0) as one, udp(net, 1) as other:
        ip("-n", net.switch, "link", "set", "port0", "down")
        wired.transmit(0, bytes(60))
        assert wired.statistics()["port0_unsent"] == 1
        assert is_at_rest(wired)
        ip("-n", net.switch, "link", "set", "port0", "up")
        other.setblocking(False)

        def arrives() -> bool:  # the kernel takes up to a second to let the sender's end send again
            one.sendto(b"again", other.getsockname())
            return bool(select.select([other], [], [], 0.1)[0]) and other.recv(100) == b"again"

        wait_until(arrives, "frames do not cross again")
    assert "interface port0: Network is down" in caplog.text


@needs_root
def test_interface_that_is_not_there() -> None:
    with pytest.raises(ModelError, match="interface 'nosuch0' cannot be opened"):
        InterfacePort("nosuch0")
