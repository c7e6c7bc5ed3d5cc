"""Jobs: rendezvous, leaving and dying, disagreement. Time is in literal seconds."""

from contextlib import suppress
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import JoinRefusedError, JoinTimeoutError, PeerLostError, SwitchLostError
from switch.admission import slot_cost
from switch.dataplane import JobSpec, StalledSlot
from switch.job_events import (
    Begin,
    Disagreement,
    EndWatch,
    Explain,
    Goodbye,
    Install,
    JoinDone,
    JoinFailed,
    PeerLeft,
    PeerLost,
    Remove,
    Tell,
)
from tests.job_table import events, make_table, only, start, wish, world

# Rendezvous


def test_job_begins_when_the_last_rank_has_joined() -> None:
    table = make_table()
    third = table.join(wish(2, 3), 0.0)
    first = table.join(wish(0, 3), 10.0)
    assert table.effects() == []
    assert [(job.state, job.joined, job.number) for job in table.status()] == [("waiting", (0, 2), None)]
    second = table.join(wish(1, 3), 20.0)
    (install,) = table.effects()
    workers = tuple(wish(rank, 3).address for rank in range(3))
    assert install == Install(JobSpec(number=0, name="train", slots=128, values=256, workers=workers))
    table.installed(0, 20.5)
    assert table.effects() == [JoinDone(membership, 0, 128) for membership in (first, second, third)]
    assert [(job.state, job.joined, job.number) for job in table.status()] == [("running", (0, 1, 2), 0)]


def test_job_of_one_rank_begins_at_once() -> None:
    spec, _ = start(make_table(), world(1))
    assert spec.workers == (wish(0, 1).address,)


def test_smallest_pool_that_a_rank_asks_for_is_granted() -> None:
    spec, _ = start(make_table(), [wish(0, 4, slots=512), wish(1, 4, slots=0), wish(2, 4, slots=64), wish(3, 4)])
    assert spec.slots == 64


def test_pool_is_chosen_when_no_rank_asks_for_one_and_leaves_room_for_the_next_job() -> None:
    table = make_table(total_slots=1500)
    assert start(table, world(2, "a", slots=0))[0].slots == 512
    assert start(table, world(2, "b", slots=0))[0].slots == 256
    assert start(table, world(2, "c", slots=0, values=128))[0].slots == 512


def test_time_out_names_missing_ranks_to_everyone_who_waits() -> None:
    table = make_table()
    first = table.join(wish(0, 4), 0.0)
    third = table.join(wish(2, 4), 1.5)
    assert table.next_deadline() == 60.0
    table.expire(59.9)
    assert table.effects() == []
    table.expire(60.0)
    (failed,) = only(table.effects(), JoinFailed)
    assert failed.membership == first
    assert isinstance(failed.error, JoinTimeoutError)
    assert str(failed.error) == "job 'train': 2 of 4 ranks joined within 60 s; missing: rank 1, rank 3"
    assert table.next_deadline() == 61.5
    table.expire(61.5)
    (failed,) = only(table.effects(), JoinFailed)
    assert failed.membership == third
    assert "missing: rank 1, rank 3, rank 0 (was here, gave up after 60 s)" in str(failed.error)
    assert table.status() == []
    assert table.next_deadline() is None


def test_rank_that_gave_up_may_come_again() -> None:
    table = make_table()
    table.join(wish(0), 0.0)
    table.join(wish(0, job="other"), 30.0)
    table.expire(60.0)
    table.effects()
    start(table, world(2), 61.0)


def test_rank_that_dies_while_waiting_frees_its_place() -> None:
    table = make_table()
    first = table.join(wish(0), 0.0)
    second = table.join(replace(wish(1, 3, "other"), timeout=10.0), 0.0)
    table.join(wish(2, 3, "other"), 0.0)
    table.gone(first)
    assert [job.name for job in table.status()] == ["other"]
    table.gone(second)
    table.expire(60.0)
    (failed,) = only(table.effects(), JoinFailed)
    assert "missing: rank 0, rank 1 (died while waiting, was at 10.0.0.1:" in str(failed.error)
    start(table, world(2), 61.0)


def test_rank_that_dies_while_the_data_plane_is_told_fails_the_others() -> None:
    table = make_table()
    first, second = (table.join(each, 0.0) for each in world(2))
    table.gone(first)
    install, remove, failed = table.effects()
    assert isinstance(install, Install)
    assert remove == Remove(install.spec.number)
    assert isinstance(failed, JoinFailed)
    assert failed.membership == second
    assert isinstance(failed.error, PeerLostError)
    assert "rank 0 (10.0.0.1:" in str(failed.error)
    table.installed(install.spec.number, 1.0)  # comes late
    assert table.effects() == []
    assert table.budget.free == 4096


def test_data_plane_that_refuses_refuses_all_joins() -> None:
    table = make_table()
    memberships = [table.join(each, 0.0) for each in world(2)]
    table.effects()
    table.not_installed(0, "no such port")
    effects = table.effects()
    assert [failed.membership for failed in only(effects, JoinFailed)] == memberships
    assert all("no such port" in str(failed.error) for failed in only(effects, JoinFailed))
    assert table.budget.free == 4096


