"""Threads as the ranks of one job, over a real switch on loopback."""

import threading
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import numpy as np

from host.communicator import Communicator
from protocol.errors import PeerLostError
from protocol.packets import Address
from switch.dataplane import Counter
from switch.server import SoftwareSwitch
from tests.waiting import wait_until

T = TypeVar("T")

LIMIT = 60.0  # seconds that anything in a test may take
SLOTS = 4096  # of the fixture `switch`
_names = count()


def text(address: Address) -> str:
    """host:port."""
    return f"{address[0]}:{address[1]}"


def fresh_job() -> str:
    """A name that no other job of this process has."""
    return f"job-{next(_names)}"


class Rank(threading.Thread):
    """One rank's part of a job, in a thread of its own.

    Attributes:
        result: what `body` returned.
        error: or what it raised.
    """

    def __init__(self, switch: str, rank: int, body: Callable[[Communicator], Any], options: dict[str, Any]) -> None:
        super().__init__(name=f"rank {rank}", daemon=True)
        self.result: Any = None
        self.error: BaseException | None = None
        self._open: Callable[[], Communicator] = lambda: Communicator(switch=switch, rank=rank, **options)
        self._body = body
        self.start()

    def run(self) -> None:
        try:
            with self._open() as communicator:
                self.result = self._body(communicator)
        except BaseException as error:
            self.error = error


def start_ranks(
    switch: SoftwareSwitch | str,
    world_size: int,
    body: Callable[[Communicator], T],
    *,
    missing: tuple[int, ...] = (),
    **options: Any,
) -> list[Rank]:
    """Starts `body(communicator)` for each rank but those that are missing; options go to the Communicator."""
    address = switch if isinstance(switch, str) else text(switch.control_address)
    options = {"job": fresh_job(), "world_size": world_size, "timeout": LIMIT, "join_timeout": LIMIT} | options
    return [Rank(address, rank, body, options) for rank in range(world_size) if rank not in missing]


def run_ranks(
    switch: SoftwareSwitch | str, world_size: int, body: Callable[[Communicator], T], **options: Any
) -> list[T]:
    """What `body(communicator)` returns on each rank; raises the error of a rank that began the trouble, if any."""
    ranks = start_ranks(switch, world_size, body, **options)
    raised = [error for error in errors(ranks) if error is not None]
    for error in sorted(raised, key=lambda error: isinstance(error, PeerLostError)):
        raise error
    return [rank.result for rank in ranks]


def alone(switch: SoftwareSwitch, **options: Any) -> Communicator:
    """A job of one rank."""
    return Communicator(switch=text(switch.control_address), job=fresh_job(), rank=0, world_size=1, **options)


def errors(ranks: list[Rank]) -> list[BaseException | None]:
    """What each rank raised."""
    for rank in ranks:
        rank.join(LIMIT)
        assert not rank.is_alive(), f"{rank.name} did not come to an end"
    return [rank.error for rank in ranks]


def wait_until_idle(switch: SoftwareSwitch) -> None:
    """Waits until the switch has no job."""
    wait_until(lambda: not switch.jobs(), f"the switch still has {switch.jobs()}")


def total(counters: list[Counter], name: str) -> int:
    """A counter of the whole switch."""
    (value,) = [c.value for c in counters if c.name == name and c.job is None and c.rank is None]
    return value


def texts(ranks: list[Rank], kind: type[Exception]) -> list[str]:
    """The text of each rank's error, all of which must be of this class."""
    raised = errors(ranks)
    for error in raised:
        assert isinstance(error, kind), raised
    return [str(error) for error in raised]


def assert_serves(switch: SoftwareSwitch | str, job: str, slots: int) -> None:
    """In a process that has just seen a job fail, and on the switch it failed on, the next one of that name works.

    Args:
        slots: all that the switch has, so that none of them is still taken.
    """

    def body(communicator: Communicator) -> None:
        assert (communicator.all_reduce(np.full(3000, communicator.rank + 1, np.float32)) == 3).all()

    run_ranks(switch, 2, body, job=job, slots=slots)
