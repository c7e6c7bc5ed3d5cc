"""The rounds of a job: when each rank contributed to each chunk, what was sent again and why, when the answer came."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from wiresum.trace.captures import Integers
from wiresum.trace.jobs import Job
from wiresum.trace.packets import Mask, Table

NEVER: Final = np.iinfo(np.int64).max

# Why a contribution was sent again, as far as the captures tell.
WAITING: Final = 0  # others had not contributed yet, so that nothing need have been lost
UNANSWERED: Final = 1  # all had, but no result was seen: a contribution was lost or late
ANSWERED: Final = 2  # the result had been sent: this rank's was lost or late
REASONS: Final = ("waiting", "unanswered", "answered")


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a job, a row for each chunk in the order of their numbers.

    Times are nanoseconds since 1970, `NEVER` where nothing was seen.

    Attributes:
        chunk, slot: of each row.
        sent: when each rank first contributed, shape (chunks, ranks).
        copies: how often it did.
        got: when the first result to each rank was seen.
        results: how many were.
        begin: when the first rank contributed.
        complete: when the last did, if all did.
        answered: when the first result was seen.
        last: the rank that contributed last, -1 if not all did or if there is only one.
        lag: by how much it came after the one before it.
        finisher: the rank whose packet came last before the result, or before a leaf passed the chunk on; -1 without a
            result.
        repaired: whether that packet was sent again, when all had contributed: so one before it had been lost.
        waited: from `begin` to `answered`, or to the end of the captures.
        round_trip: of each rank, from its contribution to its result; -1 where it was sent more often before that.
        again: indices into the job's packets of contributions that were sent again.
        again_row, again_rank, again_reason: of each of these.
    """

    chunk: Integers
    slot: Integers
    sent: Integers
    copies: Integers
    got: Integers
    results: Integers
    begin: Integers
    complete: Integers
    answered: Integers
    last: Integers
    lag: Integers
    finisher: Integers
    repaired: Mask
    waited: Integers
    round_trip: Integers
    again: Integers
    again_row: Integers
    again_rank: Integers
    again_reason: Integers

    def __len__(self) -> int:
        return len(self.chunk)

    @property
    def finished(self) -> Mask:
        """Which rounds got a result."""
        finished: Mask = self.answered != NEVER
        return finished


def find_rounds(job: Job, *, end: int, upward: Table | None = None) -> Rounds:
    """Reads the rounds off a job's packets.

    Args:
        end: the time at which the captures end.
        upward: what the job's switch, if it is a leaf, sent to its parent: it had all contributions then, though it
            has no result yet.
    """
    time, ranks = job.packets["time"], max(1, len(job.ranks))
    chunk, row = np.unique(job.chunk, return_inverse=True)
    up = np.flatnonzero(~job.is_result)
    down = np.flatnonzero(job.is_result)
    pair = row * ranks + job.rank
    sent, copies = _first(time, pair, up, (len(chunk), ranks))
    got, results = _first(time, pair, down, (len(chunk), ranks))
    begin, answered = sent.min(axis=1), got.min(axis=1)
    complete = sent.max(axis=1)

    last, lag = np.full(len(chunk), -1), np.zeros(len(chunk), np.int64)
    if ranks > 1:
        ordered = np.sort(sent, axis=1)
        whole = complete != NEVER
        last[whole] = np.argmax(sent[whole], axis=1)
        lag[whole] = ordered[whole, -1] - ordered[whole, -2]

    # The first of a rank is the one that `sent` tells; equal times stand in the order of the file.
    _, first = np.unique(pair[up], return_index=True)
    is_first = np.zeros(len(up), bool)
    is_first[first] = True
    again = up[~is_first]
    at, where = time[again], row[again]
    reason = np.where(at > answered[where], ANSWERED, np.where(at > complete[where], UNANSWERED, WAITING))

    passed_on = np.minimum(answered, _passed_on(job, chunk, upward))
    before = up[time[up] <= passed_on[row[up]]]
    finisher, repaired = np.full(len(chunk), -1), np.zeros(len(chunk), bool)
    finisher[row[before]] = job.rank[before]  # the last assignment stays, and it is the latest
    reason_of = np.full(len(time), -1)
    reason_of[again] = reason
    repaired[row[before]] = reason_of[before] == UNANSWERED
    finisher[answered == NEVER], repaired[answered == NEVER] = -1, False

    tries = np.zeros(len(chunk) * ranks, np.int64)
    early = up[time[up] < got.reshape(-1)[pair[up]]]
    np.add.at(tries, pair[early], 1)
    once = (tries.reshape(sent.shape) == 1) & (got != NEVER)
    with np.errstate(over="ignore"):
        round_trip = np.where(once, got - sent, -1)
        waited = np.where(begin == NEVER, 0, np.maximum(0, np.where(answered == NEVER, end, answered) - begin))
    return Rounds(
        chunk=chunk,
        slot=(chunk + job.first_tsi) % job.slots,
        sent=sent,
        copies=copies,
        got=got,
        results=results,
        begin=begin,
        complete=complete,
        answered=answered,
        last=last,
        lag=lag,
        finisher=finisher,
        repaired=repaired,
        waited=waited,
        round_trip=round_trip,
        again=again,
        again_row=where,
        again_rank=job.rank[again],
        again_reason=reason,
    )


def _passed_on(job: Job, chunk: Integers, upward: Table | None) -> Integers:
    """When a leaf first sent each chunk to its parent."""
    first = np.full(len(chunk), NEVER)
    if upward is not None and len(upward):
        numbers = job.chunk_of(upward["tsi"])
        place = np.minimum(np.searchsorted(chunk, numbers), len(chunk) - 1)
        known = chunk[place] == numbers
        np.minimum.at(first, place[known], upward["time"][known])
    return first


def _first(
    time: npt.NDArray[np.int64], pair: Integers, rows: Integers, shape: tuple[int, int]
) -> tuple[Integers, Integers]:
    """Earliest time, and number, of the packets of each chunk and rank; `rows` are in the order of their times."""
    pairs, first, counts = np.unique(pair[rows], return_index=True, return_counts=True)
    earliest = np.full(shape[0] * shape[1], NEVER)
    earliest[pairs] = time[rows[first]]
    number = np.zeros(shape[0] * shape[1], np.int64)
    number[pairs] = counts
    return earliest.reshape(shape), number.reshape(shape)


def percentiles(nanoseconds: Integers) -> dict[str, float] | None:
    """Median, 90th and 99th percentile and maximum, in microseconds."""
    if not len(nanoseconds):
        return None
    found = np.percentile(nanoseconds, [50, 90, 99, 100]) / 1e3
    return {name: round(float(value), 3) for name, value in zip(("p50", "p90", "p99", "max"), found, strict=True)}
