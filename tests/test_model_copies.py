"""Multicast, clones, resubmission, recirculation and drops, with what egress sees of each."""

import struct

import pytest

from switch.model.core import ModelSwitch
from switch.model.replication import CloneSession
from tests.model_programs import load

SEEN = struct.Struct(">BHHBBH")  # kind, rid, port, kept, lost, size


@pytest.fixture
def switch() -> ModelSwitch:
    switch = load("copies")
    switch.state.replication.set_group(7, [(3, 30), (1, 10), (3, 31)])
    return switch


def seen(kind: int, port: int, size: int, *, rid: int = 0, kept: int = 0, lost: int = 0) -> bytes:
    return SEEN.pack(kind, rid, port, kept, lost, size)


def run(switch: ModelSwitch, packet: bytes) -> list[tuple[int, bytes]]:
    out = switch.receive(1, packet, 0.0)
    assert switch.trace(1, packet, 0.0).out == out
    return out


def test_unicast(switch: ModelSwitch) -> None:
    assert run(switch, b"\0\0rest") == [(2, seen(0, 2, 6) + b"\0\0rest")]


def test_multicast_in_the_order_of_the_group(switch: ModelSwitch) -> None:
    assert run(switch, b"\1\0rest") == [
        (port, seen(5, port, 6, rid=rid) + b"\1\0rest") for port, rid in ((3, 30), (1, 10), (3, 31))
    ]


def test_a_group_that_is_not_there_has_no_copies(switch: ModelSwitch) -> None:
    switch.state.replication.delete_group(7)
    assert run(switch, b"\1\0") == []


def test_drops(switch: ModelSwitch) -> None:
    assert run(switch, b"\2\0") == []
    assert run(switch, b"\7\0") == []
    assert switch.counters.dropped == 4  # each was run twice


def test_another_drop_port() -> None:
    switch = load("copies", drop_port=2)
    assert switch.receive(1, b"\0\0", 0.0) == []


def test_a_clone_of_ingress_is_the_packet_that_came(switch: ModelSwitch) -> None:
    assert run(switch, b"\3\0rest") == [(2, seen(0, 2, 6, kept=33, lost=44) + b"\3\x09rest")]
    switch.state.replication.set_session(5, CloneSession(port=4, group=7, truncate_bytes=11))
    clones = [(port, seen(1, port, 6, rid=rid, kept=33) + b"\3\0") for port, rid in ((3, 30), (1, 10), (3, 31), (4, 0))]
    assert run(switch, b"\3\0rest") == [*clones, (2, seen(0, 2, 6, kept=33, lost=44) + b"\3\x09rest")]


def test_resubmission_keeps_the_list(switch: ModelSwitch) -> None:
    assert run(switch, b"\4\0rest") == [(2, seen(0, 2, 6, kept=3) + b"\4\0rest")]


def test_recirculation_takes_what_egress_made(switch: ModelSwitch) -> None:
    # On the third pass egress lets it go; each pass has the header of the one before, removed by ingress.
    assert run(switch, b"\5\0rest") == [(2, seen(0, 2, 15 - 9, kept=55) + b"\5\3rest")]


def test_a_clone_of_egress_is_the_packet_as_egress_left_it(switch: ModelSwitch) -> None:
    switch.state.replication.set_session(6, CloneSession(replicas=((4, 40),)))
    assert run(switch, b"\6\0rest") == [
        (2, seen(0, 2, 6, kept=11, lost=44) + b"\6\0rest"),
        (4, seen(2, 4, 15, rid=40, kept=66) + b"\6\0rest"),
    ]


def test_the_trace_tells_where_the_packet_went(switch: ModelSwitch) -> None:
    switch.state.replication.set_session(5, CloneSession(port=4))
    lines = str(switch.trace(1, b"\3\0rest", 0.0)).splitlines()
    wanted = [
        "port 1: packet of 6 bytes: 030072657374",
        "  if (hdr.command.command == 3) at copies.p4:61: true",
        "    meta.kept = 33, now 0x21 (copies.p4:62)",
        "  to port 2",
        "egress of a clone of ingress to port 4, replication id 0",
        "egress of the packet to port 2",
        "  emitted command: 0309",
        "sent to port 4: 15 bytes: 010000000421000006030072657374",
    ]
    places = [lines.index(line) for line in wanted]
    assert places == sorted(places)
    assert "  to multicast group 7" in str(switch.trace(1, b"\1\0", 0.0)).splitlines()
    assert "  dropped at the end of ingress" in str(switch.trace(1, b"\2\0", 0.0)).splitlines()
    assert "  dropped at the end of egress" in str(switch.trace(1, b"\7\0", 0.0)).splitlines()
    assert sum(line.startswith("resubmitted") for line in str(switch.trace(1, b"\4\0", 0.0)).splitlines()) == 3


def test_a_packet_that_goes_round_for_ever_is_dropped(switch: ModelSwitch) -> None:
    assert switch.receive(1, b"\x08\0", 0.0) == []
    assert switch.counters.faults == 1
    assert switch.receive(1, b"\0\0", 0.0) == [(2, seen(0, 2, 2) + b"\0\0")]
