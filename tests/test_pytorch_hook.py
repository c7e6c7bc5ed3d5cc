"""The DDP hook over a group of plain Gloo: averages, failures that training survives, pickling."""

import io
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from host.pytorch.fallback import FallbackWarning
from host.pytorch.hook import DDPState, ddp_hook
from protocol.errors import DisagreementError
from tests.pytorch_pool import Rank, WorkerPool, bits, recorded


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def backward(ddp: DistributedDataParallel, me: Rank, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """One backward pass on data that differs from rank to rank."""
    ddp.zero_grad()
    x = torch.randn(5, 30, generator=torch.Generator().manual_seed(me.rank)).to(dtype)
    ddp(x).float().square().sum().backward()
    return gradients(ddp)


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(30, 50), nn.Tanh(), nn.Linear(50, 4)).to(dtype)


def averages(me: Rank, dtype: torch.dtype) -> list[bytes]:
    with me.group("gloo"):
        with_gloo = backward(DistributedDataParallel(model(dtype)), me, dtype)
        ddp = DistributedDataParallel(model(dtype), bucket_cap_mb=1e-3)
        state = DDPState(switch=me.switch, values_per_packet=64, slots=16)
        ddp.register_comm_hook(state, ddp_hook)
        for _ in range(3):  # buckets are rebuilt after the first pass
            with_hook = backward(ddp, me, dtype)
        counters = state.statistics()
        assert counters["packets_sent"] >= 3 * 1754 / 64
        communicator = state.connect()
        assert communicator is not None
        assert (communicator.values_per_packet, communicator.slots) == (64, 16)
        state.close()
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for ours, theirs in zip(with_hook, with_gloo, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    return [bits(tensor) for tensor in with_hook]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_hook_averages_gradients(torch_workers: WorkerPool, dtype: torch.dtype) -> None:
    first, *others = torch_workers.run(averages, dtype)
    assert all(other == first for other in others)


def not_a_number(me: Rank) -> None:
    with me.group("gloo"):
        ddp = DistributedDataParallel(nn.Linear(3, 1))
        state = DDPState(switch=me.switch)
        ddp.register_comm_hook(state, ddp_hook)
        x = torch.ones(1, 3)
        if me.rank == 1:
            x[0, 0] = float("inf")
        ddp(x).sum().backward()
        assert all(grad.isnan().any() for grad in gradients(ddp)[:1])  # a gradient scaler sees it on every rank
        state.close()


def test_gradient_that_is_not_finite_is_seen_on_every_rank(torch_workers: WorkerPool) -> None:
    torch_workers.run(not_a_number)


def float64(me: Rank, fallback: str | None) -> list[str]:
    with me.group("gloo"):
        with_gloo = backward(DistributedDataParallel(model(torch.float64)), me, torch.float64)
        ddp = DistributedDataParallel(model(torch.float64))
        state = DDPState(switch=me.switch, fallback=fallback)
        ddp.register_comm_hook(state, ddp_hook)
        if fallback == "raise":
            for _ in range(2):
                with pytest.raises(RuntimeError, match="averaging gradients of float64: the switch adds float32"):
                    backward(ddp, me, torch.float64)
            return []
        with recorded() as caught:
            for _ in range(2):
                for ours, theirs in zip(backward(ddp, me, torch.float64), with_gloo, strict=True):
                    torch.testing.assert_close(ours, theirs)
        assert state.statistics() == {}
        return [str(w.message) for w in caught if w.category is FallbackWarning]


def test_bucket_that_the_switch_cannot_add(torch_workers: WorkerPool) -> None:
    for said in torch_workers.run(float64, None):
        assert len(said) == 1
        assert "averaging gradients of float64" in said[0]
        assert "the process group" in said[0]
    assert torch_workers.run(float64, "silent") == [[]] * 4
    torch_workers.run(float64, "raise")


def failures(me: Rank) -> None:
    with me.group("gloo"):
        ddp = DistributedDataParallel(model(), bucket_cap_mb=1e-3)
        state = DDPState(switch="127.0.0.1:1")
        ddp.register_comm_hook(state, ddp_hook)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"SwitchUnreachableError.*127\.0\.0\.1:1"):
                backward(ddp, me)
        # DDP has survived, and the state can be pointed at another switch.
        state.options = DDPState(switch=me.switch).options
        state.close()
        good = backward(ddp, me)

        communicator = state.connect()
        assert communicator is not None
        if me.rank == 1:
            with pytest.raises(DisagreementError):
                communicator.all_reduce(torch.ones(1).numpy())
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"rank 1: all_reduce #\d+: sum of 1 float32"):
                backward(ddp, me)
        dist.barrier()
        state.close()
        assert all(map(torch.equal, backward(ddp, me), good))
        state.close()


