"""Collectives under way: waiting, polling, callbacks, many at once."""

import logging
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from host.communicator import Communicator
from host.handle import Handle
from switch.server import SoftwareSwitch
from tests.ranks import LIMIT, alone, run_ranks
from tests.waiting import wait_until

Array = npt.NDArray[Any]


pytestmark = pytest.mark.usefixtures("idle_afterwards")


def test_many_queued_collectives_end_in_order_and_call_back(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> None:
        arrays = [np.full(i % 700, i + communicator.rank, np.int32) for i in range(300)]
        ended: list[int] = []
        handles = []
        for i, array in enumerate(arrays):
            handle = communicator.all_reduce_async(array)
            handle.add_done_callback(partial(lambda number, _: ended.append(number), i))
            handles.append(handle)
        for i in (299, 0, 150, *range(300)):
            assert handles[i].wait() is arrays[i]
            assert handles[i].done()
            assert handles[i].exception() is None
            assert (arrays[i] == 2 * i + 1).all()
        wait_until(lambda: len(ended) == 300, "a callback was not called")
        late: list[Handle] = []
        handles[5].add_done_callback(late.append)
        assert late == [handles[5]]
        with_values = [i for i in ended if i % 700]
        assert with_values == sorted(with_values)

    run_ranks(switch, 2, body)


def test_waiting_for_a_time_leaves_the_collective_under_way(switch: SoftwareSwitch) -> None:
    waited = threading.Event()

    def body(communicator: Communicator) -> None:
        array = np.ones(100_000, np.float32)
        if communicator.rank == 1:
            assert waited.wait(LIMIT)
            communicator.all_reduce(array)
        else:
            handle = communicator.all_reduce_async(array)
            for patience in (0, 0.01, 0.05):
                with pytest.raises(TimeoutError, match=f"still under way after {patience} s"):
                    handle.wait(patience)
            assert not handle.done()
            waited.set()
            while not handle.done():  # polling must not lose what arrives
                try:
                    handle.wait(0)
                except TimeoutError:
                    time.sleep(0)
            assert handle.wait(0) is array
        assert (array == 2).all()

    run_ranks(switch, 2, body)


def test_nothing_but_waiting_takes_time_while_another_collective_waits(switch: SoftwareSwitch) -> None:
    """The thread that moves packets sleeps as long as none comes; whoever wants something wakes it."""
    measured = threading.Event()

    def body(communicator: Communicator) -> None:
        communicator.barrier()
        if communicator.rank == 1:
            assert measured.wait(LIMIT)
        handle = communicator.all_reduce_async(np.ones(1000, np.float32))
        began = time.monotonic()
        for _ in range(5):
            communicator.all_reduce(np.ones(0, np.float32))
            communicator.all_reduce_async(np.ones(10, np.float32))
            communicator.statistics()
        if communicator.rank == 0:
            taken = time.monotonic() - began
            measured.set()
            assert taken < LIMIT / 10
        assert (handle.wait() == 2).all()

    run_ranks(switch, 2, body)


def test_several_threads_wait_for_one_handle(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> None:
        handle = communicator.all_reduce_async(np.ones(500_000, np.float32))
        results: list[Array] = []
        threads = [threading.Thread(target=lambda: results.append(handle.wait())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        assert len(results) == 4
        assert all((result == 2).all() for result in results)

    run_ranks(switch, 2, body)


def test_several_arrays_in_one_call(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> None:
        arrays = [np.full(size, communicator.rank, np.int16) for size in (0, 5, 0, 1000, 1, 0)]
        results = communicator.all_reduce_many(arrays)
        assert all(result is array for result, array in zip(results, arrays, strict=True))
        assert all((array == 1).all() for array in arrays)
        results = communicator.all_reduce_many_async(arrays).wait()
        assert all((array == 2).all() for array in results)
        for nothing in ([], [np.zeros(0, np.float32)] * 3):
            assert communicator.all_reduce_many(nothing) == nothing
            assert communicator.all_reduce_many_async(nothing).wait(0) == nothing

    run_ranks(switch, 2, body)


def test_a_thousand_small_tensors(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> None:
        arrays = [np.full(1 + i % 50, i + communicator.rank, np.float32) for i in range(1000)]
        communicator.all_reduce_many(arrays)
        handles = [communicator.all_reduce_async(array, "mean") for array in arrays]
        for i, handle in enumerate(handles):
            assert (handle.wait() == 2 * i + 1).all()
        for i, array in enumerate(arrays):
            assert (communicator.all_reduce(array) == 4 * i + 2).all()

    run_ranks(switch, 2, body)


def test_many_threads_at_once(switch: SoftwareSwitch) -> None:
    """Their collectives are alike, so that it does not matter which comes first on which rank."""

    def body(communicator: Communicator) -> None:
        failures: list[object] = []

        def call() -> None:
            for i in range(30):
                array = np.full(2000, communicator.rank + 1, np.float32)
                result = communicator.all_reduce_async(array).wait() if i % 2 else communicator.all_reduce(array)
                if not (result == 6).all():
                    failures.append(result)

        threads = [threading.Thread(target=call, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive()
        assert not failures

    run_ranks(switch, 3, body)


def test_a_callback_that_raises_is_logged_and_harms_nobody(
    switch: SoftwareSwitch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(handle: Handle) -> None:
        raise KeyError("a fault of the user's")

    def body(communicator: Communicator) -> None:
        called: list[Handle] = []
        handle = communicator.all_reduce_async(np.ones(1000, np.float32))
        handle.add_done_callback(fail)
        handle.add_done_callback(called.append)
        assert (handle.wait() == 2).all()
        handle.add_done_callback(fail)
        wait_until(lambda: called, "the callback after the faulty one was not called")
        assert (communicator.all_reduce(np.ones(5, np.int8)) == 2).all()

    with caplog.at_level(logging.ERROR):
        run_ranks(switch, 2, body)
    assert "a fault of the user's" in caplog.text


def test_a_callback_may_start_collectives_but_not_wait_for_them(switch: SoftwareSwitch) -> None:
    """Waiting there would wait for ever: nothing moves until the callback returns."""

    def body(communicator: Communicator) -> None:
        outcomes: list[Any] = []

        def next_one(_: Handle) -> None:
            handle = communicator.all_reduce_async(np.ones(1000, np.float32))
            try:
                handle.wait()
            except RuntimeError as error:
                outcomes.append(error)
            outcomes.append(handle)

        # Big enough that the callback is there before the end.
        communicator.all_reduce_async(np.ones(2_000_000, np.float32)).add_done_callback(next_one)
        wait_until(lambda: len(outcomes) == 2, "the callback was not called")
        error, handle = outcomes
        assert "must not wait" in str(error)
        assert (handle.wait() == 2).all()

    run_ranks(switch, 2, body)


def test_a_callback_may_close(switch: SoftwareSwitch) -> None:
    communicator = alone(switch)
    closed = threading.Event()

    def close(_: Handle) -> None:
        communicator.close()
        closed.set()

    communicator.all_reduce_async(np.ones(2_000_000, np.float32)).add_done_callback(close)
    assert closed.wait(LIMIT)
    communicator.close()
