"""Who may join: checks of a joiner's wish, and the slots that jobs share. Without sockets, threads or clocks."""

import ipaddress
import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from protocol.constants import DEFAULT_VALUES, MAX_JOBS, MAX_RANKS, MAX_SLOTS, check_slots
from protocol.control import format_address
from protocol.errors import JoinRefusedError
from protocol.packets import Address

MAX_NAME: Final = 200  # characters of a job's name


@dataclass(frozen=True, kw_only=True)
class JoinWish:
    """What a worker asks for.

    Attributes:
        address: IPv4 address and UDP port that its packets come from.
        values: per packet.
        slots: of the job's pool, a power of two; 0 leaves it to the switch.
        most_slots: the largest pool that the switch may choose for this worker; 0 for any.
        timeout: seconds to wait for the other ranks.
        via: of a rank below a leaf switch: where that switch sends from.
        room: the largest pool that the switches in between have room for; 0 for any.
    """

    job: str
    rank: int
    world_size: int
    address: Address
    values: int
    slots: int
    timeout: float
    most_slots: int = 0
    via: Address | None = None
    room: int = 0

    @property
    def source(self) -> Address:
        """Where packets for this rank come from."""
        return self.via or self.address

    @property
    def name(self) -> str:
        """Rank and address, for messages."""
        return f"rank {self.rank} ({format_address(self.address)})"


def ranks_by_source(wishes: Iterable[JoinWish]) -> dict[Address, tuple[int, ...]]:
    """The ranks behind each address that sends to a switch, in the order of the lowest of them."""
    found: dict[Address, tuple[int, ...]] = {}
    for wish in sorted(wishes, key=lambda wish: wish.rank):
        found[wish.source] = (*found.get(wish.source, ()), wish.rank)
    return found


