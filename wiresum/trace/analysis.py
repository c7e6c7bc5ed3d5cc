"""Works out from captures what happened in a run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from protocol.constants import MSG_VALUES, PREFIX_BYTES, VALUE_BYTES
from protocol.errors import WiresumError
from wiresum.trace.jobs import Job, endpoint, find_jobs
from wiresum.trace.nodes import nodes_beside, read_nodes
from wiresum.trace.packets import Fault, Trace, read_trace
from wiresum.trace.report import JobReport, Problem, RankReport, Report, SlotReport
from wiresum.trace.rounds import ANSWERED, NEVER, REASONS, Rounds, find_rounds, percentiles
from wiresum.trace.stalls import find_stalls, usual_limit
from wiresum.trace.sums import SumCheck, check_sums
from wiresum.trace.trees import Place, find_places, in_order

_EXAMPLES: Final = 5
FAULTS: Final = {
    Fault.LENGTH: "wrong length",
    Fault.MSG_TYPE: "unknown msg_type",
    Fault.SIZE: "unknown size",
    Fault.RESERVED: "reserved bits set",
    Fault.INDEX: "pool_index does not follow from tsi",
    Fault.OTHER_SIZE: "other size than the job's",
    Fault.OTHER_JOB: "other job than the sender's",
}


@dataclass(frozen=True, slots=True)
class Analysis:
    """A report and what it was made from, for pictures; `rounds` belong to the report's jobs."""

    trace: Trace
    jobs: list[Job]
    rounds: list[Rounds]
    report: Report


def analyse(
    paths: Sequence[Path],
    *,
    port: int,
    job: int | None = None,
    ranks: int | None = None,
    stall: float | None = None,
    summary: Path | None = None,
) -> Analysis:
    """Reads captures of one run and works out what happened.

    Args:
        port: the switch's UDP port.
        job: look at jobs of this number only.
        ranks: how many ranks the jobs have, if the captures are not to be trusted to show them all.
        stall: seconds that a round may take before it counts as a stall; by default ten times what they usually take.
        summary: the run's summary, which tells the nodes' names; by default that beside the captures, if there is one.

    Raises:
        CaptureError, OSError: see `read_trace`.
        WiresumError: there is no such job, or the summary is none.
    """
    nodes, notes = nodes_beside(paths) if summary is None else (read_nodes(summary), [])
    trace = read_trace(paths, port=port)
    found = [replace(each, nodes=nodes.names) for each in find_jobs(trace, port=port)]
    places = find_places(found, nodes)
    order = [index for index in in_order(found, places) if job is None or found[index].number == job]
    chosen = [found[index] for index in order]
    if not chosen:
        have = ", ".join(str(number) for number in sorted({each.number for each in found})) or "none"
        wanted = "" if job is None else f" {job}"
        raise WiresumError(f"the captures show no packets of a job{wanted}; jobs in them: {have}")
    end = int(trace.packets["time"][-1])
    chosen_places = [places[index] for index in order]
    rounds = [
        find_rounds(each, end=end, upward=place.upward) for each, place in zip(chosen, chosen_places, strict=True)
    ]
    reports = []
    for each, its, place in zip(chosen, rounds, chosen_places, strict=True):
        check = check_sums(trace, each, its, place.upward)
        limit = usual_limit(its) if stall is None else round(stall * 1e9)
        reports.append(_report(trace, each, its, check, limit, ranks, place))
    captures = [
        {"file": str(c.path), "frames": c.frames, "packets": c.packets, "notes": c.notes} for c in trace.captures
    ]
    headless = trace.packets[trace.packets["captured"] < PREFIX_BYTES]
    notes += [note for capture in trace.captures for note in capture.notes]
    if len(headless):
        notes.append(f"{len(headless):,} datagrams are too short for a header, as in {_example(trace, headless[0])}")
    report = Report(
        captures=captures,
        packets=len(trace.packets),
        copies=trace.copies,
        duplicates=trace.duplicates,
        jobs=reports,
        notes=notes,
    )
    return Analysis(trace, chosen, rounds, report)


