"""The seam between the control service and whatever moves the packets: the software switch, or a P4Runtime target."""

from dataclasses import dataclass
from typing import Protocol

from protocol.packets import Address


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What a data plane must know of a job.

    Attributes:
        number: the job number in every packet, 0..255.
        name: for people.
        slots: pool size W, a power of two.
        values: values per packet.
        workers: source address and UDP port of each rank; as long as the world is large.
    """

    number: int
    name: str
    slots: int
    values: int
    workers: tuple[Address, ...]


@dataclass(frozen=True, kw_only=True)
class StalledSlot:
    """A slot whose newest generation has some ranks but not all.

    Attributes:
        slot: the slot within the job's pool.
        chunk: the chunk number of that generation.
        seen: ranks whose packet has arrived.
        missing: ranks whose packet has not.
    """

    slot: int
    chunk: int
    seen: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Counter:
    """One number of the switch's statistics; a field that does not apply is None."""

    name: str
    job: str | None
    job_number: int | None
    rank: int | None
    value: int


class DataPlane(Protocol):
    """Moves and adds the packets of jobs.

    Methods may be called from any thread and return within milliseconds. They raise subclasses of
    `protocol.errors.WiresumError`.
    """

    @property
    def address(self) -> Address:
        """Where workers send their packets."""
        ...

    @property
    def total_slots(self) -> int:
        """Slots of 256 values that jobs share; `switch.jobs.slot_cost` says what a pool takes of them."""
        ...

    @property
    def values_supported(self) -> tuple[int, ...]:
        """The numbers of values per packet that it can add."""
        ...

    @property
    def default_slots(self) -> int:
        """The largest pool, a power of two, that suits a job which leaves its size to the switch."""
        ...

    def add_job(self, spec: JobSpec) -> None:
        """Installs a job.

        An address may still stand in an older job, if its rank has left that one: the newer job then has it.
        """
        ...

    def remove_job(self, number: int) -> None:
        """Removes a job; afterwards its packets are dropped. Addresses that a newer job has taken stay there."""
        ...

    def stalled(self, number: int) -> list[StalledSlot]:
        """Slots of a job that wait for some of its ranks at this moment."""
        ...

    def last_heard(self, number: int) -> list[float | None]:
        """Seconds since the last packet of each rank; None for a rank that was never heard."""
        ...

    def statistics(self) -> list[Counter]:
        """All counters, of the switch as a whole, of jobs and of ranks."""
        ...
