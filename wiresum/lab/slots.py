"""Which slots of a switch wait, and for whom.

    python -m wiresum.lab.slots 10.254.1.1:50099 --again 0.5

writes what the switch says of each job as JSON; `describe` says it in words.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from json import dumps
from typing import Any, Final

from host.control_channel import CALL_TIMEOUT, ControlChannel
from host.control_types import JobRow, StallReport, SwitchReport
from protocol import control_pb2 as pb
from protocol.errors import WiresumError

_SHOWN: Final = 8


def read_slots(control: str, again: float | None = None) -> list[dict[str, Any]]:
    """The jobs of a switch with their waiting slots.

    Args:
        control: its control address.
        again: seconds after which to look once more; only what has waited for the same ranks both times is told.

    Returns:
        For each job the fields of `JobRow`; `waiting`, its slots that have some contributions but not all; and `ranks`,
        by rank, which only the root of a tree knows.

    Raises:
        WiresumError: the switch does not answer.
    """
    with closing(ControlChannel(control, CALL_TIMEOUT)) as channel:
        found = _look(channel)
        if again is not None and any(job["waiting"] for job in found):
            time.sleep(again)
            before = {job["number"]: {_key(slot) for slot in job["waiting"]} for job in found}
            found = _look(channel)
            for job in found:
                job["waiting"] = [slot for slot in job["waiting"] if _key(slot) in before.get(job["number"], set())]
    return found


def _key(slot: Mapping[str, Any]) -> tuple[Any, ...]:
    return slot["slot"], slot["chunk"], tuple(slot["missing"])


def _look(channel: ControlChannel) -> list[dict[str, Any]]:
    jobs = SwitchReport.from_reply(channel.call(channel.stub.Statistics, pb.StatisticsRequest())).jobs
    return [{**asdict(job), **_waiting(channel, job)} for job in jobs]


def _waiting(channel: ControlChannel, job: JobRow) -> dict[str, Any]:
    if job.number is None:
        return {"waiting": [], "ranks": []}
    try:
        reply = channel.call(channel.stub.Stall, pb.StallRequest(job_number=job.number))
    except WiresumError:  # it ended meanwhile
        return {"waiting": [], "ranks": []}
    report = StallReport.from_reply(reply, job.name)
    slots = [{**asdict(slot), "version": slot.chunk // job.slots & 1} for slot in report.slots]
    return {"waiting": slots, "ranks": [asdict(rank) for rank in report.ranks]}


def describe(job: Mapping[str, Any], hosts: Mapping[str, str], *, stalled: bool = False) -> Iterator[str]:
    """A job's slots in words.

    Args:
        job: as `read_slots` gives it.
        hosts: names of hosts by address.
        stalled: whether `waiting` are those that have not moved for a while.
    """
    title = f"job {job['name']!r}"
    if job["number"] is None:
        absent = [rank for rank in range(job["world_size"]) if rank not in job["joined"]]
        yield f"{title} has not begun: {_ranks(absent, job, hosts)} of {job['world_size']} have not joined"
        return
    waiting: Sequence[Mapping[str, Any]] = job["waiting"]
    title += f" (number {job['number']}): of {job['slots']:,} slots of {job['values']} values, "
    if stalled:
        yield title + f"{len(waiting):,} do not move"
    else:
        yield title + f"{job['slots'] - len(waiting):,} are free and {len(waiting):,} wait"
    missing = Counter(rank for slot in waiting for rank in slot["missing"])
    for rank, count in sorted(missing.items()):
        yield f"  {_rank(rank, job, hosts)} is missing in {count:,}{_heard(rank, job)}"
    for slot in waiting[:_SHOWN]:
        lacks = f"lacks {_ranks(slot['missing'], job, hosts)}" if slot["missing"] else "waits for the switch above"
        has = _ranks(slot["seen"], job, hosts) if slot["seen"] else "nothing of its own"
        yield f"  slot {slot['slot']} version {slot['version']} chunk {slot['chunk']}: has {has}; {lacks}"
    if len(waiting) > _SHOWN:
        yield f"  and {len(waiting) - _SHOWN:,} more"


def _ranks(ranks: Sequence[int], job: Mapping[str, Any], hosts: Mapping[str, str]) -> str:
    return ", ".join(_rank(rank, job, hosts) for rank in ranks)


def _rank(rank: int, job: Mapping[str, Any], hosts: Mapping[str, str]) -> str:
    address = job["ranks"][rank]["address"].rpartition(":")[0] if rank < len(job["ranks"]) else ""
    return f"rank {rank} ({hosts[address]})" if address in hosts else f"rank {rank}"


def _heard(rank: int, job: Mapping[str, Any]) -> str:
    if rank >= len(job["ranks"]):
        return ""
    state = job["ranks"][rank]
    if state["left"]:
        return "; it has left"
    return "; it never sent a packet" if state["last_heard"] is None else f"; heard {state['last_heard']:.1f} s ago"


def main() -> int:
    """Prints them once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("control", metavar="HOST:PORT")
    parser.add_argument("--again", type=float, metavar="SECONDS", help="leave out what moves within so long")
    args = parser.parse_args()
    try:
        sys.stdout.write(dumps(read_slots(args.control, args.again)) + "\n")
    except WiresumError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
