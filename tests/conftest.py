"""Settings that all tests share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from switch.server import SoftwareSwitch
    from tests.packet_targets import P4Target, Target
    from tests.pytorch_pool import WorkerPool
    from tests.targets import Targets

# The first call of a kernel compiles it, so the time of one example says nothing.
settings.register_profile("wiresum", settings(), deadline=None)
settings.load_profile("wiresum")


# The files that take longest, the longest first. Two processes share the files out: with these at the end, one of them
# would still be at it while the other has nothing left to do.
_LONG: Final = (
    "test_mininet",
    "test_mininet_traffic",
    "test_demo",
    "test_target_drops",
    "test_pytorch_example",
    "test_target_fuzz",
    "test_target_training",
    "test_mininet_bad_days",
    "test_mininet_scripts",
    "test_switch_command",
    "test_pytorch_groups",
    "test_controller_rack",
    "test_bad_days",
    "test_lab_experiments",
    "test_lab_faults",
    "test_p4runtime_shell",
    "test_benchmarks",
    "test_controller_command",
    "test_pytorch_ddp",
    "test_pytorch_sums",
    "test_pytorch_collectives",
    "test_tree_racks",
    "test_p4_program",
    "test_jit",
    "test_controller_tree",
    "test_communicator_processes",
    "test_lab_run",
)


def pytest_configure(config: pytest.Config) -> None:
    """Has pytest-xdist take files in the order of collection, and not those with many tests first."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files that take longest first."""
    place = {name: number for number, name in enumerate(_LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(_LONG)))


@pytest.fixture(scope="module")
def switch() -> "Iterator[SoftwareSwitch]":
    """A software switch for the tests of one file."""
    from switch.server import SoftwareSwitch
    from tests.ranks import SLOTS

    with SoftwareSwitch(port=0, control_port=0, total_slots=SLOTS) as server:
        yield server


@pytest.fixture
def idle_afterwards(switch: "SoftwareSwitch") -> Iterator[None]:
    """After the test the switch has no job."""
    from tests.ranks import wait_until_idle

    yield
    wait_until_idle(switch)


@pytest.fixture
def job(switch: "SoftwareSwitch", idle_afterwards: None) -> Iterator[str]:
    """A job's name; after the test the switch serves a job of that name, with all its slots."""
    from tests.ranks import SLOTS, assert_serves, fresh_job

    name = fresh_job()
    yield name
    assert_serves(switch, name, SLOTS)


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


# Targets of the packet tests: the fast aggregator, and the P4 program on our model and on BMv2, for each packet size.
SIZES = (32, 64, 256)


def _targets(*names: str) -> list[Any]:
    return [pytest.param((name, size), id=f"{name}-{size}") for name in names for size in SIZES]


@pytest.fixture(scope="session")
def all_targets() -> "Iterator[Targets]":
    """Makes each target when it is first asked for, and ends them all."""
    from tests.targets import Targets

    with Targets() as targets:
        yield targets


@pytest.fixture(params=_targets("aggregator", "model", "bmv2"))
def target(request: pytest.FixtureRequest, all_targets: "Targets") -> "Target":
    """A switch as new."""
    return all_targets.fresh(*request.param)


@pytest.fixture(params=_targets("model", "bmv2"))
def p4_target(request: pytest.FixtureRequest, all_targets: "Targets") -> "P4Target":
    """A switch as new that runs the P4 program."""
    return all_targets.fresh_p4(*request.param)
