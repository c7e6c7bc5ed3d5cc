"""Ranks that ask for different things: each learns what every other one asked for."""

import time
from collections.abc import Callable

import numpy as np
import pytest

from host.communicator import Communicator
from protocol.errors import DisagreementError
from switch.server import SoftwareSwitch
from tests.ranks import start_ranks, texts

PROMPTLY = 10.0  # seconds, where nobody may wait for a time-out


Call = Callable[[Communicator], object]


def reduce_zeros(size: int, dtype: str = "float32", op: str = "sum") -> Call:
    return lambda communicator: communicator.all_reduce(np.zeros(size, dtype), op)


@pytest.mark.parametrize(
    ("calls", "accounts"),
    [
        pytest.param(
            [reduce_zeros(100_000), reduce_zeros(100_000), reduce_zeros(100_001)],
            ["ranks 0, 1: all_reduce #0: sum of 100000 float32", "rank 2: all_reduce #0: sum of 100001 float32"],
            id="size",
        ),
        pytest.param(
            [reduce_zeros(2), reduce_zeros(5), reduce_zeros(3)],
            [f"rank {i}: all_reduce #0: sum of {size} float32" for i, size in enumerate((2, 5, 3))],
            id="size of small tensors",
        ),
        pytest.param(
            [reduce_zeros(10), reduce_zeros(1_000_000), reduce_zeros(10)],
            ["ranks 0, 2: all_reduce #0: sum of 10 float32", "rank 1: all_reduce #0: sum of 1000000 float32"],
            id="a small and a large tensor",
        ),
        pytest.param(
            [reduce_zeros(1000), reduce_zeros(1000, "float16"), reduce_zeros(1000, "int32")],
            [f"rank {i}: all_reduce #0: sum of 1000 {name}" for i, name in enumerate(("float32", "float16", "int32"))],
            id="dtype",
        ),
        pytest.param(
            [reduce_zeros(1000, op="mean"), reduce_zeros(1000), reduce_zeros(1000, op="mean")],
            ["ranks 0, 2: all_reduce #0: mean of 1000 float32", "rank 1: all_reduce #0: sum of 1000 float32"],
            id="operator",
        ),
        pytest.param(
            [
                lambda c: c.all_reduce_many([np.zeros(700, np.float32), np.zeros(300, np.float32)]),
                lambda c: c.all_reduce_many([np.zeros(300, np.float32), np.zeros(700, np.float32)]),
                lambda c: c.all_reduce_many([np.zeros(700, np.float32), np.zeros(300, np.float32)]),
            ],
            ["ranks 0, 2: all_reduce #0: sum of 700 float32", "rank 1: all_reduce #0: sum of 300 float32"],
            id="order",
        ),
        pytest.param(
            [reduce_zeros(50), lambda _: None, reduce_zeros(50)],
            ["ranks 0, 2: all_reduce #0: sum of 50 float32", "rank 1: all_reduce #0: sum of 1 int32"],
            id="one call left out",
        ),
        pytest.param(
            [reduce_zeros(9, "int32"), reduce_zeros(8, "int32"), reduce_zeros(9, "int32")],
            ["ranks 0, 2: all_reduce #0: sum of 9 int32", "rank 1: all_reduce #0: sum of 8 int32"],
            id="integers of one packet",
        ),
        pytest.param(
            [reduce_zeros(50), reduce_zeros(50), reduce_zeros(0)],
            ["ranks 0, 1: all_reduce #0: sum of 50 float32", "rank 2: all_reduce #0: sum of 0 float32"],
            id="empty",
        ),
    ],
)
def test_ranks_that_disagree_see_what_each_asked_for(
    switch: SoftwareSwitch, job: str, calls: list[Call], accounts: list[str]
) -> None:
    """On every rank; one that had all its answers before another complained learns of it in its next call."""
    began = time.monotonic()

    def body(communicator: Communicator) -> None:
        calls[communicator.rank](communicator)
        communicator.barrier()
        communicator.barrier()

    said = texts(start_ranks(switch, 3, body, job=job), DisagreementError)
    assert time.monotonic() - began < PROMPTLY
    assert len(set(said)) == 1
    title, *lines = said[0].splitlines()
    assert title == f"ranks of job {job!r} disagree about collective #0:"
    assert [line.strip() for line in lines] == accounts


def test_a_disagreement_among_queued_tensors_names_the_right_one(switch: SoftwareSwitch, job: str) -> None:
    def body(communicator: Communicator) -> None:
        sizes = [300, 10, 5000, 700 + communicator.rank, 20, 80_000]
        handles = [communicator.all_reduce_async(np.ones(size, np.float32)) for size in sizes]
        for handle in handles[:3]:
            assert (handle.wait() == 2).all()
        for handle in handles[3:]:
            handle.wait()
        communicator.barrier()

    for said in texts(start_ranks(switch, 2, body, job=job), DisagreementError):
        assert "disagree about collective #3:" in said
        assert "rank 0: all_reduce #3: sum of 700 float32" in said
        assert "rank 1: all_reduce #3: sum of 701 float32" in said
