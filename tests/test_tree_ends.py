"""Switches of a tree that are killed or shut down: what workers are told, and that the others serve on."""

import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress

import numpy as np
import pytest

from host.control import ControlClient
from protocol.errors import JoinTimeoutError, SwitchLostError, SwitchUnreachableError, WiresumError
from switch.server import SoftwareSwitch
from tests.ranks import LIMIT, Rank, errors, texts
from tests.trees import TWO_LEVELS, Tree, add, add_for_ever
from tests.waiting import wait_until
from wiresum.processes import SwitchProcess

PROMPTLY = 5.0  # seconds; nobody may wait for a time-out


def lasting(address: str, rank: int, job: str, world: int) -> Rank:
    options = {"job": job, "world_size": world, "timeout": LIMIT, "join_timeout": LIMIT}
    return Rank(address, rank, add_for_ever, options)


def failures(ranks: list[Rank]) -> list[str]:
    began = time.monotonic()
    raised = errors(ranks)
    assert time.monotonic() - began < PROMPTLY
    return [f"{type(error).__name__}: {error}" for error in raised]


def is_moving(address: str) -> bool:
    with closing(ControlClient(address)) as client:
        return any(row.name == "results" and row.job is None and row.value > 1000 for row in client.statistics())


def check_leaf_end(places: Sequence[str], end: Callable[[], object]) -> None:
    """The leaf's own workers lose their switch, the others those workers; the root and other leaves serve on."""
    left, right, root = places
    ranks = [lasting(address, rank, "split", 3) for rank, address in enumerate(places)]
    wait_until(lambda: is_moving(root), "nothing moves")
    end()
    said = failures(ranks)
    assert said[1].startswith(f"SwitchLostError: the switch at {right}")
    for other in (said[0], said[2]):
        assert re.match(r"PeerLostError: rank 1 \(127\.0\.0\.1:\d+\) of job 'split' (died|is cut off)", other)
    again = [Rank(address, rank, add, {"job": "split", "world_size": 2}) for rank, address in enumerate((left, root))]
    assert errors(again) == [None, None]


def test_a_leaf_that_is_killed() -> None:
    with Tree({"root": None, "left": "root"}) as tree, SwitchProcess("--parent", tree.address("root")) as right:
        check_leaf_end((tree.address("left"), right.address, tree.address("root")), right.kill)
        wait_until(lambda: max_ranks(tree.address("root")) == 31 + 32, "the root still counts on the leaf")


def test_a_leaf_that_is_shut_down() -> None:
    with Tree(TWO_LEVELS) as tree:
        check_leaf_end([tree.address(name) for name in ("left", "right", "root")], tree["right"].close)


def check_root_end(places: Sequence[str], end: Callable[[], object]) -> None:
    _, low, root = places
    ranks = [lasting(address, rank, "rootless", 3) for rank, address in enumerate(places)]
    wait_until(lambda: is_moving(root), "nothing moves")
    end()
    for said in failures(ranks):
        assert said.startswith("SwitchLostError: the switch at")
        assert root in said
    with pytest.raises(SwitchUnreachableError, match=root):
        ControlClient(low)


def max_ranks(address: str) -> int:
    """0 while the switch is out of reach."""
    try:
        with closing(ControlClient(address)) as client:
            return client.info.max_ranks
    except WiresumError:
        return 0


def test_leaves_come_back_to_a_root_that_was_killed_and_started_again() -> None:
    with SwitchProcess() as root:
        parents: dict[str, str | None] = {"middle": root.address, "low": "middle"}
        with Tree(parents) as tree:
            middle, low = tree.address("middle"), tree.address("low")
            check_root_end((middle, low, root.address), root.kill)
            port = int(root.address.rpartition(":")[2])
            with SoftwareSwitch(port=0, control_port=port):
                wait_until(lambda: max_ranks(low) == 31 + 31 + 32, "the leaves did not come back")
                tree.run(["middle", "low"], add, job="rootless")


def test_a_root_that_is_shut_down() -> None:
    with Tree({"root": None, "middle": "root", "low": "middle"}) as tree:
        check_root_end([tree.address(name) for name in ("middle", "low", "root")], tree["root"].close)


def test_a_leaf_that_is_shut_down_while_ranks_join() -> None:
    with Tree(TWO_LEVELS) as tree:
        ranks = tree.start(["left", "left", ""], add)
        (other,) = tree.start(["right"], add, world_size=2, join_timeout=3.0)
        wait_until(lambda: len(tree["root"].jobs()) == 2, "the ranks did not join")
        wait_until(lambda: any(len(job.joined) == 2 for job in tree["root"].jobs()), "one rank did not join")
        tree["left"].close()
        for said in texts(ranks, SwitchLostError):
            assert said.endswith("is shutting down")
        wait_until(lambda: len(tree["root"].jobs()) == 1, "the root still waits for them")
        (said,) = texts([other], JoinTimeoutError)
        assert "missing: rank 1" in said


def test_a_root_that_is_shut_down_while_ranks_join() -> None:
    with Tree(TWO_LEVELS) as tree:
        ranks = tree.start(["left", "right", ""], add)
        wait_until(lambda: any(len(job.joined) == 2 for job in tree["root"].jobs()), "the ranks did not join")
        tree["root"].close()
        for said in texts(ranks, SwitchLostError):
            assert tree.address("root") in said


def test_ranks_that_come_and_go_while_others_join_leave_nothing_behind() -> None:
    """Joins that are broken off at any moment, over and over."""
    with Tree(TWO_LEVELS) as tree:
        rng = np.random.default_rng(1)

        def come_and_go(name: str, rank: int) -> None:
            for _ in range(15):
                client = ControlClient(tree.address(name))
                timer = threading.Timer(float(rng.uniform(0, 0.03)), client.close)
                timer.start()
                with suppress(WiresumError):
                    client.join(
                        job="restless", rank=rank, world_size=3, udp=("127.0.0.1", 20000 + rank), values=256, slots=64,
                        timeout=5.0,
                    )  # fmt: skip
                timer.join()
                client.close()

        threads = [threading.Thread(target=come_and_go, args=each) for each in (("left", 0), ("left", 1), ("right", 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tree.wait_until_idle()
        tree.run(["left", "left", "right"], add, job="restless")
        tree.wait_until_idle()
        for name in TWO_LEVELS:
            with closing(ControlClient(tree.address(name))) as client:
                assert client.info.free_slots == client.info.total_slots
