"""Capture files of every kind, whole and damaged, become packets or a message."""

import io
import json
import struct
import warnings
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from protocol.constants import DATA_PORT
from protocol.errors import WiresumError
from protocol.packets import make_packet
from tests.trace_captures import COOKED, COOKED_2, RAW, Seen, block, pcap, pcapng, save
from wiresum.trace.analysis import analyse
from wiresum.trace.captures import CaptureError
from wiresum.trace.packets import Fault, Trace, read_trace
from wiresum.trace.tables import render


def payload(tsi: int, *, values: bool = True, per_packet: int = 32, job: int = 3) -> bytes:
    numbers = np.arange(per_packet) + tsi if values else None
    return make_packet(tsi=tsi, slots=4, values=numbers, per_packet=per_packet, job=job, e0=-3, e1=5).encode()


SEEN = [Seen(0.001 * tsi, tsi % 2, payload(tsi, values=tsi != 2), result=tsi == 3) for tsi in range(4)]
FORMATS = {
    "pcap": pcap(SEEN),
    "pcap, big-endian": pcap(SEEN, order=">"),
    "pcap, microseconds": pcap(SEEN, nano=False),
    "pcap, VLAN": pcap(SEEN, tags=1),
    "pcap, two VLANs": pcap(SEEN, tags=2),
    "pcap, cooked": pcap(SEEN, link=COOKED),
    "pcap, cooked, VLAN": pcap(SEEN, link=COOKED, tags=1),
    "pcap, cooked 2": pcap(SEEN, link=COOKED_2),
    "pcap, cooked 2, VLAN": pcap(SEEN, link=COOKED_2, tags=1),
    "pcap, no link layer": pcap(SEEN, link=RAW),
    "pcapng": pcapng(SEEN),
    "pcapng, big-endian": pcapng(SEEN, order=">"),
    "pcapng, microseconds": pcapng(SEEN, nano=False),
    "pcapng, cooked 2": pcapng(SEEN, link=COOKED_2),
    "pcapng, two sections": pcapng(SEEN[:2]) + pcapng(SEEN[2:], order=">", link=COOKED),
}


def read(folder: Path, *contents: bytes) -> Trace:
    paths = [save(folder, f"{number}.pcap", content) for number, content in enumerate(contents)]
    return read_trace(paths, port=DATA_PORT)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_tells_the_same(name: str, tmp_path: Path) -> None:
    trace = read(tmp_path, FORMATS[name])
    packets = trace.packets
    assert trace.captures[0].notes == []
    assert packets["tsi"].tolist() == [0, 1, 2, 3]
    assert packets["job"].tolist() == [3] * 4
    assert packets["length"].tolist() == packets["captured"].tolist() == [138, 138, 10, 138]
    assert packets["fault"].tolist() == [Fault.NONE] * 4
    assert packets["e0"].tolist() == [-3] * 4
    assert (packets["time"] - 1_700_000_000 * 10**9).tolist() == [0, 1_000_000, 2_000_000, 3_000_000]
    assert (packets["source"] & 0xFFFF).tolist() == [40000, 40001, 40000, DATA_PORT]
    assert packets["frame"].tolist() == ([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "is empty"),
        (b"#!/bin/sh\n", "neither a pcap nor a pcapng file"),
        (b"\xd4\xc3", "neither a pcap nor a pcapng file"),
        (b"\x1f\x8b\x08\x00", "compressed with gzip"),
        (pcap([])[:20], "ends in its header"),
        (pcap([]), f"no packets from or to UDP port {DATA_PORT}: .*0.pcap has none in 0 frames"),
        (pcap([Seen(0, 0, b"x" * 40, port=53)]), "has none in 1 frames"),
        (pcap(SEEN, link=147), "4 frames of link type 147, which is not known"),
        (pcap(SEEN, snap=30), "4 frames end before the UDP header does"),
        (pcapng([])[:20], "ends in the middle of a block"),
    ],
)
def test_what_is_no_capture_of_ours_is_said(contents: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=message):
        read(tmp_path, contents)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"none\.pcap"):
        read_trace([tmp_path / "none.pcap"], port=DATA_PORT)


@pytest.mark.parametrize("contents", [pcap(SEEN), pcapng(SEEN)])
def test_what_stands_before_the_damage_is_used(contents: bytes, tmp_path: Path) -> None:
    trace = read(tmp_path, contents[:-50])
    assert trace.packets["tsi"].tolist() == [0, 1, 2]
    assert "ends in the middle of a" in trace.captures[0].notes[0]


def test_a_damaged_length_is_not_believed(tmp_path: Path) -> None:
    file = bytearray(pcap(SEEN))
    second = 24 + 16 + len(SEEN[0].frame())
    file[second + 8 : second + 12] = b"\xff\xff\xff\x7f"
    trace = read(tmp_path, bytes(file))
    assert len(trace.packets) == 1
    assert trace.captures[0].notes[0].endswith("record 2 claims 2147483647 bytes; the rest is left out")


