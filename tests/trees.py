"""Trees of software switches in this process, and ranks at any of them."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from host.communicator import Communicator
from protocol.errors import PeerLostError
from switch.server import SoftwareSwitch
from tests.ranks import LIMIT, Rank, errors, fresh_job, text, wait_until_idle

T = TypeVar("T")


class Tree:
    """Switches by name; a context manager.

    Args:
        parents: of each switch by name, parents first, or an address; the root has none.
        options: of some switches by name, further arguments of `SoftwareSwitch`.
    """

    def __init__(self, parents: dict[str, str | None], **options: dict[str, Any]) -> None:
        self.switches: dict[str, SoftwareSwitch] = {}
        self._stack = ExitStack()
        with self._stack:
            for name, above in parents.items():
                parent = self.address(above) if above in self.switches else above
                made = SoftwareSwitch(port=0, control_port=0, parent=parent, **options.get(name, {}))
                self.switches[name] = self._stack.enter_context(made)
            self._stack = self._stack.pop_all()

    def __getitem__(self, name: str) -> SoftwareSwitch:
        return self.switches[name]

    def address(self, name: str) -> str:
        """Control address of a switch."""
        return text(self.switches[name].control_address)

    def start(self, places: Sequence[str], body: Callable[[Communicator], Any], **options: Any) -> list[Rank]:
        """Starts a rank at each of these switches, in this order."""
        options = {
            "job": fresh_job(),
            "world_size": len(places),
            "timeout": LIMIT,
            "join_timeout": LIMIT,
        } | options
        return [Rank(self.address(name), rank, body, options) for rank, name in enumerate(places) if name]

    def run(self, places: Sequence[str], body: Callable[[Communicator], T], **options: Any) -> list[T]:
        """What the body returns on each rank; raises the error of a rank that began the trouble, if any."""
        ranks = self.start(places, body, **options)
        raised = [error for error in errors(ranks) if error is not None]
        for error in sorted(raised, key=lambda error: isinstance(error, PeerLostError)):
            raise error
        return [rank.result for rank in ranks]

    def counters(self, name: str) -> dict[str, int]:
        """Totals of a switch."""
        return {c.name: c.value for c in self.switches[name].statistics() if c.job is None}

    def wait_until_idle(self) -> None:
        """Waits until no switch has a job."""
        for switch in self.switches.values():
            wait_until_idle(switch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()  # leaves first


TWO_LEVELS: dict[str, str | None] = {"root": None, "left": "root", "right": "root"}
THREE_LEVELS: dict[str, str | None] = {"root": None, "middle": "root", "right": "root", "low": "middle"}


def add(communicator: Communicator) -> None:
    array = np.full(3000, communicator.rank + 1, np.int32)
    world = communicator.world_size
    assert (communicator.all_reduce(array) == world * (world + 1) // 2).all()


def add_for_ever(communicator: Communicator) -> None:
    while True:
        array = np.full(4_000_000, communicator.rank + 1, np.int32)
        communicator.all_reduce(array)
