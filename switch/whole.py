"""A switch as a whole: a data plane and the control service that drives it."""

from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from protocol.errors import WiresumError
from protocol.packets import Address
from switch.control import ControlServer
from switch.dataplane import Counter, LeafPlane
from switch.job_events import JobStatus


class OwnedPlane(LeafPlane, Protocol):
    """A data plane that can be closed."""

    def close(self) -> None:
        """Ends it; idempotent."""
        ...


Plane = TypeVar("Plane", bound=OwnedPlane)


class WholeSwitch(Generic[Plane]):
    """A switch that serves jobs from construction on; a context manager.

    Args:
        plane: what the control service drives; it is closed with the switch, and if the service cannot start.
        bind: local IPv4 address of the control service; "0.0.0.0" for all.
        control_port: its TCP port; 0 takes a free one.
        parent: control address of the switch above, which makes this one a leaf of a tree.

    Raises:
        WiresumError: an address that cannot be bound, or a parent that does not answer.
        ValueError: a malformed address of a parent.
    """

    def __init__(self, plane: Plane, *, bind: str, control_port: int, parent: str | None) -> None:
        self._plane = plane
        try:
            self._control = (
                ControlServer(plane, host=bind, port=control_port)
                if parent is None
                else ControlServer.for_leaf(plane, host=bind, port=control_port, parent=parent)
            )
            self.control_address: Address = self._control.start()
        except OSError as error:
            plane.close()
            raise WiresumError(error.strerror or str(error)) from error
        except BaseException:
            plane.close()
            raise
        self.data_address: Address = plane.address

    def jobs(self) -> list[JobStatus]:
        """The jobs that run or wait for ranks."""
        return self._control.jobs()

    def statistics(self) -> list[Counter]:
        """All counters."""
        return self._plane.statistics()

    def close(self) -> None:
        """Says goodbye to the workers and closes everything; idempotent."""
        self._control.stop()
        self._plane.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