def _report(
    trace: Trace, job: Job, rounds: Rounds, check: SumCheck, limit: int, ranks: int | None, place: Place
) -> JobReport:
    origin = int(trace.packets["time"][0])
    packets = job.packets if len(job.packets) else job.bad
    start, end = int(packets["time"][0]), int(packets["time"][-1])
    whole = check.whole if ranks is None else len(job.ranks) >= ranks
    notes = []
    if whole is False:
        notes.append(_incomplete(job, place))
    if ranks is not None and len(job.ranks) > ranks:
        notes.append(f"{len(job.ranks)} ranks are in the captures, not {ranks}")
    if len(job.strangers):
        names = ", ".join(job.named(address) for address in job.strangers[:_EXAMPLES].tolist())
        notes.append(f"{len(job.strangers)} senders are never answered and are taken for no ranks of the job: {names}")
    unseen = int(np.count_nonzero(rounds.finished & (rounds.complete == NEVER)))
    if unseen:
        notes.append(f"{unseen:,} rounds have a result though not all contributions to them were captured")
    if not job.is_result.any():
        notes.append("the captures show no results, so that round trips and losses cannot be told")
    elif job.is_result.all():
        notes.append("the captures show no contributions, so that round trips and losses cannot be told")
    answered = rounds.finished & (rounds.complete != NEVER)
    answer = (rounds.answered - rounds.complete)[answered]
    with_values = np.unique(job.chunk[job.packets["kind"] >> 4 == MSG_VALUES])
    done = np.count_nonzero(np.isin(rounds.chunk[rounds.finished], with_values))
    stalls = find_stalls(job, rounds, limit=limit, origin=origin, all_seen=whole is not False, parent=place.parent)
    return JobReport(
        switch=job.switch_address,
        name=job.switch_name,
        level=place.level,
        parent=place.parent,
        job=job.number,
        start=(start - origin) / 1e9,
        seconds=(end - start) / 1e9,
        slots=job.slots,
        slots_known=job.slots_known,
        values=job.values,
        all_ranks_seen=whole,
        rounds=len(rounds),
        finished=int(np.count_nonzero(rounds.finished)),
        bytes_of_values=int(done) * job.values * VALUE_BYTES,
        round_trip=percentiles(rounds.round_trip[rounds.round_trip >= 0]),
        answer=percentiles(answer[answer >= 0]),
        stall_limit=limit / 1e3,
        sums={"checked": check.checked if whole is not False else 0, "right": check.right if whole is not False else 0},
        ranks=[_rank(job, rounds, rank, all_seen=whole is not False) for rank in range(len(job.ranks))],
        stalls=stalls,
        problems=_problems(trace, job, rounds, check, sums=whole is not False),
        slots_seen=_slots(job, rounds, limit),
        notes=notes,
    )


def _incomplete(job: Job, place: Place) -> str:
    """What to do if results are not the sums of what was captured."""
    text = f"hardly any result is the sum of what the {len(job.ranks)} ranks seen have sent: "
    if place.parent is not None and place.upward is None:
        text += (
            f"{job.switch_name} passes that on to {place.parent}, which was not captured; read the switches' captures "
            "as well, all of RUN/*.pcap"
        )
    elif place.upward is None:
        text += (
            "others are missing in the captures or, in a tree of switches, what this one passes on to the switch above "
            "it; read the captures of all hosts and switches together, as in RUN/*.pcap"
        )
    else:
        text += "others are missing in the captures; read those of all hosts together, as in RUN/*.pcap"
    return text + ". Until then, who was late is told among these alone (if none is missing, say so with --ranks)"


