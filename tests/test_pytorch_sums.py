"""Sums of tensors over backend "wiresum" and a real switch."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from host.pytorch.fallback import FallbackWarning
from protocol.faults import FaultRates
from tests.pytorch_pool import Rank, WorkerPool, bits, recorded

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int16, torch.int8, torch.uint8)


def inputs(size: int, dtype: torch.dtype, elements: int = 3000) -> list[torch.Tensor]:
    """What each rank contributes; every rank can compute all of it."""
    generator = torch.Generator().manual_seed(7)
    if dtype.is_floating_point:
        return [torch.randn(elements, generator=generator).mul(10**r).to(dtype) for r in range(size)]
    bounds = torch.iinfo(dtype)
    return [torch.randint(bounds.min, bounds.max, (elements,), generator=generator, dtype=dtype) for _ in range(size)]


def bound(tensors: list[torch.Tensor], exact: torch.Tensor) -> torch.Tensor:
    """The largest error that the protocol's section 4 allows, for sums in one block."""
    ranks = len(tensors)
    exponent = max(int(torch.frexp(t.double().abs().max()).exponent) for t in tensors)
    quantized = ranks * 2.0 ** (exponent + (ranks - 1).bit_length() - 32)
    # The sum is rounded to the tensor's type once, after it was rounded to float32.
    eps = torch.finfo(tensors[0].dtype).eps
    return quantized + exact.abs() * (eps / 2 + 2.0**-24) + torch.finfo(tensors[0].dtype).tiny * eps


def sums(me: Rank) -> list[bytes]:
    results = []
    with me.group() as group:
        before = group.statistics()
        for dtype in (*FLOATS, *INTEGERS):
            all_inputs = inputs(me.size, dtype)
            tensor = all_inputs[me.rank].clone()
            dist.all_reduce(tensor)
            if dtype.is_floating_point:
                exact = torch.stack([t.double() for t in all_inputs]).sum(0)
                assert ((tensor.double() - exact).abs() <= bound(all_inputs, exact)).all(), dtype
            else:
                assert torch.equal(tensor, torch.stack(all_inputs).sum(0, dtype=torch.int64).to(dtype)), dtype
            results.append(bits(tensor))
        for dtype in FLOATS:
            all_inputs = inputs(me.size, dtype)
            tensor = all_inputs[me.rank].clone()
            dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
            exact = torch.stack([t.double() for t in all_inputs]).mean(0)
            assert ((tensor.double() - exact).abs() <= bound(all_inputs, exact)).all(), dtype
            results.append(bits(tensor))
        assert group.statistics()["bytes_sent"] - before["bytes_sent"] > 7 * 3000 * 4
    return results


def test_sums_and_averages_are_right_and_the_same_everywhere(torch_workers: WorkerPool) -> None:
    first, *others = torch_workers.run(sums)
    assert all(other == first for other in others)


def lossy(me: Rank) -> None:
    for part in range(3):
        with me.group(
            part=str(part), faults=FaultRates(loss=0.05, duplicate=0.02, reorder=0.02), fault_seed=part
        ) as group:
            for _ in range(10):
                tensor = torch.full((5000,), me.rank, dtype=torch.int32)
                dist.all_reduce(tensor)
                assert tensor.eq(sum(range(me.size))).all()
            assert group.statistics()["retransmissions"] > 0
        # Each rank leaves as soon as it has its last sum; the others must still get theirs.


def test_sums_are_exact_when_packets_are_lost(torch_workers: WorkerPool) -> None:
    torch_workers.run(lossy)


def shapes(me: Rank) -> None:
    with me.group() as group:
        scalar = torch.tensor(1.5)
        dist.all_reduce(scalar)
        assert scalar == 1.5 * me.size
        empty = torch.empty(0, 3)
        dist.all_reduce(empty)
        rows = torch.arange(24.0).reshape(4, 6)
        dist.all_reduce(rows.t()[::2])
        expected = torch.arange(24.0).reshape(4, 6)
        expected[:, ::2] *= me.size
        assert torch.equal(rows, expected)
        weight = torch.nn.Parameter(torch.ones(3))
        dist.all_reduce(weight)
        assert weight.tolist() == [me.size] * 3
        numbers = torch.full((2,), 1 + 2j)
        dist.all_reduce(numbers)  # torch shows it to us as pairs of real numbers
        assert numbers.tolist() == [me.size * (1 + 2j)] * 2
        with pytest.raises(ValueError, match=r"contiguous\(\)"):
            dist.all_reduce(torch.zeros(1).expand(2))
        with pytest.raises(TypeError, match="average of int32 is not defined"):
            dist.all_reduce(torch.zeros(1, dtype=torch.int32), op=dist.ReduceOp.AVG)
        with pytest.raises(ValueError, match="list of one tensor, not of 2"):
            group.allreduce([torch.zeros(1), torch.zeros(1)])


