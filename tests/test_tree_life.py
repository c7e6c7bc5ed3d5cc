"""Jobs that span switches: joining, refusals, leaving, dying, disagreement, stalls."""

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from host.communicator import Communicator
from host.control import ControlClient
from protocol import control_pb2 as pb
from protocol.constants import MAX_RANKS
from protocol.errors import (
    DisagreementError,
    JoinRefusedError,
    JoinTimeoutError,
    PeerLostError,
    StallError,
    SwitchUnreachableError,
    WiresumError,
)
from switch.ports import UdpSwitch
from switch.server import SoftwareSwitch
from switch.tree.children import Children
from tests.rank_process import RankProcess
from tests.ranks import Rank, errors, fresh_job, texts
from tests.trees import THREE_LEVELS, TWO_LEVELS, Tree, add, add_for_ever
from tests.waiting import wait_until

PROMPTLY = 5.0  # seconds; nobody may wait for a time-out


@pytest.fixture(scope="module")
def module_tree() -> Iterator[Tree]:
    with Tree(THREE_LEVELS, right={"total_slots": 1024}) as tree:
        yield tree


@pytest.fixture
def tree(module_tree: Tree) -> Iterator[Tree]:
    """Four switches: right and middle below root, low below middle. After the test, they serve on."""
    yield module_tree
    module_tree.wait_until_idle()
    module_tree.run(["low", "right", "middle", "root"], add)
    module_tree.wait_until_idle()
    for name in module_tree.switches:
        with closing(ControlClient(module_tree.address(name))) as client:
            assert client.info.free_slots == client.info.total_slots


# Joining


def test_what_a_leaf_offers_is_its_own_and_the_roots(tree: Tree) -> None:
    for name in tree.switches:
        with closing(ControlClient(tree.address(name))) as client:
            assert client.info.data_port == tree[name].data_address[1]
            assert client.info.total_slots == (1024 if name == "right" else 65536)

    def most_ranks(name: str) -> int:
        with closing(ControlClient(tree.address(name))) as client:
            return client.info.max_ranks

    everywhere = 30 + 32 + (31 + 32)
    # The root learns last of a leaf that is not right below it.
    wait_until(lambda: [most_ranks(name) for name in tree.switches] == [everywhere] * 4, "not all leaves are known")


def test_two_jobs_at_once_have_numbers_of_their_own_at_each_switch(tree: Tree) -> None:
    def body(communicator: Communicator) -> None:
        add(communicator)
        if communicator.rank == 0:
            tree.run(["right", "middle"], add)
            tree.run(["middle"], add)
        add(communicator)

    first = tree.start(["low", "right"], body)
    second = tree.start(["right", "root", "low"], body)
    assert errors(first + second) == [None] * 5


def test_a_rank_that_never_joins_is_named(tree: Tree) -> None:
    ranks = tree.start(["low", "", "right", "", "root"], add, join_timeout=0.7)
    for said in texts(ranks, JoinTimeoutError):
        assert re.search(r"of 5 ranks joined within 0.7 s; missing: rank 1, rank 3", said)


def test_a_rank_that_is_there_twice_is_refused_wherever(tree: Tree) -> None:
    job = fresh_job()
    (first,) = tree.start(["low"], add, job=job, world_size=2)
    wait_until(lambda: tree["root"].jobs(), "rank 0 did not join")
    for name in tree.switches:
        (said,) = texts(tree.start([name], add, job=job, world_size=2), JoinRefusedError)
        assert f"rank 0 of job '{job}' is taken by 127.0.0.1:" in said
    (said,) = texts(tree.start(["", "right"], add, job=job, world_size=3), JoinRefusedError)
    assert "world size 3" in said
    (second,) = tree.start(["", "right"], add, job=job, world_size=2)
    assert errors([first, second]) == [None, None]


def test_a_job_that_does_not_fit_is_told_which_switch_is_full(tree: Tree) -> None:
    job = fresh_job()
    (said,) = texts(tree.start(["right"], add, job=job, slots=2048), JoinRefusedError)
    leaf = tree.address("right")
    assert said == (
        f"job '{job}' wants 2048 slots of 256 values, which takes 2048 slots of 256, and the leaf switch at {leaf} has "
        "1024 of 1024 free; taken: none"
    )

    with Tree(TWO_LEVELS, root={"total_slots": 512}) as small:
        (said,) = texts(small.start(["left"], add, job=job, slots=2048), JoinRefusedError)
        root = small.address("root")
        assert said == (
            f"the parent switch at {root}: job '{job}' wants 2048 slots of 256 values, which takes 2048 slots of 256, "
            "and the switch has 512 of 512 free; taken: none"
        )


