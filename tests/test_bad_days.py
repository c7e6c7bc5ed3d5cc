"""What goes wrong in a user's first weeks: a clear error on every rank, soon, and everything usable afterwards."""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from host.communicator import Communicator
from host.control import ControlClient
from protocol.constants import DType
from protocol.errors import (
    JoinRefusedError,
    JoinTimeoutError,
    PeerLostError,
    StallError,
    SwitchLostError,
    SwitchUnreachableError,
)
from protocol.faults import FaultRates
from switch.server import SoftwareSwitch
from tests.rank_process import RankProcess
from tests.ranks import (
    SLOTS,
    Rank,
    assert_serves,
    errors,
    fresh_job,
    run_ranks,
    start_ranks,
    text,
    texts,
    wait_until_idle,
)
from tests.test_worker import check_sums, random_array
from tests.waiting import wait_until
from wiresum.processes import SwitchProcess

Array = npt.NDArray[Any]

PROMPTLY = 10.0  # seconds, where nobody may wait for a time-out


def barrier(communicator: Communicator) -> None:
    communicator.barrier()


# Joining


def test_a_rank_that_never_joins_is_named(switch: SoftwareSwitch, job: str) -> None:
    ranks = start_ranks(switch, 4, barrier, missing=(1, 3), job=job, join_timeout=0.7)
    for said in texts(ranks, JoinTimeoutError):
        assert said.endswith("ranks joined within 0.7 s; missing: rank 1, rank 3") or "rank 1, rank 3, rank" in said
        assert job in said


def test_two_processes_with_one_rank(switch: SoftwareSwitch, job: str) -> None:
    """The second is refused, while the first waits for the others as well as while it works with them."""
    (first,) = start_ranks(switch, 2, barrier, missing=(1,), job=job)
    wait_until(lambda: switch.jobs(), "rank 0 did not join")
    twice = r"rank 0 of job 'job-\d+' is taken by 127\.0\.0\.1:\d+; 127\.0\.0\.1:\d+ asked for it too"
    (said,) = texts(start_ranks(switch, 2, barrier, missing=(1,), job=job), JoinRefusedError)
    assert re.fullmatch(twice, said)

    def body(communicator: Communicator) -> None:
        (said,) = texts(start_ranks(switch, 2, barrier, missing=(0,), job=job), JoinRefusedError)
        assert "rank 1 of job" in said
        assert "and the job is running" in said
        communicator.barrier()

    (second,) = start_ranks(switch, 2, body, missing=(0,), job=job)
    assert errors([first, second]) == [None, None]


def test_more_ranks_than_a_switch_takes(switch: SoftwareSwitch, job: str) -> None:
    ranks = start_ranks(switch, 33, barrier, missing=tuple(range(3, 33)), job=job)
    for said in texts(ranks, JoinRefusedError):
        assert said == f"job {job!r} asks for 33 ranks, and this switch takes from 1 to 32"


def test_ranks_that_differ_about_the_job(switch: SoftwareSwitch, job: str) -> None:
    (first,) = start_ranks(switch, 2, barrier, missing=(1,), job=job, join_timeout=1.0)
    wait_until(lambda: switch.jobs(), "rank 0 did not join")
    (size,) = texts(start_ranks(switch, 3, barrier, missing=(0, 1), job=job), JoinRefusedError)
    assert "world size 3" in size
    assert "joined with 2" in size
    (values,) = texts(start_ranks(switch, 2, barrier, missing=(0,), job=job, values_per_packet=64), JoinRefusedError)
    assert "64 values per packet" in values
    (waited,) = texts([first], JoinTimeoutError)
    assert "missing: rank 1 (refused: " in waited


def test_a_pool_that_is_too_small(switch: SoftwareSwitch, job: str) -> None:
    wishes: list[dict[str, Any]] = [{"slots": 8192}, {"slots": 1024, "values_per_packet": 2048}]
    for options in wishes:
        for said in texts(start_ranks(switch, 2, barrier, job=job, **options), JoinRefusedError):
            assert f"takes 8192 slots of 256, and the switch has {SLOTS} of {SLOTS} free; taken: none" in said

    def body(communicator: Communicator) -> None:
        if communicator.rank == 0:
            for said in texts(start_ranks(switch, 2, barrier, slots=2048), JoinRefusedError):
                assert f"has 1024 of {SLOTS} free; taken: 1024 by job {other!r}, 2048 by job {job!r}" in said
        communicator.barrier()

    other = fresh_job()
    with Communicator(switch=text(switch.control_address), job=other, rank=0, world_size=1, slots=1024):
        run_ranks(switch, 2, body, job=job, slots=2048)


def test_a_wrong_address_is_refused_in_seconds(switch: SoftwareSwitch, job: str) -> None:
    began = time.monotonic()
    for address in ("127.0.0.1:1", "no-such-host.invalid:50099", text(switch.data_address)):
        for said in texts(start_ranks(address, 2, barrier), SwitchUnreachableError):
            assert address in said
    assert time.monotonic() - began < 3 * PROMPTLY


