"""Groups of backend "wiresum": default and sub, their jobs, and what happens when things fail."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from host.pytorch.backend import WiresumGroup
from host.pytorch.options import BackendOptions
from protocol.errors import ClosedError, DisagreementError, PeerLostError, SwitchUnreachableError, WiresumError
from tests.pytorch_pool import Rank, WorkerPool


def subgroups(me: Rank) -> list[str | None]:
    with me.group() as world:
        assert isinstance(world, WiresumGroup)
        halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        odd = dist.new_group([1, 3])
        mine = halves[me.rank // 2]
        assert isinstance(mine, WiresumGroup)
        assert mine.statistics() == {}  # no slots taken yet
        names: list[str | None] = [world.connect().job]
        for group in (mine, odd):
            if group is dist.GroupMember.NON_GROUP_MEMBER:
                names.append(None)
                continue
            tensor = torch.tensor([float(me.rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor.item() == sum(dist.get_process_group_ranks(group))
            assert group.size() == 2
            names.append(group.connect().job)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor == me.size
        dist.destroy_process_group(mine)
        dist.all_reduce(tensor)  # the others live on
        assert tensor == me.size**2
    return names


def test_subgroups_have_jobs_of_their_own(torch_workers: WorkerPool) -> None:
    names = torch_workers.run(subgroups)
    assert len({default for default, _, _ in names}) == 1
    assert names[0][1] == names[1][1] != names[2][1] == names[3][1]
    assert names[1][2] == names[3][2]
    assert len({name for row in names for name in row if name}) == 4


def named(me: Rank) -> tuple[str, str]:
    with me.group(job="mine") as world:
        group = dist.new_group(list(range(me.size)))
        assert isinstance(world, WiresumGroup)
        assert isinstance(group, WiresumGroup)
        return world.connect().job, group.connect().job


def test_chosen_job_name(torch_workers: WorkerPool) -> None:
    answers = torch_workers.run(named)
    assert set(answers) == {answers[0]}
    default, sub = answers[0]
    assert default == "mine"
    assert sub.startswith("mine/")


def beside_gloo(me: Rank) -> None:
    with me.group("gloo"):
        assert dist.get_backend() == "gloo"
        with pytest.raises(ValueError, match="needs a switch: set WIRESUM_SWITCH"):
            dist.new_group(list(range(me.size)), backend="wiresum")
        options = BackendOptions(switch=me.switch, values_per_packet=64)
        group = dist.new_group(list(range(me.size)), backend="wiresum", pg_options=options)
        assert dist.get_backend(group) == "wiresum"
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [me.size] * 3
        dist.destroy_process_group(group)


def test_wiresum_group_in_a_gloo_run(torch_workers: WorkerPool) -> None:
    torch_workers.run(beside_gloo)


def alone(me: Rank) -> None:
    with me.group():
        group: Any = dist.new_group([0])
        if me.rank == 0:
            tensor = torch.tensor([1.0, float("nan"), 3.0])
            dist.all_reduce(tensor, group=group)
            dist.all_reduce(tensor, group=group, op=dist.ReduceOp.AVG)
            assert tensor[0] == 1
            assert tensor[2] == 3
            assert group.statistics() == {}
        dist.barrier()


def test_group_of_one_rank_needs_no_switch(torch_workers: WorkerPool) -> None:
    torch_workers.run(alone)
    code = (
        "import host.pytorch.registration as r; r.register(); import torch, torch.distributed as d;"
        "d.init_process_group('cpu:wiresum', store=d.HashStore(), rank=0, world_size=1); t = torch.ones(2);"
        "d.all_reduce(t); assert t.tolist() == [1, 1]; m = torch.nn.Linear(2, 2);"
        "torch.nn.parallel.DistributedDataParallel(m)(t).sum().backward()"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WIRESUM_")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def disagreement(me: Rank) -> list[str]:
    texts = []
    with me.group():
        with pytest.raises(DisagreementError) as caught:
            dist.all_reduce(torch.ones(3 + me.rank))
        texts.append(str(caught.value))
        work = dist.all_reduce(torch.ones(3), async_op=True)  # the job is over
        with pytest.raises(DisagreementError):
            work.wait()
        assert isinstance(work.exception(), DisagreementError)
        with pytest.raises(RuntimeError, match="disagree"):
            work.get_future().wait()
        dist.barrier()  # what goes over Gloo still works
    with me.group():  # the same store: the first group's leftovers must do no harm
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [me.size] * 3
    return texts


def test_ranks_that_disagree_are_told_and_can_make_a_new_group(torch_workers: WorkerPool) -> None:
    for (text,) in torch_workers.run(disagreement):
        for rank in range(4):
            assert f"rank {rank}: all_reduce #0: sum of {3 + rank} float32" in text


def ddp_disagreement(me: Rank) -> None:
    with me.group():
        ddp = DistributedDataParallel(nn.Linear(2, 2))
        if me.rank == 1:
            with pytest.raises(DisagreementError):
                dist.all_reduce(torch.ones(1))
        for _ in range(2):
            with pytest.raises(RuntimeError, match="rank 1: all_reduce #0: sum of 1 float32"):
                ddp(torch.ones(1, 2)).sum().backward()
    with me.group():
        ddp = DistributedDataParallel(nn.Linear(2, 2))
        ddp(torch.ones(1, 2)).sum().backward()


def test_failure_under_ddp_reaches_the_script(torch_workers: WorkerPool) -> None:
    torch_workers.run(ddp_disagreement)


def late(me: Rank) -> str:
    with me.group(seconds=2.0):
        dist.all_reduce(torch.ones(1))
        if me.rank == 2:
            me.store("stalled").wait(["0", "1", "3"])
        with pytest.raises(WiresumError) as caught:
            dist.all_reduce(torch.ones(1))
        me.store("stalled").set(str(me.rank), "")
    return f"{type(caught.value).__name__}: {caught.value}"


def test_rank_that_does_not_take_part_is_named(torch_workers: WorkerPool) -> None:
    told = torch_workers.run(late)
    for rank in (0, 1, 3):
        assert "StallError" in told[rank]
        assert re.search(r"rank 2\b", told[rank])


def wrong_address(me: Rank) -> float:
    started = time.monotonic()
    with pytest.raises(SwitchUnreachableError, match=r"127\.0\.0\.1:1"), me.group(switch="127.0.0.1:1"):
        pass
    took = time.monotonic() - started
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="WIRESUM_SWITCH"), me.group(switch="", part="none"):
        pass
    with pytest.raises(TypeError, match=r"must be a wiresum\.BackendOptions, not 'slots=3'"):
        dist.init_process_group(
            "wiresum", store=me.store("bad"), rank=me.rank, world_size=me.size, pg_options="slots=3"
        )
    with me.group(part="again"):
        dist.all_reduce(torch.ones(1))
    return took


def test_wrong_address_is_known_in_seconds(torch_workers: WorkerPool) -> None:
    assert max(torch_workers.run(wrong_address)) < 15


def closed(me: Rank) -> None:
    with me.group() as world:
        assert isinstance(world, WiresumGroup)
        group = dist.new_group(list(range(me.size)))
        dist.all_reduce(torch.ones(1), group=group)
        dist.barrier()
        dist.destroy_process_group(group)
        group.shutdown()
        with pytest.raises(ClosedError, match="is closed"):
            group.allreduce([torch.ones(1)]).wait()


def test_group_that_was_closed(torch_workers: WorkerPool) -> None:
    torch_workers.run(closed)


def absent(me: Rank) -> str:
    if me.rank == 2:
        return "did not come"
    with pytest.raises(WiresumError) as caught, me.group(seconds=2.0):
        pass
    return str(caught.value)


def test_rank_that_never_comes_is_named(torch_workers: WorkerPool) -> None:
    told = torch_workers.run(absent)
    for rank in (0, 1, 3):
        assert "2" in told[rank]
        assert "rank" in told[rank]


def forever(call: Callable[[], object]) -> None:
    while True:
        call()


def until_lost(me: Rank) -> str:
    with me.group():
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        me.store("up").set(str(me.rank), "")
        with pytest.raises(PeerLostError) as caught:
            forever(lambda: dist.all_reduce(tensor, op=dist.ReduceOp.AVG))
    return str(caught.value)


def test_worker_that_is_killed_is_named(torch_switch: str) -> None:
    with WorkerPool(3, torch_switch) as workers:
        workers.start(until_lost)
        workers.store(1, "up").wait(["0", "1", "2"])
        victim = workers.processes[1].pid
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        for text in workers.results(but=(1,)):
            assert "rank 1" in text


SCRIPT = """
import sys, torch, torch.distributed as dist
sys.path.insert(0, {root!r})
from host.pytorch.registration import register
register()
dist.init_process_group("wiresum", store=dist.FileStore({store!r}, 2), rank=int(sys.argv[1]), world_size=2)
tensor = torch.ones(1000)
for _ in range(20):
    dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
dist.all_reduce(tensor)
assert tensor.eq(2).all()
group = dist.new_group([0, 1])
dist.all_reduce(tensor, group=group, async_op=True).wait()
assert tensor.eq(4).all()
if {destroy}:
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("destroy", [True, False])
def test_scripts_end_without_a_word(torch_switch: str, tmp_path: Path, destroy: bool) -> None:
    root = os.path.dirname(os.path.dirname(__file__))
    code = SCRIPT.format(root=root, store=str(tmp_path / "store"), destroy=destroy)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank)],
            env={**os.environ, "WIRESUM_SWITCH": torch_switch, "WIRESUM_FALLBACK": "silent", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    ends = [(process.communicate(timeout=60)[0], process.returncode) for process in processes]
    assert ends == [("", 0), ("", 0)]
