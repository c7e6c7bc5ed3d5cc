"""What backend "wiresum" passes on to Gloo: the same results, one warning for each kind, or a refusal."""

import ctypes
import signal
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from host.pytorch.fallback import FallbackForbiddenError, FallbackWarning
from tests.pytorch_pool import Rank, WorkerPool, recorded


def every_collective(me: Rank, backend: str) -> list[Any]:
    """What each collective of torch.distributed gives, in the order of the calls."""
    rank, size = me.rank, me.size
    mine = torch.arange(3.0, dtype=torch.float64) + 10 * rank
    results: list[Any] = []

    def empties(n: int = size, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
        return [torch.zeros(3, dtype=dtype) for _ in range(n)]

    def keep(*values: Any) -> None:
        results.append([v.tolist() if isinstance(v, torch.Tensor) else v for v in values])

    with me.group(backend) as group:
        for op in ("SUM", "AVG", "MAX", "MIN", "PRODUCT"):
            tensor = mine.clone()
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
            keep(tensor)
        for op in ("BAND", "BOR", "BXOR"):
            tensor = torch.tensor([rank, rank + 1])
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
            keep(tensor)
        tensors = [mine.clone(), mine.clone()]
        dist.all_reduce_coalesced(tensors, op=dist.ReduceOp.MAX)
        keep(*tensors)
        tensor = mine.clone()
        dist.broadcast(tensor, src=1)
        keep(tensor)
        tensor = mine.clone()
        dist.reduce(tensor, dst=2)
        keep(tensor if rank == 2 else None)
        outs = empties()
        dist.all_gather(outs, mine)
        keep(*outs)
        flat = torch.zeros(3 * size, dtype=torch.float64)
        dist.all_gather_into_tensor(flat, mine)
        keep(flat)
        dist.all_gather_single(flat, -mine)
        keep(flat)
        lists = [[tensor] for tensor in empties()]
        dist.all_gather_coalesced(lists, [mine])
        keep(*(tensor for (tensor,) in lists))
        with dist.distributed_c10d._coalescing_manager():
            flats = [torch.zeros(3 * size, dtype=torch.float64) for _ in range(2)]
            for out in flats:
                dist.all_gather_single(out, mine)
        keep(*flats)
        gathered = empties() if rank == 0 else None
        dist.gather(mine, gathered, dst=0)
        keep(*(gathered or []))
        tensor = torch.zeros(3, dtype=torch.float64)
        dist.scatter(tensor, [mine * n for n in range(size)] if rank == 0 else None, src=0)
        keep(tensor)
        dist.reduce_scatter(tensor, [mine * n for n in range(size)])
        keep(tensor)
        dist.reduce_scatter_tensor(tensor, mine.repeat(size))
        keep(tensor)
        dist.reduce_scatter_single(tensor, mine.repeat(size))
        keep(tensor)
        outs = empties()
        dist.all_to_all(outs, [mine * n for n in range(size)])
        keep(*outs)
        flat = torch.zeros(size, dtype=torch.float64)
        dist.all_to_all_single(flat, torch.arange(float(size), dtype=torch.float64) * rank)
        keep(flat)
        tensor = torch.zeros(3, dtype=torch.float64)
        if rank == 0:
            dist.send(mine, dst=1)
        elif rank == 1:
            dist.recv(tensor, src=0)
        elif rank == 2:
            dist.isend(mine, dst=3).wait()  # type: ignore[union-attr]
        else:
            keep(dist.recv(tensor))
        keep(tensor)
        operations = [
            dist.P2POp(dist.isend, mine, (rank + 1) % size),
            dist.P2POp(dist.irecv, tensor, (rank - 1) % size),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        keep(tensor)
        objects: list[Any] = [None] * size
        dist.all_gather_object(objects, {"rank": rank})
        keep(*objects)
        objects = [rank]
        dist.broadcast_object_list(objects, src=3)
        keep(*objects)
        objects = [None]
        dist.scatter_object_list(objects, list(range(size)) if rank == 0 else None, src=0)
        keep(*objects)
        received: list[Any] | None = [None] * size if rank == 0 else None
        dist.gather_object(rank, received, dst=0)
        keep(*(received or []))
        dist.barrier()
        dist.barrier(async_op=True).wait()
        group.monitored_barrier(timedelta(seconds=10))
        sparse = torch.eye(size)[rank].to_sparse()
        dist.all_reduce(sparse)
        keep(sparse.to_dense())
        assert dist.get_backend() == backend
        assert dist.get_process_group_ranks(group) == list(range(size))
    return results


def test_every_collective_gives_what_gloo_gives(torch_workers: WorkerPool) -> None:
    assert torch_workers.run(every_collective, "wiresum") == torch_workers.run(every_collective, "gloo")


def warned(me: Rank, policy: str | None) -> list[str]:
    with me.group(fallback=policy), recorded() as caught:
        for _ in range(2):
            dist.all_reduce(torch.ones(2))
            dist.all_reduce(torch.ones(2, dtype=torch.int32))
            dist.all_reduce(torch.ones(2, dtype=torch.float64))
            dist.all_reduce(torch.ones(2, dtype=torch.int64))
            dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX)
            dist.reduce(torch.ones(2), dst=0)
            dist.broadcast(torch.ones(2), src=0)
            dist.barrier()
            if me.rank < 2:
                (dist.send if me.rank == 0 else dist.recv)(torch.ones(2), 1 - me.rank)
    messages = [w for w in caught if issubclass(w.category, FallbackWarning)]
    assert all(w.filename == __file__ for w in messages)
    return [str(w.message) for w in messages]


def test_one_warning_for_each_kind(torch_workers: WorkerPool) -> None:
    reductions = ["all_reduce of float64:", "all_reduce of int64:", "all_reduce with MAX:", "reduce:"]
    expected = [
        [*reductions, "broadcast:", "send:"],
        [*reductions, "recv:"],
        reductions,
        reductions,
    ]
    for said, words in zip(torch_workers.run(warned, None), expected, strict=True):
        assert len(said) == len(words), said
        for message, word in zip(said, words, strict=True):
            assert message.startswith(f"wiresum: {word}")
            assert "goes over Gloo" in message


def test_no_warning_when_silenced(torch_workers: WorkerPool) -> None:
    assert torch_workers.run(warned, "silent") == [[]] * 4


def forbidden(me: Rank) -> None:
    with me.group(fallback="raise"):
        for call, words in (
            (lambda: dist.all_reduce(torch.ones(2, dtype=torch.float64)), "all_reduce of float64: the switch adds"),
            (lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MIN), "all_reduce with MIN"),
            (lambda: dist.reduce(torch.ones(2), dst=0), "reduce: the switch serves all_reduce only"),
            (lambda: dist.all_to_all_single(torch.ones(me.size), torch.ones(me.size)), "all_to_all"),
            (lambda: dist.send(torch.ones(1), dst=(me.rank + 1) % me.size), "send"),
        ):
            with pytest.raises(FallbackForbiddenError, match=words):
                call()
        work = dist.all_reduce(torch.ones(2, dtype=torch.int64), async_op=True)
        assert isinstance(work.exception(), FallbackForbiddenError)
        with pytest.raises(FallbackForbiddenError, match="int64"):
            work.wait()
        # What DDP sets itself up with still works.
        dist.broadcast(torch.ones(2), src=0)
        dist.all_gather([torch.ones(2) for _ in range(me.size)], torch.ones(2))
        dist.barrier()
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [me.size] * 2


def test_fallback_can_be_forbidden(torch_workers: WorkerPool) -> None:
    torch_workers.run(forbidden)


def signal_at_death_of_parent(me: Rank) -> int:
    number = ctypes.c_int()
    assert ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0) == 0  # PR_GET_PDEATHSIG
    return number.value


def test_workers_do_not_outlive_tests_that_are_killed(torch_workers: WorkerPool) -> None:
    assert set(torch_workers.run(signal_at_death_of_parent)) == {signal.SIGKILL}
