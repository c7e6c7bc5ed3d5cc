"""Settings that all tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.pytorch_pool import WorkerPool

# The first call of a kernel compiles it, so the time of one example says nothing.
settings.register_profile("wiresum", settings(), deadline=None)
settings.load_profile("wiresum")


@pytest.fixture(scope="session")
def torch_switch() -> Iterator[str]:
    """Control address of a switch for the tests that need torch."""
    from wiresum.processes import SwitchProcess

    with SwitchProcess() as switch:
        yield switch.address


@pytest.fixture(scope="session")
def torch_workers(torch_switch: str) -> "Iterator[WorkerPool]":
    """Four processes that have torch loaded, for scenarios of several ranks."""
    from tests.pytorch_pool import WorkerPool

    with WorkerPool(4, torch_switch) as workers:
        yield workers
