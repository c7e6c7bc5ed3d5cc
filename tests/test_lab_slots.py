"""What a tool is told of a switch's slots, and how that reads."""

import threading
import time
from typing import Any

import numpy as np

from host.communicator import Communicator
from tests.trees import TWO_LEVELS, Tree
from wiresum.lab.slots import describe, read_slots

JOB: dict[str, Any] = {
    "name": "train", "number": 3, "state": "running", "world_size": 3, "joined": [0, 1, 2], "slots": 16, "values": 256,
    "waiting": [
        {"slot": slot, "chunk": 16 + slot, "version": 1, "seen": [0, 1], "missing": [2]} for slot in range(10)
    ],
    "ranks": [
        {"address": f"10.0.0.{rank + 1}:4000", "last_heard": 2.0 * rank, "left": False} for rank in range(3)
    ],
}  # fmt: skip


def test_waiting_slots_name_who_is_there_and_who_is_not() -> None:
    lines = list(describe(JOB, {"10.0.0.3": "h3"}))
    assert lines[0] == "job 'train' (number 3): of 16 slots of 256 values, 6 are free and 10 wait"
    assert lines[1] == "  rank 2 (h3) is missing in 10; heard 4.0 s ago"
    assert lines[2] == "  slot 0 version 1 chunk 16: has rank 0, rank 1; lacks rank 2 (h3)"
    assert lines[-1] == "  and 2 more"
    assert next(describe(JOB, {}, stalled=True)).endswith("10 do not move")
    at_leaf = {**JOB, "ranks": [], "waiting": [{**JOB["waiting"][0], "missing": []}]}
    assert (
        list(describe(at_leaf, {}))[1] == "  slot 0 version 1 chunk 16: has rank 0, rank 1; waits for the switch above"
    )


def test_a_job_that_has_not_begun_names_those_who_have_not_joined() -> None:
    waits = {**JOB, "number": None, "joined": [1], "slots": 0, "waiting": [], "ranks": []}
    assert list(describe(waits, {})) == ["job 'train' has not begun: rank 0, rank 2 of 3 have not joined"]


def test_a_tree_tells_of_its_waiting_slots_without_a_membership() -> None:
    go = threading.Event()

    def late(communicator: Communicator) -> None:
        if communicator.rank == 1:
            go.wait(60)
        communicator.all_reduce(np.ones(1000, np.float32))

    with Tree(TWO_LEVELS) as tree:
        ranks = tree.start(["left", "left", "root"], late)
        found: dict[str, list[dict[str, Any]]] = {}
        deadline = time.monotonic() + 60
        # Until four slots have heard everybody but rank 1, in four packets of each at each switch.
        heard = {"root": 2, "left": 1, "stalled": 2}
        while len(found) < 3 or any(
            [len(slot["seen"]) for slot in jobs[0]["waiting"]] != [heard[name]] * 4 for name, jobs in found.items()
        ):
            assert time.monotonic() < deadline, found
            found = {name: jobs for name in ("root", "left") if (jobs := read_slots(tree.address(name)))}
            found["stalled"] = read_slots(tree.address("root"), again=0.05) if found else []
            found = found if all(found.values()) else {}
        go.set()
        for rank in ranks:
            rank.join()
    order = [(number, number, 0) for number in range(4)]
    for name in ("root", "stalled"):
        (job,) = found[name]
        assert [(slot["slot"], slot["chunk"], slot["version"]) for slot in job["waiting"]] == order
        assert all(set(slot["missing"]) == {1} and set(slot["seen"]) == {0, 2} for slot in job["waiting"])
        assert len(job["ranks"]) == 3
    (job,) = found["left"]
    assert all(set(slot["missing"]) == {1} and set(slot["seen"]) == {0} for slot in job["waiting"])
