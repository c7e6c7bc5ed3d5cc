"""A Communicator from its making to its end: arguments, context manager, closing, statistics, neighbours."""

import gc
import itertools
import os
import threading
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from host.communicator import Communicator
from host.handle import Handle
from protocol.errors import ClosedError, PeerLostError
from protocol.faults import FaultRates
from switch.server import SoftwareSwitch
from tests.ranks import LIMIT, alone, errors, fresh_job, run_ranks, start_ranks, text, total, wait_until_idle
from tests.waiting import wait_until

Array = npt.NDArray[Any]


pytestmark = pytest.mark.usefixtures("idle_afterwards")


def test_leaving_the_with_statement_waits_for_what_is_under_way(switch: SoftwareSwitch) -> None:
    started: list[tuple[Handle, Handle]] = []

    def body(communicator: Communicator) -> None:
        many = communicator.all_reduce_many_async([np.ones(1000, np.float32) for _ in range(20)])
        started.append((many, communicator.all_reduce_async(np.ones(100_000, np.float32))))

    run_ranks(switch, 2, body)
    for many, one in started:
        assert many.done()
        assert one.done()
        assert (one.wait() == 2).all()
        assert all((array == 2).all() for array in many.wait())


def test_an_exception_in_the_with_statement_does_not_wait(switch: SoftwareSwitch) -> None:
    started: list[Handle] = []

    def body(communicator: Communicator) -> None:
        if communicator.rank == 1:
            raise LookupError("a fault of the user's")
        started.append(communicator.all_reduce_async(np.ones(100_000, np.float32)))
        started[0].wait()

    waiting, failing = errors(start_ranks(switch, 2, body))
    assert isinstance(failing, LookupError)
    assert isinstance(waiting, PeerLostError)
    assert "rank 1 (127.0.0.1:" in str(waiting)
    assert started[0].exception() is waiting


@pytest.mark.parametrize("asked", [False, True])
def test_a_failure_that_nobody_has_asked_for_leaves_the_with_statement(switch: SoftwareSwitch, asked: bool) -> None:
    def body(communicator: Communicator) -> None:
        if communicator.rank == 1:
            raise LookupError("a fault of the user's")
        handle = communicator.all_reduce_async(np.ones(100_000, np.float32))
        if asked:
            wait_until(handle.done, "the failure of rank 1 was not told")
            assert isinstance(handle.exception(), PeerLostError)

    silent, failing = errors(start_ranks(switch, 2, body))
    assert isinstance(failing, LookupError)
    assert silent is None if asked else isinstance(silent, PeerLostError)


def test_closing_ends_a_call_of_another_thread(switch: SoftwareSwitch) -> None:
    closed = threading.Event()

    def body(communicator: Communicator) -> None:
        communicator.barrier()
        if communicator.rank == 1:
            assert closed.wait(LIMIT)  # else rank 0 might hear first that rank 1 has left
        else:
            closing = threading.Timer(0.1, communicator.close)
            closing.start()
            with pytest.raises(ClosedError, match="was closed"):
                communicator.all_reduce(np.ones(100_000, np.float32))
            closing.join()
            closed.set()

    run_ranks(switch, 2, body)


