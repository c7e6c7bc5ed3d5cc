"""The demo's workers, forked from a process with torch loaded: loading takes each worker seconds, training far less."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.starter import ForkedChild, Starter
from wiresum.demo import training

_MODULES = (
    "torch._dynamo",
    "torch.nn.parallel",
    "torch.utils.data",
    "host.pytorch.backend",
    "host.pytorch.registration",
    "protocol.control_grpc",
    "tests.host_kernels",
    "wiresum.demo.models",
    "wiresum.demo.settings",
    "wiresum.demo.traffic",
)


class _Worker(ForkedChild, starter=Starter(*_MODULES)):
    """In the place of the `Child` that `wiresum.demo.training` would start."""


@contextmanager
def forked_workers() -> Iterator[None]:
    """Has `train` fork its workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "Child", _Worker)
        yield