def test_another_port_can_be_named(tmp_path: Path) -> None:
    path = save(tmp_path, "run.pcap", pcap([replace(each, port=5000) for each in SEEN]))
    assert len(read_trace([path], port=5000).packets) == 4


def test_blocks_of_pcapng_that_are_rare(tmp_path: Path) -> None:
    """Simple packets have no time, old ones another header; statistics tell of drops, unknown blocks of nothing."""
    frames = [each.frame() for each in SEEN]
    ticks = 1_700_000_000 * 10**9
    old = struct.pack("<HHIIII", 0, 0, ticks >> 32, ticks & 0xFFFFFFFF, len(frames[1]), len(frames[1])) + frames[1]
    lost = struct.pack("<IIIHHQ", 0, 0, 0, 5, 8, 77)
    unknown_interface = struct.pack("<IIIII", 9, 0, 0, len(frames[0]), len(frames[0])) + frames[0]
    file = pcapng(SEEN[:1])
    file += block("<", 3, struct.pack("<I", len(frames[3])) + frames[3])
    file += block("<", 2, old) + block("<", 5, lost) + block("<", 0x0BAD, b"abc") + block("<", 6, unknown_interface)
    trace = read(tmp_path, file)
    assert trace.packets["tsi"].tolist() == [0, 3, 1]
    notes = " ".join(trace.captures[0].notes)
    assert "1 of its packet blocks make no sense" in notes
    assert "1 frames have no time of their own" in notes
    assert "dropped 77 frames" in notes


class TestLargeFrames:
    """As captured on a host that offloads segmentation."""

    PACKETS = tuple(payload(tsi, values=tsi < 4) for tsi in range(5))

    def test_are_taken_apart(self, tmp_path: Path) -> None:
        trace = read(tmp_path, pcap([Seen(0, 0, b"".join(self.PACKETS)), Seen(1, 1, b"".join(self.PACKETS[:2]))]))
        assert trace.packets["tsi"].tolist() == [0, 1, 2, 3, 4, 0, 1]
        assert trace.packets["length"].tolist() == [138, 138, 138, 138, 10, 138, 138]
        assert trace.packets["frame"].tolist() == [1] * 5 + [2] * 2
        assert not trace.packets["fault"].any()
        assert "2 frames hold several packets each" in trace.captures[0].notes[0]

    def test_cut_short_show_what_is_there(self, tmp_path: Path) -> None:
        trace = read(tmp_path, pcap([Seen(0, 0, b"".join(self.PACKETS))], snap=42 + 2 * 138 + 40))
        assert trace.packets["tsi"].tolist() == [0, 1, 2]
        assert trace.packets["captured"].tolist() == [138, 138, 40]
        notes = " ".join(trace.captures[0].notes)
        assert "holds nothing of 2 packets" in notes
        assert "1 packets were captured without all of their values" in notes

    def test_cut_in_the_first_packet(self, tmp_path: Path) -> None:
        trace = read(tmp_path, pcap([Seen(0, 0, b"".join(self.PACKETS))], snap=96))
        assert trace.packets["tsi"].tolist() == [0]
        assert "holds nothing of 4 packets" in " ".join(trace.captures[0].notes)

    def test_are_told_from_packets_of_a_wrong_length(self, tmp_path: Path) -> None:
        wrong = [self.PACKETS[0] + b"\xff" * 138, self.PACKETS[0] + b"x", self.PACKETS[0][:-1]]
        trace = read(tmp_path, pcap([Seen(number, 0, each) for number, each in enumerate(wrong)]))
        assert trace.packets["fault"].tolist() == [Fault.LENGTH] * 3
        assert trace.packets["length"].tolist() == [276, 139, 137]


