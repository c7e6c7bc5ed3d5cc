"""A trace's report as tables and lines for people."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from wiresum.trace.analysis import Analysis
from wiresum.trace.jobs import Job
from wiresum.trace.report import JobReport, SlotReport, headline
from wiresum.trace.rounds import NEVER, Rounds

_STALLS_SHOWN: Final = 10
_SLOTS_SHOWN: Final = 10
_ROUNDS_SHOWN: Final = 200


def duration(microseconds: float) -> str:
    """Three digits and a unit."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def _times(found: dict[str, float] | None) -> list[str]:
    return ["", "", ""] if found is None else [duration(found[name]) for name in ("p50", "p99", "max")]


def render(analysis: Analysis, *, slot: int | None = None) -> Iterator[RenderableType]:
    """The report, job by job; with `slot`, the rounds of that slot as well."""
    report = analysis.report
    if any(job.level for job in report.jobs):
        yield _switches(report.jobs)
        yield ""
    for number, job in enumerate(report.jobs):
        if number:
            yield ""
        yield from _job(job)
        if slot is not None:
            yield from _slot(analysis.jobs[number], analysis.rounds[number], slot)
        elif len(job.slots_seen) > 1:
            yield from _worst_slots(job)
    notes = list(report.notes)
    if report.copies:
        notes.append(f"{report.copies:,} packets were seen at two places and are counted once")
    if report.duplicates:
        notes.append(f"{report.duplicates:,} packets were duplicated by the network and are counted once")
    for note in notes:
        yield f"note: {escape(note)}"


def _switches(jobs: Sequence[JobReport]) -> Table:
    """The switches of trees, a row for each, the root first: where to look on."""
    table = Table(title="switches, from the root down", title_justify="left")
    table.add_column("switch", no_wrap=True)
    table.add_column("below", no_wrap=True)
    table.add_column("job", justify="right")
    table.add_column("ranks")
    for head in ("sent", "again", "lost up", "lost down", "round trip", "99%", "most", "stalls"):
        table.add_column(head, justify="right")
    for job in jobs:
        lost_up = [rank.lost_contributions for rank in job.ranks]
        counts = [
            sum(rank.contributions for rank in job.ranks),
            sum(sum(rank.again.values()) for rank in job.ranks),
            None if None in lost_up else sum(count or 0 for count in lost_up),
            sum(rank.lost_results for rank in job.ranks),
        ]
        names = ", ".join(rank.name for rank in job.ranks)
        told = ["?" if count is None else f"{count:,}" for count in counts]
        stalls = f"{len(job.stalls):,}"
        table.add_row(job.name, job.parent or "", str(job.job), names, *told, *_times(job.round_trip), stalls)
    return table


def _job(job: JobReport) -> Iterator[RenderableType]:
    pool = f"{job.slots:,} slots" if job.slots_known else f"{job.slots:,} slots or more"
    rate = f", {job.bytes_of_values * 8 / job.seconds / 1e6:,.1f} Mbit/s of summed values" if job.seconds else ""
    size = f"{len(job.ranks)} ranks, {pool} of {job.values} values"
    yield f"{headline(job, address=True)}: {size}, {job.seconds:.3f} s{rate}"
    yield (
        f"rounds: {job.finished:,} finished, {job.rounds - job.finished:,} without a result; "
        f"results checked against the sums: {job.sums['checked']:,}, {job.sums['right']:,} right"
    )
    if job.round_trip:
        median, late, most = _times(job.round_trip)
        line = f"round trip: median {median}, 99% within {late}, at most {most}"
        if job.answer:
            line += f"; from the last contribution to the result: median {_times(job.answer)[0]}"
        yield line
    yield _sent_again(job)
    yield _times_of_ranks(job)
    yield from _stalls(job)
    for problem in job.problems:
        yield f"broken rule: {problem.rule}, {problem.count:,} times, as in {escape(', '.join(problem.examples))}"
    for note in job.notes:
        yield f"note: {escape(note)}"


def _sent_again(job: JobReport) -> Table:
    """A row for each rank, as there may be 32."""
    table = Table(title="sent again, and why", title_justify="left")
    table.add_column("rank", no_wrap=True)
    for head in ("sent", "waiting", "unanswered", "answered", "lost up", "lost down", "results", "again"):
        table.add_column(head, justify="right")
    for rank in job.ranks:
        counts = [rank.contributions, *rank.again.values(), rank.lost_contributions, rank.lost_results]
        counts += [rank.results, rank.results_again]
        table.add_row(rank.name, *("?" if count is None else f"{count:,}" for count in counts))
    return table