# Workers that die, stop, leave, or do not come


def beside(
    switch: SoftwareSwitch, job: str, scenario: str, body: Callable[[Communicator, RankProcess], object], **options: Any
) -> tuple[list[Rank], RankProcess]:
    """Ranks 0 and 1 are threads of this process, rank 2 is a process."""
    process = RankProcess(scenario, text(switch.control_address), job=job, rank=2, world_size=3)
    return start_ranks(switch, 3, lambda c: body(c, process), missing=(2,), job=job, **options), process


def sum_for_ever(communicator: Communicator, _: object) -> None:
    array = np.zeros(4_000_000, np.int32)
    while True:
        array[:] = communicator.rank + 1
        assert (communicator.all_reduce(array) == 6).all()


def test_a_worker_killed_in_the_middle_is_named_at_once(switch: SoftwareSwitch, job: str) -> None:
    ranks, process = beside(switch, job, "sum_for_ever", sum_for_ever)
    with process:
        process.expect("summed")
        process.expect("summed")
        process.kill()
        killed = time.monotonic()
        for said in texts(ranks, PeerLostError):
            assert re.fullmatch(rf"rank 2 \(127\.0\.0\.1:\d+\) of job '{job}' died", said)
        assert time.monotonic() - killed < PROMPTLY
        wait_until_idle(switch)
        with closing(ControlClient(text(switch.control_address))) as client:
            assert client.info.free_slots == SLOTS


@pytest.mark.slow
def test_a_worker_stopped_for_five_seconds_delays_the_others_and_no_more(switch: SoftwareSwitch, job: str) -> None:
    stopped: list[float] = []

    def body(communicator: Communicator, process: RankProcess) -> None:
        array = np.zeros(500_000, np.float32)
        for i in range(40):
            if communicator.rank == 0 and i == 20:
                os.kill(process.pid, signal.SIGSTOP)
                stopped.append(time.monotonic())
            array[:] = communicator.rank + 1
            assert (communicator.all_reduce(array) == 6).all()
            communicator.all_reduce(np.full(1, i < 39, np.int32))
        stopped.append(time.monotonic())

    ranks, process = beside(switch, job, "sum_as_long_as_rank_0_wants", body)
    with process:
        wait_until(lambda: stopped, "rank 2 was not stopped")
        time.sleep(5.0)  # what this test is about
        os.kill(process.pid, signal.SIGCONT)
        assert errors(ranks) == [None, None]
        assert process.wait(PROMPTLY) == 0, process.stderr()
        assert stopped[1] - stopped[0] > 5.0


def test_a_rank_that_does_not_call_is_named_by_the_time_out(switch: SoftwareSwitch, job: str) -> None:
    def body(communicator: Communicator) -> None:
        communicator.barrier()
        if communicator.rank == 2:
            for rank in ranks[:2]:
                rank.join()
        communicator.all_reduce(np.ones(5000, np.float32))

    ranks: list[Rank] = []
    ranks += start_ranks(switch, 3, body, job=job, timeout=0.5)
    first, second, late = errors(ranks)
    for error in (first, second):
        assert isinstance(error, StallError)
        assert re.search(
            r"all_reduce #1: sum of 5000 float32 did not finish within 0\.5 s: the switch waits for rank 2 "
            r"\(127\.0\.0\.1:\d+, sent its last packet \d\.\d s ago\)",
            str(error),
        )
    # It comes when the others have given up.
    assert isinstance(late, PeerLostError)
    assert re.search(r"rank [01] \(127\.0\.0\.1:\d+\) left job", str(late))


def test_a_network_that_carries_no_packets_is_told_by_the_time_out(switch: SoftwareSwitch, job: str) -> None:
    """The control connection works, and what rank 1 sends is filtered."""

    def body(communicator: Communicator) -> None:
        communicator.all_reduce(np.ones(5000, np.float32))

    address, options = text(switch.control_address), {"job": job, "world_size": 2}
    healthy = Rank(address, 0, body, options | {"timeout": 60.0})
    filtered = Rank(address, 1, body, options | {"timeout": 0.5, "faults": FaultRates(loss=1.0)})
    (told,) = texts([healthy], PeerLostError)
    assert re.fullmatch(rf"rank 1 \(127\.0\.0\.1:\d+\) left job '{job}' while other ranks wait for it", told)
    (stalled,) = texts([filtered], StallError)
    assert re.search(r"waits for rank 1 \(127\.0\.0\.1:\d+, never sent a packet\)", stalled)
    assert f"Not one packet has come here from {text(switch.data_address)}: is UDP filtered" in stalled