def test_pending_collectives_fail_when_it_is_closed(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> None:
        if communicator.rank == 0:
            handle = communicator.all_reduce_async(np.ones(10, np.float32))
            seen: list[BaseException | None] = []
            handle.add_done_callback(lambda h: seen.append(h.exception()))
            communicator.close()
            with pytest.raises(ClosedError, match="was closed"):
                handle.wait()
            assert isinstance(seen[0], ClosedError)

    run_ranks(switch, 2, body)


def test_closing_twice_and_use_after_it(switch: SoftwareSwitch) -> None:
    communicator = alone(switch)
    communicator.all_reduce(np.ones(1000, np.float32))
    before = communicator.statistics()
    communicator.close()
    communicator.close()
    after = communicator.statistics()
    assert after["packets_sent"] == before["packets_sent"] > 0
    for call in (communicator.all_reduce, communicator.all_reduce_async, lambda a: communicator.all_reduce_many([a])):
        with pytest.raises(ClosedError, match="was closed"):
            call(np.ones(3, np.float32))
    with pytest.raises(ClosedError, match="was closed"):
        communicator.barrier()
    assert (communicator.rank, communicator.world_size) == (0, 1)


def test_closing_from_several_threads(switch: SoftwareSwitch) -> None:
    communicator = alone(switch)
    communicator.all_reduce_async(np.ones(100_000, np.float32))
    threads = [threading.Thread(target=communicator.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()


def test_barrier_waits_for_all(switch: SoftwareSwitch) -> None:
    arrived: list[int] = []
    late = threading.Event()

    def body(communicator: Communicator) -> None:
        if communicator.rank == 2:
            assert late.wait(LIMIT)
        arrived.append(communicator.rank)
        if len(arrived) == 2:
            late.set()
        communicator.barrier()
        assert sorted(arrived) == [0, 1, 2]

    run_ranks(switch, 3, body)


def test_statistics_add_up(switch: SoftwareSwitch) -> None:
    before = switch.statistics()

    def body(communicator: Communicator) -> dict[str, float]:
        communicator.all_reduce(np.ones(256 * 1000, np.float32))
        return communicator.statistics()

    for counts in run_ranks(switch, 2, body, slots=64):
        assert counts["packets_sent"] - counts["retransmissions"] == 1064
        assert counts["packets_received"] >= 1064
        assert counts["bytes_sent"] >= 1000 * 1034 + 64 * 10
        assert 0 < counts["srtt"] < 10
        assert counts["rejected"] == counts["oversized"] == 0
    results = total(switch.statistics(), "results") - total(before, "results")
    assert results == 1064


def test_injected_faults_are_counted_and_repaired(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> dict[str, float]:
        result = communicator.all_reduce(np.arange(200_000, dtype=np.int32))
        assert np.array_equal(result, 2 * np.arange(200_000))
        return communicator.statistics()

    faults = FaultRates(loss=0.05, duplicate=0.05, reorder=0.05)
    for counts in run_ranks(switch, 2, body, faults=faults, fault_seed=7):
        assert counts["retransmissions"] > 0
        for direction, kind in itertools.product(("out", "in"), ("lost", "duplicated", "reordered")):
            assert counts[f"fault_{direction}_{kind}"] > 0


def test_several_communicators_in_one_process(switch: SoftwareSwitch) -> None:
    """Three jobs at once, of which each rank takes part in all."""
    names = [fresh_job() for _ in range(2)]

    def body(first: Communicator) -> None:
        others = [
            Communicator(
                switch=text(switch.control_address), job=name, rank=2 - first.rank, world_size=3, values_per_packet=32
            )
            for name in names
        ]
        with others[0], others[1]:
            handles = [
                communicator.all_reduce_async(np.full(50_000, 10**i * (communicator.rank + 1), np.int32))
                for i, communicator in enumerate((first, *others))
            ]
            for i, handle in enumerate(handles):
                assert (handle.wait() == 6 * 10**i).all()

    run_ranks(switch, 3, body)


def test_one_job_after_another_with_the_same_name(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> None:
        assert (communicator.all_reduce(np.ones(1000, np.float16)) == 2).all()

    for _ in range(10):
        run_ranks(switch, 2, body, job="again")


def test_nothing_is_left_of_closed_switches_and_communicators(switch: SoftwareSwitch) -> None:
    def once() -> tuple[int, int]:
        with SoftwareSwitch(port=0, control_port=0) as another:
            run_ranks(another, 2, lambda communicator: communicator.all_reduce_async(np.ones(10, np.float32)).wait())
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    once()
    before = once()
    for _ in range(3):
        after = once()
    assert after[0] <= before[0]
    assert after[1] <= before[1]


@pytest.mark.filterwarnings("always:.*was never closed:ResourceWarning")
def test_an_unclosed_communicator_is_closed_by_the_garbage_collector(switch: SoftwareSwitch) -> None:
    with warnings.catch_warnings(record=True) as caught:
        communicator = alone(switch)
        communicator.all_reduce_async(np.ones(10, np.float32)).wait()
        del communicator
        gc.collect()
        wait_until_idle(switch)
    assert ["was never closed" in str(warning.message) for warning in caught] == [True]


@pytest.mark.filterwarnings("always:.*was never closed:ResourceWarning")
def test_a_pending_handle_keeps_the_communicator_alive(switch: SoftwareSwitch) -> None:
    """Nobody may get a ClosedError because the last name of the Communicator went out of scope."""
    address, job = text(switch.control_address), fresh_job()
    handles: list[Handle] = []

    def start(rank: int) -> None:
        communicator = Communicator(switch=address, job=job, rank=rank, world_size=2)
        handles.append(communicator.all_reduce_async(np.ones(300_000, np.float32)))

    with warnings.catch_warnings(record=True) as caught:
        threads = [threading.Thread(target=start, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT)
        gc.collect()
        for handle in handles:
            assert (handle.wait() == 2).all()
        wait_until(lambda: gc.collect() >= 0 and not switch.jobs(), "the job was not left")
    assert ["was never closed" in str(warning.message) for warning in caught] == [True, True]
