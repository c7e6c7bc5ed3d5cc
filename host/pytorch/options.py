"""Settings of the backend, as `init_process_group(pg_options=...)` takes them."""

from dataclasses import dataclass, replace
from typing import Self

from host import environment
from host.pytorch.fallback import fallback_policy
from protocol.constants import check_slots, size_code
from protocol.faults import FaultRates


@dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """What a process group of backend "wiresum" can be told; None leaves it to the environment or the default.

    A subgroup that is given none takes those of the default group.

    Attributes:
        switch: control address of the switch, "host:port" or "host"; else WIRESUM_SWITCH.
        job: name of the job at the switch; else WIRESUM_JOB; else one that no other run has. A subgroup's job is that
            name, a slash and the group's name.
        fallback: "warn", "raise" or "silent": what to do about requests that the switch cannot serve; else
            WIRESUM_FALLBACK, else "warn". With "raise", broadcast, all_gather and barrier still pass, because no DDP
            model can be built without them.
        values_per_packet: values in each packet; else WIRESUM_VALUES_PER_PACKET, else as the agent chooses.
        slots: slots of the job's pool, a power of two; else WIRESUM_SLOTS, else as the agent chooses.
        faults: faults to inject on this worker's side, in both directions.
        fault_seed: seed of those faults.
    """

    switch: str | None = None
    job: str | None = None
    fallback: str | None = None
    values_per_packet: int | None = None
    slots: int | None = None
    faults: FaultRates | None = None
    fault_seed: int = 0

    def __post_init__(self) -> None:
        if self.fallback is not None:
            fallback_policy(self.fallback)
        if self.values_per_packet is not None:
            size_code(self.values_per_packet)
        if self.slots is not None:
            check_slots(self.slots)

    def with_environment(self) -> Self:
        """These options with the environment's settings where they leave a choice.

        Raises:
            ValueError: a variable holds something else than it should.
        """
        return replace(
            self,
            switch=environment.switch_or(self.switch),
            job=environment.job_or(self.job),
            fallback=fallback_policy(self.fallback),
            values_per_packet=environment.values_or(self.values_per_packet),
            slots=environment.slots_or(self.slots),
        )
