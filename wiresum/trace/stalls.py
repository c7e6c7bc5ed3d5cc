"""Stalls: rounds that took far longer than usual, as episodes in time, and who caused them."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from wiresum.trace.captures import Integers
from wiresum.trace.jobs import Job
from wiresum.trace.packets import Mask
from wiresum.trace.rounds import ANSWERED, NEVER, Rounds

_TIMES_USUAL: Final = 10
_REASONS_SHOWN: Final = 3
_LEAST: Final = 1_000_000  # nanoseconds: a scheduler's pause is no stall


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Rounds that stood still at the same time.

    Attributes:
        start: seconds since the captures began.
        seconds: until the last of the rounds was answered, or the captures ended.
        rounds: how many.
        slots: the slots they are in.
        unfinished: rounds that were never answered.
        late: how many rounds waited for each rank, by name: it came in the second half, or never.
        repairing: as `late`, of those that waited for this rank because its previous result had been lost.
        lost: how many rounds waited because a contribution was lost, by the rank that sent it again.
        unexplained: rounds that waited for none of these.
        why_unexplained: what can be said of those.
    """

    start: float
    seconds: float
    rounds: int
    slots: list[int]
    unfinished: int
    late: dict[str, int]
    repairing: dict[str, int]
    lost: dict[str, int]
    unexplained: int
    why_unexplained: str

    @property
    def cause(self) -> str:
        """The most frequent reasons in words, each with the number of rounds."""
        reasons = [(self.unexplained, self.why_unexplained)]
        for name, count in self.late.items():
            mended = self.repairing.get(name, 0)
            reasons.append((count, f"{name} missing{', its result was lost or late' if 2 * mended > count else ''}"))
        reasons += [(count, f"contribution of {name} lost or late") for name, count in self.lost.items()]
        reasons = sorted((reason for reason in reasons if reason[0]), key=lambda reason: -reason[0])
        parts = [f"{text} ({count:,})" for count, text in reasons[:_REASONS_SHOWN]]
        return "; ".join(parts) + (f"; {len(reasons) - len(parts)} more" if len(reasons) > len(parts) else "")


def usual_limit(rounds: Rounds) -> int:
    """What counts as a stall, in nanoseconds: ten times the median of the rounds, and a millisecond at least."""
    done = rounds.waited[rounds.finished & (rounds.begin != NEVER)]
    return max(_LEAST, _TIMES_USUAL * int(np.median(done)) if len(done) else 0)


def find_stalls(
    job: Job, rounds: Rounds, *, limit: int, origin: int, all_seen: bool, parent: str | None = None
) -> list[Stall]:
    """The stalls of more than `limit` nanoseconds, in the order of their beginnings; `origin` is second 0.

    Where not all ranks are in the captures, nothing says that a contribution was lost: others may have been late. At a
    leaf, what nothing else explains is a wait for `parent`, the switch above it.
    """
    stalled = np.flatnonzero(rounds.waited > limit)
    if not len(stalled):
        return []
    stalled = stalled[np.argsort(rounds.begin[stalled], kind="stable")]
    begin = rounds.begin[stalled]
    until = begin + rounds.waited[stalled]
    missing = rounds.sent[stalled] > (begin + rounds.waited[stalled] // 2)[:, None]
    repairing = missing & _mended_before(job, rounds, stalled)
    open_until = np.maximum.accumulate(until)
    new = np.ones(len(stalled), bool)
    new[1:] = begin[1:] > open_until[:-1]
    edges = [*np.flatnonzero(new).tolist(), len(stalled)]
    names = job.names
    if parent is not None and all_seen:
        why = f"no answer from {parent} above"
    else:
        why = "no answer to all contributions" if all_seen else "no answer, others may be missing"

    stalls = []
    for first, stop in pairwise(edges):
        part = stalled[first:stop]
        explained = missing[first:stop].any(axis=1)
        repaired = ~explained & rounds.repaired[part] & all_seen
        stalls.append(
            Stall(
                start=(int(begin[first]) - origin) / 1e9,
                seconds=(int(open_until[stop - 1]) - int(begin[first])) / 1e9,
                rounds=len(part),
                slots=np.unique(rounds.slot[part]).tolist(),
                unfinished=int(np.count_nonzero(~rounds.finished[part])),
                late=_count(names, missing[first:stop].sum(axis=0)),
                repairing=_count(names, repairing[first:stop].sum(axis=0)),
                lost=_count(names, np.bincount(rounds.finisher[part][repaired], minlength=len(names))),
                unexplained=int(np.count_nonzero(~explained & ~repaired)),
                why_unexplained=why,
            )
        )
    return stalls


def _mended_before(job: Job, rounds: Rounds, rows: Integers) -> Mask:
    """Whether a rank had to ask again for the result of the chunk before in the same slot, shape (rows, ranks)."""
    asked = np.zeros(rounds.sent.shape, bool)
    lost = rounds.again_reason == ANSWERED
    asked[rounds.again_row[lost], rounds.again_rank[lost]] = True
    before = np.searchsorted(rounds.chunk, rounds.chunk[rows] - job.slots)
    known = rounds.chunk[np.minimum(before, len(rounds) - 1)] == rounds.chunk[rows] - job.slots
    mended: Mask = asked[np.minimum(before, len(rounds) - 1)] & known[:, None]
    return mended


def _count(names: list[str], counts: Integers) -> dict[str, int]:
    return {name: count for name, count in zip(names, counts.tolist(), strict=True) if count}
