"""An in-memory rack: real workers around a real aggregator, seeded faults between them, and a clock of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from host.worker import Tensor, Worker
from protocol.constants import DType, Op
from protocol.faults import FaultInjector, FaultRates
from protocol.packets import PacketBatch
from switch.slots import Aggregator

NUMPY_TYPES: dict[DType, Any] = {
    DType.FLOAT32: np.float32,
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: np.uint16,
    DType.INT32: np.int32,
    DType.INT16: np.int16,
    DType.INT8: np.int8,
    DType.UINT8: np.uint8,
}


def as_float64(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[np.float64]:
    """The values of a float array, bfloat16 given as its bits."""
    if dtype is DType.BFLOAT16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


@dataclass
class Rack:
    """`ranks` workers around one aggregator.

    Time advances by `step` seconds a round, or to the next timer when nothing moves.
    """

    ranks: int
    slots: int = 16
    values: int = 32
    up: FaultRates = field(default_factory=FaultRates)
    down: FaultRates = field(default_factory=FaultRates)
    seed: int = 0
    first_chunk: int = 0
    step: float = 0.0001

    def __post_init__(self) -> None:
        self.now = 0.0
        self.aggregator = Aggregator(job=7, ranks=self.ranks, slots=self.slots, values=self.values)
        self.aggregator.pool["newest"] = (self.first_chunk + np.arange(self.slots) - self.slots) % 2**32
        self.workers = [
            Worker(
                job=7,
                world_size=self.ranks,
                slots=self.slots,
                values=self.values,
                first_chunk=self.first_chunk,
            )
            for _ in range(self.ranks)
        ]
        self.upward = FaultInjector(self.up, seed=self.seed, stream=0)
        self.downward = FaultInjector(self.down, seed=self.seed, stream=1)
        self.finished: list[list[Tensor]] = [[] for _ in range(self.ranks)]

    def submit(
        self, arrays: Sequence[npt.NDArray[Any]], dtype: DType = DType.FLOAT32, op: Op = Op.SUM
    ) -> list[npt.NDArray[Any]]:
        """Gives each worker its array and returns where the results will stand."""
        outs = []
        for worker, array in zip(self.workers, arrays, strict=True):
            out = np.full_like(array, 77)
            worker.submit(Tensor(source=array.reshape(-1), target=out.reshape(-1), dtype=dtype, op=op))
            outs.append(out)
        return outs

    def run(self, *, limit: float = 600.0) -> None:
        """Moves packets until every worker is done."""
        while any(worker.busy for worker in self.workers):
            if not self.turn():
                waits = [worker.deadline for worker in self.workers]
                waits += [t for t in (self.upward.next_due(), self.downward.next_due()) if t is not None]
                assert np.isfinite(min(waits)), "nothing is on its way and no timer is set"
                self.now = max(self.now, min(waits))
            self.now += self.step
            assert self.now < limit, "the rack did not come to an end"

    def turn(self) -> bool:
        """Every worker sends what it has; returns whether anything moved."""
        moved = False
        for rank, worker in enumerate(self.workers):
            worker.handle_timer(self.now)
            while (batch := worker.packets(self.now)) is not None:
                moved = True
                self._arrive(rank, self.upward.apply(batch, self.now, flow=rank))
        for flow, batch in self.upward.due(self.now):
            moved = True
            self._arrive(flow, batch)
        for flow, batch in self.downward.due(self.now):
            moved = True
            self._deliver(flow, batch)
        return moved

    def _arrive(self, rank: int, batch: PacketBatch) -> None:
        for to, result in self.aggregator.receive(batch, rank):
            for receiver in range(self.ranks) if to is None else (to,):
                self._deliver(receiver, self.downward.apply(result, self.now, flow=receiver))

    def _deliver(self, rank: int, batch: PacketBatch) -> None:
        self.workers[rank].receive(batch, self.now)
        self.finished[rank] += self.workers[rank].finished()
        assert self.workers[rank].disagreement() is None
