"""Which switches of a trace are above which: a leaf of a tree is a rank of the switch above it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wiresum.trace.jobs import Job
from wiresum.trace.nodes import Nodes
from wiresum.trace.packets import Table


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job's switch stands.

    Attributes:
        parent: what the switch above it is called; None if there is none, or it is not known.
        level: how many switches are above it, as far as is known.
        upward: what it contributed to the switch above it, if that was captured.
    """

    parent: str | None
    level: int
    upward: Table | None


def find_places(jobs: Sequence[Job], nodes: Nodes) -> list[Place]:
    """Of each job, from what was captured between switches, and from what is known of the nodes."""
    above = [_above(job, jobs) for job in jobs]
    places = []
    for job, found in zip(jobs, above, strict=True):
        name = job.switch_name
        parent = nodes.parents.get(name) or (found[0].switch_name if found else None)
        places.append(
            Place(
                parent=parent,
                level=max(nodes.level(name), _depth(job, jobs, above)),
                upward=found[1] if found else None,
            )
        )
    return places


def in_order(jobs: Sequence[Job], places: Sequence[Place]) -> list[int]:
    """Indices of jobs for a report: in time, but those of one number that overlap together, the root first."""
    start, end = ([int(_packets(job)["time"][at]) for job in jobs] for at in (0, -1))
    tree_start: dict[int, int] = {}
    open_trees: dict[int, tuple[int, int]] = {}  # by job number: start and end
    for index in sorted(range(len(jobs)), key=lambda each: start[each]):
        number = jobs[index].number
        first, last = open_trees.get(number, (0, -1))
        if start[index] > last:
            first, last = start[index], end[index]
        open_trees[number] = first, max(last, end[index])
        tree_start[index] = first

    def key(index: int) -> tuple[object, ...]:
        job = jobs[index]
        return tree_start[index], job.number, places[index].level, _natural(job.switch_name), start[index]

    return sorted(range(len(jobs)), key=key)


def _above(job: Job, jobs: Sequence[Job]) -> tuple[Job, Table] | None:
    """The job of the switch above, and what this one sent there; the one at the same time, if there are several."""
    best: tuple[Job, Table] | None = None
    longest = -1
    for other in jobs:
        mine = np.flatnonzero(other.ranks >> 16 == job.switch)
        if other is job or other.number != job.number or not len(mine):
            continue
        shared = min(int(_packets(each)["time"][-1]) for each in (job, other))
        shared -= max(int(_packets(each)["time"][0]) for each in (job, other))
        if shared > longest:
            best = other, other.packets[~other.is_result & (other.rank == mine[0])]
            longest = shared
    return best


def _depth(job: Job, jobs: Sequence[Job], above: Sequence[tuple[Job, Table] | None]) -> int:
    depth = 0
    while depth < len(jobs):  # what was captured may be forged to go round
        found = above[next(index for index, each in enumerate(jobs) if each is job)]
        if found is None:
            break
        job, depth = found[0], depth + 1
    return depth


def _packets(job: Job) -> Table:
    return job.packets if len(job.packets) else job.bad


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """s10 after s9, and 10.0.0.10 after 10.0.0.9."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name))
