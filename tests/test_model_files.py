"""Capture files as ports of the programmable switch."""

import struct
from pathlib import Path

import pytest

from switch.model.errors import ModelError
from switch.model.pcap import PcapWriter, read_pcap, run_files


class TwoWays:
    """A core that sends every packet to ports 2 and 3."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes, float]] = []

    def receive(self, port: int, packet: bytes, now: float) -> list[tuple[int, bytes]]:
        self.seen.append((port, packet, now))
        return [(2, packet), (3, packet)]


def test_files_in_and_out(tmp_path: Path) -> None:
    first, second, out = tmp_path / "a.pcap", tmp_path / "b.pcap", tmp_path / "out.pcap"
    with PcapWriter(first) as writer:
        writer.write(1000.0, b"1")
        writer.write(1000.25, b"3")
    with PcapWriter(second) as writer:
        writer.write(1000.125, b"2")
    core = TwoWays()
    assert run_files(core, {0: first, 1: second}, {2: out}) == {2: 3, 3: 3}
    assert core.seen == [(0, b"1", 0.0), (1, b"2", 0.125), (0, b"3", 0.25)]
    assert list(read_pcap(out)) == [(1000.0, b"1"), (1000.125, b"2"), (1000.25, b"3")]


def test_other_byte_order_and_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "big.pcap"
    head = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 0)  # as BMv2 writes the link type
    path.write_bytes(head + struct.pack(">IIII", 5, 250_000, 3, 3) + b"abc")
    assert list(read_pcap(path)) == [(5.25, b"abc")]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not a pcap file"),
        (b"\x0a\x0d\x0d\x0a" + bytes(30), "is not a pcap file"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1, 101), "link type 101"),
        (struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1, 1) + bytes(8), "middle of a record"),
        (struct.pack("<IHHiIIIIIII", 0xA1B2C3D4, 2, 4, 0, 0, 1, 1, 0, 0, 4, 4) + b"a", "middle of a frame"),
        (struct.pack("<IHHiIIIIIII", 0xA1B2C3D4, 2, 4, 0, 0, 1, 1, 0, 0, 1, 4) + b"a", "captured with 1"),
    ],
)
def test_file_that_cannot_be_read(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=says):
        list(read_pcap(path))
