"""DDP and FSDP over the backend: what trains with Gloo trains with the switch, to the same weights."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.parallel import DistributedDataParallel

from host.pytorch.backend import WiresumGroup
from host.pytorch.hook import DDPState, ddp_hook
from tests.pytorch_pool import Rank, WorkerPool, bits

STEPS = 4
DATA = 8  # samples of each rank


class Network(nn.Module):
    """Three layers, the middle one of which a rank may leave out."""

    def __init__(self, dtypes: tuple[torch.dtype, ...] = (torch.float32,) * 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Linear(12, 40, dtype=dtypes[0]),
                nn.Linear(40, 40, dtype=dtypes[1]),
                nn.Linear(40, 3, dtype=dtypes[2]),
            ]
        )
        self.norm = nn.BatchNorm1d(40)

    def forward(self, x: Tensor, skip: bool = False) -> Tensor:
        for number, layer in enumerate(self.layers):
            if number == 1:
                x = self.norm(x.float())
                if skip:
                    continue
            x = layer(x.to(layer.weight.dtype))  # type: ignore[arg-type]
            x = torch.tanh(x)
        return x.float()


Setup = Callable[[Rank, nn.Module], DistributedDataParallel]

MIXED = (torch.float32, torch.bfloat16, torch.float16)
DOUBLE = (torch.float64, torch.float32, torch.float64)


def plain(_: Rank, model: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(model)


def small_buckets(_: Rank, model: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(model, bucket_cap_mb=1e-3)


def unused(_: Rank, model: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(model, find_unused_parameters=True)


def static_graph(_: Rank, model: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(model, static_graph=True)


def bucket_view(_: Rank, model: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def fp16(_: Rank, model: nn.Module) -> DistributedDataParallel:
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return ddp


def power_sgd(_: Rank, model: nn.Module) -> DistributedDataParallel:
    ddp = DistributedDataParallel(model)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return ddp


def our_hook(me: Rank, model: nn.Module) -> DistributedDataParallel:
    ddp = DistributedDataParallel(model, bucket_cap_mb=1e-3)
    ddp.register_comm_hook(DDPState(switch=me.switch), ddp_hook)
    return ddp


def batches(me: Rank) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(me.rank)
    return [
        (torch.randn(DATA, 12, generator=generator), torch.randn(DATA, 3, generator=generator))
        for _ in range(2 * STEPS)
    ]


def train(me: Rank, backend: str, setup: Setup, dtypes: tuple[torch.dtype, ...], no_sync: bool) -> list[Tensor]:
    """Trains in a group of its own, and returns the parameters."""
    torch.manual_seed(1)
    model = Network(dtypes)
    with me.group(backend, part=backend) as group:
        ddp = setup(me, model)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        data = iter(batches(me))
        for _ in range(STEPS):
            if no_sync:
                with ddp.no_sync():
                    x, y = next(data)
                    (ddp(x) - y).square().mean().backward()
            x, y = next(data)
            (ddp(x, skip=setup is unused and me.rank % 2 == 1) - y).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if backend == "wiresum" and setup is not our_hook:
            assert isinstance(group, WiresumGroup)
            assert group.statistics()["packets_sent"] > STEPS
    return [parameter.detach().clone() for parameter in model.parameters()]


def same_as_gloo(me: Rank, setup: Setup, dtypes: tuple[torch.dtype, ...], no_sync: bool) -> list[bytes]:
    ours, theirs = (train(me, backend, setup, dtypes, no_sync) for backend in ("wiresum", "gloo"))
    for mine, other in zip(ours, theirs, strict=True):
        tolerance = 1e-5 if mine.dtype in (torch.float32, torch.float64, torch.int64) else 1e-2
        if torch.float16 in dtypes or setup is fp16:
            tolerance = 1e-2
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
    return [bits(tensor) for tensor in ours]


FP32 = (torch.float32,) * 3


@pytest.mark.parametrize(
    ("setup", "dtypes", "no_sync"),
    [
        pytest.param(plain, FP32, False, id="plain"),
        pytest.param(small_buckets, FP32, False, id="small buckets"),
        pytest.param(unused, FP32, False, id="unused parameters"),
        pytest.param(static_graph, FP32, False, id="static graph"),
        pytest.param(bucket_view, FP32, False, id="gradient_as_bucket_view"),
        pytest.param(plain, FP32, True, id="no_sync"),
        pytest.param(plain, MIXED, False, id="float32, bfloat16, float16"),
        pytest.param(plain, DOUBLE, False, id="float64 and float32"),
        pytest.param(fp16, FP32, False, id="fp16 hook"),
        pytest.param(our_hook, FP32, False, id="our own hook"),
        pytest.param(power_sgd, FP32, False, id="PowerSGD hook"),
    ],
)
def test_ddp(torch_workers: WorkerPool, setup: Setup, dtypes: tuple[torch.dtype, ...], no_sync: bool) -> None:
    first, *others = torch_workers.run(same_as_gloo, setup, dtypes, no_sync)
    assert all(other == first for other in others)


def uneven(me: Rank) -> list[bytes]:
    with me.group():
        torch.manual_seed(1)
        model = nn.Linear(12, 3)
        ddp = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        with ddp.join():
            for x, y in batches(me)[: 1 + me.rank]:
                (ddp(x) - y).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        dist.barrier()
    return [bits(parameter) for parameter in model.parameters()]


def test_ddp_with_uneven_inputs(torch_workers: WorkerPool) -> None:
    first, *others = torch_workers.run(uneven)
    assert all(other == first for other in others)


# Meshes.


def mesh(me: Rank) -> list[str]:
    with me.group() as world:
        assert isinstance(world, WiresumGroup)
        whole = init_device_mesh("cpu", (me.size,))
        assert whole.get_group() is world
        square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        names = [world.connect().job]
        for axis, expected in (("dp", me.rank % 2 * 2 + 2), ("tp", me.rank // 2 * 4 + 1)):
            group = square.get_group(axis)
            assert isinstance(group, WiresumGroup)
            tensor = torch.tensor([float(me.rank)])
            dist.all_reduce(tensor, group=group)
            assert tensor == expected
            names.append(group.connect().job)
        partial = DTensor.from_local(torch.ones(5), square["dp"], [Partial()])
        assert partial.redistribute(placements=[Replicate()]).to_local().tolist() == [2] * 5
    return names


def test_device_mesh(torch_workers: WorkerPool) -> None:
    names = torch_workers.run(mesh)
    assert names[0][1] == names[2][1] != names[1][1] == names[3][1]
    assert names[0][2] == names[1][2] != names[2][2] == names[3][2]


def sharded(me: Rank, backend: str, dimensions: tuple[int, ...], reduce_dtype: torch.dtype | None) -> list[Tensor]:
    torch.manual_seed(1)
    with me.group(backend, part=backend):
        axes = ("replicate", "shard")[-len(dimensions) :]
        shape = init_device_mesh("cpu", dimensions, mesh_dim_names=axes)
        model = nn.Sequential(nn.Linear(12, 40), nn.Tanh(), nn.Linear(40, 3))
        policy = MixedPrecisionPolicy(reduce_dtype=reduce_dtype)
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=shape, mp_policy=policy)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches(me)[:STEPS]:
            (model(x) - y).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if backend == "wiresum" and len(dimensions) == 2:
            group = shape.get_group("replicate")
            assert isinstance(group, WiresumGroup)
            assert group.statistics()["packets_sent"] > 0  # the sums across replicas go through the switch
        return [parameter.full_tensor() for parameter in model.parameters()]  # type: ignore[attr-defined]


def sharded_like_gloo(me: Rank, dimensions: tuple[int, ...], reduce_dtype: torch.dtype | None) -> list[bytes]:
    ours, theirs = (sharded(me, backend, dimensions, reduce_dtype) for backend in ("wiresum", "gloo"))
    tolerance = 1e-2 if reduce_dtype == torch.float16 else 1e-5
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)
    return [bits(tensor) for tensor in ours]


@pytest.mark.parametrize(
    ("dimensions", "reduce_dtype"),
    [
        pytest.param((4,), None, id="one axis"),
        pytest.param((2, 2), None, id="replicas of shards"),
        pytest.param((2, 2), torch.float16, id="replicas of shards, float16"),
    ],
)
def test_fully_shard(torch_workers: WorkerPool, dimensions: tuple[int, ...], reduce_dtype: torch.dtype | None) -> None:
    first, *others = torch_workers.run(sharded_like_gloo, dimensions, reduce_dtype)
    assert all(other == first for other in others)
