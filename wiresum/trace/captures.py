"""Capture files as arrays: where each frame stands, when it was seen, and by which interface.

The formats: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-06.html and draft-ietf-opsawg-pcapng-05. A walk over
the records finds where they stand; all else is done for all frames at once.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.errors import WiresumError
from protocol.packets import Bytes

Integers: TypeAlias = npt.NDArray[np.int64]

_PCAP: Final = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}  # magic, and nanoseconds of a unit of the fraction
_RECORD: Final = 16
_LONGEST: Final = 1 << 20  # bytes of a record; what claims more is damaged
_LINK_MASK: Final = 0xFFFF  # above it stands the length of checksums

_SECTION: Final = 0x0A0D0D0A
_INTERFACE, _OLD_PACKET, _SIMPLE, _STATISTICS, _ENHANCED = 1, 2, 3, 5, 6
_BYTE_ORDER: Final = 0x1A2B3C4D
_OPTION_RESOLUTION, _OPTION_OFFSET, _OPTION_DROPPED = 9, 14, 5


class CaptureError(WiresumError):
    """A file that holds no capture, or none that can be read; the text names it and says why."""


@dataclass(frozen=True, slots=True)
class Frames:
    """The frames of one file, in its order.

    Attributes:
        data: the file's bytes.
        start: where each frame begins in `data`.
        captured: bytes of it that are there.
        length: bytes that it had.
        time: nanoseconds since 1970.
        interface: number of the interface, within the file.
        link: link type of each interface, by that number.
        notes: what is to be said about the file.
    """

    data: Bytes
    start: Integers
    captured: Integers
    length: Integers
    time: Integers
    interface: Integers
    link: list[int]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.start)


def fields_at(data: Bytes, at: Integers, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The records of type `dtype` that stand at `at`, as a copy; they must lie within `data`."""
    if not len(at):
        return np.zeros(0, dtype)
    windows = np.lib.stride_tricks.sliding_window_view(data, dtype.itemsize)
    return windows[at].view(dtype)[:, 0]


def read_capture(path: Path) -> Frames:
    """Reads a pcap or pcapng file.

    Raises:
        CaptureError: it is neither, or empty.
        OSError: it cannot be read.
    """
    data = _contents(path)
    if not len(data):
        raise CaptureError(f"{path} is empty")
    head = bytes(data[:4])
    if head == b"\x0a\x0d\x0d\x0a":
        return _read_pcapng(path, data)
    for order in "<>":
        if len(head) == 4 and (unit := _PCAP.get(struct.unpack(f"{order}I", head)[0])):
            return _read_pcap(path, data, order, unit)
    if head[:2] == b"\x1f\x8b":
        raise CaptureError(f"{path} is compressed with gzip; unpack it first")
    raise CaptureError(f"{path} is neither a pcap nor a pcapng file")


def _contents(path: Path) -> Bytes:
    """A file without copying it; a pipe is read to its end."""
    with path.open("rb") as file:
        if path.is_file():
            # An empty file cannot be mapped.
            size = path.stat().st_size
            return np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"", np.uint8)
        return np.frombuffer(file.read(), np.uint8)


def _read_pcap(path: Path, data: Bytes, order: str, unit: int) -> Frames:
    if len(data) < 24:
        raise CaptureError(f"{path} ends in its header")
    link = struct.unpack_from(f"{order}I", data.data, 20)[0] & _LINK_MASK
    length_at = struct.Struct(f"{order}I").unpack_from
    notes: list[str] = []
    places: list[int] = []
    at, end = 24, len(data)
    view = data.data
    while at < end:
        if at + _RECORD > end:
            notes.append(f"{path} ends in the middle of a record")
            break
        size = length_at(view, at + 8)[0]
        if size > _LONGEST:
            notes.append(f"{path} is damaged: record {len(places) + 1} claims {size} bytes; the rest is left out")
            break
        if at + _RECORD + size > end:
            notes.append(f"{path} ends in the middle of a frame")
            break
        places.append(at)
        at += _RECORD + size
    start = np.array(places, np.int64)
    names = ("seconds", "fraction", "captured", "length")
    head = fields_at(data, start, np.dtype([(name, f"{order}u4") for name in names]))
    time = head["seconds"].astype(np.int64) * 10**9 + head["fraction"].astype(np.int64) * unit
    captured, length = head["captured"].astype(np.int64), head["length"].astype(np.int64)
    interface = np.zeros(len(start), np.int64)
    return Frames(data, start + _RECORD, captured, np.maximum(captured, length), time, interface, [link], notes)


