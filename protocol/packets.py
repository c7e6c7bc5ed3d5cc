"""Views over batches of packets, and the header's layout.

A batch is what UDP segmentation offload sends and receives in one call: one buffer that holds packets of one size back
to back, the last of which may be shorter.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.constants import (
    HEADER_BYTES,
    MSG_EXPONENTS,
    MSG_VALUES,
    PREFIX_BYTES,
    SLOT_MASK,
    VALUE_BYTES,
    VALUES_PER_PACKET,
    VERSION_BIT,
    size_code,
)

Bytes: TypeAlias = npt.NDArray[np.uint8]
Address: TypeAlias = tuple[str, int]  # dotted IPv4 address and UDP port

PREFIX = np.dtype(
    [
        ("kind", "u1"),  # msg_type << 4 | reserved << 3 | size
        ("job", "u1"),
        ("tsi", ">u4"),
        ("pool_index", ">u2"),
        ("e0", "i1"),
        ("e1", "i1"),
    ]
)
assert PREFIX.itemsize == PREFIX_BYTES


class PacketBatch:
    """Packets of one size, back to back. Treat it as immutable; one is made for every call into the kernel.

    Attributes:
        view: the packets' bytes.
        address: where they stand in memory, for compiled code.
        segment: bytes of every packet but the last, which may have fewer.
        size: bytes of all packets.
    """

    __slots__ = ("address", "segment", "size", "view")

    def __init__(self, view: memoryview, address: int, segment: int) -> None:
        self.view = view
        self.address = address
        self.segment = segment
        self.size = len(view)

    @classmethod
    def of(cls, data: Bytes, segment: int) -> "PacketBatch":
        """A batch of the packets in a contiguous uint8 array."""
        return cls(data.data, data.ctypes.data, segment)

    @property
    def data(self) -> Bytes:
        """The packets' bytes as an array, shape (size,), without a copy."""
        return np.frombuffer(self.view, np.uint8)

    def __len__(self) -> int:
        """How many packets it holds."""
        return -(-self.size // self.segment)

    def __iter__(self) -> Iterator[bytes]:
        """Each packet as bytes, for tests and tools; the data path never goes packet by packet."""
        for start in range(0, self.size, self.segment):
            yield self.view[start : start + self.segment].tobytes()


def batches(packets: Iterable[bytes]) -> list[PacketBatch]:
    """Packs packets of any sizes, in order, into as few batches as their sizes allow."""
    runs: list[list[bytes]] = []
    for packet in packets:
        run = runs[-1] if runs else None
        if run is not None and len(run[-1]) == len(run[0]) >= len(packet) > 0:
            run.append(packet)
        else:
            runs.append([packet])
    return [PacketBatch.of(np.frombuffer(b"".join(run), dtype=np.uint8), max(1, len(run[0]))) for run in runs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One packet, decoded: for tests, traces and tools.

    Attributes:
        values: int32, shape (values per packet,); empty for an exponents-only packet.
    """

    msg_type: int
    size: int
    job: int
    tsi: int
    pool_index: int
    e0: int
    e1: int
    values: npt.NDArray[np.int32]
    reserved: int = 0

    @property
    def slot(self) -> int:
        """The slot within the job's pool."""
        return self.pool_index & SLOT_MASK

    @property
    def version(self) -> int:
        """Which of the slot's two versions."""
        return self.pool_index >> 15

    def encode(self) -> bytes:
        """The packet's UDP payload."""
        prefix = np.zeros(1, PREFIX)
        prefix["kind"] = self.msg_type << 4 | self.reserved << 3 | self.size
        prefix["job"] = self.job
        prefix["tsi"] = self.tsi
        prefix["pool_index"] = self.pool_index
        prefix["e0"] = self.e0
        prefix["e1"] = self.e1
        return prefix.tobytes() + self.values.astype(">i4").tobytes()


def pool_index(tsi: int, slots: int) -> int:
    """The pool_index that follows from chunk number `tsi` in a pool of `slots` slots."""
    return (VERSION_BIT if tsi // slots % 2 else 0) | tsi % slots


def make_packet(
    *, tsi: int, slots: int, values: npt.ArrayLike | None, per_packet: int, job: int = 0, e0: int = 0, e1: int = 0
) -> Packet:
    """A well-formed packet for chunk `tsi`; with `values` None, an exponents-only one."""
    chosen: npt.NDArray[Any] = np.zeros(0) if values is None else np.asarray(values)
    if values is not None and chosen.shape != (per_packet,):
        raise ValueError(f"values must have shape ({per_packet},), not {chosen.shape}")
    return Packet(
        msg_type=MSG_EXPONENTS if values is None else MSG_VALUES,
        size=size_code(per_packet),
        job=job,
        tsi=tsi % 2**32,
        pool_index=pool_index(tsi % 2**32, slots),
        e0=e0,
        e1=e1,
        values=chosen.astype(np.int32),
    )


def decode(payload: bytes) -> Packet:
    """Decodes one UDP payload.

    Raises:
        ValueError: the payload is too short for the header, or its length does not fit its type and size.
    """
    if len(payload) < PREFIX_BYTES:
        raise ValueError(f"a packet has at least {PREFIX_BYTES} bytes ({HEADER_BYTES} of header), not {len(payload)}")
    prefix = np.frombuffer(payload, PREFIX, count=1)[0]
    kind = int(prefix["kind"])
    msg_type, size = kind >> 4, kind & 7
    if msg_type not in (MSG_VALUES, MSG_EXPONENTS):
        raise ValueError(f"msg_type must be {MSG_VALUES} or {MSG_EXPONENTS}, not {msg_type}")
    if size >= len(VALUES_PER_PACKET):
        raise ValueError(f"size must be below {len(VALUES_PER_PACKET)}, not {size}")
    expected = PREFIX_BYTES + (VALUE_BYTES * VALUES_PER_PACKET[size] if msg_type == MSG_VALUES else 0)
    if len(payload) != expected:
        raise ValueError(f"a packet of type {msg_type} and size {size} has {expected} bytes, not {len(payload)}")
    return Packet(
        msg_type=msg_type,
        size=size,
        reserved=kind >> 3 & 1,
        job=int(prefix["job"]),
        tsi=int(prefix["tsi"]),
        pool_index=int(prefix["pool_index"]),
        e0=int(prefix["e0"]),
        e1=int(prefix["e1"]),
        values=np.frombuffer(payload, ">i4", offset=PREFIX_BYTES).astype(np.int32),
    )
