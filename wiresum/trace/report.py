"""What captures tell of a run, as plain numbers: the report that is printed, and written as JSON."""

from dataclasses import dataclass
from typing import Any

from wiresum.trace.stalls import Stall


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A rule of the protocol that was broken.

    Attributes:
        rule: what is wrong.
        count: how often.
        examples: some of the packets, as `file, frame N`, or of the chunks.
    """

    rule: str
    count: int
    examples: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """One rank. Times are microseconds.

    Attributes:
        address: `address:port`.
        name: what it is called in tables and stalls: its node's name if that is known, else the address.
        contributions: packets, with those that were sent again.
        again: of these, sent again, by reason: `waiting` for other ranks, `unanswered` although all had contributed,
            `answered` already.
        lost_contributions: chunks that got their result only after this rank had sent its contribution again; None if
            not all ranks are in the captures, so that others may just have been late.
        lost_results: chunks whose result this rank asked for again.
        results, results_again: packets to it; of these, sent again.
        round_trip: from contribution to result, the wait for other ranks included.
        last: rounds to which it contributed last.
        lag: in those, how long after the one before it.
    """

    address: str
    name: str
    contributions: int
    again: dict[str, int]
    lost_contributions: int | None
    lost_results: int
    results: int
    results_again: int
    round_trip: dict[str, float] | None
    last: int
    lag: dict[str, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotReport:
    """One slot; as in `RankReport`. `longest` is the longest round, in microseconds."""

    slot: int
    rounds: int
    unfinished: int
    contributions: int
    again: int
    results: int
    results_again: int
    round_trip: dict[str, float] | None
    longest: float
    stalls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """One job at one switch.

    Attributes:
        switch: its address.
        name: what it is called: its node's name if that is known, else the address.
        level: how many switches are above it, as far as is known.
        parent: what the switch above it is called; None if there is none, or it is not known.
        all_ranks_seen: None if it cannot be told.
        answer: from the last contribution to the result.
    """

    switch: str
    name: str
    level: int
    parent: str | None
    job: int
    start: float
    seconds: float
    slots: int
    slots_known: bool
    values: int
    all_ranks_seen: bool | None
    rounds: int
    finished: int
    bytes_of_values: int
    round_trip: dict[str, float] | None
    answer: dict[str, float] | None
    stall_limit: float
    sums: dict[str, int]
    ranks: list[RankReport]
    stalls: list[Stall]
    problems: list[Problem]
    slots_seen: list[SlotReport]
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All of it. `copies` and `duplicates` were left out of the count: seen at two taps, and doubled by the network."""

    captures: list[dict[str, Any]]
    packets: int
    copies: int
    duplicates: int
    jobs: list[JobReport]
    notes: list[str]


def headline(job: JobReport, *, address: bool = False) -> str:
    """Which job it is, and at which switch: as in "job 0 at s4, below s2"; on request with the switch's address."""
    where = f" ({job.switch})" if address and job.name != job.switch else ""
    return f"job {job.job} at {job.name}{where}" + (f", below {job.parent}" if job.parent is not None else "")
