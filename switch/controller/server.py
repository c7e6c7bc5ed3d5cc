"""A P4Runtime target as a switch for workers: the data plane and the control service."""

from collections.abc import Callable, Iterable

from protocol.constants import CONTROL_PORT
from protocol.errors import WiresumError
from switch.controller.p4switch import P4Switch
from switch.controller.program import WiresumProgram
from switch.whole import WholeSwitch


class ControlledSwitch(WholeSwitch[P4Switch]):
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
        plane = P4Switch(
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
        super().__init__(plane, bind=bind, control_port=control_port, parent=parent)

    @property
    def failure(self) -> WiresumError | None:
        """What has happened to the target, if it is lost."""
        return self._plane.failure
