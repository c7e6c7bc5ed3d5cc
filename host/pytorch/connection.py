"""Opening the communicator of a process group or a hook."""

from typing import Any

from host.communicator import Communicator
from host.pytorch.options import BackendOptions


def open_communicator(
    options: BackendOptions, *, job: str, rank: int, world_size: int, timeout: float, join_timeout: float
) -> Communicator:
    """Joins `job` with these options; what they leave open is the communicator's own default.

    Raises:
        WiresumError: the switch cannot be reached or refuses, or a rank does not join in time.
        ValueError: no address of a switch was given, or an option is out of range.
    """
    chosen: dict[str, Any] = {
        "values_per_packet": options.values_per_packet,
        "slots": options.slots,
        "faults": options.faults,
    }
    return Communicator(
        switch=options.switch,
        job=job,
        rank=rank,
        world_size=world_size,
        timeout=timeout,
        join_timeout=join_timeout,
        fault_seed=options.fault_seed,
        **{name: value for name, value in chosen.items() if value is not None},
    )
