"""Jobs on P4 switches: real processes in namespaces, our model and BMv2, and the controller between them."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from switch.server import SoftwareSwitch
from tests.p4_rack import P4Rack, p4_rack, why_not
from tests.rank_process import RankProcess, bits_of_sums
from tests.ranks import run_ranks

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
WORKERS = 3
_jobs = count()


@pytest.fixture(scope="module", params=["model", "bmv2"])
def rack(request: pytest.FixtureRequest) -> Iterator[P4Rack]:
    if reason := why_not(request.param):
        pytest.skip(reason)
    with p4_rack(request.param, workers=WORKERS) as made:
        yield made


@pytest.fixture
def start(rack: P4Rack) -> Iterator[Any]:
    """Starts the ranks of a job, rank i at worker i, which end with the test."""
    with ExitStack() as ending:

        def begin(*scenarios: str, job: str | None = None, timeout: float = 30.0) -> list[RankProcess]:
            name = f"job-{next(_jobs)}" if job is None else job
            return [
                ending.enter_context(
                    RankProcess(
                        scenario,
                        rack.switch,
                        job=name,
                        rank=rank,
                        world_size=len(scenarios),
                        timeout=timeout,
                        prefix=rack.enter(rank % WORKERS),
                    )
                )
                for rank, scenario in enumerate(scenarios)
            ]

        yield begin


def stats(rack: P4Rack) -> str:
    """What `wiresum stats` says at a worker."""
    command = [*rack.enter(0), sys.executable, "-m", "wiresum", "stats", rack.switch]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sums_have_the_bits_that_the_software_switch_gives(start: Any) -> None:
    with SoftwareSwitch(port=0, control_port=0) as switch:
        (expected,) = set(run_ranks(switch, WORKERS, bits_of_sums, values_per_packet=64))
    for rank in start(*["say_sums"] * WORKERS):
        rank.expect(expected)
        assert rank.wait(10) == 0, rank.stderr()


def test_two_jobs_at_once_two_ranks_at_one_host(start: Any, rack: P4Rack) -> None:
    with SoftwareSwitch(port=0, control_port=0) as switch:
        (expected,) = set(run_ranks(switch, 4, bits_of_sums, values_per_packet=64))
        (of_two,) = set(run_ranks(switch, 2, bits_of_sums, values_per_packet=64))
    first, second = start(*["say_sums"] * 4), start(*["say_sums"] * 2)
    for rank in first:
        rank.expect(expected)
    for rank in second:
        rank.expect(of_two)
    for rank in (*first, *second):
        assert rank.wait(10) == 0, rank.stderr()
    said = stats(rack)
    assert "0 of 512 slots of 256 values in use, 0 jobs" in said
    assert "contributions" in said


def test_the_death_of_a_rank_is_told_to_the_others(start: Any, rack: P4Rack) -> None:
    ranks = start("say_what_fails", "say_what_fails", "sum_and_idle", job="mortal")
    for rank, line in zip(ranks, ("waiting", "waiting", "idle"), strict=True):
        rank.expect(line)
    said = stats(rack)
    assert "job mortal" in said
    ranks[2].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    for rank in ranks[:2]:
        line = rank.read()
        assert line.startswith(f"PeerLostError: rank 2 ({rack.address(2)}:"), line
        assert line.endswith("of job 'mortal' died"), line
    assert time.monotonic() - killed < 5


def test_a_stall_names_the_rank_that_is_missing(start: Any, rack: P4Rack) -> None:
    ranks = start("say_what_fails", "sum_and_idle", timeout=3.0)
    ranks[0].expect("waiting")
    line = ranks[0].read()
    assert line.startswith("StallError: all_reduce #1: sum of 1000 float32 did not finish within 3 s"), line
    assert f"the switch waits for rank 1 ({rack.address(1)}:" in line
    assert "has rank 0 and lacks rank 1" in line
    assert "sent its last packet " in line


def test_a_rank_that_leaves_while_others_wait_for_it(start: Any, rack: P4Rack) -> None:
    ranks = start("say_what_fails", "sum_and_leave")
    ranks[1].expect("left")
    ranks[0].expect("waiting")
    line = ranks[0].read()
    assert line.startswith(f"PeerLostError: rank 1 ({rack.address(1)}:"), line
    assert line.endswith("while other ranks wait for it"), line


def test_refusals_show_numbers_and_cost_nothing(start: Any, rack: P4Rack) -> None:
    code = (
        "import sys; from host.communicator import Communicator; from protocol.errors import JoinRefusedError\n"
        "for options in ({'values_per_packet': 256}, {'slots': 4096}):\n"
        "    try:\n"
        "        Communicator(switch=sys.argv[1], rank=0, world_size=1, **options)\n"
        "    except JoinRefusedError as error:\n"
        "        print(error)\n"
    )
    command = [*rack.enter(0), sys.executable, "-c", code, rack.switch]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    values, slots = done.stdout.splitlines()
    assert values == "job 'default' asks for 256 values per packet, and this switch can add 64"
    assert slots == (
        "job 'default' wants 4096 slots of 64 values, which takes 1024 slots of 256, "
        "and the switch has 512 of 512 free; taken: none"
    )
    for rank in start(*["say_sums"] * 2):
        rank.read()


def test_a_controller_that_is_told_to_stop_says_goodbye_and_the_next_takes_its_place(start: Any, rack: P4Rack) -> None:
    ranks = start("say_what_fails", "sum_and_idle")
    ranks[0].expect("waiting")
    rack.controller.send_signal(signal.SIGTERM)
    told = time.monotonic()
    assert rack.controller.wait(5) == 0
    assert time.monotonic() - told < 2
    assert rack.controller.stderr() == ""
    assert ranks[0].read() == f"SwitchLostError: the switch at {rack.switch} is shutting down"
    rack.start_controller()
    for rank in start(*["say_sums"] * 2):
        rank.read()


def test_a_target_that_dies_ends_the_jobs_and_the_controller(start: Any, rack: P4Rack) -> None:
    """The last test: nothing is left of the rack."""
    ranks = start("say_what_fails", "sum_and_idle")
    ranks[0].expect("waiting")
    rack.target_process.kill()
    assert rack.controller.wait(5) == 1
    assert rack.controller.stderr().startswith(f"wiresum: the target at {rack.target} is lost: ")
    assert "\n" not in rack.controller.stderr()
