"""Makes a target ready for jobs."""

from collections.abc import Iterable

from switch.controller.client import P4RuntimeClient
from switch.controller.errors import ProgramError, UnsupportedByTargetError, WriteError
from switch.controller.p4info import multicast_group
from switch.controller.program import WiresumProgram


def prepare_target(
    client: P4RuntimeClient,
    program: WiresumProgram,
    *,
    address: str,
    mac: int,
    ports: Iterable[int],
    keep_pipeline: bool,
) -> None:
    """Loads the program, gives the switch its address and makes it flood and learn.

    Args:
        client: the primary controller of the target.
        program: what it shall run.
        address, mac: of the switch.
        ports: that frames for everybody go out of.
        keep_pipeline: whether it runs the program already; then what an earlier controller has left is deleted.

    Raises:
        ProgramError: it is to keep another program than this one.
        ControllerError: the target refuses something.
    """
    if keep_pipeline:
        if client.pipeline() != program.info.message:
            raise ProgramError(f"the target at {client.target} does not run the program of {program.info.name}")
        _sweep(client, program)
    else:
        client.set_pipeline(program.device_config)
    client.insert([*program.own_address(address, mac), program.flood_group(ports)])
    try:
        client.insert([program.digest()])
    except WriteError:
        client.modify([program.digest()])


def _sweep(client: P4RuntimeClient, program: WiresumProgram) -> None:
    for table in program.all_entries():
        client.delete(client.read([table]))
    try:
        groups = client.read([multicast_group(0)])
    except UnsupportedByTargetError:
        return
    client.delete(groups)