@dataclass
class _Interface:
    link: int
    snap: int
    units: int = 10**6  # of time in a second
    offset: int = 0  # seconds


@dataclass
class _Section:
    """Blocks of one section; their numbers are in its byte order."""

    order: str
    first_interface: int  # its number in the file
    interfaces: list[_Interface] = field(default_factory=list)
    blocks: dict[int, list[int]] = field(default_factory=lambda: {_ENHANCED: [], _OLD_PACKET: [], _SIMPLE: []})
    dropped: int = 0


def _read_pcapng(path: Path, data: Bytes) -> Frames:
    notes: list[str] = []
    sections = list(_sections(path, data, notes))
    parts = [part for section in sections for part in _packets(data, section)]
    places = np.concatenate([part[0] for part in parts]) if parts else np.zeros(0, np.int64)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [places] * 5
    start, captured, length, time, interface = columns
    whole = (captured >= 0) & (start + captured <= len(data)) & (interface >= 0)
    if bad := int(np.count_nonzero(~whole)):
        notes.append(f"{path} is damaged: {bad} of its packet blocks make no sense and are left out")
    order = np.flatnonzero(whole)
    order = order[np.argsort(start[order], kind="stable")]
    start, captured, length, time, interface = (column[order] for column in columns)
    # A simple packet block has no time; the frame before it is the best that there is.
    if np.any(untimed := time == np.iinfo(np.int64).min):
        known = np.maximum.accumulate(np.where(untimed, -1, np.arange(len(time))))
        time = np.where(known >= 0, time[known], 0)
        notes.append(f"{path}: {int(untimed.sum())} frames have no time of their own")
    if dropped := sum(section.dropped for section in sections):
        notes.append(f"{path}: the capture itself dropped {dropped} frames")
    links = [interface.link for section in sections for interface in section.interfaces]
    return Frames(data, start, captured, np.maximum(captured, length), time, interface, links, notes)


def _sections(path: Path, data: Bytes, notes: list[str]) -> Iterator[_Section]:
    """Walks over the blocks; what follows a damaged one is left out, with a note."""
    view, end, at = data.data, len(data), 0
    section: _Section | None = None
    order, number = "<", 0
    head = struct.Struct("<II").unpack_from
    while at < end:
        if at + 12 > end:
            notes.append(f"{path} ends in the middle of a block")
            break
        number += 1
        kind, size = head(view, at)
        if kind == _SECTION:
            order = next((o for o in "<>" if struct.unpack_from(f"{o}I", view, at + 8)[0] == _BYTE_ORDER), "")
            if not order:
                notes.append(f"{path} is damaged: block {number} has no byte order; the rest is left out")
                break
            head = struct.Struct(f"{order}II").unpack_from
            size = head(view, at)[1]
            before = 0
            if section is not None:
                before = section.first_interface + len(section.interfaces)
                yield section
            section = _Section(order, before)
        if size < 12 or size % 4:
            notes.append(f"{path} is damaged: block {number} claims {size} bytes; the rest is left out")
            break
        if at + size > end:
            notes.append(f"{path} ends in the middle of a block")
            break
        if section is not None and (places := section.blocks.get(kind)) is not None:
            places.append(at)
        elif section is not None and kind in (_INTERFACE, _STATISTICS):
            _describe(section, kind, bytes(view[at + 8 : at + size - 4]))
        at += size
    if section is not None:
        yield section


