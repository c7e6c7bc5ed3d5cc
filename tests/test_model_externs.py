"""Registers, counters, hashes, checksums and the other externs of v1model."""

import binascii
import logging
import zlib

import pytest

from switch.model.checksums import csum16
from switch.model.context import Digest
from switch.model.core import ModelSwitch
from tests.model_programs import load, one

REGISTER, COUNTER = "TestIngress.cells", "TestIngress.counted"


def command(number: int, index: int = 0, value: int = 0, checksum: int = 0) -> bytes:
    return bytes([number, index]) + value.to_bytes(4, "big") + bytes(4) + checksum.to_bytes(2, "big")


def result(data: bytes) -> int:
    return int.from_bytes(data[6:10], "big")


@pytest.fixture
def switch() -> ModelSwitch:
    return load("externs")


def test_registers_and_counters(switch: ModelSwitch) -> None:
    assert result(one(switch, command(1, 3, 40))) == 0
    assert result(one(switch, command(1, 3, 2) + b"more")) == 40
    assert switch.state.registers[REGISTER].cells == [0, 0, 0, 42]
    assert switch.state.counters[COUNTER].read(3) == (2, 12 + 16)
    switch.reset()
    assert result(one(switch, command(1, 3, 1))) == 0


def test_registers_wrap_at_their_width(switch: ModelSwitch) -> None:
    switch.state.registers[REGISTER].write(0, 0xFFFFFFFF)
    one(switch, command(1, 0, 2))
    assert switch.state.registers[REGISTER].read(0) == 1


def test_an_index_out_of_range_changes_nothing(switch: ModelSwitch) -> None:
    assert result(one(switch, command(1, 4, 5))) == 0  # what p4c's variable for the result had before
    assert switch.state.registers[REGISTER].cells == [0] * 4
    assert switch.counters.bad_indexes == 3  # a read, a write, a count


@pytest.mark.parametrize(("value", "negative"), [(0x7F, 0), (0x80, 1), (0xFF, 1)])
def test_signed_registers(switch: ModelSwitch, value: int, negative: int) -> None:
    assert result(one(switch, command(2, 0, value))) == negative


VALUE, INDEX = 0x12345678, 0x9A
DATA = VALUE.to_bytes(4, "big") + bytes([INDEX])


def crc16(data: bytes) -> int:
    rest = 0
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0xA001 if rest & 1 else 0)
    return rest


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param(3, zlib.crc32(DATA), id="crc32"),
        pytest.param(4, crc16(DATA), id="crc16"),
        pytest.param(5, 10 + (0x1234 ^ 0x5678 ^ 0x9A00) % 100, id="xor16"),
        pytest.param(6, csum16(DATA), id="csum16"),
        pytest.param(7, VALUE, id="identity"),
    ],
)
def test_hashes(switch: ModelSwitch, number: int, expected: int) -> None:
    assert result(one(switch, command(number, INDEX, VALUE))) == expected


def test_known_checksums() -> None:
    header = binascii.unhexlify("45000073000040004011 0000 c0a80001c0a800c7".replace(" ", ""))
    assert csum16(header) == 0xB861
    assert csum16(b"") == 0xFFFF
    assert csum16(b"\xff\xff") == 0
    assert csum16(b"\x01") == 0xFEFF
    assert crc16(b"123456789") == 0xBB3D


def test_random_is_in_range_and_repeats_with_its_seed() -> None:
    first, second = ([result(one(load("externs", seed=3), command(8))) for _ in range(3)] for _ in range(2))
    assert first == second
    switch = load("externs")
    assert {result(one(switch, command(8))) for _ in range(100)} == {10, 11, 12}


def test_digest(switch: ModelSwitch) -> None:
    one(switch, command(9, 7, 8))
    assert switch.take_digests() == [Digest("note_t", 1, 1, (7, 8))]
    assert switch.take_digests() == []


def test_log(switch: ModelSwitch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "switch.model"):
        one(switch, command(10, 7, 8))
    assert "value 8 at 7" in caplog.text


def test_an_assert_that_fails_drops_the_packet(switch: ModelSwitch, caplog: pytest.LogCaptureFixture) -> None:
    one(switch, command(11, 0, 9))
    assert switch.receive(1, command(11, 0, 10), 0.0) == []
    assert switch.counters.faults == 1
    assert "assert failed: assert(hdr.command.value < 10), externs.p4" in caplog.text
    one(switch, command(11, 0, 9))  # the switch goes on


def test_truncate(switch: ModelSwitch) -> None:
    packet = command(12) + b"more"
    assert one(switch, packet) == packet[:10]


def test_exit_leaves_ingress(switch: ModelSwitch) -> None:
    assert result(one(switch, command(13))) == 0


@pytest.mark.parametrize(("index", "value", "expected"), [(0, 0, 1), (1, 6, 3), (1, 5, 102), (2, 0, 100)])
def test_branches_in_actions(switch: ModelSwitch, index: int, value: int, expected: int) -> None:
    assert result(one(switch, command(14, index, value))) == expected


def test_packet_length(switch: ModelSwitch) -> None:
    assert result(one(switch, command(15) + b"more")) == 16


def test_timestamps_are_microseconds_since_the_start(switch: ModelSwitch) -> None:
    assert result(one(switch, command(16), now=7.0)) == 0  # the first packet starts the clock
    assert result(one(switch, command(16), now=8.5)) == 1_500_000
    assert result(one(load("externs", started=5.0), command(16), now=7.0)) == 2_000_000


def test_a_checksum_is_verified(switch: ModelSwitch) -> None:
    right = csum16(command(21, 1, 2)[:6])
    assert result(one(switch, command(21, 1, 2, right))) == 0
    assert result(one(switch, command(21, 1, 2, right ^ 1))) == 1


@pytest.mark.parametrize("payload", [b"", b"x", b"odd", b"even"])
def test_a_checksum_over_the_payload_is_computed(switch: ModelSwitch, payload: bytes) -> None:
    data = one(switch, command(20) + b"\x12\x34\x00\x00" + payload)
    assert data[12:] == b"\x12\x34" + csum16(b"\x12\x34" + payload).to_bytes(2, "big") + payload


def test_the_trace_tells_what_happened(switch: ModelSwitch) -> None:
    text = str(switch.trace(1, command(1, 3, 40), 0.0))
    for words in (
        "parser state start",
        "extracted command: command 1, index 3, value 0x28",
        "register TestIngress.cells[3] is 0",
        "register TestIngress.cells[3] from 0 to 0x28",
        "counter TestIngress.counted[3] now 1 packets",
        "at externs.p4:",
        "sent to port 2: 12 bytes",
    ):
        assert words in text
    assert switch.state.registers[REGISTER].cells == [0, 0, 0, 40]  # a trace is a packet like any