def test_a_switch_that_answers_from_another_address_is_told_by_the_time_out() -> None:
    """It listens at all its addresses, and the routes have it answer from one that the workers do not send to."""
    with SoftwareSwitch(bind="0.0.0.0", port=0, control_port=0) as switch:
        ports = switch.control_address[1]
        run_ranks(f"127.0.0.1:{ports}", 2, barrier)
        for said in texts(start_ranks(f"127.0.0.2:{ports}", 2, barrier, timeout=0.5), StallError):
            assert "waits for no rank in any slot" in said
            assert f"Not one packet has come here from 127.0.0.2:{switch.data_address[1]}" in said
            assert "start it with --bind and the one that workers use" in said


def test_a_failed_communicator_repeats_its_error(switch: SoftwareSwitch, job: str) -> None:
    def body(communicator: Communicator) -> None:
        if communicator.rank == 1:
            return
        with pytest.raises(PeerLostError) as first:
            communicator.all_reduce(np.ones(10, np.float32))
        for call in (communicator.all_reduce, communicator.all_reduce_async):
            with pytest.raises(PeerLostError) as again:
                call(np.ones(10, np.float32))
            assert str(again.value) == str(first.value)
        assert communicator.statistics()["packets_sent"] > 0

    run_ranks(switch, 2, body, job=job)


# The switch


def test_a_switch_killed_in_the_middle_is_named_and_its_successor_serves() -> None:
    job, sums = fresh_job(), 0

    def body(communicator: Communicator) -> None:
        nonlocal sums
        array = np.zeros(2_000_000, np.int32)
        while True:
            array[:] = communicator.rank + 1
            assert (communicator.all_reduce(array) == 3).all()
            sums += 1

    with SwitchProcess("--slots", str(SLOTS)) as switch:
        ranks = start_ranks(switch.address, 2, body, job=job)
        wait_until(lambda: sums > 3, "nothing was summed")
        switch.kill()
        killed = time.monotonic()
        for said in texts(ranks, SwitchLostError):
            assert said.startswith(f"the switch at {switch.address} went away")
        assert time.monotonic() - killed < PROMPTLY
    ports = [address.rpartition(":")[2] for address in (switch.data_address, switch.address)]
    with SwitchProcess("--slots", str(SLOTS), "--port", ports[0], "--control-port", ports[1]) as successor:
        assert successor.address == switch.address
        assert_serves(successor.address, job, SLOTS)


# Heavy and rough days


def test_two_jobs_at_once_do_not_touch_each_other(switch: SoftwareSwitch, job: str) -> None:
    other = fresh_job()

    def body(communicator: Communicator) -> list[Array]:
        mine = 1000 if communicator.job == job else 3
        arrays = [np.full(50_000, mine * (communicator.rank + 1) + i, np.int32) for i in range(10)]
        for array in arrays:
            communicator.all_reduce(array)
        return arrays

    ranks = [*start_ranks(switch, 3, body, job=job, slots=64), *start_ranks(switch, 2, body, job=other, slots=256)]
    assert errors(ranks) == [None] * 5
    for number, rank in enumerate(ranks):
        for i, array in enumerate(rank.result):
            assert (array == (6 * 1000 + 3 * i if number < 3 else 3 * 3 + 2 * i)).all()


def test_a_thousand_small_tensors_and_one_of_400_mb() -> None:
    def body(communicator: Communicator) -> None:
        small = [np.full(1 + i % 300, i, np.float32) for i in range(1000)]
        large = np.full(100_000_000, communicator.rank + 1, np.float32)
        handles = [communicator.all_reduce_async(array) for array in small[:500]]
        handles.append(communicator.all_reduce_async(large))
        handles += [communicator.all_reduce_async(array) for array in small[500:]]
        for handle in handles:
            handle.wait()
        assert large.min() == large.max() == 3
        assert all((array == 2 * i).all() for i, array in enumerate(small))

    with SwitchProcess() as switch:
        run_ranks(switch.address, 2, body)


@pytest.mark.parametrize("side", ["switch", "workers"])
def test_ten_percent_loss_with_duplication_and_reordering(side: str) -> None:
    rates = "loss=0.1,duplicate=0.1,reorder=0.1"
    inputs = {
        dtype: [random_array(np.random.default_rng(rank), dtype, 50_000) for rank in range(3)]
        for dtype in (DType.INT32, DType.FLOAT32, DType.UINT8)
    }

    def body(communicator: Communicator) -> dict[DType, Array]:
        sums = {dtype: arrays[communicator.rank].copy() for dtype, arrays in inputs.items()}
        for array in sums.values():
            communicator.all_reduce(array)
        counts = communicator.statistics()
        assert counts["retransmissions"] > 0.1 * counts["packets_sent"]
        return sums

    options = ["--faults-in", rates, "--faults-out", rates] if side == "switch" else []
    faults = FaultRates.parse(rates) if side == "workers" else None
    with SwitchProcess(*options, "--seed", "5") as switch:
        sums = run_ranks(switch.address, 3, body, faults=faults, fault_seed=5)
    for dtype, arrays in inputs.items():
        check_sums(arrays, [result[dtype] for result in sums], dtype, 256)