def test_failures_reach_the_script_and_leave_ddp_usable(torch_workers: WorkerPool) -> None:
    torch_workers.run(failures)


def pickled(me: Rank) -> list[str]:
    jobs = []

    def connected(state: DDPState) -> list[torch.Tensor]:
        ddp = DistributedDataParallel(model())
        ddp.register_comm_hook(state, ddp_hook)
        result = backward(ddp, me)
        communicator = state.connect()
        assert communicator is not None
        jobs.append(communicator.job)
        return result

    with me.group("gloo") as group:
        state = DDPState(switch=me.switch, timeout=20.0)
        first = connected(state)
        checkpoint = io.BytesIO()
        torch.save({"hook": state}, checkpoint)
        checkpoint.seek(0)
        loaded = torch.load(checkpoint, weights_only=False)["hook"]
        assert loaded.timeout == 20.0
        assert loaded.statistics() == {}
        assert all(map(torch.equal, connected(loaded), first))  # both connections stand side by side
        state.close()
        loaded.close()

        with_group = DDPState(group, switch=me.switch, job="chosen")
        checkpoint = io.BytesIO()
        with pytest.warns(UserWarning, match="process group cannot be pickled"):
            torch.save(with_group, checkpoint)
        checkpoint.seek(0)
        loaded = torch.load(checkpoint, weights_only=False)
        assert loaded.process_group is None
        assert all(map(torch.equal, connected(loaded), first))
        loaded.close()
    return jobs


def test_state_in_a_checkpoint_connects_anew(torch_workers: WorkerPool) -> None:
    answers = torch_workers.run(pickled)
    assert all(jobs == answers[0] for jobs in answers)
    fresh, loaded, chosen = answers[0]
    assert fresh != loaded
    assert chosen == "chosen"


def half(me: Rank) -> None:
    with me.group("gloo"):
        groups: list[Any] = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine = groups[me.rank // 2]
        ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False), process_group=mine)
        state = DDPState(mine, switch=me.switch)
        ddp.register_comm_hook(state, ddp_hook)
        ddp(torch.tensor([[float(me.rank)]])).sum().backward()
        assert gradients(ddp)[0].item() == (0.5, 2.5)[me.rank // 2]
        state.close()
        alone = DDPState(switch="127.0.0.1:1", rank=0, world_size=1)  # one rank needs no switch
        ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False))
        ddp.register_comm_hook(alone, ddp_hook)
        ddp(torch.tensor([[float(me.rank)]])).sum().backward()
        assert gradients(ddp)[0].item() == me.rank
        assert alone.connect() is None


def test_hook_in_a_group_that_is_not_the_default_one(torch_workers: WorkerPool) -> None:
    torch_workers.run(half)


def test_state_without_torch_distributed(torch_switch: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match="process group has not been initialized"):
        DDPState(switch=torch_switch).connect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = DDPState(switch=torch_switch, job="here", rank=0, world_size=2, join_timeout=0.5)
        with pytest.raises(Exception, match="rank"):
            state.connect()