def _describe(section: _Section, kind: int, body: bytes) -> None:
    """Takes in an interface's description, or its statistics."""
    fixed = 8 if kind == _INTERFACE else 12
    if len(body) < fixed:
        body = body.ljust(fixed, b"\0")
    options = dict(_options(section.order, body[fixed:]))
    if kind == _STATISTICS:
        if len(value := options.get(_OPTION_DROPPED, b"")) == 8:
            section.dropped += struct.unpack(f"{section.order}Q", value)[0]
        return
    link, _, snap = struct.unpack_from(f"{section.order}HHI", body)
    interface = _Interface(link, snap)
    if value := options.get(_OPTION_RESOLUTION, b""):
        exponent = min(value[0] & 0x7F, 63 if value[0] & 0x80 else 18)
        interface.units = 1 << exponent if value[0] & 0x80 else 10**exponent
    if len(value := options.get(_OPTION_OFFSET, b"")) == 8:
        interface.offset = struct.unpack(f"{section.order}q", value)[0]
    section.interfaces.append(interface)


def _options(order: str, body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(body):
        code, size = struct.unpack_from(f"{order}HH", body, at)
        if code == 0 or at + 4 + size > len(body):
            return
        yield code, body[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4


def _packets(data: Bytes, section: _Section) -> Iterator[tuple[Integers, Integers, Integers, Integers, Integers]]:
    """(start, captured, length, time, interface) of each kind of packet block; captured -1 marks nonsense."""
    u4, u2 = f"{section.order}u4", f"{section.order}u2"
    common = [("high", u4), ("low", u4), ("captured", u4), ("length", u4)]
    layouts: dict[int, list[tuple[str, str]]] = {
        _ENHANCED: [("kind", u4), ("size", u4), ("interface", u4), *common],
        _OLD_PACKET: [("kind", u4), ("size", u4), ("interface", u2), ("drops", u2), *common],
        _SIMPLE: [("kind", u4), ("size", u4), ("length", u4)],
    }
    for kind, layout in layouts.items():
        dtype = np.dtype(layout)
        at = np.array(section.blocks[kind], np.int64)
        # A block at the very end may be too short to hold all of these.
        at = at[at + dtype.itemsize <= len(data)]
        head = fields_at(data, at, dtype)
        if not len(at):
            continue
        length, room = head["length"].astype(np.int64), head["size"].astype(np.int64) - dtype.itemsize - 4
        if kind == _SIMPLE:
            snap = section.interfaces[0].snap if section.interfaces else 0
            captured = np.minimum(length, snap) if snap else length
            number = np.zeros(len(at), np.int64)
            time = np.full(len(at), np.iinfo(np.int64).min)
        else:
            captured, number = head["captured"].astype(np.int64), head["interface"].astype(np.int64)
            ticks = head["high"].astype(np.uint64) << np.uint64(32) | head["low"].astype(np.uint64)
            time = _nanoseconds(section, number, ticks)
        known = number < len(section.interfaces)
        captured = np.where((captured <= room) & known, captured, -1)
        yield at + dtype.itemsize, captured, length, time, np.where(known, number + section.first_interface, -1)


def _nanoseconds(section: _Section, number: Integers, ticks: npt.NDArray[np.uint64]) -> Integers:
    time = np.zeros(len(ticks), np.int64)
    for index, interface in enumerate(section.interfaces):
        mine = number == index
        seconds, rest = np.divmod(ticks[mine], np.uint64(interface.units))
        # In floating point, as the product may have more than 64 bits; exact for any resolution in use.
        rest_ns = np.rint(rest.astype(np.float64) * (1e9 / interface.units)).astype(np.int64)
        offset = np.int64(interface.offset)
        with np.errstate(over="ignore"):
            time[mine] = (seconds.astype(np.int64) + offset) * np.int64(10**9) + rest_ns
    return time
