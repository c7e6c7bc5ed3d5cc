"""The seam between the control service and whatever moves the packets: the software switch, or a P4Runtime target."""

from dataclasses import dataclass
from typing import Protocol

from protocol.packets import Address


@dataclass(frozen=True, kw_only=True)
class Uplink:
    """How a leaf of a tree of switches reaches the parent in one job.

    Attributes:
        address: where the leaf's packets to the parent come from, by which the parent knows it; see `LeafPlane`.
        parent: where the parent takes packets.
        job: the parent's number for the job.
    """

    address: Address
    parent: Address
    job: int


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What a data plane must know of a job.

    Attributes:
        number: the job number in every packet, 0..255.
        name: for people.
        slots: pool size W, a power of two.
        values: values per packet.
        workers: source address and UDP port of each that sends here: the job's ranks or, in a tree, the workers and
            leaf switches below this one.
        below: the ranks of the job that each of them stands for; empty: the first one is rank 0, and so on.
        uplink: of a leaf of a tree of switches.
    """

    number: int
    name: str
    slots: int
    values: int
    workers: tuple[Address, ...]
    below: tuple[tuple[int, ...], ...] = ()
    uplink: Uplink | None = None

    def ranks_below(self, worker: int) -> tuple[int, ...]:
        """The ranks that one of the workers stands for."""
        return self.below[worker] if self.below else (worker,)


@dataclass(frozen=True, kw_only=True)
class StalledSlot:
    """A slot whose newest generation has some ranks but not all or, in a leaf, not the parent's result.

    Attributes:
        slot: the slot within the job's pool.
        chunk: the chunk number of that generation.
        seen: numbers of the workers whose packet has arrived.
        missing: of those whose packet has not.
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


class LeafPlane(DataPlane, Protocol):
    """A data plane that can be a leaf of a tree of switches."""

    def open_uplink(self, parent: Address) -> Address:
        """Takes a source address for the packets of one job to its parent.

        Args:
            parent: where the parent takes packets.

        Returns:
            IPv4 address and UDP port, which no other job has until `close_uplink`, or `remove_job` of the job that
            was installed with it.
        """
        ...

    def close_uplink(self, address: Address) -> None:
        """Gives a source address back that no job was installed with."""
        ...
