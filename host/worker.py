"""The worker state machine: results and the time in, packets and the next deadline out. It knows no socket, no clock.

The five verbs: `submit` a tensor, `receive` a batch of results, `packets` to send, `deadline` of the next timer and
`handle_timer` for it, `finished` tensors. What happens to a chunk stands in host/worker_kernels.py.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from host import pump_kernels
from host import worker_kernels as kernels
from host.quantizer import headroom_bits
from host.state_kernels import FLIGHT, STATE, TENSOR
from protocol.consistency import collective_salt
from protocol.constants import DType, Op, check_slots, packet_bytes, size_code
from protocol.packets import PacketBatch

INITIAL_RTO = 0.05  # before the first measurement
MIN_RTO = 0.005  # a worker that shares its core is often away for some milliseconds
MAX_RTO = 1.0
MAX_BATCH_BYTES = 63 * 1034  # of one send with segmentation offload: below 64 KiB with its headers


@dataclass(eq=False, slots=True, kw_only=True)
class Tensor:
    """One tensor to reduce: contiguous memory to read and to write, which may be the same.

    Attributes:
        source, target: of one dtype and size; bfloat16 as uint16 with `dtype` saying so.
        collective: number in the job's order of collectives, set when it is submitted.
        tag: anything the caller wants to find it by.
    """

    source: npt.NDArray[Any]
    target: npt.NDArray[Any]
    dtype: DType
    op: Op
    collective: int = -1
    tag: Any = None
    exponents: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))

    def describe(self) -> str:
        """What was asked for, in the words of error messages."""
        return f"all_reduce #{self.collective}: {self.op.name.lower()} of {self.source.size} {self.dtype.name.lower()}"


class Worker:
    """One rank of one job.

    Args:
        job: job number, given at join.
        world_size: all workers of the job.
        slots: pool size W.
        values: values per packet.
        initial_rto, min_rto, max_rto: bounds of the retransmission time-out, seconds.
        first_chunk: number of the stream's first chunk; a multiple of 2 * slots, for tests of the wrap.
    """

    def __init__(
        self,
        *,
        job: int,
        world_size: int,
        slots: int,
        values: int,
        initial_rto: float = INITIAL_RTO,
        min_rto: float = MIN_RTO,
        max_rto: float = MAX_RTO,
        first_chunk: int = 0,
    ) -> None:
        check_slots(slots)
        if first_chunk % (2 * slots):
            raise ValueError(f"first_chunk must be a multiple of {2 * slots}, not {first_chunk}")
        self.slots, self.values = slots, values
        self._packet = packet_bytes(values)
        self._batch = max(1, min(MAX_BATCH_BYTES // self._packet, 63))
        self._scratch = np.zeros(values, np.float32)
        self._state = np.zeros(1, STATE)
        state = self._record = self._state[0]
        state["job"] = job
        state["ranks"] = world_size
        state["headroom"] = headroom_bits(world_size)
        state["size"] = size_code(values)
        state["values"] = values
        state["scratch"] = self._scratch.ctypes.data
        state["disagreed"] = -1
        state["progress"] = -np.inf
        state["frontier"] = first_chunk - 1
        state["lowest"] = first_chunk
        state["fastest"] = state["fastest_now"] = np.inf
        state["srtt"] = -1.0
        state["rto"] = initial_rto
        state["rto_min"] = min_rto
        state["rto_max"] = max_rto
        state["deadline"] = np.inf
        state["quiet_until"] = -np.inf
        self._flights = np.zeros(slots, FLIGHT)
        self._flights["chunk"] = first_chunk + np.arange(slots) - slots
        self._flights["done"] = 1
        self._queue = np.zeros(slots, np.int64)
        self._table = np.zeros(16, TENSOR)
        state["slots"] = slots
        state["flights"] = self._flights.ctypes.data
        state["queue"] = self._queue.ctypes.data
        state["table"] = self._table.ctypes.data
        self._address: int = self._state.ctypes.data
        self._out: npt.NDArray[np.uint8] = np.zeros(self._batch * self._packet, np.uint8)
        self._out_view = self._out.data
        self._out_address: int = self._out.ctypes.data
        self._tensors: list[Tensor] = []
        self._next_chunk = first_chunk
        self._collectives = 0
        # What the kernels said last; reading it from the record would cost as much as a kernel.
        self._queued = 0
        self._finished = 0
        self._finished_seen = 0
        self._disagreed = -1

    @property
    def busy(self) -> bool:
        """Whether a tensor is in the stream."""
        return bool(self._tensors)

    @property
    def oldest(self) -> Tensor | None:
        """The first unfinished tensor of the stream."""
        return self._tensors[0] if self._tensors else None

    @property
    def collectives(self) -> int:
        """How many collectives were submitted."""
        return self._collectives

    @property
    def deadline(self) -> float:
        """When `handle_timer` wants to be called; infinite when nothing is outstanding."""
        return float(self._record["deadline"])

    def submit(self, tensor: Tensor) -> None:
        """Adds a tensor of at least one element to the end of the stream."""
        if not tensor.source.size:
            raise ValueError("an empty tensor takes no chunks and is never submitted")
        elements = tensor.source.size
        tensor.collective = self._collectives
        self._collectives += 1
        blocks = -(-elements // self.values)
        lead = min(self.slots, blocks) if tensor.dtype.is_float else 0
        tensor.exponents = np.zeros(lead, np.int8)
        index = len(self._tensors)
        if index == self._table.size:
            self._table = np.concatenate([self._table, np.zeros(index, TENSOR)])
            self._record["table"] = self._table.ctypes.data
        self._table[index] = (
            self._next_chunk,
            lead,
            blocks,
            lead + blocks,
            elements,
            tensor.source.ctypes.data,
            tensor.target.ctypes.data,
            tensor.exponents.ctypes.data,
            collective_salt(collective=tensor.collective, elements=elements, dtype=tensor.dtype, op=tensor.op),
            int(tensor.dtype),
            int(tensor.op),
        )
        self._tensors.append(tensor)
        self._next_chunk += lead + blocks
        self._record["tensors"] = len(self._tensors)
        self._queued = kernels.submit(self._address, index)

    def skip(self, tensor: Tensor) -> None:
        """Counts a collective that takes no chunks, as an empty tensor, so that numbers stay the same on all ranks."""
        tensor.collective = self._collectives
        self._collectives += 1

    @property
    def has_packets(self) -> bool:
        """Whether packets are queued for sending."""
        return self._queued > 0

    @property
    def has_full_batch(self) -> bool:
        """Whether so many packets are queued that waiting for more would make no batch larger."""
        return self._queued >= self._batch

    def packets(self, now: float) -> PacketBatch | None:
        """The next packets to send at `now`, or None; a view that the next call overwrites."""
        if not self._queued:
            return None
        size, segment, self._queued = kernels.send(self._address, self._out_address, self._batch, now)
        return PacketBatch(self._out_view[:size], self._out_address, segment) if size else None

    def receive(self, batch: PacketBatch, now: float) -> None:
        """Takes a batch of results."""
        self._queued, self._finished, self._disagreed = kernels.receive(
            self._address, batch.address, batch.size, batch.segment, now
        )

    def pump(self, link: int, rounds: int, wake: int, until: float) -> int:
        """Moves packets between this worker and the socket whose LINK record stands at that address.

        Args:
            rounds: batches to receive at most.
            wake: a descriptor at which other threads interrupt the wait.
            until: how long to wait for packets, by the monotonic clock.

        Returns:
            why it stopped, see host/pump_kernels.py.
        """
        reason, self._queued, self._finished, self._disagreed = pump_kernels.pump(
            self._address, link, self._out_address, self._batch, rounds, wake, until
        )
        return reason

    def handle_timer(self, now: float) -> None:
        """Queues what has been without an answer for too long; call it when no more results wait to be received."""
        if now >= self.deadline:
            self._queued = kernels.handle_timer(self._address, now)

    @property
    def has_news(self) -> bool:
        """Whether `finished` or `disagreement` has something new to say."""
        return self._finished != self._finished_seen or self._disagreed >= 0

    def finished(self) -> list[Tensor]:
        """Tensors that were completed since the last call, in order of the stream."""
        if self._finished == self._finished_seen:
            return []
        self._finished_seen = self._finished
        count = len(self._tensors)
        keep = self._table["left"][:count] > 0
        done = [t for t, kept in zip(self._tensors, keep, strict=True) if not kept]
        self._tensors = [t for t, kept in zip(self._tensors, keep, strict=True) if kept]
        self._table[: len(self._tensors)] = self._table[:count][keep]
        self._record["tensors"] = len(self._tensors)
        return done

    def disagreement(self) -> Tensor | None:
        """The tensor for which another rank asked for something else, if that was seen."""
        if self._disagreed < 0:
            return None
        first: npt.NDArray[np.int64] = self._table["first"][: len(self._tensors)]
        return self._tensors[int(np.searchsorted(first, self._disagreed, side="right")) - 1]

    def statistics(self) -> dict[str, float]:
        """Counters of packets, and the estimates of the round trip in seconds."""
        names = (
            "packets_sent",
            "packets_received",
            "bytes_sent",
            "bytes_received",
            "retransmissions",
            "duplicates",
            "rejected",
        )
        counts: dict[str, float] = {name: int(self._record[name]) for name in names}
        return counts | {name: float(self._record[name]) for name in ("srtt", "rto")}
