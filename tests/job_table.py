"""What tests of the job table share. All wishes fit each other unless a test changes them."""

from collections.abc import Iterable
from typing import TypeVar

from switch.admission import JoinWish
from switch.dataplane import JobSpec
from switch.job_events import (
    Effect,
    Event,
    Install,
    JoinDone,
    Tell,
)
from switch.jobs import JobTable

T = TypeVar("T", bound=Effect)


def make_table(total_slots: int = 4096, max_ranks: int = 32) -> JobTable:
    return JobTable(
        total_slots=total_slots, values_supported=(32, 64, 128, 256), default_slots=512, max_ranks=max_ranks
    )


def wish(rank: int = 0, world_size: int = 2, job: str = "train", slots: int = 128, values: int = 256) -> JoinWish:
    port = 40000 + rank + 100 * (sum(job.encode()) % 100)
    return JoinWish(
        job=job,
        rank=rank,
        world_size=world_size,
        address=("10.0.0.1", port),
        values=values,
        slots=slots,
        timeout=60.0,
    )


def only(effects: Iterable[Effect], kind: type[T]) -> list[T]:
    return [effect for effect in effects if isinstance(effect, kind)]


def events(effects: Iterable[Effect]) -> dict[int, Event]:
    return {effect.membership: effect.event for effect in effects if isinstance(effect, Tell)}


def start(table: JobTable, wishes: Iterable[JoinWish], now: float = 0.0) -> tuple[JobSpec, list[int]]:
    """Lets all join, installs the job, opens all watches."""
    memberships = [table.join(each, now) for each in wishes]
    (install,) = only(table.effects(), Install)
    table.installed(install.spec.number, now)
    assert [done.membership for done in only(table.effects(), JoinDone)] == memberships
    for membership in memberships:
        table.watching(membership, now)
    return install.spec, memberships


def world(size: int, job: str = "train", slots: int = 128, values: int = 256) -> list[JoinWish]:
    return [wish(rank, size, job, slots, values) for rank in range(size)]
