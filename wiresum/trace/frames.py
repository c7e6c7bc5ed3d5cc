"""From frames to UDP datagrams of the switch's port: Ethernet with VLAN tags, Linux cooked, or bare IP; IPv4."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.packets import Bytes
from wiresum.trace.captures import Frames, Integers, fields_at

# Link types, as https://www.tcpdump.org/linktypes.html numbers them.
_NULL, _ETHERNET, _RAW, _LOOP, _COOKED, _IPV4, _COOKED_2 = 0, 1, 101, 108, 113, 228, 276
_RAW_TYPES: Final = (_RAW, _IPV4, 12, 14)
# For each: bytes of its header, and where in it the type of what follows stands (two bytes), if anywhere.
_LAYOUTS: Final[dict[int, tuple[int, int | None]]] = {
    _ETHERNET: (14, 12),
    _COOKED: (16, 14),
    _COOKED_2: (20, 0),
    _NULL: (4, None),
    _LOOP: (4, None),
    **dict.fromkeys(_RAW_TYPES, (0, None)),
}
_VLAN_TYPES: Final = (0x8100, 0x88A8, 0x9100)
_MOST_TAGS: Final = 3
_TYPE_IPV4: Final = 0x0800
_UDP: Final = 17

_U1, _U2, _U4 = np.dtype("u1"), np.dtype(">u2"), np.dtype(">u4")
_IP: Final = np.dtype(
    [
        ("version", "u1"),
        ("service", "u1"),
        ("length", ">u2"),
        ("id", ">u2"),
        ("fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("source", ">u4"),
        ("destination", ">u4"),
    ]
)
_PORTS: Final = np.dtype([("source", ">u2"), ("destination", ">u2"), ("length", ">u2"), ("checksum", ">u2")])


@dataclass(frozen=True, slots=True)
class Datagrams:
    """UDP datagrams from or to the switch's port; one may hold several packets.

    Attributes:
        frame: index of its frame in the file, from 0.
        time: nanoseconds since 1970.
        tap: stands for the interface, and the direction where the capture tells it: what was seen at two taps is one.
        identification: of the IP header.
        source, destination: IPv4 addresses; source_port and destination_port belong to them.
        payload: where its payload begins in the file.
        length: bytes of payload.
        captured: bytes of it that are there.
    """

    frame: Integers
    time: Integers
    tap: Integers
    identification: Integers
    source: Integers
    source_port: Integers
    destination: Integers
    destination_port: Integers
    payload: Integers
    length: Integers
    captured: Integers


@dataclass(frozen=True, slots=True)
class Skipped:
    """How many frames are no datagrams of the port, and why.

    Attributes:
        other: other traffic.
        fragments: pieces of fragmented datagrams from or to the port (only the first piece tells the port).
        cut: frames that end, as captured, before the UDP header's end.
        links: frames of link types that are not understood, by link type.
    """

    other: int
    fragments: int
    cut: int
    links: dict[int, int]


def datagrams(frames: Frames, port: int) -> tuple[Datagrams, Skipped]:
    """The UDP datagrams from or to `port`."""
    unknown: dict[int, int] = {}
    at = np.full(len(frames), -1, np.int64)  # where the IPv4 header stands
    direction = np.zeros(len(frames), np.int64)
    for number, link in enumerate(frames.link):
        mine = np.flatnonzero(frames.interface == number)
        if link in _LAYOUTS:
            at[mine], direction[mine] = _network(frames, mine, link)
        elif len(mine):
            unknown[link] = unknown.get(link, 0) + len(mine)
    end = frames.start + frames.captured
    network = np.flatnonzero(at >= 0)
    fits = at[network] + _IP.itemsize <= end[network]
    cut = int(np.count_nonzero(~fits))
    index = network[fits]
    ip = fields_at(frames.data, at[index], _IP)
    is_udp = (ip["version"] >> 4 == 4) & (ip["version"] & 15 >= 5) & (ip["protocol"] == _UDP)
    later_piece = is_udp & (ip["fragment"] & 0x1FFF != 0)
    is_udp &= ~later_piece
    index, ip = index[is_udp], ip[is_udp]
    header = (ip["version"] & 15).astype(np.int64) * 4
    udp_at = at[index] + header
    fits = udp_at + _PORTS.itemsize <= end[index]
    cut += int(np.count_nonzero(~fits))
    index, ip, header, udp_at = index[fits], ip[fits], header[fits], udp_at[fits]
    udp = fields_at(frames.data, udp_at, _PORTS)
    ours = (udp["source"] == port) | (udp["destination"] == port)
    fragmented = ours & (ip["fragment"] & 0x2000 != 0)
    pieces = int(fragmented.sum())
    if pieces:
        pieces += int(later_piece.sum())
    keep = ours & ~fragmented
    index, ip, header, udp_at, udp = index[keep], ip[keep], header[keep], udp_at[keep], udp[keep]

    payload = udp_at + _PORTS.itemsize
    on_wire = frames.start[index] + frames.length[index]
    # A frame may be padded, so that the headers' lengths count; they are 0 where offload leaves them to the device.
    by_ip = np.where(ip["length"] > 0, at[index] + ip["length"], on_wire)
    by_udp = np.where(udp["length"] > 0, udp_at + udp["length"], on_wire)
    stop = np.minimum(np.minimum(by_ip, by_udp), on_wire)
    length = np.maximum(stop - payload, 0)
    found = Datagrams(
        frame=index,
        time=frames.time[index],
        tap=frames.interface[index] << 40 | direction[index],
        identification=ip["id"].astype(np.int64),
        source=ip["source"].astype(np.int64),
        source_port=udp["source"].astype(np.int64),
        destination=ip["destination"].astype(np.int64),
        destination_port=udp["destination"].astype(np.int64),
        payload=payload,
        length=length,
        captured=np.clip(end[index] - payload, 0, length),
    )
    others = len(frames) - len(index) - cut - pieces - sum(unknown.values())
    return found, Skipped(max(0, others), pieces, cut, unknown)


def _network(frames: Frames, index: Integers, link: int) -> tuple[Integers, Integers]:
    """Where the IPv4 headers of some frames stand, -1 where there is none; and what tells apart the ways of capture."""
    header, type_at = _LAYOUTS[link]
    data, start = frames.data, frames.start[index]
    end = start + frames.captured[index]
    at = start + header
    direction = np.zeros(len(index), np.int64)
    if type_at is None:
        first = _gather(data, at, end, _U1)
        return np.where(first >> 4 == 4, at, -1), direction
    if link == _COOKED:
        direction = _gather(data, start, end, _U2)
    elif link == _COOKED_2:
        direction = _gather(data, start + 4, end, _U4) << 8 | _gather(data, start + 10, end, _U1)
    kind = _gather(data, start + type_at, end, _U2)
    for _ in range(_MOST_TAGS):
        tagged: npt.NDArray[np.bool_] = np.isin(kind, _VLAN_TYPES)
        if not tagged.any():
            break
        kind = np.where(tagged, _gather(data, at + 2, end, _U2), kind)
        at = np.where(tagged, at + 4, at)
    return np.where(kind == _TYPE_IPV4, at, -1), direction


def _gather(data: Bytes, at: Integers, end: Integers, dtype: np.dtype[np.generic]) -> Integers:
    """The numbers that stand at `at`; 0 for those that do not end before `end`."""
    found = np.zeros(len(at), np.int64)
    there = at + dtype.itemsize <= end
    found[there] = fields_at(data, at[there], dtype)
    return found
