"""Jobs that span switches, as the root's table sees them, and what switches know of a stall, put together."""

from dataclasses import replace

import pytest

from protocol.errors import JoinRefusedError, PeerLostError
from switch.admission import JoinWish
from switch.dataplane import StalledSlot
from switch.job_events import (
    Begin,
    EndWatch,
    Goodbye,
    Install,
    JoinDone,
    JoinFailed,
    PeerLeft,
    PeerLost,
    Refused,
    Remove,
)
from switch.jobs import JobTable
from switch.tree.stalls import Account, RankSlot, combine, heard_by_rank
from tests.job_table import events, make_table, only, wish

A, B = ("10.1.0.1", 1000), ("10.1.0.2", 1000)


def below(leaf: tuple[str, int] | None, rank: int, world_size: int, **changes: int) -> JoinWish:
    return replace(wish(rank, world_size, **changes), via=leaf)  # type: ignore[arg-type]


def tree_of_four(table: JobTable) -> list[int]:
    """Ranks 0 and 2 below A, rank 3 below B, rank 1 beside them; all have joined."""
    wishes = [below(A, 0, 4), below(None, 1, 4), below(A, 2, 4), below(B, 3, 4)]
    return [table.join(each, 0.0) for each in wishes]


def begun(table: JobTable) -> list[int]:
    memberships = tree_of_four(table)
    table.installed(0, 1.0)
    for membership in memberships:
        table.watching(membership, 1.0)
    table.effects()
    return memberships


def test_the_data_plane_is_told_of_workers_and_leaves() -> None:
    table = make_table()
    tree_of_four(table)
    (install,) = only(table.effects(), Install)
    assert install.spec.workers == (A, wish(1, 4).address, B)
    assert install.spec.below == ((0, 2), (1,), (3,))
    running = table.running(next(iter(table._members)))
    assert running is not None
    assert running.workers == tuple(wish(rank, 4).address for rank in range(4))
    assert running.leaves == {0, 2}


def test_leaves_are_answered_first_and_workers_when_all_leaves_are_ready() -> None:
    table = make_table()
    first, second, third, fourth = tree_of_four(table)
    table.effects()
    table.installed(0, 1.0)
    assert table.effects() == [
        JoinDone(first, 0, 128, (0, 2)), JoinDone(third, 0, 128, (0, 2)), JoinDone(fourth, 0, 128, (3,)),
    ]  # fmt: skip
    assert not table.watching(first, 2.0)
    assert not table.watching(fourth, 2.0)
    assert table.effects() == []
    assert table.status()[0].state == "installing"
    assert not table.watching(third, 3.0)
    assert table.effects() != []
    assert table.status()[0].state == "running"
    assert table.watching(second, 3.0)


def test_all_are_told_to_begin_at_once() -> None:
    table = make_table()
    first, second, third, fourth = tree_of_four(table)
    table.installed(0, 1.0)
    for membership in (first, third):
        table.watching(membership, 2.0)
    table.effects()
    table.watching(fourth, 2.5)
    effects = table.effects()
    assert events(effects) == {first: Begin(), third: Begin(), fourth: Begin()}
    assert only(effects, JoinDone) == [JoinDone(second, 0, 128)]
    assert table.next_deadline() == 12.5  # for the watch of rank 1


def test_a_leaf_that_cannot_take_the_job_ends_it_for_all_with_its_reason() -> None:
    table = make_table()
    first, second, third, fourth = tree_of_four(table)
    table.installed(0, 1.0)
    table.watching(first, 1.0)
    table.effects()
    table.given_up(fourth, "the leaf switch at B has 3 of 4 free", refused=True)
    effects = table.effects()
    assert only(effects, EndWatch) == [EndWatch(fourth)]
    assert only(effects, Remove) == [Remove(0)]
    reason = Refused("the leaf switch at B has 3 of 4 free")
    assert events(effects) == {first: reason, third: reason}
    (failed,) = only(effects, JoinFailed)
    assert failed.membership == second
    assert isinstance(failed.error, JoinRefusedError)
    assert str(failed.error) == reason.text
    assert not table.watching(third, 2.0)  # it comes late, and is told in its watch
    assert table.effects() == []
    assert table.budget.free == 4096


def test_a_leaf_that_dies_before_the_job_begins_fails_the_others() -> None:
    table = make_table()
    first, second, third, fourth = tree_of_four(table)
    table.installed(0, 1.0)
    table.effects()
    for membership in (first, third):
        table.watching(membership, 1.0)
    table.expire(10.9)
    assert events(table.effects()) == {}
    table.expire(11.0)
    effects = table.effects()
    (failed,) = only(effects, JoinFailed)
    assert failed.membership == second
    assert isinstance(failed.error, PeerLostError)
    assert set(events(effects)) == {first, third}
    assert all(isinstance(event, PeerLost) and event.rank == 3 for event in events(effects).values())
    assert fourth not in table._members


def test_a_rank_that_a_leaf_gives_up_ends_the_job() -> None:
    table = make_table()
    first, second, third, fourth = begun(table)
    table.given_up(third, "died")
    lost = events(table.effects())
    assert set(lost) == {first, second, fourth}
    assert all(isinstance(event, PeerLost) and event.text.endswith("of job 'train' died") for event in lost.values())
    table.given_up(third, "died")
    assert table.effects() == []


def test_a_leaf_that_dies_is_named_with_its_ranks() -> None:
    table = make_table()
    first, *others = begun(table)
    table.gone(first)
    lost = events(table.effects())
    assert set(lost) == set(others)
    (event, *_) = lost.values()
    assert isinstance(event, PeerLost)
    assert event.text.endswith("died, or the leaf switch at 10.1.0.1:1000, which it was below, did")


