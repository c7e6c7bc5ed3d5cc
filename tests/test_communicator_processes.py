"""How a rank's process ends: without close(), by an exception, by Ctrl-C; and what it may do before: fork."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from host.communicator import Communicator
from protocol.errors import PeerLostError
from switch.server import SoftwareSwitch
from tests.rank_process import RankProcess, sum_once
from tests.ranks import Rank, errors, fresh_job, start_ranks, text, wait_until_idle
from tests.waiting import wait_until

PROMPTLY = 10.0  # seconds; a time-out would be a minute or more


@pytest.fixture(scope="module")
def switch() -> Iterator[SoftwareSwitch]:
    with SoftwareSwitch(port=0, control_port=0) as server:
        yield server


class Pair:
    """Rank 0 is a thread of this process, rank 1 a process of its own."""

    def __init__(self, switch: SoftwareSwitch) -> None:
        self._switch = switch
        self._stack = ExitStack()

    def start(self, scenario: str, body: object) -> tuple[Rank, RankProcess]:
        job = fresh_job()
        process = RankProcess(scenario, text(self._switch.control_address), job=job, rank=1, world_size=2)
        self._stack.enter_context(process)
        (rank,) = start_ranks(self._switch, 2, body, missing=(1,), job=job)  # type: ignore[arg-type]
        return rank, process

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def pair(switch: SoftwareSwitch) -> Iterator[Pair]:
    opened = Pair(switch)
    try:
        yield opened
    finally:
        opened.close()
    wait_until_idle(switch)


def reduce_twice(communicator: Communicator) -> None:
    sum_once(communicator)
    communicator.all_reduce(np.ones(100_000, np.float32))


def test_a_script_that_does_not_close_ends_in_silence(pair: Pair) -> None:
    def body(communicator: Communicator) -> None:
        sum_once(communicator)
        communicator.all_reduce(np.ones(10, np.float32))

    rank, process = pair.start("end_without_close", body)
    assert errors([rank]) == [None]
    assert process.wait(PROMPTLY) == 0
    assert process.stderr() == ""


def test_the_others_learn_at_once_of_a_rank_whose_program_failed(pair: Pair) -> None:
    rank, process = pair.start("raise_in_user_code", reduce_twice)
    assert process.wait(60) == 1
    ended = time.monotonic()
    (error,) = errors([rank])
    assert time.monotonic() - ended < PROMPTLY
    assert isinstance(error, PeerLostError)
    assert str(error).startswith("rank 1 (127.0.0.1:")
    assert process.stderr().endswith("LookupError: a fault of the user's")


@pytest.mark.parametrize("scenario", ["wait_in_vain", "with:wait_for_handle_in_vain"])
def test_ctrl_c_ends_a_rank_that_waits_and_the_others_are_told(
    pair: Pair, switch: SoftwareSwitch, scenario: str
) -> None:
    interrupted: list[float] = []

    def sent_by_rank_1(job: str) -> int:
        counts = [c for c in switch.statistics() if (c.name, c.job, c.rank) == ("contributions", job, 1)]
        return counts[0].value

    def body(communicator: Communicator) -> None:
        sum_once(communicator)
        process.expect("waiting")
        in_one_sum = 8  # packets: four blocks, each after its exponent
        wait_until(lambda: sent_by_rank_1(communicator.job) > in_one_sum, "rank 1 does not wait")
        process.send_signal(signal.SIGINT)
        interrupted.append(time.monotonic())
        process.wait(PROMPTLY)
        communicator.all_reduce(np.ones(100_000, np.float32))

    rank, process = pair.start(scenario, body)
    (error,) = errors([rank])
    assert isinstance(error, PeerLostError), error
    assert str(error).startswith("rank 1 (127.0.0.1:")
    assert time.monotonic() - interrupted[0] < PROMPTLY
    assert process.returncode() == -signal.SIGINT or process.returncode() == 130
    assert process.stderr().endswith("KeyboardInterrupt")


def test_forked_children_can_neither_use_a_communicator_nor_disturb_it(pair: Pair) -> None:
    def body(communicator: Communicator) -> None:
        sum_once(communicator)
        assert (communicator.all_reduce(np.ones(3_000_000, np.float32)) == 2).all()
        sum_once(communicator)

    rank, process = pair.start("fork", body)
    assert errors([rank]) == [None]
    process.expect("fine")
    assert process.wait(PROMPTLY) == 0
    assert process.stderr() == ""
