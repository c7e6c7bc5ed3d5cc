"""The slots of one job: the aggregator itself, without sockets."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from protocol.constants import (
    MAX_DATAGRAM,
    MAX_JOBS,
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
from switch.slot_kernels import JOB, SLOT, SLOT_EVENTS


class Result(NamedTuple):
    """Results to send, all of one size; a view that is good until the aggregator receives again.

    Attributes:
        rank: to whom; None: to every rank of the job; the number after the last rank: to the parent.
    """

    rank: int | None
    batch: PacketBatch


class Aggregator:
    """Slots of one job.

    Args:
        job: job number, 0..255.
        ranks: workers of the job, 1..32.
        slots: pool size, a power of two.
        values: values per packet, one of the protocol's sizes.
        parent_job: what the parent calls the job, if this is a leaf of a tree of switches: complete slots then go to
            the parent, and the parent's results to the ranks. A leaf below is one rank.

    Attributes:
        parent: the number by which the parent of a leaf is given to `receive`, and named in results.
    """

    def __init__(self, *, job: int, ranks: int, slots: int, values: int, parent_job: int | None = None) -> None:
        if not 1 <= ranks <= MAX_RANKS:
            raise ValueError(f"a job has 1 to {MAX_RANKS} ranks, not {ranks}")
        for number in (job, 0 if parent_job is None else parent_job):
            if not 0 <= number < MAX_JOBS:
                raise ValueError(f"a job number is 0 to {MAX_JOBS - 1}, not {number}")
        self.job, self.ranks, self.slots, self.values = job, ranks, check_slots(slots), values
        self.parent = ranks
        self._packet = packet_bytes(values)
        self.pool = np.zeros(slots, SLOT)
        self.pool["newest"] = (np.arange(slots) - slots) % 2**32
        self.registers: npt.NDArray[np.uint32] = np.zeros((slots, 2, values), np.uint32)
        self.counters: npt.NDArray[np.int64] = np.zeros((ranks + 1, SLOT_EVENTS), np.int64)
        self._spec = np.zeros(1, JOB)
        self.full_batch = min(MAX_SEGMENTS, MAX_DATAGRAM // self._packet)  # results that one send can take
        self._filled = np.zeros(4 + 2 * ranks, np.int64)
        self.record = self._spec[0]  # for compiled code, at `address`
        self.record["job"], self.record["ranks"], self.record["slots"] = job, ranks, slots
        self.record["leaf"], self.record["parent_job"] = parent_job is not None, parent_job or 0
        self.record["size"], self.record["values"] = size_code(values), values
        self.record["pool"], self.record["registers"] = self.pool.ctypes.data, self.registers.ctypes.data
        self.record["counters"], self.record["filled"] = self.counters.ctypes.data, self._filled.ctypes.data
        self.record["full"] = self.full_batch
        self.address: int = self._spec.ctypes.data
        self._room = 0
        self._make_room(2 * MAX_SEGMENTS)

    def _make_room(self, packets: int) -> None:
        """Room for so many results in each row of the output, which must be empty."""
        self._room = packets
        self._row_bytes = packets * self._packet
        self._out: npt.NDArray[np.uint8] = np.zeros(self._filled.size * self._row_bytes, np.uint8)
        self._out_view = self._out.data
        self._out_address: int = self._out.ctypes.data
        self.record["out"] = self._out_address
        self.record["row_bytes"] = self._row_bytes

    @property
    def waiting(self) -> int:
        """How many results wait to be taken, in the batch that has most."""
        return int(self.record["waiting"])

    def receive(self, batch: PacketBatch, rank: int) -> list[Result]:
        """Applies a batch of packets of `rank` and returns what to send, with what waited before."""
        early = self.add(batch, rank)
        return early + self.take()

    def add(self, batch: PacketBatch, rank: int) -> list[Result]:
        """Applies a batch of packets of `rank`; the results wait, so that batches can grow, until `take`.

        Returns:
            results that had to make room for those of this batch; mostly none.
        """
        early: list[Result] = []
        packets = len(batch)
        if self.waiting + packets > self._room:
            # What must go now moves to memory of its own, because the batch's own results take its place.
            early = [
                Result(rank, PacketBatch.of(results.data.copy(), results.segment)) for rank, results in self.take()
            ]
            if packets > self._room:
                self._make_room(packets)
        slot_kernels.receive(self.address, rank, batch.address, batch.size, batch.segment)
        return early

    def take(self) -> list[Result]:
        """The results that wait."""
        if not self.waiting:
            return []
        found: list[Result] = []
        for row in np.flatnonzero(self._filled).tolist():
            segment = PREFIX_BYTES if row & 1 else self._packet
            start, size = row * self._row_bytes, int(self._filled[row]) * segment
            batch = PacketBatch(self._out_view[start : start + size], self._out_address + start, segment)
            found.append(Result(row // 2 - 1 if row > 1 else None, batch))
        self._filled[:] = 0
        self.record["waiting"] = 0
        return found

    def open_slots(self) -> list[StalledSlot]:
        """Slots that wait, with the ranks that each has seen and misses; those waited for longest first.

        A slot of a leaf that misses no rank waits for the parent's result.
        """
        newest = self.pool["newest"].astype(np.int64)
        version = newest // self.slots & 1
        seen = np.take_along_axis(self.pool["seen"], version[:, None], 1)[:, 0]
        count = np.take_along_axis(self.pool["count"], version[:, None], 1)[:, 0]
        final = np.take_along_axis(self.pool["final"], version[:, None], 1)[:, 0]
        waiting = np.flatnonzero((count > 0) & ((count < self.ranks) | (self.record["leaf"] > final)))
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
