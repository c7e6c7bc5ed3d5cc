"""The slots of one job: the aggregator itself, without sockets."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.constants import (
    MAX_RANKS,
    MAX_SEGMENTS,
    PREFIX_BYTES,
    check_slots,
    packet_bytes,
    size_code,
)
from protocol.packets import PacketBatch
from switch import slot_kernels
from switch.dataplane import StalledSlot
from switch.slot_kernels import COUNTERS, JOB, SLOT


class Answer(NamedTuple):
    """Results to send: views into buffers that the next call overwrites.

    Attributes:
        to_all: for every rank of the job.
        to_sender: for the rank whose packets were given in.
    """

    to_all: tuple[PacketBatch, ...]
    to_sender: tuple[PacketBatch, ...]


_NOTHING = Answer((), ())


class Aggregator:
    """Slots of one job.

    Args:
        job: job number, 0..255.
        ranks: workers of the job, 1..32.
        slots: pool size, a power of two.
        values: values per packet, one of the protocol's sizes.
    """

    def __init__(self, *, job: int, ranks: int, slots: int, values: int) -> None:
        if not 1 <= ranks <= MAX_RANKS:
            raise ValueError(f"a job has 1 to {MAX_RANKS} ranks, not {ranks}")
        if not 0 <= job < 256:
            raise ValueError(f"a job number is 0 to 255, not {job}")
        self.job, self.ranks, self.slots, self.values = job, ranks, check_slots(slots), values
        self._packet = packet_bytes(values)
        self.pool = np.zeros(slots, SLOT)
        self.pool["newest"] = (np.arange(slots) - slots) % 2**32
        self.registers: npt.NDArray[np.uint32] = np.zeros((slots, 2, values), np.uint32)
        self.counters: npt.NDArray[np.int64] = np.zeros((ranks, len(COUNTERS)), np.int64)
        self._spec = np.zeros(1, JOB)
        self._spec[0] = (
            job,
            ranks,
            size_code(values),
            values,
            slots,
            self.pool.ctypes.data,
            self.registers.ctypes.data,
            self.counters.ctypes.data,
        )
        self._spec_address: int = self._spec.ctypes.data
        self._make_room(MAX_SEGMENTS)

    def _make_room(self, packets: int) -> None:
        """Four rows for the results of that many packets: to all and to one rank, with values and without."""
        self._room = packets
        self._row_bytes = packets * self._packet
        self._out: npt.NDArray[np.uint8] = np.zeros(4 * self._row_bytes, np.uint8)
        self._out_view = memoryview(self._out)
        self._out_address: int = self._out.ctypes.data

    def receive(self, batch: PacketBatch, rank: int) -> Answer:
        """Applies a batch of packets of `rank` and returns what to send."""
        if len(batch) > self._room:
            self._make_room(len(batch))
        filled = slot_kernels.receive(
            self._spec_address, rank, batch.address, batch.size, batch.segment, self._out_address, self._row_bytes
        )
        all_values, all_exponents, one_values, one_exponents = filled
        if not (all_values or all_exponents or one_values or one_exponents):
            return _NOTHING
        return Answer(
            self._batches((0, all_values, self._packet), (1, all_exponents, PREFIX_BYTES)),
            self._batches((2, one_values, self._packet), (3, one_exponents, PREFIX_BYTES)),
        )

    def _batches(self, *rows: tuple[int, int, int]) -> tuple[PacketBatch, ...]:
        found = []
        for row, size, segment in rows:
            if size:
                start = row * self._row_bytes
                found.append(PacketBatch(self._out_view[start : start + size], self._out_address + start, segment))
        return tuple(found)

    def open_slots(self) -> list[StalledSlot]:
        """Slots that wait for ranks, with the ranks that each has seen and misses; those waited for longest first."""
        newest = self.pool["newest"].astype(np.int64)
        version = newest // self.slots & 1
        seen = np.take_along_axis(self.pool["seen"], version[:, None], 1)[:, 0]
        count = np.take_along_axis(self.pool["count"], version[:, None], 1)[:, 0]
        waiting = np.flatnonzero((count > 0) & (count < self.ranks))
        found = [
            StalledSlot(
                slot=int(slot),
                chunk=int(newest[slot]),
                seen=tuple(r for r in range(self.ranks) if seen[slot] >> r & 1),
                missing=tuple(r for r in range(self.ranks) if not seen[slot] >> r & 1),
            )
            for slot in waiting
        ]
        return sorted(found, key=lambda s: s.chunk)