def test_the_pool_is_one_that_all_switches_have_room_for(tree: Tree) -> None:
    def slots(communicator: Communicator) -> int:
        add(communicator)
        return communicator.slots

    assert set(tree.run(["low", "middle"], slots, slots=2048)) == {2048}
    assert set(tree.run(["low", "right"], slots)) == {512}
    ranks = tree.start(["low"], slots, job="limited", world_size=2, slots=2048)
    ranks += tree.start(["", "right"], slots, job="limited", world_size=2)
    assert errors(ranks) == [None, None]
    assert {rank.result for rank in ranks} == {1024}


def test_a_switch_that_cannot_take_a_job_ends_it_everywhere_with_its_reason(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = UdpSwitch.add_job

    def refuse(self: UdpSwitch, spec: object) -> None:
        if self.address == tree[unwilling].data_address:
            raise WiresumError("table full")
        install(self, spec)  # type: ignore[arg-type]

    for unwilling in ("low", "middle", "right", "root"):
        with monkeypatch.context() as patch:
            patch.setattr(UdpSwitch, "add_job", refuse)
            for said in texts(tree.start(["low", "middle", "right", "root"], add), JoinRefusedError):
                assert "could not set up job" in said
                assert "table full" in said
                assert unwilling == "root" or tree.address(unwilling) in said


def test_more_ranks_than_the_tree_takes(tree: Tree) -> None:
    ranks = tree.start(["low", "root"], add, world_size=126)
    for said in texts(ranks, JoinRefusedError):
        assert "asks for 126 ranks, and this switch takes from 1 to 125" in said


@pytest.mark.parametrize("crowded", ["root", "left"])
def test_more_ranks_than_one_switch_takes_directly(crowded: str) -> None:
    """All of them hear of it, and those at other switches, too."""
    with Tree(TWO_LEVELS) as tree:
        ranks = tree.start([crowded] * 33 + ["right"], add, job="crowd")
        where, below = ("the switch", 34) if crowded == "root" else (f"the leaf switch at {tree.address('left')}", 33)
        for said in texts(ranks, JoinRefusedError):
            assert f"job 'crowd' has {below} workers and leaf switches directly below {where}, " in said
            assert "which takes at most 32" in said
        tree.wait_until_idle()
        tree.run(["left", "right", "root"], add, job="crowd")


def test_a_leaf_without_its_parent_does_not_start() -> None:
    with pytest.raises(SwitchUnreachableError, match=r"parent switch's control service at 127\.0\.0\.1:1: conn"):
        SoftwareSwitch(port=0, control_port=0, parent="127.0.0.1:1")
    with pytest.raises(ValueError, match="HOST:PORT"):
        SoftwareSwitch(port=0, control_port=0, parent="127.0.0.1:none")


@pytest.fixture
def mute() -> Iterator[socket.socket]:
    """Something that listens and does not speak gRPC."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_parent_that_is_no_switch(mute: socket.socket) -> None:
    host, port = mute.getsockname()
    with pytest.raises(SwitchUnreachableError, match=rf"at {host}:{port}: no control service answers there: .*; start"):
        SoftwareSwitch(port=0, control_port=0, parent=f"{host}:{port}")


@pytest.mark.parametrize("bind", ["127.0.0.1", "0.0.0.0"])
def test_a_switch_is_not_its_own_parent(bind: str, mute: socket.socket) -> None:
    _, port = mute.getsockname()
    mute.close()
    with pytest.raises(SwitchUnreachableError, match=rf"cannot be its own parent: 127\.0\.0\.1:{port} is "):
        SoftwareSwitch(bind=bind, port=0, control_port=port, parent=f"127.0.0.1:{port}")


# Leaving


def test_a_rank_may_leave_while_others_go_on_without_it(tree: Tree) -> None:
    def body(communicator: Communicator) -> None:
        add(communicator)
        if communicator.rank:
            time.sleep(0.3)  # the first has left, and nobody minds
            assert communicator.statistics()["packets_received"] > 0

    tree.run(["low", "right", "low"], body)


@pytest.mark.parametrize("places", [["low", "low", "right"], ["right", "low", "low"], ["root", "right", "low"]])
def test_a_rank_that_left_ends_the_job_once_another_waits_for_it(tree: Tree, places: list[str]) -> None:
    def body(communicator: Communicator) -> None:
        add(communicator)
        if communicator.rank:
            add(communicator)

    first, *others = tree.start(places, body)
    for said in texts(others, PeerLostError):
        assert re.fullmatch(r"rank 0 \(127.0.0.1:\d+\) left job 'job-\d+' while other ranks wait for it", said)
    assert errors([first]) == [None]


# Dying


@pytest.mark.parametrize("places", [["low", "low", "right"], ["root", "right", "low"]])
def test_a_worker_killed_is_named_on_all_racks_at_once(tree: Tree, places: list[str]) -> None:
    job = fresh_job()
    dying = RankProcess("sum_for_ever", tree.address("low"), job=job, rank=3, world_size=4)
    ranks = tree.start(places, add_for_ever, job=job, world_size=4)
    with dying:
        dying.expect("summed")
        dying.kill()
        killed = time.monotonic()
        for said in texts(ranks, PeerLostError):
            assert re.match(rf"rank 3 \(127\.0\.0\.1:\d+\) of job '{job}' died", said)
        assert time.monotonic() - killed < PROMPTLY


def test_a_worker_that_dies_while_it_waits_frees_its_place(tree: Tree) -> None:
    job = fresh_job()
    with RankProcess("sum_once", tree.address("low"), job=job, rank=0, world_size=2) as process:
        wait_until(lambda: tree["root"].jobs(), "rank 0 did not join")
        process.kill()
    tree.wait_until_idle()
    tree.run(["right", "low"], add, job=job)


# Disagreement and stalls


def test_ranks_that_disagree_are_all_shown(tree: Tree) -> None:
    def body(communicator: Communicator) -> None:
        add(communicator)
        communicator.all_reduce(np.ones(1000 + communicator.rank // 2, np.float32))
        communicator.barrier()

    for said in texts(tree.start(["low", "right", "middle", "root"], body), DisagreementError):
        assert "ranks 0, 1: all_reduce #1: sum of 1000 float32" in said
        assert "ranks 2, 3: all_reduce #1: sum of 1001 float32" in said


@pytest.mark.parametrize("silent", [0, 1, 2, 3, 4])
def test_a_stall_names_the_ranks_that_are_missing_wherever_they_are(tree: Tree, silent: int) -> None:
    places = ["low", "low", "middle", "right", "root"]

    def body(communicator: Communicator) -> None:
        communicator.barrier()
        if communicator.rank == silent:
            for rank in ranks:
                if rank.name != f"rank {silent}":
                    rank.join()
            return
        communicator.all_reduce(np.ones(600, np.int32))

    ranks: list[Rank] = []
    ranks += tree.start(places, body, timeout=0.5)
    others = [rank for rank in ranks if rank.name != f"rank {silent}"]
    for error in errors(others):
        assert isinstance(error, StallError)
        assert f"the switch waits for rank {silent} (127.0.0.1:" in str(error)
        seen = ", ".join(str(rank) for rank in range(5) if rank != silent)
        assert f"has ranks {seen} and lacks rank {silent}" in str(error)
    assert errors(ranks).count(None) == 1


def test_a_leaf_that_attaches_again_counts_once() -> None:
    """Whenever the switches below it change, a leaf opens a new stream before it closes the old one."""

    async def scenario() -> None:
        counts: list[int] = []
        children = Children(lambda: counts.append(children.max_ranks))
        streams = []
        for most in (MAX_RANKS, MAX_RANKS + 1, 3 * MAX_RANKS):
            streams.append(children.attach(pb.AttachRequest(name="leaf", max_ranks=most, run=7)))
            assert (await anext(streams[-1])).HasField("attached")
        other = children.attach(pb.AttachRequest(name="leaf", max_ranks=2, run=8))
        assert (await anext(other)).HasField("attached")
        below = MAX_RANKS - 1
        assert counts == [
            below + MAX_RANKS,
            below + MAX_RANKS + 1,
            below + 3 * MAX_RANKS,
            below - 1 + 3 * MAX_RANKS + 2,
        ]
        for old in streams[:2]:  # have been told to end, and the newest is not taken for them
            assert [event async for event in old] == []
        await other.aclose()
        assert counts[4:] == [below + 3 * MAX_RANKS]
        await streams[-1].aclose()
        assert counts[5:] == [MAX_RANKS]

    asyncio.run(scenario())
