"""Sums over trees of switches: real sockets, threads as ranks, packets lost on chosen links."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from host.communicator import Communicator
from protocol.faults import FaultRates
from tests.trees import THREE_LEVELS, TWO_LEVELS, Tree

INTEGERS, FLOATS = 20_000, 60_000
SHAPES = {
    "two leaves of two": (TWO_LEVELS, ["left", "left", "right", "right"]),
    "ranks in turn": (TWO_LEVELS, ["left", "right", "left", "right"]),
    "leaves of three and one": (TWO_LEVELS, ["left", "left", "right", "left"]),
    "a leaf alone": (TWO_LEVELS, ["left", "left"]),
    "one worker below a leaf": (TWO_LEVELS, ["left"]),
    "a worker beside a leaf": (TWO_LEVELS, ["root", "left", "left"]),
    "three levels": (THREE_LEVELS, ["low", "right", "low", "middle", "root"]),
}


def integers(rank: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng(rank).integers(-(2**31), 2**31, INTEGERS).astype(np.int32)


def floats(rank: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(100 + rank).standard_normal(FLOATS).astype(np.float32)


def sums(communicator: Communicator) -> bytes:
    """Bits of the sums; those of integers are checked to be exact, floats to be close."""
    ranks = range(communicator.world_size)
    whole = communicator.all_reduce(integers(communicator.rank))
    exact = sum(integers(rank).astype(np.int64) for rank in ranks).astype(np.int32)  # type: ignore[union-attr]
    assert (whole == exact).all()
    real = communicator.all_reduce(floats(communicator.rank))
    np.testing.assert_allclose(real, sum(floats(rank).astype(np.float64) for rank in ranks), atol=1e-5)
    return whole.tobytes() + real.tobytes()


@pytest.fixture(scope="module")
def two_levels() -> Iterator[Tree]:
    with Tree(TWO_LEVELS) as tree:
        yield tree


@pytest.fixture(scope="module")
def flat() -> Iterator[Tree]:
    with Tree({"root": None}) as tree:
        yield tree


@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_gives_the_bits_that_one_switch_gives(flat: Tree, shape: str) -> None:
    parents, places = SHAPES[shape]
    with Tree(parents) as tree:
        results = tree.run(places, sums)
        assert set(results) == set(flat.run(["root"] * len(places), sums))
        tree.wait_until_idle()
        used = {name: tree.counters(name) for name in parents}
        for name in parents:
            assert (used[name]["partials"] > 0) == (name != "root" and used[name]["received"] > 0)
            assert used[name]["wrong_job"] == used[name]["unknown_source"] == used[name]["stale"] == 0


def test_traffic_on_the_uplink_is_that_of_one_worker(two_levels: Tree) -> None:
    before = two_levels.counters("root")
    two_levels.run(["left", "left", "left", "right", "right"], sums)
    two_levels.wait_until_idle()
    after = two_levels.counters("root")
    counted = {name: value - before[name] for name, value in after.items()}
    assert counted["contributions"] == 2 * counted["results"]
    repeated = sum(counted[name] for name in ("duplicates", "previous", "stale"))  # a busy machine makes timers go off
    assert counted["received"] == counted["contributions"] + repeated


LOSSY = FaultRates(loss=0.2)
LINKS = {
    "leaf to root": {"faults_up_out": LOSSY},
    "root to leaf": {"faults_up_in": LOSSY},
    "host to leaf": {"faults_in": LOSSY},
    "leaf to host": {"faults_out": LOSSY},
    "all": {"faults_up_out": LOSSY, "faults_up_in": LOSSY, "faults_in": LOSSY, "faults_out": LOSSY},
}


@pytest.mark.parametrize("link", LINKS)
def test_loss_on_any_link_is_repaired(flat: Tree, link: str) -> None:
    """A fifth of all packets, on this link alone or on all at once."""
    options: dict[str, Any] = LINKS[link]
    with Tree(TWO_LEVELS, left={"seed": 1, **options}, right={"seed": 2, **options}) as tree:
        places = ["left", "right", "left", "right"]
        results = tree.run(places, sums)
        assert set(results) == set(flat.run(["root"] * 4, sums))
        counted = tree.counters("left")
        for direction in options:
            assert counted[f"fault_{direction.removeprefix('faults_')}_lost"] > 10


def test_loss_on_all_links_of_three_levels_is_repaired(flat: Tree) -> None:
    options = {name: {"seed": seed, **LINKS["all"]} for seed, name in enumerate(("middle", "right", "low"))}
    with Tree(THREE_LEVELS, **options) as tree:
        results = tree.run(["low", "right", "low", "middle", "root"], sums)
    assert set(results) == set(flat.run(["root"] * 5, sums))


def test_packets_that_are_repeated_reordered_and_late_on_all_links_do_no_harm(flat: Tree) -> None:
    faults = FaultRates(loss=0.02, duplicate=0.1, reorder=0.1, delay=0.02, delay_seconds=0.01, reorder_seconds=0.003)
    options = dict.fromkeys(("faults_up_out", "faults_up_in", "faults_in", "faults_out"), faults)
    with Tree(TWO_LEVELS, left={"seed": 1, **options}, right={"seed": 2, **options}) as tree:
        results = tree.run(["left", "right", "left", "right", "root"], sums)
        assert tree.counters("left")["unneeded"] > 0
    assert set(results) == set(flat.run(["root"] * 5, sums))


def test_more_ranks_than_one_switch_takes() -> None:
    def body(communicator: Communicator) -> tuple[int, bool]:
        array = np.full(500, communicator.rank, np.int32)
        communicator.all_reduce(array)
        real = communicator.all_reduce(np.full(300, 1 / 3, np.float32))
        return int(array[0]), bool(np.allclose(real, 40 / 3))

    with Tree(TWO_LEVELS) as tree:
        places = ["left"] * 20 + ["right"] * 20
        assert set(tree.run(places, body)) == {(40 * 39 // 2, True)}