# Leaving and dying


def test_death_is_told_to_all_others_and_frees_everything_at_once() -> None:
    table = make_table()
    spec, (first, second, third) = start(table, world(3))
    table.gone(second)
    effects = table.effects()
    lost = events(effects)
    assert set(lost) == {first, third}
    port = wish(1).address[1]
    expected = PeerLost(1, f"10.0.0.1:{port}", f"rank 1 (10.0.0.1:{port}) of job 'train' died")
    assert list(lost.values()) == [expected, expected]
    assert only(effects, Remove) == [Remove(spec.number)]
    assert table.status() == []
    assert table.budget.free == 4096
    again, _ = start(table, world(3), 0.1)
    assert again.number != spec.number
    for membership in (first, second, third):  # their streams end now, and mean nothing to the new job
        table.gone(membership)
        table.leave(membership)
        table.disagree(membership, 1, "x", 0.2)
    assert table.effects() == []
    assert table.running(first) is None


def test_rank_that_never_opens_its_watch_counts_as_dead() -> None:
    table = make_table()
    memberships = [table.join(each, 0.0) for each in world(2)]
    table.effects()
    table.installed(0, 1.0)
    table.watching(memberships[0], 1.0)
    assert table.next_deadline() == 11.0
    table.effects()
    table.expire(11.0)
    (event,) = events(table.effects()).values()
    assert isinstance(event, PeerLost)
    assert event.rank == 1
    assert "opened no watch within 10 s" in event.text


def test_all_leave_one_after_the_other_and_nobody_is_told() -> None:
    table = make_table()
    spec, memberships = start(table, world(3))
    told = []
    for membership in memberships:
        table.leave(membership)
        table.gone(membership)  # its stream ends
        told += table.effects()
        table.expire(100.0)
    assert told == [*(EndWatch(membership) for membership in memberships), Remove(spec.number)]
    assert table.status() == []
    assert table.budget.free == 4096


def test_job_keeps_its_slots_until_the_last_rank_has_left() -> None:
    table = make_table()
    spec, (first, second) = start(table, world(2))
    table.leave(first)
    assert table.draining() == [spec.number]
    assert table.budget.free == 4096 - 128
    table.blocked(spec.number, [])
    assert only(table.effects(), Remove) == []
    running = table.running(second)
    assert running is not None
    assert running.left == {0}
    assert running.workers == spec.workers


def test_rank_that_left_fails_the_job_only_if_another_waits_for_it() -> None:
    table = make_table()
    spec, (first, second, third) = start(table, world(3))
    table.leave(first)
    table.effects()
    table.blocked(spec.number, [StalledSlot(slot=3, chunk=3, seen=(0, 1), missing=(2,))])
    assert table.effects() == []
    table.blocked(spec.number, [StalledSlot(slot=4, chunk=4, seen=(1,), missing=(0, 2))])
    left = events(table.effects())
    assert set(left) == {second, third}
    assert all(isinstance(event, PeerLeft) and event.rank == 0 for event in left.values())
    assert table.status() == []


def test_new_job_takes_the_name_while_ranks_of_the_old_one_still_leave() -> None:
    table = make_table()
    old, (first, second) = start(table, world(2))
    table.leave(first)
    again = [replace(each, address=("10.0.0.7", 7 + each.rank)) for each in world(2)]
    # Rank 0 has come back with its old address, which it may.
    new, _ = start(table, [wish(0), again[1]], 1.0)
    assert new.number != old.number
    table.gone(second)
    effects = table.effects()
    assert only(effects, Remove) == [Remove(old.number)]
    assert events(effects) == {}
    assert [job.number for job in table.status()] == [new.number]


def test_shutdown_says_goodbye_and_fails_joins() -> None:
    table = make_table()
    spec, memberships = start(table, world(2))
    waiting = table.join(wish(0, job="other"), 0.0)
    table.shutdown()
    effects = table.effects()
    assert events(effects) == dict.fromkeys(memberships, Goodbye())
    (failed,) = only(effects, JoinFailed)
    assert failed.membership == waiting
    assert isinstance(failed.error, SwitchLostError)
    assert only(effects, Remove) == [Remove(spec.number)]


# Disagreement