def test_shutdown_says_goodbye_to_leaves_that_wait() -> None:
    table = make_table()
    first, second, third, fourth = tree_of_four(table)
    table.installed(0, 1.0)
    table.effects()
    table.shutdown()
    effects = table.effects()
    assert events(effects) == {first: Goodbye(), third: Goodbye(), fourth: Goodbye()}
    assert [failed.membership for failed in only(effects, JoinFailed)] == [second]


def test_a_leaf_is_blocked_when_all_its_ranks_have_left() -> None:
    table = make_table()
    first, second, third, fourth = begun(table)
    waits = StalledSlot(slot=1, chunk=1, seen=(1, 2), missing=(0,))
    table.leave(first)
    table.blocked(0, [waits])  # rank 2 may still come
    assert events(table.effects()) == {}
    table.leave(third)
    table.blocked(0, [waits])
    told = events(table.effects())
    assert set(told) == {second, fourth}
    assert all(isinstance(event, PeerLeft) and event.rank == 0 for event in told.values())


def test_a_leaf_says_who_is_blocked_below_it() -> None:
    table = make_table()
    first, second, third, fourth = begun(table)
    table.blocked_below(third, 0)  # it has not left
    table.leave(first)
    table.effects()
    table.blocked_below(third, 7)
    assert table.effects() == []
    table.blocked_below(third, 0)
    assert set(events(table.effects())) == {second, third, fourth}


def test_two_jobs_cannot_come_from_one_address_of_a_leaf() -> None:
    table = make_table()
    table.join(below(A, 0, 2), 0.0)
    with pytest.raises(JoinRefusedError, match=r"10\.1\.0\.1:1000, from which rank 0 of job 'b' .*of job 'train'"):
        table.join(replace(below(A, 0, 2), job="b"), 0.0)
    with pytest.raises(JoinRefusedError, match="belongs to rank 0"):
        table.join(replace(wish(1, 2), address=A), 0.0)
    # Behind leaves, workers' own addresses may be the same.
    table.join(replace(below(B, 1, 2), address=wish(0, 2).address), 0.0)
    assert only(table.effects(), Install)


def test_more_children_than_a_switch_takes() -> None:
    table = make_table(max_ranks=1000)
    places = [*[None] * 31, *[A] * 7, B]
    memberships = [table.join(below(leaf, rank, 40), 0.0) for rank, leaf in enumerate(places)]
    assert table.effects() == []
    memberships.append(table.join(below(None, 39, 40), 0.0))
    failed = only(table.effects(), JoinFailed)
    assert sorted(each.membership for each in failed) == sorted(memberships)
    assert {str(each.error) for each in failed} == {
        "job 'train' has 34 workers and leaf switches directly below the switch, which takes at most 32: "
        "in a tree of switches, some can join at others"
    }
    assert table.status() == []


@pytest.mark.parametrize(
    ("slots", "rooms", "granted"),
    [((0, 0), (0, 0), 512), ((0, 0), (64, 0), 64), ((256, 0), (0, 1024), 256), ((256, 0), (0, 128), 128)],
)
def test_the_pool_has_room_in_all_switches(slots: tuple[int, int], rooms: tuple[int, int], granted: int) -> None:
    table = make_table()
    for rank in (0, 1):
        table.join(replace(below((A, B)[rank], rank, 2, slots=slots[rank]), room=rooms[rank]), 0.0)
    (install,) = only(table.effects(), Install)
    assert install.spec.slots == granted


# Stalls


BELOW = ((0, 2), (1,), (3, 4))  # a leaf, a worker, a leaf


def told(chunk: int, seen: tuple[int, ...], missing: tuple[int, ...]) -> RankSlot:
    return RankSlot(slot=chunk % 4, chunk=chunk, seen=seen, missing=missing)


def own(chunk: int, seen: tuple[int, ...], missing: tuple[int, ...]) -> StalledSlot:
    return StalledSlot(slot=chunk % 4, chunk=chunk, seen=seen, missing=missing)


def test_a_leaf_knows_which_of_its_ranks_is_missing() -> None:
    account = Account(slots=[told(5, (3,), (4,))], heard={})
    assert combine([own(5, (0, 1), (2,))], BELOW, [account]) == [told(5, (0, 1, 2, 3), (4,))]


def test_a_leaf_of_which_nothing_has_come_misses_all_its_ranks() -> None:
    assert combine([own(5, (0, 1), (2,))], BELOW, []) == [told(5, (0, 1, 2), (3, 4))]


def test_a_partial_result_on_its_way_is_not_missing() -> None:
    account = Account(slots=[told(5, (3, 4), ())], heard={})
    assert combine([own(5, (0,), (1, 2))], BELOW, [account]) == [told(5, (0, 2, 3, 4), (1,))]


def test_a_slot_that_no_contribution_has_reached_here_is_known_from_below() -> None:
    first = Account(slots=[told(5, (0,), (2,))], heard={})
    second = Account(slots=[told(5, (4,), (3,))], heard={})
    assert combine([], BELOW, [first, second]) == [told(5, (0, 4), (1, 2, 3))]


def test_a_result_on_its_way_down_is_no_stall() -> None:
    assert combine([], BELOW, [Account(slots=[told(5, (0, 2), ())], heard={})]) == []


def test_a_leaf_that_waits_for_its_parent_misses_nobody() -> None:
    assert combine([own(5, (0, 1, 2), ())], BELOW, []) == [told(5, (0, 1, 2, 3, 4), ())]


def test_ranks_below_a_leaf_were_heard_when_it_says_so() -> None:
    account = Account(slots=[], heard={3: 0.5, 4: None, 9: 1.0})
    assert heard_by_rank([1.0, 2.0, 3.0], BELOW, [account]) == {0: 1.0, 2: 1.0, 1: 2.0, 3: 0.5, 4: None}
