"""The codec against a second, independent description of the layout (scapy's), and against PROTOCOL.md by hand."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.packet import Raw

from protocol.constants import DATA_PORT, MSG_EXPONENTS, MSG_VALUES, VALUES_PER_PACKET, packet_bytes
from protocol.packets import Packet, PacketBatch, batches, decode, make_packet, pool_index
from protocol.scapy_layer import Wiresum

int32s = st.integers(-(2**31), 2**31 - 1)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    size = draw(st.integers(0, len(VALUES_PER_PACKET) - 1))
    msg_type = draw(st.sampled_from([MSG_VALUES, MSG_EXPONENTS]))
    values = np.zeros(0, np.int32)
    if msg_type == MSG_VALUES:
        # A few drawn values, repeated, fill big packets quickly.
        values = np.resize(np.array(draw(st.lists(int32s, min_size=1, max_size=37)), np.int32), VALUES_PER_PACKET[size])
    return Packet(
        msg_type=msg_type,
        reserved=draw(st.integers(0, 1)),
        size=size,
        job=draw(st.integers(0, 255)),
        tsi=draw(st.integers(0, 2**32 - 1)),
        pool_index=draw(st.integers(0, 2**16 - 1)),
        e0=draw(st.integers(-128, 127)),
        e1=draw(st.integers(-128, 127)),
        values=values,
    )


def same(one: Packet, other: Packet) -> bool:
    names = ("msg_type", "reserved", "size", "job", "tsi", "pool_index", "e0", "e1")
    return all(getattr(one, n) == getattr(other, n) for n in names) and np.array_equal(one.values, other.values)


def test_layout_byte_by_byte() -> None:
    packet = Packet(
        msg_type=1,
        size=0,
        job=0xAB,
        tsi=0x01020304,
        pool_index=0x8005,
        e0=-128,
        e1=126,
        values=np.arange(-2, 30, dtype=np.int32),
    )
    assert packet.encode() == bytes.fromhex("10ab010203048005807e") + struct.pack(">32i", *range(-2, 30))
    assert (packet.slot, packet.version) == (5, 1)
    exponents = Packet(
        msg_type=2, size=6, reserved=1, job=0, tsi=0, pool_index=3, e0=7, e1=-1, values=np.zeros(0, np.int32)
    )
    assert exponents.encode() == bytes.fromhex("2e0000000000000307ff")


@given(packets())
def test_round_trip(packet: Packet) -> None:
    payload = packet.encode()
    assert len(payload) == (packet_bytes(VALUES_PER_PACKET[packet.size]) if packet.msg_type == MSG_VALUES else 10)
    assert same(decode(payload), packet)


@given(packets())
def test_scapy_reads_what_we_write(packet: Packet) -> None:
    layer = Wiresum(packet.encode())
    assert (layer.msg_type, layer.reserved, layer.size) == (packet.msg_type, packet.reserved, packet.size)
    assert (layer.job, layer.tsi, layer.e0, layer.e1) == (packet.job, packet.tsi, packet.e0, packet.e1)
    assert (layer.version, layer.zero, layer.slot) == (packet.version, packet.pool_index >> 14 & 1, packet.slot)
    assert (layer.values or []) == packet.values.tolist()
    assert not layer.payload


@given(packets())
def test_we_read_what_scapy_writes(packet: Packet) -> None:
    layer = Wiresum(
        msg_type=packet.msg_type,
        reserved=packet.reserved,
        size=packet.size,
        job=packet.job,
        tsi=packet.tsi,
        version=packet.version,
        zero=packet.pool_index >> 14 & 1,
        slot=packet.slot,
        e0=packet.e0,
        e1=packet.e1,
        values=packet.values.tolist(),
    )
    assert bytes(layer) == packet.encode()
    assert same(decode(bytes(layer)), packet)


@pytest.mark.parametrize(("sport", "dport"), [(40000, DATA_PORT), (DATA_PORT, 40000)])
def test_scapy_knows_the_port_both_ways(sport: int, dport: int) -> None:
    values = list(range(256))
    built = IP(src="10.0.0.1", dst="10.0.0.9") / UDP(sport=sport, dport=dport) / Wiresum(tsi=77, values=values)
    read = IP(bytes(built))
    assert (read[Wiresum].tsi, read[Wiresum].values) == (77, values)
    assert read[UDP].len == 8 + packet_bytes(256)


def test_scapy_leaves_other_ports_and_trailing_bytes_alone() -> None:
    payload = make_packet(tsi=1, slots=4, values=None, per_packet=32).encode()
    assert Wiresum not in IP(bytes(IP() / UDP(sport=1, dport=2) / Raw(payload)))
    assert Wiresum(payload + b"xyz").payload.load == b"xyz"


def test_scapy_takes_a_packet_of_no_known_size() -> None:
    assert Wiresum(bytes.fromhex("17000000000000000000") + b"rest").payload.load == b"rest"


def test_a_result_answers_its_contribution() -> None:
    sent = Wiresum(make_packet(tsi=70, slots=64, values=np.ones(32), per_packet=32).encode())
    result = Wiresum(make_packet(tsi=70, slots=64, values=np.full(32, 9), per_packet=32, e0=3, e1=1).encode())
    other = Wiresum(make_packet(tsi=71, slots=64, values=np.full(32, 9), per_packet=32).encode())
    assert result.answers(sent)
    assert not other.answers(sent)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"", r"at least 10 bytes \(8 of header\), not 0"),
        (bytes(9), "at least 10 bytes .*, not 9"),
        (bytes(10), "msg_type must be 1 or 2, not 0"),
        (b"\x30" + bytes(9), "msg_type must be 1 or 2, not 3"),
        (b"\x17" + bytes(9), "size must be below 7, not 7"),
        (b"\x10" + bytes(136), "type 1 and size 0 has 138 bytes, not 137"),
        (b"\x10" + bytes(138), "type 1 and size 0 has 138 bytes, not 139"),
        (b"\x20" + bytes(137), "type 2 and size 0 has 10 bytes, not 138"),
    ],
)
def test_decode_says_what_is_wrong(payload: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(payload)


@given(st.binary(max_size=300))
def test_decode_of_garbage_is_a_packet_or_a_value_error(payload: bytes) -> None:
    try:
        packet = decode(payload)
    except ValueError:
        return
    assert packet.encode() == payload


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 64, 16384]))
def test_pool_index_follows_from_the_chunk(tsi: int, slots: int) -> None:
    index = pool_index(tsi, slots)
    assert index & 0x3FFF == tsi % slots
    assert index >> 15 == tsi // slots % 2
    assert index & 0x4000 == 0


def test_make_packet_checks_and_wraps() -> None:
    assert make_packet(tsi=2**32 + 5, slots=4, values=None, per_packet=64).tsi == 5
    with pytest.raises(ValueError, match=r"shape \(32,\), not \(33,\)"):
        make_packet(tsi=0, slots=4, values=np.zeros(33), per_packet=32)
    with pytest.raises(ValueError, match=r"values per packet must be one of .*, not 33"):
        make_packet(tsi=0, slots=4, values=np.zeros(33), per_packet=33)


class TestBatches:
    @given(st.lists(st.integers(0, 12).map(lambda size: bytes([size]) * size), max_size=30))
    def test_keep_every_packet_in_order(self, payloads: list[bytes]) -> None:
        packed = batches(payloads)
        assert [payload for batch in packed for payload in batch] == [payload for payload in payloads if payload]
        assert sum(map(len, packed)) == sum(map(bool, payloads))

    def test_follow_the_rule_of_segmentation_offload(self) -> None:
        packed = batches([b"aaa", b"bbb", b"c", b"d", b"eeee", b"ff"])
        assert [(batch.segment, len(batch)) for batch in packed] == [(3, 3), (1, 1), (4, 2)]

    def test_of_nothing(self) -> None:
        assert batches([]) == []
        assert len(PacketBatch.of(np.zeros(0, np.uint8), 10)) == 0
