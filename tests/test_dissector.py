"""The Wireshark dissector, through tshark, on a capture that is built here; and scapy on the same capture."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap, wrpcap

from protocol.constants import DATA_PORT
from protocol.packets import make_packet
from protocol.scapy_layer import Wiresum

DISSECTOR = Path(__file__).resolve().parent.parent / "protocol" / "wireshark" / "wiresum.lua"
SWITCH = "10.0.0.254"
VALUES = np.arange(-1, 31)
GOOD = make_packet(tsi=17, slots=8, values=VALUES, per_packet=32, job=3, e0=-5, e1=9)

needs_tshark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not on PATH")


def frame(at: float, rank: int, payload: bytes, *, result: bool = False, port: int = DATA_PORT) -> Ether:
    worker, own = f"10.0.0.{rank + 1}", 45000 + rank
    network = IP(src=SWITCH, dst=worker) if result else IP(src=worker, dst=SWITCH)
    ports = UDP(sport=port, dport=own) if result else UDP(sport=own, dport=port)
    built = Ether(bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / network / ports / payload))
    built.time = 1000 + at
    return built


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frames 1 to 5: a chunk of two ranks, the first of which asks twice; then one fault in each frame."""
    good = GOOD.encode()
    several = [
        make_packet(tsi=tsi, slots=8, values=VALUES if tsi < 22 else None, per_packet=32, job=3)
        for tsi in range(19, 23)
    ]
    frames = [
        frame(0.001, 0, good),
        frame(0.002, 1, good),
        frame(0.004, 0, good),
        frame(0.007, 0, replace(GOOD, values=2 * GOOD.values).encode(), result=True),
        frame(0.008, 1, replace(GOOD, values=2 * GOOD.values).encode(), result=True),
        frame(0.010, 0, replace(GOOD, tsi=25).encode()[:-4]),
        frame(0.011, 0, replace(GOOD, tsi=33, pool_index=2).encode()),
        frame(0.012, 0, replace(GOOD, tsi=41, reserved=1).encode()),
        frame(0.013, 0, replace(GOOD, tsi=49, pool_index=0x4001).encode()),
        frame(0.014, 0, replace(GOOD, tsi=57, msg_type=5).encode()),
        frame(0.015, 0, replace(GOOD, tsi=65, size=7).encode()),
        frame(0.016, 0, b"\x10\x03"),
        frame(0.017, 0, b"".join(packet.encode() for packet in several)),
        frame(0.018, 0, good, port=5555),
    ]
    path = tmp_path_factory.mktemp("capture") / "run.pcap"
    wrpcap(str(path), frames)
    return path


def tshark(path: Path, *options: str) -> list[str]:
    """Lines that tshark prints with our dissector and no configuration of the user's."""
    command = ["tshark", "-n", "-2", "-X", f"lua_script:{DISSECTOR}", "-r", str(path), *options]
    environment = {"PATH": os.environ["PATH"], "HOME": str(path.parent), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout.splitlines()


def table(path: Path, *names: str) -> list[list[str]]:
    """Values of fields, a row for each frame."""
    wanted = [option for name in names for option in ("-e", f"wiresum.{name}")]
    return [line.split("\t") for line in tshark(path, "-T", "fields", *wanted)]


@needs_tshark
def test_every_field_is_decoded(capture: Path) -> None:
    names = ("direction", "msg_type", "reserved", "size", "job", "tsi", "pool_index", "version", "zero", "slot", "e0")
    rows = table(capture, *names, "e1", "value")
    assert rows[0][:-1] == [*("contribution", "1", "0", "0", "3", "17", "0x0001", "0", "0", "1", "-5"), "9"]
    assert [int(value) for value in rows[3][-1].split(",")] == (2 * VALUES).tolist()
    assert rows[3][0] == "result"
    assert rows[12][1] == "1,1,1,2"  # a large frame of four packets
    assert rows[12][5] == "19,20,21,22"
    assert rows[13][0] == ""  # another port


@needs_tshark
def test_contributions_and_results_point_at_each_other(capture: Path) -> None:
    assert table(capture, "result_in", "first_in", "result_to", "time")[:5] == [
        ["4", "", "", ""],
        ["5", "", "", ""],
        ["4", "1", "", ""],
        ["", "", "3", "0.003000000"],
        ["", "", "2", "0.006000000"],
    ]


@needs_tshark
def test_the_info_column_tells_the_packet(capture: Path) -> None:
    info = [line.strip() for line in tshark(capture, "-o", 'gui.column.format:"Info","%i"')]
    assert info[0] == "Contribution job=3 chunk=17 slot=1 version=0 32 values e0=-5"
    assert info[2] == info[0] + " [sent again]"
    assert info[3] == "Result job=3 chunk=17 slot=1 version=0 32 values e0=-5"
    assert info[12] == "Contribution job=3 chunk=19 slot=3 version=0 32 values e0=0 (and 3 more)"


@needs_tshark
def test_what_is_wrong_is_marked(capture: Path) -> None:
    marked = {
        "length.wrong": [6, 12],
        "pool_index.wrong": [7],
        "reserved.set": [8, 9],
        "msg_type.unknown": [10],
        "size.unknown": [11],
        "again": [3],
        "cut": [],
    }
    rows = table(capture, *marked)
    for column, (warning, frames) in enumerate(marked.items()):
        assert [number for number, row in enumerate(rows, 1) if row[column]] == frames, warning


@needs_tshark
def test_a_cut_frame_is_said_to_be_cut(capture: Path, tmp_path: Path) -> None:
    frames = rdpcap(str(capture))
    cut = tmp_path / "cut.pcap"
    short = Ether(bytes(frames[0])[:60])
    short.time, short.wirelen = frames[0].time, len(frames[0])
    wrpcap(str(cut), [short])
    [line] = tshark(cut, "-Y", "wiresum.cut && !wiresum.length.wrong", "-T", "fields", "-e", "wiresum.slot")
    assert line == "1"


@needs_tshark
def test_preferences_name_another_port_and_the_pool(capture: Path) -> None:
    other = tshark(capture, "-o", "wiresum.port:5555", "-Y", "wiresum", "-T", "fields", "-e", "frame.number")
    assert other == ["14"]
    exact = tshark(capture, "-o", "wiresum.slots:16", "-Y", "wiresum.pool_index.wrong && frame.number < 6")
    assert len(exact) == 5


@needs_tshark
def test_values_can_be_filtered_by_on_demand(capture: Path) -> None:
    wanted = ("-Y", "wiresum.value == 60")
    assert len(tshark(capture, "-o", "wiresum.values:true", *wanted)) == 2
    assert tshark(capture, *wanted, "-T", "fields", "-e", "frame.number") == ["4", "5"]
    assert tshark(capture, *wanted) == []


def test_scapy_reads_the_same_capture(capture: Path) -> None:
    frames = rdpcap(str(capture))
    first, result = frames[0][Wiresum], frames[3][Wiresum]
    assert (first.job, first.tsi, first.slot, first.e0, first.e1) == (3, 17, 1, -5, 9)
    assert result.values == (2 * VALUES).tolist()
    assert result.answers(first)
    assert frames[0].summary() == "Ether / IP / UDP / Wiresum values job=3 chunk=17 slot=1"
    assert Wiresum not in frames[13]
    large = frames[12]
    assert [large[Wiresum:n].tsi for n in range(1, 5)] == [19, 20, 21, 22]
    assert bytes(large) == large.original