def _rank(job: Job, rounds: Rounds, rank: int, *, all_seen: bool) -> RankReport:
    mine = rounds.again_rank == rank
    reasons = np.bincount(rounds.again_reason[mine], minlength=len(REASONS)).tolist()
    round_trip, lag = rounds.round_trip[:, rank], rounds.lag[rounds.last == rank]
    results = rounds.results[:, rank]
    return RankReport(
        address=endpoint(int(job.ranks[rank])),
        name=job.names[rank],
        contributions=int(rounds.copies[:, rank].sum()),
        again=dict(zip(REASONS, reasons, strict=True)),
        lost_contributions=int(np.count_nonzero(rounds.repaired & (rounds.finisher == rank))) if all_seen else None,
        lost_results=len(np.unique(rounds.again_row[mine & (rounds.again_reason == ANSWERED)])),
        results=int(results.sum()),
        results_again=int((results[results > 1] - 1).sum()),
        round_trip=percentiles(round_trip[round_trip >= 0]),
        last=len(lag),
        lag=percentiles(lag),
    )


def _slots(job: Job, rounds: Rounds, limit: int) -> list[SlotReport]:
    slots, slot = np.unique(rounds.slot, return_inverse=True)

    def total(column: npt.NDArray[Any]) -> list[int]:
        return [int(value) for value in np.bincount(slot, weights=column, minlength=len(slots))]

    contributions, results = total(rounds.copies.sum(axis=1)), total(rounds.results.sum(axis=1))
    again = total(np.maximum(rounds.copies - 1, 0).sum(axis=1))
    results_again = total(np.maximum(rounds.results - 1, 0).sum(axis=1))
    stalls, unfinished = total(rounds.waited > limit), total(~rounds.finished)
    order = np.argsort(slot, kind="stable")
    edges = np.searchsorted(slot[order], np.arange(len(slots) + 1))
    reports = []
    for index, number in enumerate(slots.tolist()):
        rows = order[edges[index] : edges[index + 1]]
        trips = rounds.round_trip[rows]
        reports.append(
            SlotReport(
                slot=number,
                rounds=len(rows),
                unfinished=unfinished[index],
                contributions=contributions[index],
                again=again[index],
                results=results[index],
                results_again=results_again[index],
                round_trip=percentiles(trips[trips >= 0]),
                longest=int(rounds.waited[rows].max()) / 1e3,
                stalls=stalls[index],
            )
        )
    return reports


def _problems(trace: Trace, job: Job, rounds: Rounds, check: SumCheck, *, sums: bool) -> list[Problem]:
    problems = []
    for fault, rule in FAULTS.items():
        rows = np.flatnonzero(job.bad["fault"] == fault)
        if len(rows):
            examples = [_example(trace, job.bad[row]) for row in rows[:_EXAMPLES]]
            problems.append(Problem(rule=rule, count=len(rows), examples=examples))
    before = np.searchsorted(rounds.chunk, rounds.chunk - job.slots)
    there = np.flatnonzero(rounds.chunk[before] == rounds.chunk - job.slots)
    # Only a single tap's times can be compared so closely.
    early = np.zeros(rounds.sent.shape, bool)
    if trace.taps == 1:
        got = rounds.got[before[there]]
        early[there] = (rounds.sent[there] < got) & (got != NEVER)
    of_chunks = [
        ("wrong sum", check.wrong if sums else []),
        ("results of one chunk differ", check.differing_results),
        ("what was sent again differs", check.differing_copies),
        ("sent before the slot's last result came", np.flatnonzero(early.any(axis=1)).tolist()),
    ]
    for rule, found in of_chunks:
        if found:
            examples = [f"chunk {job.tsi(int(rounds.chunk[row]))}" for row in found[:_EXAMPLES]]
            problems.append(Problem(rule=rule, count=len(found), examples=examples))
    return problems


def _example(trace: Trace, packet: Any) -> str:
    return f"{trace.captures[packet['file']].path}, frame {packet['frame']}"
