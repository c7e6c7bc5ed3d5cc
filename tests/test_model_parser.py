"""Parsers: what they take out of packets, and how they fail."""

import pytest

from switch.model.core import ModelSwitch
from tests.model_programs import load, one

NO_ERROR, TOO_SHORT, NO_MATCH, STACK_FULL, HEADER_TOO_SHORT, NOT_FOR_US, INVALID = range(7)


def label(value: int, *, last: bool = False) -> bytes:
    return (value << 12 | last << 8 | 64).to_bytes(4, "big")


@pytest.fixture(scope="module")
def switch() -> ModelSwitch:
    return load("parsing")


def report(error: int = 0, *, labels: int = 0, last: int = 0, flags: int = 0, peeked: int = 0) -> bytes:
    return bytes([error, labels, last, flags]) + peeked.to_bytes(2, "big")


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        pytest.param(b"\x01" + label(5, last=True), report(labels=1, last=5), id="one label"),
        pytest.param(b"\x01" + label(5) + label(6) + label(7, last=True), report(labels=3, last=7), id="a full stack"),
        pytest.param(
            b"\x01" + b"".join(map(label, (5, 6, 7))) + label(8, last=True),
            report(STACK_FULL, labels=3, last=7),
            id="a label too many",
        ),
        pytest.param(b"\x01" + label(5) + b"\x00", report(TOO_SHORT, labels=1, last=5), id="half a label"),
        pytest.param(b"\x81" + label(9, last=True), report(labels=1, last=9), id="a masked value"),
        pytest.param(b"\x02\x07\xaa", report(flags=1), id="a union's first member"),
        pytest.param(b"\x02\x08\xaa\xbb\xcc", report(flags=2), id="a union's second member"),
        pytest.param(b"\x02\x09", report(NO_ERROR), id="a select without a match, which BMv2 accepts"),
        pytest.param(b"\x02", report(TOO_SHORT), id="lookahead beyond the end"),
        pytest.param(b"\x03\x2fabcd!", report(flags=4), id="varbit"),
        pytest.param(b"\x03\x0f!", report(flags=4), id="an empty varbit"),
        pytest.param(b"\x03\x7f" + bytes(20), report(HEADER_TOO_SHORT), id="a varbit too long for its type"),
        pytest.param(b"\x03\x2fabc", report(TOO_SHORT), id="a varbit longer than the packet"),
        pytest.param(b"\x04\x12\x34", report(peeked=0x1234), id="lookahead"),
        pytest.param(b"\x05\x03\x00\x00\x12\x34", report(peeked=0x1234), id="advance"),
        pytest.param(b"\x05\x09\x00\x00\x12\x34", report(TOO_SHORT), id="advance beyond the end"),
        pytest.param(b"\x06\x09", report(), id="verify holds"),
        pytest.param(b"\x06\x0a", report(NOT_FOR_US), id="verify fails"),
        pytest.param(b"\x70", report(), id="not in the value set"),
        pytest.param(b"", report(TOO_SHORT), id="an empty packet"),
    ],
)
def test_parser(switch: ModelSwitch, packet: bytes, expected: bytes) -> None:
    errors = switch.counters.parser_errors
    data = one(switch, packet)
    assert data[:6] == expected
    if packet[:1] != b"\x05":  # what was skipped is gone
        assert data[6:] == packet
    assert switch.counters.parser_errors - errors == bool(expected[0])
    assert switch.trace(1, packet, 0.0).out == [(2, data)]


def test_what_is_skipped_does_not_come_back(switch: ModelSwitch) -> None:
    assert one(switch, b"\x05\x03\x00\x00\x12\x34")[6:] == b"\x05\x12\x34"


def test_value_set() -> None:
    switch = load("parsing")
    assert list(switch.value_sets) == ["TestParser.known"]
    switch.value_sets["TestParser.known"].add(0x70)
    assert one(switch, b"\x70")[:6] == report(flags=8)
    switch.reset()
    assert one(switch, b"\x70")[:6] == report()