def _times_of_ranks(job: JobReport) -> Table:
    table = Table(title="round trips, and who was last", title_justify="left")
    table.add_column("rank", no_wrap=True)
    for head in ("round trip", "99%", "most", "last", "by", "99%", "most"):
        table.add_column(head, justify="right")
    for rank in job.ranks:
        table.add_row(rank.name, *_times(rank.round_trip), f"{rank.last:,}", *_times(rank.lag))
    return table


def _stalls(job: JobReport) -> Iterator[RenderableType]:
    if not job.stalls:
        yield f"no round took longer than {duration(job.stall_limit)}"
        return
    longest = sorted(job.stalls, key=lambda stall: -stall.seconds)[:_STALLS_SHOWN]
    title = f"stalls of more than {duration(job.stall_limit)}"
    if len(longest) < len(job.stalls):
        title += f": the longest {len(longest)} of {len(job.stalls):,}"
    table = Table(title=title, title_justify="left")
    for head in ("at", "for", "rounds", "slots"):
        table.add_column(head, justify="right")
    table.add_column("cause")
    for stall in sorted(longest, key=lambda stall: stall.start):
        rounds = f"{stall.rounds:,}" + (f" ({stall.unfinished:,} unfinished)" if stall.unfinished else "")
        slots = f"{len(stall.slots):,}" if len(stall.slots) > 1 else f"#{stall.slots[0]}"
        table.add_row(f"{stall.start:.4f} s", duration(stall.seconds * 1e6), rounds, slots, escape(stall.cause))
    yield table


def _worst_slots(job: JobReport) -> Iterator[RenderableType]:
    """The slots with the most trouble."""

    def trouble(slot: SlotReport) -> tuple[int, int, float]:
        return slot.stalls, slot.again, slot.longest

    worst = sorted(job.slots_seen, key=trouble, reverse=True)[:_SLOTS_SHOWN]
    table = Table(title=f"slots: {len(worst)} of {len(job.slots_seen):,}, the worst first", title_justify="left")
    for head in ("slot", "rounds", "sent", "again", "results", "again", "trip", "99%", "longest", "stalls"):
        table.add_column(head, justify="right")
    for slot in worst:
        counts = [slot.slot, slot.rounds, slot.contributions, slot.again, slot.results, slot.results_again]
        trip, late, _ = _times(slot.round_trip)
        table.add_row(*(f"{count:,}" for count in counts), trip, late, duration(slot.longest), f"{slot.stalls:,}")
    yield table


def _slot(job: Job, rounds: Rounds, slot: int) -> Iterator[RenderableType]:
    """Every round of one slot."""
    rows = np.flatnonzero(rounds.slot == slot)
    if not len(rows):
        yield f"slot {slot} is not in the captures"
        return
    origin = int(job.packets["time"][0])
    title = f"slot {slot}" + (f", first {_ROUNDS_SHOWN} of {len(rows):,} rounds" if len(rows) > _ROUNDS_SHOWN else "")
    table = Table(title=title, title_justify="left")
    for head in ("chunk", "version", "at", "took", "sent again", "results again"):
        table.add_column(head, justify="right")
    table.add_column("last, by")
    names = job.names
    for row in rows[:_ROUNDS_SHOWN].tolist():
        tsi = job.tsi(int(rounds.chunk[row]))
        begin = int(rounds.begin[row])
        finished = int(rounds.answered[row]) != NEVER
        last, missing = int(rounds.last[row]), np.flatnonzero(rounds.sent[row] == NEVER).tolist()
        who = f"{names[last]}, {duration(int(rounds.lag[row]) / 1e3)}" if last >= 0 else ""
        table.add_row(
            f"{tsi:,}",
            str(tsi // job.slots % 2),
            "" if begin == NEVER else f"{(begin - origin) / 1e9:.6f} s",
            duration(int(rounds.waited[row]) / 1e3) + ("" if finished else ", unfinished"),
            str(int(np.maximum(rounds.copies[row] - 1, 0).sum())),
            str(int(np.maximum(rounds.results[row] - 1, 0).sum())),
            who or ("not seen: " + ", ".join(names[rank] for rank in missing) if missing else ""),
        )
    yield table