def test_shapes_and_bad_arguments(torch_workers: WorkerPool) -> None:
    torch_workers.run(shapes)


def asynchronous(me: Rank) -> None:
    with me.group() as group:
        big, small = torch.ones(1_000_000), torch.ones(3)
        works = [dist.all_reduce(tensor, async_op=True) for tensor in (big, small)]
        future = works[0].get_future().then(lambda done: done.value()[0].sum().item())
        assert all(work.wait() for work in works)
        assert all(work.is_completed() and work.is_success() and work.exception() is None for work in works)
        assert big.eq(me.size).all()
        assert small.tolist() == [me.size] * 3
        assert future.wait() == 1_000_000 * me.size
        value = works[1].get_future().wait()
        assert isinstance(value, list)
        assert value[0].data_ptr() == small.data_ptr()
        assert works[1].result()[0] is small
        # torch's three ways to call a group itself
        group.allreduce(small).wait()
        group.allreduce([small], dist.ReduceOp.SUM).wait()
        group.allreduce([small], op=dist.ReduceOp.AVG).wait()
        assert small.tolist() == [me.size**3] * 3
        # One rank is late, so that the others see a work that is not done.
        late = torch.ones(1)
        if me.rank == 0:
            me.store("late").wait(["go"])
        work = dist.all_reduce(late, async_op=True)
        if me.rank == 1:
            assert not work.is_completed()
            assert not work.is_success()
            with pytest.raises(TimeoutError, match=r"0\.05 s"):
                work.wait(timedelta(seconds=0.05))
            me.store("late").set("go", "")
        work.wait()
        assert late == me.size


def test_asynchronous_work(torch_workers: WorkerPool) -> None:
    torch_workers.run(asynchronous)


def several_at_once(me: Rank) -> None:
    with me.group() as group:
        tensors = [torch.full((n,), float(me.rank), dtype=torch.bfloat16) for n in (1, 700, 5)]
        total = sum(range(me.size))
        dist.all_reduce_coalesced(tensors)
        assert all(t.eq(total).all() for t in tensors)
        future = dist.all_reduce_coalesced([torch.ones(2), torch.ones(3)], async_op=True)
        assert [t.tolist() for t in future.wait()] == [[me.size] * 2, [me.size] * 3]
        with dist.distributed_c10d._coalescing_manager():
            pair = torch.ones(4), torch.ones(5)
            for tensor in pair:
                dist.all_reduce(tensor)
        assert all(t.eq(me.size).all() for t in pair)
        group.allreduce_coalesced([]).wait()
        with pytest.raises(ValueError, match="one dtype, not float16, float32"):
            group.allreduce_coalesced([torch.ones(1), torch.ones(1).half()])


def test_several_tensors_at_once(torch_workers: WorkerPool) -> None:
    torch_workers.run(several_at_once)


def functional_collectives(me: Rank) -> None:
    """The operators that torch.compile and DTensor use: they call the group from C++."""
    with me.group() as group:
        ones = torch.ones(2 * me.size)
        sent = group.statistics()["packets_sent"]
        assert torch.equal(functional.all_reduce(ones, "sum", group).clone(), ones * me.size)
        assert torch.equal(functional.all_reduce(ones, "avg", group).clone(), ones)
        first, second = functional.all_reduce_coalesced([ones, ones[:3]], "sum", group)
        assert torch.equal(first.clone(), ones * me.size)
        assert torch.equal(second.clone(), ones[:3] * me.size)
        assert group.statistics()["packets_sent"] > sent
        with recorded() as caught:
            gathered = functional.all_gather_tensor(torch.tensor([float(me.rank)]), 0, group).clone()
            scattered = functional.reduce_scatter_tensor(ones, "sum", 0, group).clone()
        assert gathered.tolist() == [float(r) for r in range(me.size)]
        assert scattered.tolist() == [me.size] * 2
        kinds = [str(w.message) for w in caught if w.category is FallbackWarning]
        assert any("reduce_scatter" in kind for kind in kinds), kinds
        assert any("all_gather" in kind for kind in kinds) == (me.rank == 0), kinds


def test_functional_collectives(torch_workers: WorkerPool) -> None:
    torch_workers.run(functional_collectives)