class TestSeenTwice:
    def test_at_both_ends_counts_once(self, tmp_path: Path) -> None:
        ours = [Seen(0.1 * n, 0, payload(n), number=100 + n) for n in range(3)]
        theirs = [replace(each, at=each.at + 0.0002) for each in ours[1:]]
        trace = read(tmp_path, pcap(ours), pcap(theirs))
        assert trace.packets["tsi"].tolist() == [0, 1, 2]
        assert (trace.copies, trace.duplicates) == (2, 0)

    def test_and_sent_twice_counts_twice(self, tmp_path: Path) -> None:
        """The first of the two was lost between the taps; nothing in the packets tells them apart."""
        ours = [Seen(0, 0, payload(0)), Seen(0.01, 0, payload(0))]
        trace = read(tmp_path, pcap(ours), pcap([Seen(0.0101, 0, payload(0))]))
        assert len(trace.packets) == 2

    def test_long_apart_is_not_the_same(self, tmp_path: Path) -> None:
        trace = read(tmp_path, pcap([Seen(0, 0, payload(0))]), pcap([Seen(5, 0, payload(0))]))
        assert len(trace.packets) == 2

    def test_as_one_large_frame_and_as_its_parts(self, tmp_path: Path) -> None:
        parts = [payload(n) for n in range(3)]
        large = [Seen(0, 0, b"".join(parts), number=50), Seen(0.1, 0, payload(3), number=53)]
        single = [Seen(0.001, 0, part, number=50 + n) for n, part in enumerate(parts)]
        trace = read(tmp_path, pcap(large), pcapng(single))
        assert trace.packets["tsi"].tolist() == [0, 1, 2, 3]
        assert trace.copies == 3

    def test_because_the_network_duplicated_it(self, tmp_path: Path) -> None:
        seen = [
            Seen(0, 0, payload(0), number=9),
            Seen(0.01, 0, payload(1), number=10),
            Seen(0.02, 0, payload(1), number=10),
        ]
        again = Seen(0.03, 0, payload(1), number=11)
        trace = read(tmp_path, pcap([*seen, again]))
        assert trace.packets["tsi"].tolist() == [0, 1, 1]
        assert trace.duplicates == 1

    def test_parts_of_large_frames_have_no_numbers_of_their_own(self, tmp_path: Path) -> None:
        """Linux counts a large frame as one, so that the number behind it says nothing about its parts."""
        large = Seen(0, 0, payload(0) + payload(1), number=50)
        trace = read(tmp_path, pcap([large, Seen(0.01, 0, payload(1), number=51)]))
        assert trace.packets["tsi"].tolist() == [0, 1, 1]
        twice = read(tmp_path, pcap([large, Seen(0.01, 0, payload(3), number=51), replace(large, at=0.02)]))
        assert twice.packets["tsi"].tolist() == [0, 1, 3]
        assert twice.duplicates == 2

    def test_parts_cut_before_the_capture_share_numbers_with_what_follows(self, tmp_path: Path) -> None:
        """A large frame of three that was segmented on the way counts 50, 51, 52, and the next frame is 51 again."""
        parts = [Seen(0.001 * n, 0, payload(n), number=50 + n) for n in range(3)]
        again = Seen(0.01, 0, payload(1), number=51)
        another = Seen(0.02, 0, payload(3), number=52)
        trace = read(tmp_path, pcap([*parts, again, another]))
        assert trace.packets["tsi"].tolist() == [0, 1, 2, 1, 3]
        assert trace.duplicates == 0

    def test_on_the_way_in_and_out_of_one_machine(self, tmp_path: Path) -> None:
        """As `tcpdump -i any` shows a frame that crosses a bridge."""
        file = pcap([Seen(0, 0, payload(0)), Seen(0.00001, 0, payload(0))], link=COOKED_2)
        second = 24 + 16 + len(SEEN[0].frame(COOKED_2)) + 16
        other = file[: second + 10] + b"\x04" + file[second + 11 :]
        assert len(read(tmp_path, file).packets) == 2
        assert len(read(tmp_path, other).packets) == 1


def analysed(folder: Path, contents: bytes) -> str:
    """Anything may come out, a message as well, but no traceback and no warning of numpy's."""
    path = save(folder, "any.pcap", contents)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            analysis = analyse([path], port=DATA_PORT)
        except WiresumError as error:
            return str(error)
        json.dumps(asdict(analysis.report), allow_nan=False)
        console = Console(file=io.StringIO())
        for part in render(analysis, slot=1):
            console.print(part)
    return ""


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
HEADS = [pcap([]), pcap([], order=">", nano=False), pcapng([]), pcapng([], order=">"), b""]


@FUZZ
@given(st.sampled_from(HEADS), st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(tmp_path: Path, head: bytes, rest: bytes) -> None:
    assert "\n" not in analysed(tmp_path, head + rest)


@FUZZ
@given(
    st.sampled_from(sorted(FORMATS)),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, 2000),
)
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str, changes: list[tuple[int, int]], cut: int) -> None:
    contents = bytearray(FORMATS[name])
    for place, value in changes:
        contents[place % len(contents)] = value
    analysed(tmp_path, bytes(contents[: len(contents) - cut % len(contents) if cut > 1000 else None]))


@st.composite
def payloads(draw: st.DrawFn) -> bytes:
    """Packets that are sound but for a field or two."""
    kind = draw(st.sampled_from([0x10, 0x10, 0x10, 0x20, 0x11, 0x18, 0x17, 0x50]))
    tsi = draw(st.integers(0, 9) | st.just(2**32 - 1))
    slot = draw(st.sampled_from([tsi % 4, tsi % 4 | (tsi // 4 % 2) << 15, 0x4000]))
    head = struct.pack(">BBIHbb", kind, draw(st.integers(0, 1)), tsi, slot, draw(st.integers(-128, 127)), 0)
    return head + bytes([draw(st.integers(0, 3))]) * draw(st.sampled_from([128, 128, 0, 256, 127]))


@FUZZ
@given(
    st.lists(
        st.tuples(
            st.floats(0, 1), st.integers(0, 3), payloads() | st.binary(max_size=60), st.booleans(), st.integers(0, 3)
        ),
        max_size=30,
    ),
    st.sampled_from([1 << 18, 60, 120]),
)
def test_any_payloads_are_read(tmp_path: Path, seen: list[tuple[float, int, bytes, bool, int]], snap: int) -> None:
    analysed(tmp_path, pcap([Seen(*each) for each in seen], snap=snap))
