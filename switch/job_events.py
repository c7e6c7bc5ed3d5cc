"""What the job table answers with: states for displays, events for workers, effects for its caller to carry out."""

from dataclasses import dataclass
from typing import TypeAlias

from protocol.errors import WiresumError
from protocol.packets import Address
from switch.dataplane import JobSpec


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job as displays show it.

    Attributes:
        number: None while ranks are missing, and so is `slots` 0.
        joined: ranks that are in it at this moment.
    """

    name: str
    number: int | None
    world_size: int
    joined: tuple[int, ...]
    slots: int
    values: int
    state: str


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """What the diagnosis of a stall needs of a job.

    Attributes:
        workers: address of each rank.
        left: ranks that have left.
        below: ranks by the numbers that the data plane has for what sends to it.
        leaves: those of these numbers that are switches.
    """

    number: int
    workers: tuple[Address, ...]
    left: frozenset[int]
    below: tuple[tuple[int, ...], ...]
    leaves: frozenset[int]


# What a watch tells its worker, or the leaf switch that the worker is below. Each of these but Begin and Explain is the
# last one.


@dataclass(frozen=True)
class Begin:
    """All leaf switches have the job. Only they are told."""


@dataclass(frozen=True)
class Refused:
    """A leaf switch could not take the job. Only leaf switches are told."""

    text: str


@dataclass(frozen=True)
class PeerLost:
    """A rank died."""

    rank: int
    address: str
    text: str


@dataclass(frozen=True)
class PeerLeft:
    """A rank left, and others wait for its packets."""

    rank: int
    address: str
    text: str


@dataclass(frozen=True)
class Disagreement:
    """The ranks asked for different things; the text shows them."""

    text: str


@dataclass(frozen=True)
class Explain:
    """The worker is asked for its account of a collective."""

    collective: int


@dataclass(frozen=True)
class Goodbye:
    """The switch shuts down."""


Event: TypeAlias = Begin | Refused | PeerLost | PeerLeft | Disagreement | Explain | Goodbye

# What the caller has to carry out, in order.


@dataclass(frozen=True)
class Install:
    """Add the job to the data plane, then report `installed` or `not_installed`."""

    spec: JobSpec


@dataclass(frozen=True)
class Remove:
    """Remove the job from the data plane."""

    number: int


@dataclass(frozen=True)
class JoinDone:
    """Answer a join: the job runs or, for a leaf switch, should be made ready there.

    Attributes:
        ranks: for a leaf switch, all ranks below it.
    """

    membership: int
    job_number: int
    slots: int
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class JoinFailed:
    """Answer a join with an error."""

    membership: int
    error: WiresumError


@dataclass(frozen=True)
class Tell:
    """Send an event down a worker's watch, which may yet have to be opened."""

    membership: int
    event: Event


@dataclass(frozen=True)
class EndWatch:
    """End a worker's watch without an event: it has left."""

    membership: int


Effect: TypeAlias = Install | Remove | JoinDone | JoinFailed | Tell | EndWatch
