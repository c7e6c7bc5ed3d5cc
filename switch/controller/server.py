"""A P4Runtime target as a switch for workers: the data plane and the control service."""

from collections.abc import Callable, Iterable
from types import TracebackType

from protocol.constants import CONTROL_PORT
from protocol.errors import WiresumError
from protocol.packets import Address
from switch.control import ControlServer
from switch.controller.p4switch import P4Switch
from switch.controller.program import WiresumProgram
from switch.dataplane import Counter
from switch.job_events import JobStatus


class ControlledSwitch:
    """A switch that serves jobs from construction on; a context manager.

    Args:
        target: "host:port" of the P4Runtime server of what moves the packets.
        program: what it runs.
        address, mac: of the switch, among the workers.
        ports: of the target; frames for everybody go out of all.
        bind: local IPv4 address of the control service; "0.0.0.0" for all.
        control_port: its TCP port; 0 takes a free one.
        device_id: the number that the target was started with.
        election_id: the controller with the highest one is the primary.
        keep_pipeline: whether the target runs the program already.
        total_slots: slots of the program's size to use; None for all.
        parent: control address of the switch above, which makes this one a leaf of a tree; its data address must
            answer ARP on one of the ports.
        on_failure: called once, from any thread, when the target is lost.

    Raises:
        WiresumError: the target cannot be used, the address not be bound, or the parent does not answer.
        ValueError: more slots than the program has, or none; or a malformed address of a parent.
    """

    def __init__(
        self,
        target: str,
        program: WiresumProgram,
        *,
        address: str,
        mac: int,
        ports: Iterable[int],
        bind: str = "127.0.0.1",
        control_port: int = CONTROL_PORT,
        device_id: int = 0,
        election_id: int = 1,
        keep_pipeline: bool = False,
        total_slots: int | None = None,
        parent: str | None = None,
        on_failure: Callable[[WiresumError], None] = lambda _: None,
    ) -> None:
        self._plane = P4Switch(
            target,
            program,
            address=address,
            mac=mac,
            ports=ports,
            device_id=device_id,
            election_id=election_id,
            keep_pipeline=keep_pipeline,
            total_slots=total_slots,
            on_failure=on_failure,
        )
        try:
            self._control = (
                ControlServer(self._plane, host=bind, port=control_port)
                if parent is None
                else ControlServer.for_leaf(self._plane, host=bind, port=control_port, parent=parent)
            )
            self.control_address: Address = self._control.start()
        except OSError as error:
            self._plane.close()
            raise WiresumError(error.strerror or str(error)) from error
        except BaseException:
            self._plane.close()
            raise
        self.data_address: Address = self._plane.address

    @property
    def failure(self) -> WiresumError | None:
        """What has happened to the target, if it is lost."""
        return self._plane.failure

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

    def __enter__(self) -> "ControlledSwitch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
