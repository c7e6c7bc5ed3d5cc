"""The slots of one job: the aggregator itself, without sockets."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protocol.constants import (
    MAX_RANKS,
    PREFIX_BYTES,
    check_slots,
    packet_bytes,
    size_code,
)
from protocol.packets import PacketBatch
from switch import slot_kernels
from switch.dataplane import StalledSlot
from switch.slot_kernels import COUNTERS, SLOT


@dataclass(frozen=True, slots=True)
class Answer:
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
        self._size = size_code(values)
        self.pool = np.zeros(slots, SLOT)
        self.pool["newest"] = (np.arange(slots) - slots) % 2**32
        self.registers: npt.NDArray[np.uint32] = np.zeros((slots, 2, values), np.uint32)
        self.counters: npt.NDArray[np.int64] = np.zeros((ranks, len(COUNTERS)), np.int64)
        self._rows = list(self.counters)
        self._out: npt.NDArray[np.uint8] = np.zeros((4, 0), np.uint8)
        self._packet = packet_bytes(values)

    def receive(self, batch: PacketBatch, rank: int) -> Answer:
        """Applies a batch of packets of `rank` and returns what to send."""
        data = batch.data
        if not data.size:
            return _NOTHING
        room = len(batch) * self._packet
        if self._out.shape[1] < room:
            self._out = np.zeros((4, room), np.uint8)
        out = self._out
        all_values, all_exponents, one_values, one_exponents = slot_kernels.receive(
            self.pool,
            self.registers.ctypes.data,
            self._rows[rank],
            self.job,
            self.ranks,
            self._size,
            self.values,
            rank,
            data.ctypes.data,
            data.size,
            batch.segment,
            out,
        )
        if not (all_values or all_exponents or one_values or one_exponents):
            return _NOTHING
        return Answer(
            self._filled((all_values, self._packet), (all_exponents, PREFIX_BYTES), first=0),
            self._filled((one_values, self._packet), (one_exponents, PREFIX_BYTES), first=2),
        )

    def _filled(self, *rows: tuple[int, int], first: int) -> tuple[PacketBatch, ...]:
        return tuple(
            PacketBatch(self._out[first + i, :size], segment) for i, (size, segment) in enumerate(rows) if size
        )

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
