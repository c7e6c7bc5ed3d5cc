"""The software switch as a whole: UDP data plane and control service."""

from protocol.constants import CONTROL_PORT, DATA_PORT, MAX_SLOTS
from protocol.errors import WiresumError
from protocol.faults import FaultRates
from switch.ports import UdpSwitch
from switch.whole import WholeSwitch

DEFAULT_TOTAL_SLOTS = 4 * MAX_SLOTS  # of 256 values: 128 MiB of registers when all are taken


class SoftwareSwitch(WholeSwitch[UdpSwitch]):
    """A switch that serves jobs from construction on; a context manager.

    Args:
        bind: local IPv4 address of both services; "0.0.0.0" for all.
        port: UDP port of the data plane; 0 takes a free one.
        control_port: TCP port of the control service; 0 takes a free one.
        total_slots: slots of 256 values that jobs share.
        parent: control address of the switch above, "host:port" or "host", which makes this one a leaf of a tree.
        faults_in, faults_out: faults injected into what workers and leaf switches send, and into what they are sent.
        faults_up_in, faults_up_out: the same for what the parent sends, and for what it is sent.
        seed: of the faults.
        offload: whether to use UDP segmentation and receive offload where the kernel has them.

    Raises:
        WiresumError: an address that cannot be bound, or a parent that does not answer.
        ValueError: no slots, or a malformed address of a parent; or faults of an uplink that there is not.
    """

    def __init__(
        self,
        *,
        bind: str = "127.0.0.1",
        port: int = DATA_PORT,
        control_port: int = CONTROL_PORT,
        total_slots: int = DEFAULT_TOTAL_SLOTS,
        parent: str | None = None,
        faults_in: FaultRates | None = None,
        faults_out: FaultRates | None = None,
        faults_up_in: FaultRates | None = None,
        faults_up_out: FaultRates | None = None,
        seed: int = 0,
        offload: bool = True,
    ) -> None:
        if total_slots < 1:
            raise ValueError(f"a switch needs at least one slot, not {total_slots}")
        if parent is None and any(rates and rates.any for rates in (faults_up_in, faults_up_out)):
            raise ValueError("faults of what goes to or comes from the parent need a parent")
        try:
            plane = UdpSwitch(
                (bind, port),
                total_slots=total_slots,
                faults_in=faults_in,
                faults_out=faults_out,
                faults_up_in=faults_up_in,
                faults_up_out=faults_up_out,
                seed=seed,
                offload=offload,
            )
        except OSError as error:
            raise WiresumError(f"cannot serve data at UDP {bind}:{port}: {error.strerror or error}") from error
        super().__init__(plane, bind=bind, control_port=control_port, parent=parent)

    @property
    def offload(self) -> bool:
        """Whether the kernel segments and coalesces."""
        return self._plane.offload

    @property
    def alive(self) -> bool:
        """Whether packets are still being moved."""
        return self._plane.alive
