"""Whether results are the sums of what was sent, as far as a capture holds both; exact, value by value."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from protocol.constants import MSG_VALUES, PREFIX_BYTES, VALUE_BYTES
from wiresum.trace.captures import Integers
from wiresum.trace.jobs import Job
from wiresum.trace.packets import Mask, Table, Trace
from wiresum.trace.rounds import NEVER, Rounds

_BATCH_BYTES: Final = 8 << 20  # of values looked at in one go


@dataclass(slots=True, kw_only=True)
class SumCheck:
    """What was compared.

    Attributes:
        checked: rounds of which all ranks' contributions and a result are there in full.
        right: how many of them are right: values and exponents.
        telling: how many of them have values other than zeros, so that they cannot be right by chance.
        telling_right: how many of those are right.
        wrong: rows of rounds with a wrong result.
        differing_results: rows of rounds whose results are not all the same.
        differing_copies: rows of rounds where what a rank sent again is not what it had sent.
    """

    checked: int = 0
    right: int = 0
    telling: int = 0
    telling_right: int = 0
    wrong: list[int] = field(default_factory=list)
    differing_results: list[int] = field(default_factory=list)
    differing_copies: list[int] = field(default_factory=list)

    @property
    def whole(self) -> bool | None:
        """Whether the captures seem to hold the contributions of all ranks; None if that cannot be told.

        Without those of some rank hardly any sum would be right.
        """
        return None if not self.telling else 2 * self.telling_right > self.telling


def check_sums(trace: Trace, job: Job, rounds: Rounds, upward: Table | None = None) -> SumCheck:
    """Adds up again.

    Args:
        upward: what the switch itself sent to its parent, if it is a leaf of a tree: then that, and not the result,
            is the sum of its own ranks' contributions.
    """
    check = SumCheck()
    if not len(rounds):
        return check
    packets, row = job.packets, np.searchsorted(rounds.chunk, job.chunk)
    full = packets["captured"] == packets["length"]
    up, down = np.flatnonzero(~job.is_result & full), np.flatnonzero(job.is_result & full)
    pairs, first = np.unique(row[up] * len(job.ranks) + job.rank[up], return_index=True)
    contributions = up[first]  # in the order of rows, and of ranks within a row
    results_row, first = np.unique(row[down], return_index=True)
    results = down[first]

    # Copies, of contributions and of results, against the first of their kind.
    again = np.setdiff1d(up, contributions)
    original = contributions[np.searchsorted(pairs, row[again] * len(job.ranks) + job.rank[again])]
    check.differing_copies = _differing(trace, packets, original, packets, again, row[again])
    again = np.setdiff1d(down, results)
    original = results[np.searchsorted(results_row, row[again])]
    check.differing_results = _differing(trace, packets, original, packets, again, row[again])

    answers, answered_row, answer_index = packets, results_row, results
    if upward is not None:
        chunk = job.chunk_of(upward["tsi"])
        place = np.minimum(np.searchsorted(rounds.chunk, chunk), len(rounds) - 1)
        known = np.flatnonzero((rounds.chunk[place] == chunk) & (upward["captured"] == upward["length"]))
        answered_row, first = np.unique(place[known], return_index=True)
        answers, answer_index = upward, known[first]

    counts = np.bincount(row[contributions], minlength=len(rounds))
    rows = answered_row[(counts[answered_row] == len(job.ranks)) & (rounds.complete[answered_row] != NEVER)]
    rows = np.setdiff1d(rows, check.differing_copies)  # which of the copies was added cannot be told
    begin = np.searchsorted(row[contributions], rows)
    parts = contributions[begin[:, None] + np.arange(len(job.ranks))]
    answer = answer_index[np.searchsorted(answered_row, rows)]
    alike = (packets["kind"][parts] == answers["kind"][answer][:, None]).all(axis=1)
    right, telling = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    for name in ("e0", "e1"):
        alike &= packets[name][parts].max(axis=1) == answers[name][answer]
    with_values = packets["kind"][parts[:, 0]] >> 4 == MSG_VALUES if len(rows) else np.zeros(0, bool)
    right[~with_values] = alike[~with_values]
    for batch in _batches(np.flatnonzero(with_values & alike), VALUE_BYTES * job.values * (len(job.ranks) + 1)):
        total = np.zeros((len(batch), job.values), np.uint32)
        for rank in range(len(job.ranks)):
            total += _values(trace, packets, parts[batch, rank], job.values)
        found = _values(trace, answers, answer[batch], job.values)
        right[batch] = (found == total).all(axis=1)
        telling[batch] = found.any(axis=1) | total.any(axis=1)
    telling |= with_values & ~alike
    check.checked, check.right = len(rows), int(right.sum())
    check.telling, check.telling_right = int(telling.sum()), int((telling & right).sum())
    check.wrong = rows[~right].tolist()
    return check


def _differing(
    trace: Trace, one: Table, one_index: Integers, other: Table, other_index: Integers, rows: Integers
) -> list[int]:
    """Rows whose two packets are not the same bytes."""
    same: Mask = np.ones(len(rows), bool)
    for name in ("kind", "e0", "e1"):
        same &= one[name][one_index] == other[name][other_index]
    sizes = (one["length"][one_index] - PREFIX_BYTES) // VALUE_BYTES
    for size in np.unique(sizes[same]).tolist():
        if size:
            for batch in _batches(np.flatnonzero(same & (sizes == size)), 2 * VALUE_BYTES * size):
                left = _values(trace, one, one_index[batch], size)
                same[batch] = (left == _values(trace, other, other_index[batch], size)).all(axis=1)
    return [int(row) for row in np.unique(rows[~same])]


def _batches(index: Integers, bytes_each: int) -> Iterator[Integers]:
    step = max(1, _BATCH_BYTES // max(1, bytes_each))
    for start in range(0, len(index), step):
        yield index[start : start + step]


def _values(trace: Trace, table: Table, index: Integers, values: int) -> npt.NDArray[np.uint32]:
    """The values of some packets, modulo 2^32, shape (packets, values)."""
    found = np.zeros((len(index), values), np.uint32)
    files, at = table["file"][index], table["payload"][index] + PREFIX_BYTES
    for number in np.unique(files).tolist():
        windows: Any = np.lib.stride_tricks.sliding_window_view(trace.captures[number].data, VALUE_BYTES * values)
        mine = files == number
        found[mine] = windows[at[mine]].view(">u4")
    return found
