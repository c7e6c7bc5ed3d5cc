"""How long it takes to mend losses, in the time of an in-memory rack: seconds that do not depend on this machine."""

import numpy as np
import pytest

from protocol.constants import DType
from protocol.faults import FaultRates
from tests.rack import NUMPY_TYPES, Rack
from tests.slow_rack import SlowRack


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


@pytest.mark.parametrize(
    ("ranks", "rate", "blocks", "skew", "away"),
    [
        (1, 10e6, 2000, 0.0, 0.0),
        (4, 100e6, 1400, 0.0, 0.0),
        (4, 100e6, 1400, 0.02, 0.004),
        (4, 100e6, 1400, 0.08, 0.01),
        (8, 200e6, 4000, 0.02, 0.01),
        (4, 1e9, 4000, 0.002, 0.002),
    ],
)
def test_what_waits_in_a_queue_is_not_lost(ranks: int, rate: float, blocks: int, skew: float, away: float) -> None:
    """A slow link's queue holds the whole pool, results come in bursts, and ranks start at different times."""
    rack = SlowRack(ranks=ranks, slots=512, values=256, step=0.0005).connect(rate, away=away)
    random = np.random.default_rng(1)
    for _ in range(4):
        outs = rack.submit([np.ones(blocks * rack.values, np.float32)] * ranks)
        rack.run_from(random.uniform(0, skew, ranks).tolist())
        assert all((out == ranks).all() for out in outs)
    assert rack.again() < 0.01


@pytest.mark.parametrize(
    ("loss", "blocks", "away", "times", "again"),
    [
        (0.001, 2000, 0.002, 1.5, 0.02),
        (0.01, 2000, 0.002, 2.3, 0.11),
        (0.01, 7000, 0.0, 1.3, 0.11),  # long enough that a loss is mended beside others, again and again
        (0.01, 7000, 0.002, 1.5, 0.11),
    ],
)
def test_losses_before_slow_links_cost_little(
    loss: float, blocks: int, away: float, times: float, again: float
) -> None:
    """A packet that one rank lost is sent again by all four, which cannot know better, and by none of them twice."""
    rack = SlowRack(ranks=4, slots=512, values=256, step=0.0001 if away == 0 else 0.0005)
    rack.connect(200e6, loss=loss, away=away)
    tensors = 4
    for _ in range(tensors):
        rack.submit([np.ones(blocks * rack.values, np.float32)] * 4)
        rack.run_from([0.0] * 4)
    assert rack.again() < again
    assert rack.now < times * tensors * blocks * 1076 * 8 / 200e6


@pytest.mark.parametrize(("loss", "seconds"), [(0.01, 0.15), (0.1, 0.5), (0.2, 0.8)])
@pytest.mark.parametrize("skew", [0.0, 1.0])
@pytest.mark.parametrize("away", [0.0005, 0.005])
def test_waiting_for_others_does_not_make_a_worker_slow(loss: float, seconds: float, skew: float, away: float) -> None:
    """Ranks begin each tensor when they have the last, so that most round trips are somebody else's losses."""
    rack = SlowRack(ranks=8, slots=512, values=256, step=0.0002, seed=3).connect(10e9, loss=loss, away=away)
    tensors = 10
    rack.run_loops(tensors, 79, skew=skew, think=0.001)
    assert rack.now < skew + tensors * seconds
    assert max(worker.statistics()["rto"] for worker in rack.workers) < 0.1
