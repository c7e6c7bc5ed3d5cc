"""One training process of the demo: a plain DistributedDataParallel script, told its backend's name.

Nothing in it is made for wiresum but the import that registers the backend and the counting of traffic. It reports by
JSON lines on standard output.
"""

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler, TensorDataset

from host.pytorch.registration import register
from wiresum.demo.models import build, flat_weights
from wiresum.demo.settings import Task
from wiresum.demo.traffic import Traffic, tcp_traffic

_COLLECTIVE_SECONDS = 60


def train(task: Task) -> Iterator[dict[str, Any]]:
    """Trains and yields an event after each epoch, and a last one with the outcome."""
    settings = task.settings
    torch.manual_seed(settings.seed)
    data = {name: torch.from_numpy(array) for name, array in np.load(task.data).items()}
    images = TensorDataset(data["train_x"], data["train_y"])
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(
        images, settings.workers, task.rank, seed=settings.seed
    )
    model = build(settings.model)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.epochs)
    dist.barrier()
    before = _traffic()
    start = perf_counter()
    for epoch in range(settings.epochs):
        sampler.set_epoch(epoch)
        losses = []
        for chosen in torch.split(torch.tensor(list(sampler)), settings.batch // settings.workers):
            x, y = images[chosen]
            loss = nn.functional.cross_entropy(parallel(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
        with torch.no_grad():
            right = model(data["test_x"]).argmax(dim=1) == data["test_y"]
        yield {
            "event": "epoch",
            "epoch": epoch + 1,
            "loss": sum(losses) / len(losses),
            "accuracy": right.double().mean().item(),
            "seconds": perf_counter() - start,
            "traffic": asdict(_traffic() - before),
        }
    weights = flat_weights(model).numpy()
    if task.flip_bit:
        weights.view(np.uint32)[0] ^= 1
    if task.rank == 0:
        np.save(task.weights, weights)
    yield {"event": "done", "digest": hashlib.sha256(weights.tobytes()).hexdigest(), "parameters": weights.size}


def _traffic() -> Traffic:
    """All that this process has sent and received so far, through the switch and over TCP."""
    group = dist.group.WORLD
    statistics = getattr(group, "statistics", dict)
    return Traffic.from_statistics(statistics()) + tcp_traffic()


def main() -> int:
    """Carries out the task on the command line; returns the exit code."""
    task = Task.from_json(sys.argv[1])

    def tell(event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    register()
    try:
        dist.init_process_group(
            task.backend,
            init_method=f"file://{task.store}",
            rank=task.rank,
            world_size=task.settings.workers,
            timeout=timedelta(seconds=_COLLECTIVE_SECONDS),
        )
        for event in train(task):
            tell(event)
        dist.barrier()  # whoever leaves early is missed
        dist.destroy_process_group()
    except Exception as error:
        text = str(error).partition("\n\nAt:\n")[0]  # torch adds a stack to what a callback raises; stderr has it
        tell({"event": "failed", "error": f"{type(error).__name__}: {text}"})
        traceback.print_exc()
        sys.stderr.flush()
        sys.stdout.flush()
        # Threads of a broken process group may keep an orderly exit waiting.
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