def test_disagreement_asks_every_rank_and_shows_all_accounts() -> None:
    table = make_table()
    spec, memberships = start(table, world(4))
    table.disagree(memberships[2], 12, "sum of 999 float32", 5.0)
    assert events(table.effects()) == {memberships[rank]: Explain(12) for rank in (0, 1, 3)}
    table.disagree(memberships[0], 12, "sum of 1000 float32", 5.1)  # found it by itself
    table.explain(memberships[0], 12, "sum of 1000 float32")
    table.explain(memberships[1], 11, "about another collective")
    table.disagree(memberships[3], 13, "about another collective", 5.2)
    table.explain(memberships[1], 12, "sum of 1000 float32")
    assert table.effects() == []
    table.explain(memberships[3], 12, "has not reached collective #12 (it is at #11)")
    effects = table.effects()
    text = (
        "ranks of job 'train' disagree about collective #12:\n"
        "  ranks 0, 1: sum of 1000 float32\n"
        "  rank 2: sum of 999 float32\n"
        "  rank 3: has not reached collective #12 (it is at #11)"
    )
    assert events(effects) == dict.fromkeys(memberships, Disagreement(text))
    assert only(effects, Remove) == [Remove(spec.number)]
    assert table.next_deadline() is None


def test_disagreement_does_not_wait_for_silent_ranks_for_ever() -> None:
    table = make_table()
    _, (first, second, third) = start(table, world(3))
    table.disagree(first, 1, "sum of 1 int32", 5.0)
    table.effects()
    table.leave(third)
    assert table.next_deadline() == 7.0
    table.expire(6.9)
    assert events(table.effects()) == {}
    table.expire(7.0)
    told = events(table.effects())
    assert set(told) == {first, second}
    (event,) = set(told.values())
    assert isinstance(event, Disagreement)
    assert "rank 1: did not answer within 2 s\n  rank 2: has left the job" in event.text


def test_disagreement_ends_when_the_last_silent_rank_leaves() -> None:
    table = make_table()
    _, (first, second) = start(table, world(2))
    table.disagree(first, 1, "sum of 1 int32", 5.0)
    table.leave(second)
    assert isinstance(events(table.effects())[first], Disagreement)


def test_death_during_an_inquiry_is_what_is_told() -> None:
    table = make_table()
    _, (first, second) = start(table, world(2))
    table.disagree(first, 1, "sum of 1 int32", 5.0)
    table.effects()
    table.gone(second)
    assert isinstance(events(table.effects())[first], PeerLost)
    table.expire(10.0)
    assert table.effects() == []


class Crowd:
    """Random happenings, against which the table must keep its books."""

    def __init__(self) -> None:
        self.table = make_table(total_slots=600)
        self.waiting: set[int] = set()
        self.watching: set[int] = set()
        self.installed: set[int] = set()

    def settle(self, now: float) -> None:
        while effects := self.table.effects():
            for effect in effects:
                match effect:
                    case Install(spec):
                        assert spec.number not in self.installed
                        self.installed.add(spec.number)
                        self.table.installed(spec.number, now)
                    case Remove(number):
                        self.installed.remove(number)
                    case JoinDone(membership):
                        self.waiting.remove(membership)
                        self.watching.add(membership)
                        self.table.watching(membership, now)
                    case JoinFailed(membership):
                        self.waiting.remove(membership)
                    case Tell(membership, event) if not isinstance(event, (Explain, Begin)):
                        self.watching.remove(membership)
                    case EndWatch(membership):
                        self.watching.remove(membership)
        status = self.table.status()
        assert {job.number for job in status if job.number is not None} == self.installed
        used = sum(slot_cost(job.slots, job.values) for job in status)
        assert self.table.budget.free == 600 - used >= 0
        assert sum(len(job.joined) for job in status) == len(self.waiting) + len(self.watching)


ACTS = st.tuples(
    st.sampled_from(("join", "join", "join", "join", "leave", "gone", "given up", "disagree", "wait")),
    st.sampled_from(("a", "b")),
    st.integers(0, 2),
    st.integers(0, 1000),
)


@given(st.lists(ACTS, max_size=60))
def test_books_are_right_whatever_happens(acts: list[tuple[str, str, int, int]]) -> None:
    crowd = Crowd()
    now = 0.0
    for step, (act, job, rank, pick) in enumerate(acts):
        now += 0.5
        watching = sorted(crowd.watching)
        if act == "join":
            via = ("10.0.0.2", ord(job)) if pick % 3 == rank else None
            asked = replace(wish(rank, 3, job, slots=2 ** (pick % 10)), address=("10.0.0.1", step + 1), via=via)
            with suppress(JoinRefusedError):
                crowd.waiting.add(crowd.table.join(asked, now))
        elif act == "wait":
            now += pick % 80
            crowd.table.expire(now)
        elif act == "gone" and (present := sorted(crowd.waiting | crowd.watching)):
            membership = present[pick % len(present)]
            crowd.waiting.discard(membership)
            crowd.watching.discard(membership)
            crowd.table.gone(membership)
        elif act == "given up" and watching:
            crowd.table.given_up(watching[pick % len(watching)], "was given up", refused=pick % 2 == 1)
        elif act == "leave" and watching:
            crowd.table.leave(watching[pick % len(watching)])
        elif act == "disagree" and watching:
            crowd.table.disagree(watching[pick % len(watching)], 1, "sum of 1 int32", now)
        crowd.settle(now)
    crowd.table.shutdown()
    crowd.settle(now)
    assert not crowd.waiting
    assert not crowd.watching
    assert crowd.table.budget.free == 600
