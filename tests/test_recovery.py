"""How long it takes to mend losses, in the time of an in-memory rack: seconds that do not depend on this machine."""

import numpy as np
import pytest

from protocol.constants import DType
from protocol.faults import FaultRates
from protocol.packets import batches
from tests.rack import NUMPY_TYPES, Rack


@pytest.mark.parametrize("dtype", [DType.INT32, DType.FLOAT32])
@pytest.mark.parametrize(
    ("ranks", "blocks", "slots", "loss", "seconds"),
    [
        (2, 196, 512, 0.001, 0.02),
        (4, 196, 512, 0.01, 0.05),
        (8, 196, 512, 0.01, 0.1),
        (32, 196, 512, 0.01, 0.2),  # the whole tensor is in flight: no later answer tells what was lost
        (4, 2000, 64, 0.01, 0.1),
        (4, 196, 512, 0.1, 0.3),
        (8, 196, 512, 0.1, 0.5),
    ],
)
def test_losses_are_mended_in_a_few_time_outs(
    ranks: int, blocks: int, slots: int, loss: float, seconds: float, dtype: DType
) -> None:
    """A round trip is 0.1 ms here, and the shortest time-out 5 ms."""
    faults = FaultRates(loss=loss)
    rack = Rack(ranks=ranks, slots=slots, up=faults, down=faults, seed=1)
    for _ in range(5):  # what is learned in one tensor must not spoil the next
        began = rack.now
        outs = rack.submit([np.ones(blocks * rack.values, NUMPY_TYPES[dtype])] * ranks, dtype)
        rack.run(limit=began + 60.0)
        assert rack.now - began < seconds
        assert all((out == ranks).all() for out in outs)


def test_a_rank_that_is_late_is_not_flooded() -> None:
    """The others send their chunks again ever more rarely while they wait for it."""
    rack = Rack(ranks=2, slots=512)
    early, late = rack.workers
    outs = rack.submit([np.ones(512 * rack.values, np.float32)] * 2)
    rack.workers = [early]
    while rack.now < 20.0:
        rack.turn()
        rack.now = max(rack.now + rack.step, min(early.deadline, 20.0))
    sent = early.statistics()["packets_sent"]
    assert sent < 20 * 512  # a window a second
    rack.workers = [early, late]
    rack.run()
    assert rack.now < 20.1
    assert all((out == 2).all() for out in outs)
    assert early.statistics()["rto"] < 0.1


def test_a_standing_queue_is_no_loss() -> None:
    """A slow link's queue holds the whole pool, and round trips grow to hundreds of times that of the first packet."""
    rack = Rack(ranks=1, slots=512)
    (worker,) = rack.workers
    per_packet = 0.0001  # seconds on the link
    chunks = 20_000
    (out,) = rack.submit([np.ones(chunks * rack.values, np.int32)], DType.INT32)
    link: list[tuple[float, bytes]] = []
    free = 0.0
    while worker.busy:
        worker.handle_timer(rack.now)
        while (batch := worker.packets(rack.now)) is not None:
            for _, results in rack.aggregator.receive(batch, 0):
                for result in results:
                    free = max(free, rack.now) + per_packet
                    link.append((free, result))
        arrived = [result for due, result in link if due <= rack.now]
        link = [(due, result) for due, result in link if due > rack.now]
        for batch in batches(arrived):
            worker.receive(batch, rack.now)
        worker.finished()
        rack.now += 0.001
        assert rack.now < 60
    assert (out == 1).all()
    sent = worker.statistics()["packets_sent"]
    assert sent < 1.1 * chunks, f"{sent} packets for {chunks} chunks"
