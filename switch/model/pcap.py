"""Packet capture files: what comes in from files, and goes out to files, instead of interfaces."""

import heapq
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from switch.model.errors import ModelError
from switch.model.interfaces import Core

_MICROSECONDS: Final = 0xA1B2C3D4
_NANOSECONDS: Final = 0xA1B23C4D
_ETHERNET: Final = 1
_UNSAID: Final = 0  # BMv2 writes its Ethernet frames so
_LONGEST: Final = 1 << 18


def read_pcap(path: Path) -> Iterator[tuple[float, bytes]]:
    """(seconds, frame) for each frame of a file, in either byte order, with micro- or nanoseconds.

    Raises:
        ModelError: the file is not of this format (pcapng is another), not of Ethernet, or ends in the middle.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(24)
        for order in "<>":
            if len(head) == 24 and struct.unpack_from(f"{order}I", head)[0] in (_MICROSECONDS, _NANOSECONDS):
                break
        else:
            raise ModelError(f"{path} is not a pcap file")
        unit = 1e-6 if struct.unpack_from(f"{order}I", head)[0] == _MICROSECONDS else 1e-9
        link = struct.unpack_from(f"{order}I", head, 20)[0] & 0xFFFF
        if link not in (_ETHERNET, _UNSAID):
            raise ModelError(f"{path}: expected Ethernet frames (link type {_ETHERNET}), got link type {link}")
        record = struct.Struct(f"{order}IIII")
        while header := file.read(record.size):
            if len(header) < record.size:
                raise ModelError(f"{path} ends in the middle of a record")
            seconds, fraction, captured, original = record.unpack(header)
            if captured > _LONGEST or captured < original:
                raise ModelError(f"{path}: a frame of {original} bytes was captured with {captured}")
            frame = file.read(captured)
            if len(frame) < captured:
                raise ModelError(f"{path} ends in the middle of a frame")
            yield seconds + fraction * unit, frame


class PcapWriter:
    """Writes Ethernet frames with nanoseconds.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write(struct.pack("<IHHiIII", _NANOSECONDS, 2, 4, 0, 0, _LONGEST, _ETHERNET))

    def write(self, now: float, frame: bytes) -> None:
        """Adds a frame that was sent at `now` seconds."""
        seconds, nanoseconds = divmod(round(now * 1e9), 10**9)
        self._file.write(struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)) + frame)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_files(switch: Core, inputs: Mapping[int, Path], outputs: Mapping[int, Path]) -> dict[int, int]:
    """Feeds the frames of files to a switch in the order of their times, by port, and writes what leaves.

    The switch's clock starts with the first frame.

    Returns:
        how many frames left by each port; those of ports without a file are counted only.

    Raises:
        ModelError, OSError: see `read_pcap`, `PcapWriter`.
    """
    counts: dict[int, int] = {}
    streams = [_frames(port, path) for port, path in sorted(inputs.items())]
    start: float | None = None
    with ExitStack() as stack:
        writers = {port: stack.enter_context(PcapWriter(path)) for port, path in outputs.items()}
        for at, port, frame in heapq.merge(*streams, key=lambda item: item[0]):
            start = at if start is None else start
            for destination, packet in switch.receive(port, frame, at - start):
                counts[destination] = counts.get(destination, 0) + 1
                if destination in writers:
                    writers[destination].write(at, packet)
    return counts


def _frames(port: int, path: Path) -> Iterator[tuple[float, int, bytes]]:
    for at, frame in read_pcap(path):
        yield at, port, frame