def slot_cost(slots: int, values: int) -> int:
    """What a pool takes of the switch, in slots of 256 values."""
    return -(-slots * values // DEFAULT_VALUES)


def check_alone(wish: JoinWish, max_ranks: int, values_supported: Sequence[int]) -> None:
    """Checks what can be checked without knowing the other ranks.

    Raises:
        JoinRefusedError: the text names the value and what was expected.
    """
    host, port = wish.address
    try:
        ipaddress.IPv4Address(host)
        if wish.slots:
            check_slots(wish.slots)
    except ValueError as error:
        raise JoinRefusedError(f"rank {wish.rank} of job {wish.job!r}: {error}") from None
    if not 0 < len(wish.job) <= MAX_NAME:
        raise JoinRefusedError(f"the job's name must have 1 to {MAX_NAME} characters, not {len(wish.job)}")
    if not wish.job.isprintable():  # it is shown on terminals
        raise JoinRefusedError(f"the job's name must have printable characters only, not {wish.job!r}")
    if not 1 <= wish.world_size <= max_ranks:
        raise JoinRefusedError(
            f"job {wish.job!r} asks for {wish.world_size} ranks, and this switch takes from 1 to {max_ranks}"
        )
    if not 0 <= wish.rank < wish.world_size:
        raise JoinRefusedError(
            f"rank {wish.rank} is out of range: job {wish.job!r} has ranks 0 to {wish.world_size - 1}"
        )
    if wish.values not in values_supported:
        raise JoinRefusedError(
            f"job {wish.job!r} asks for {wish.values} values per packet, and this switch can add "
            f"{', '.join(map(str, values_supported))}"
        )
    if not 0 < port < 65536:
        raise JoinRefusedError(f"rank {wish.rank} of job {wish.job!r}: UDP port must be from 1 to 65535, not {port}")
    if not (wish.timeout > 0 and math.isfinite(wish.timeout)):
        raise JoinRefusedError(f"the time-out of a join must be a positive number of seconds, not {wish.timeout}")


def check_against(wish: JoinWish, present: Sequence[JoinWish], running: bool) -> None:
    """Checks a wish against the ranks that are in the job.

    Raises:
        JoinRefusedError: the text shows both sides.
    """
    first = present[0]
    opened = f"while rank {first.rank} at {format_address(first.address)} joined with"
    if wish.world_size != first.world_size:
        raise JoinRefusedError(
            f"rank {wish.rank} asks for job {wish.job!r} with world size {wish.world_size}, {opened} {first.world_size}"
        )
    if wish.values != first.values:
        raise JoinRefusedError(
            f"rank {wish.rank} asks for job {wish.job!r} with {wish.values} values per packet, {opened} {first.values}"
        )
    for other in present:
        if other.rank == wish.rank:
            raise JoinRefusedError(
                f"rank {wish.rank} of job {wish.job!r} is taken by {format_address(other.address)}"
                f"{', and the job is running' if running else ''}; "
                f"{format_address(wish.address)} asked for it too"
            )


def check_sources(wish: JoinWish, present: Sequence[JoinWish], others: Iterable[JoinWish]) -> None:
    """Checks that packets tell whose they are.

    Args:
        wish: the joiner's.
        present: those of the ranks that are in the job.
        others: those of ranks that are in any job.

    Raises:
        JoinRefusedError: an address belongs to another rank.
    """
    shared = () if wish.via is None else present
    for other in others:
        if other.source == wish.source and not (other.via == wish.via and other in shared):
            raise JoinRefusedError(
                f"{format_address(wish.source)}, from which rank {wish.rank} of job {wish.job!r} would send, "
                f"belongs to rank {other.rank} of job {other.job!r}"
            )


def check_width(job: str, below: int, switch: str) -> None:
    """Checks how many send to one switch, once all ranks are there, so that all of them hear of it.

    Args:
        job: its name.
        below: workers and leaf switches.
        switch: which one, for the message.

    Raises:
        JoinRefusedError: too many.
    """
    if below > MAX_RANKS:
        raise JoinRefusedError(
            f"job {job!r} has {below} workers and leaf switches directly below {switch}, which takes at most "
            f"{MAX_RANKS}: in a tree of switches, some can join at others"
        )


def choose_slots(wishes: Sequence[JoinWish], budget: "SlotBudget") -> int:
    """The pool of a job: the smallest that a rank asked for, or else what suits all; never more than there is room."""
    slots = _smallest(wish.slots for wish in wishes) or budget.default(
        wishes[0].values, _smallest(wish.most_slots for wish in wishes)
    )
    return min(slots, _smallest(wish.room for wish in wishes) or slots)


def least_slots(wishes: Sequence[JoinWish]) -> int:
    """The smallest pool that must fit for the job to be worth waiting for."""
    return _smallest(wish.slots for wish in wishes) or 1


def _smallest(slots: Iterable[int]) -> int:
    """The smallest pool that anyone named; 0: nobody named one."""
    return min((number for number in slots if number), default=0)


class JobNumbers:
    """Numbers of a switch's jobs, in cyclic order: one rests before packets of an old job could meet it again."""

    def __init__(self) -> None:
        self._next = 0

    def free(self, used: Container[int | None], job: str, switch: str) -> int:
        """The next number that is not used.

        Args:
            job, switch: their names, for the message.

        Raises:
            JoinRefusedError: all are.
        """
        for step in range(MAX_JOBS):
            number = (self._next + step) % MAX_JOBS
            if number not in used:
                self._next = (number + 1) % MAX_JOBS
                return number
        raise JoinRefusedError(f"no job number is free for job {job!r}: {switch} already serves {MAX_JOBS} jobs")


class SlotBudget:
    """The slots of one switch and who has them.

    Args:
        total: slots of 256 values.
        default: the pool of a job that asks for none in particular, if half of what is free allows it.
        name: of the switch, for messages.
    """

    def __init__(self, total: int, default: int, name: str = "the switch"):
        self.total = total
        self.name = name
        self._default = default
        self._taken: dict[int, tuple[str, int]] = {}  # job number: name, slots of 256 values

    @property
    def free(self) -> int:
        """Slots of 256 values that no job has."""
        return self.total - sum(cost for _, cost in self._taken.values())

    def default(self, values: int, most: int = 0) -> int:
        """The pool of a job that leaves its size to the switch, so that a next job finds room as well.

        Args:
            most: the largest that the job's workers can use; 0 for any.
        """
        slots = self._default
        while slots > 1 and (slot_cost(slots, values) > self.free // 2 or slots > (most or slots)):
            slots //= 2
        return slots

    def room(self, values: int) -> int:
        """The largest pool that fits at this moment; 0: none."""
        slots = MAX_SLOTS
        while slots and slot_cost(slots, values) > self.free:
            slots //= 2
        return slots

    def check(self, name: str, slots: int, values: int) -> None:
        """Checks that a pool fits.

        Raises:
            JoinRefusedError: the text shows what is wanted, free and taken by whom.
        """
        cost = slot_cost(slots, values)
        if cost > self.free:
            taken = ", ".join(f"{cost} by job {name!r}" for name, cost in self._taken.values()) or "none"
            raise JoinRefusedError(
                f"job {name!r} wants {slots} slots of {values} values, which takes {cost} slots of {DEFAULT_VALUES}, "
                f"and {self.name} has {self.free} of {self.total} free; taken: {taken}"
            )

    def take(self, number: int, name: str, slots: int, values: int) -> None:
        """Gives a job its pool, which must fit."""
        self._taken[number] = (name, slot_cost(slots, values))

    def give_back(self, number: int) -> None:
        """Takes a job's pool back."""
        del self._taken[number]
