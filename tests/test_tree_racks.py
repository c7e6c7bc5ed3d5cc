"""Real workers below real slot logic in two levels, in memory: any seed, any faults on any link, the same bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import DType, SlotEvent
from protocol.faults import FaultRates
from switch.slots import Aggregator
from tests.rack import Rack
from tests.test_worker import random_array
from tests.tree_rack import TreeRack

TYPES = [DType.FLOAT32, DType.BFLOAT16, DType.INT32, DType.INT8]
LOSS = st.sampled_from([0.0, 0.01, 0.2])
RATES = st.builds(
    FaultRates,
    loss=LOSS,
    duplicate=st.sampled_from([0.0, 0.1]),
    reorder=st.sampled_from([0.0, 0.2]),
    delay=st.sampled_from([0.0, 0.02]),
)


@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    rates=st.tuples(RATES, RATES, RATES, RATES),
    dtype=st.sampled_from(TYPES),
    blocks=st.integers(1, 40),
    first=st.sampled_from([0, 2**32 - 16]),
    seed=st.integers(0, 2**32),
)
def test_a_tree_under_faults_gives_the_bits_of_a_rack_without(
    sizes: tuple[int, ...],
    rates: tuple[FaultRates, FaultRates, FaultRates, FaultRates],
    dtype: DType,
    blocks: int,
    first: int,
    seed: int,
) -> None:
    ranks = sum(sizes)
    arrays = [random_array(np.random.default_rng([seed, rank]), dtype, 32 * blocks - 5) for rank in range(ranks)]
    plain = Rack(ranks=ranks, slots=8)
    expected = plain.submit(arrays, dtype)
    plain.run()
    up, down, uplink_up, uplink_down = rates
    tree = TreeRack(
        ranks=ranks,
        sizes=sizes,
        slots=8,
        up=up,
        down=down,
        uplink_up=uplink_up,
        uplink_down=uplink_down,
        seed=seed,
        first_chunk=first,
    )
    outs = [tree.submit(arrays, dtype) for _ in range(2)]
    tree.run(limit=60.0)  # of its own seconds, far below any time-out
    for out in outs:
        for rank in range(ranks):
            assert out[rank].tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("link", ["uplink_up", "uplink_down"])
def test_a_leaf_repeats_what_was_lost_between_switches(link: str) -> None:
    tree = TreeRack(ranks=4, slots=16, seed=3, **{link: FaultRates(loss=0.2)})  # type: ignore[arg-type]
    (first, *_) = tree.submit([np.full(32 * 500, rank, np.int32) for rank in range(4)], DType.INT32)
    tree.run(limit=60.0)
    assert (first == 6).all()

    def count(switch: Aggregator, name: str) -> int:
        return int(switch.counters[:, SlotEvent[name.upper()]].sum())

    assert [count(leaf, "partials") for leaf in tree.leaves] == [500, 500]
    assert sum(count(leaf, "partials_again") for leaf in tree.leaves) > 100
    assert (count(tree.root, "retransmitted") > 100) == (link == "uplink_down")
