"""From datagrams to packets, one record for each, and several captures of one run as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.constants import MSG_EXPONENTS, MSG_VALUES, PREFIX_BYTES, VALUES_PER_PACKET, packet_bytes
from protocol.packets import PREFIX, Bytes
from wiresum.trace.captures import CaptureError, Frames, Integers, fields_at, read_capture
from wiresum.trace.frames import Datagrams, Skipped, datagrams

Table: TypeAlias = npt.NDArray[Any]  # of PACKET
Mask: TypeAlias = npt.NDArray[np.bool_]


class Fault(IntEnum):
    """What is wrong with a packet by itself, or within its job; the switch drops such packets."""

    NONE = 0
    LENGTH = 1
    MSG_TYPE = 2
    SIZE = 3
    RESERVED = 4
    INDEX = 5
    OTHER_SIZE = 6
    OTHER_JOB = 7


PACKET: Final = np.dtype(
    [
        ("time", "i8"),  # nanoseconds since 1970
        ("file", "i4"),
        ("frame", "i8"),  # number in the file, from 1
        ("segment", "i4"),  # which packet of the frame, from 0
        ("tap", "i8"),
        ("id", "i4"),  # of the frame's IP header
        ("source", "i8"),  # address << 16 | port
        ("destination", "i8"),
        *((name, PREFIX[name].newbyteorder("=")) for name in PREFIX.names or ()),
        ("payload", "i8"),  # where it stands in the file
        ("length", "i4"),
        ("captured", "i4"),
        ("fault", "u1"),
    ]
)

# Bytes of a packet by its first byte; 0 for what is none. The reserved bit changes no length.
LENGTHS: Final = np.zeros(256, np.int64)
for _size, _values in enumerate(VALUES_PER_PACKET):
    for _reserved in (0, 8):
        LENGTHS[MSG_VALUES << 4 | _reserved | _size] = packet_bytes(_values)
        LENGTHS[MSG_EXPONENTS << 4 | _reserved | _size] = PREFIX_BYTES

_WINDOW: Final = 10**9  # nanoseconds within which a frame can be seen at two taps


@dataclass(frozen=True, slots=True)
class Capture:
    """One file's part of a trace."""

    path: Path
    data: Bytes
    frames: int
    packets: int
    skipped: Skipped
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Trace:
    """Packets of all captures, in the order of their times.

    Attributes:
        captures: the files; the packets' `file` counts them.
        packets: each packet once, however many taps saw it.
        copies: packets left out because another tap had seen them.
        duplicates: packets left out because the network had duplicated their frame.
        taps: interfaces, and directions as far as they are known, that saw packets.
    """

    captures: list[Capture]
    packets: Table
    copies: int
    duplicates: int
    taps: int


def read_trace(paths: Sequence[Path], *, port: int) -> Trace:
    """Reads captures of one run.

    Raises:
        CaptureError: a file is no capture, or none of them holds a packet from or to UDP port `port`.
        OSError: a file cannot be read.
    """
    captures, tables = [], []
    for number, path in enumerate(paths):
        frames = read_capture(path)
        found, skipped = datagrams(frames, port)
        table, notes = _packets(frames, found, number, path)
        captures.append(
            Capture(
                path, frames.data, len(frames), len(table), skipped, [*frames.notes, *_remarks(path, skipped), *notes]
            )
        )
        tables.append(table)
    packets = np.concatenate(tables)
    if not len(packets):
        reasons = [f"{c.path} has none in {c.frames:,} frames" for c in captures]
        reasons += [note for capture in captures for note in capture.notes]
        raise CaptureError(f"no packets from or to UDP port {port}: {'; '.join(reasons)}")
    for capture in captures:
        if not capture.packets:
            capture.notes.append(f"{capture.path} has no packets from or to UDP port {port}")
    packets = packets[np.argsort(packets["time"], kind="stable")]
    copies, duplicates, taps = _seen_before(packets)
    return Trace(captures, packets[~(copies | duplicates)], int(copies.sum()), int(duplicates.sum()), taps)


def _remarks(path: Path, skipped: Skipped) -> list[str]:
    notes = [
        f"{path}: {count:,} frames of link type {link}, which is not known" for link, count in skipped.links.items()
    ]
    if skipped.fragments:
        notes.append(f"{path}: {skipped.fragments:,} IP fragments are not put together: lower the values per packet")
    if skipped.cut:
        notes.append(f"{path}: {skipped.cut:,} frames end before the UDP header does: capture more bytes of each")
    return notes


def _packets(frames: Frames, found: Datagrams, file: int, path: Path) -> tuple[Table, list[str]]:
    """Takes large frames apart, and decodes the headers."""
    data, notes = frames.data, []
    first = _byte(data, found.payload, found.captured, 0)
    segment = LENGTHS[first]
    second = found.captured >= segment + 2
    # What segmentation offload sends, or receives, in one piece: packets of one job, all of one length but the last.
    large = (segment > 0) & (found.length > segment)
    checked = large & second
    at = found.payload + segment
    follows = LENGTHS[_byte(data, at, np.where(checked, 2, 0), 0)] > 0
    follows &= _byte(data, at, np.where(checked, 2, 0), 1) == _byte(data, found.payload, found.captured, 1)
    large &= np.where(second, follows, found.length >= segment + PREFIX_BYTES)
    # Only what was captured is worth a record, for a length is easily claimed.
    pieces = np.where(large, -(-found.length // np.maximum(segment, 1)), 1)
    counts = np.where(large, -(-found.captured // np.maximum(segment, 1)), 1)
    origin = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(origin)) - np.repeat(np.cumsum(counts) - counts, counts)

    before = number * segment[origin]
    length = np.where(large[origin], np.minimum(segment[origin], found.length[origin] - before), found.length[origin])
    captured = np.clip(found.captured[origin] - before, 0, length)
    hidden = (captured < PREFIX_BYTES) & (captured < length)
    if count := int(hidden.sum() + (pieces - counts).sum()):
        notes.append(
            f"{path}: the capture holds nothing of {count:,} packets, so that the rest cannot be trusted: capture more "
            "bytes of each frame, or without segmentation offload"
        )
    origin, number, before, length, captured = (
        column[~hidden] for column in (origin, number, before, length, captured)
    )

    table = np.zeros(len(origin), PACKET)
    table["time"], table["frame"], table["tap"] = found.time[origin], found.frame[origin] + 1, found.tap[origin]
    table["segment"] = number
    table["file"], table["id"] = file, found.identification[origin]
    table["source"] = found.source[origin] << 16 | found.source_port[origin]
    table["destination"] = found.destination[origin] << 16 | found.destination_port[origin]
    table["payload"], table["length"], table["captured"] = found.payload[origin] + before, length, captured
    whole = captured >= PREFIX_BYTES
    head = fields_at(data, table["payload"][whole], PREFIX)
    for name in PREFIX.names or ():
        table[name][whole] = head[name]
    kind = table["kind"]
    table["fault"] = np.select(
        [~whole, ~np.isin(kind >> 4, (MSG_VALUES, MSG_EXPONENTS)), kind & 7 >= len(VALUES_PER_PACKET)],
        [Fault.LENGTH, Fault.MSG_TYPE, Fault.SIZE],
        Fault.NONE,
    )
    sound = table["fault"] == Fault.NONE
    table["fault"][sound & (LENGTHS[kind] != length)] = Fault.LENGTH
    reserved = (kind & 8 != 0) | (table["pool_index"] & 0x4000 != 0)
    table["fault"][(table["fault"] == Fault.NONE) & reserved] = Fault.RESERVED
    if count := int(np.count_nonzero(captured < length)):
        notes.append(
            f"{path}: {count:,} packets were captured without all of their values: sums of those are not checked"
        )
    if count := int(np.count_nonzero(large)):
        notes.append(f"{path}: {count:,} frames hold several packets each, as segmentation offload leaves them")
    return table, notes


def _byte(
    data: Bytes, at: npt.NDArray[np.int64], captured: npt.NDArray[np.int64], offset: int
) -> npt.NDArray[np.uint8]:
    """The byte at `at + offset`; 0 where so much was not captured."""
    found = np.zeros(len(at), np.uint8)
    there = captured > offset
    found[there] = data[at[there] + offset]
    return found


def _seen_before(packets: Table) -> tuple[Mask, Mask, int]:
    """Which packets another tap saw before, which the network duplicated; and how many taps there are.

    The network duplicated what has the same IP identification as before, from a sender that numbers its packets.
    Packets of different taps are the same if they are alike in addresses and header, within a second. As many hosts
    give no numbers, or one for all parts of a large frame, which one of a tap is which of another is told by counting:
    the n-th at one tap is the n-th at the other.
    """
    key = _mix(packets["source"].astype(np.uint64) * np.uint64(3) + packets["fault"])
    for name in ("destination", "kind", "job", "tsi", "pool_index"):
        key = _mix(key ^ packets[name].astype(np.uint64))
    where = packets["file"].astype(np.uint64) << np.uint64(56) ^ packets["tap"].astype(np.uint64)
    taps, tap = np.unique(where, return_inverse=True)
    numbered = _numbers_its_packets(packets, key)
    frame = packets["id"].astype(np.uint64) << np.uint64(32) | packets["segment"].astype(np.uint64)
    with_number = key.copy()
    with_number[numbered] = _mix(key ^ _mix(frame))[numbered]

    first, _ = _occurrences(with_number, tap)
    duplicates: Mask = numbered & (first != np.arange(len(packets)))
    duplicates &= packets["time"] - packets["time"][first] <= _WINDOW
    copies = np.zeros(len(packets), bool)
    if len(taps) > 1:
        kept = np.flatnonzero(~duplicates)
        pairing = (with_number if not packets["segment"].any() else key)[kept]
        _, occurrence = _occurrences(pairing, tap[kept])
        first, _ = _occurrences(_mix(pairing ^ occurrence.astype(np.uint64)), np.zeros(len(kept), np.int64))
        late = packets["time"][kept] - packets["time"][kept][first]
        copies[kept] = (first != np.arange(len(kept))) & (late <= _WINDOW)
    return copies, duplicates, len(taps)


def _occurrences(key: npt.NDArray[np.uint64], tap: npt.NDArray[np.int64]) -> tuple[Integers, Integers]:
    """For each packet: which is the first of its key at its tap, and how many of them were before it."""
    order = np.lexsort((tap, key))  # stable: within these, by time
    place = np.arange(len(order))
    new = np.ones(len(order), bool)
    new[1:] = (key[order][1:] != key[order][:-1]) | (tap[order][1:] != tap[order][:-1])
    begin = np.maximum.accumulate(np.where(new, place, 0))
    first, number = np.zeros_like(place), np.zeros_like(place)
    first[order], number[order] = order[begin], place - begin
    return first, number


def _numbers_its_packets(packets: Table, key: npt.NDArray[np.uint64]) -> Mask:
    """Whether the packet's sender gives its packets numbers of their own in the IP header.

    Segmentation offload does not: it counts on from the number of the large packet, and the next one has one more than
    that. So numbers do not tell packets of a sender apart that has used one for packets of different `key` at a time.
    """
    _, sender = np.unique(packets["source"], return_inverse=True)
    least = np.full(sender.max(initial=0) + 1, 1 << 16, np.int32)
    most = np.zeros_like(least)
    np.minimum.at(least, sender, packets["id"])
    np.maximum.at(most, sender, packets["id"])
    order = np.lexsort((packets["time"], packets["id"], sender))
    before, after = order[:-1], order[1:]
    reused = (sender[before] == sender[after]) & (packets["id"][before] == packets["id"][after])
    reused &= (key[before] != key[after]) & (packets["segment"][before] == packets["segment"][after])
    reused &= packets["time"][after] - packets["time"][before] <= _WINDOW
    doubtful = np.zeros(least.size, bool)
    doubtful[sender[after[reused]]] = True
    numbered: Mask = (least != most)[sender] & (packets["id"] != 0) & ~doubtful[sender]
    return numbered


def _mix(word: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Steele, Lea and Flood's SplitMix64 finalizer."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))
