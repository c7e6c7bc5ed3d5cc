"""Who may join, and the slots that jobs share."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.constants import MAX_JOBS, VALUES_PER_PACKET
from protocol.control import parse_address
from protocol.errors import JoinRefusedError
from switch.admission import SlotBudget, slot_cost
from switch.job_events import (
    Install,
    JoinFailed,
    Remove,
)
from tests.job_table import make_table, only, start, wish, world


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rank": 4, "world_size": 4}, "rank 4 is out of range: job 'train' has ranks 0 to 3"),
        ({"world_size": 33}, "asks for 33 ranks, and this switch takes from 1 to 32"),
        ({"world_size": 0}, "asks for 0 ranks"),
        ({"values": 512}, "asks for 512 values per packet, and this switch can add 32, 64, 128, 256"),
        ({"values": 100}, "asks for 100 values per packet"),
        ({"slots": 100}, "slots must be a power of two from 1 to 16384, not 100"),
        ({"slots": 32768}, "not 32768"),
        ({"job": ""}, "name must have 1 to 200 characters, not 0"),
        ({"job": "x" * 201}, "not 201"),
        ({"job": "\x1b[2Jx"}, r"printable characters only, not '\x1b[2Jx'"),
        ({"address": ("::1", 4000)}, "::1"),
        ({"address": ("worker", 4000)}, "worker"),
        ({"address": ("10.0.0.1", 0)}, "UDP port must be from 1 to 65535, not 0"),
        ({"timeout": 0.0}, "positive number of seconds, not 0.0"),
        ({"timeout": float("nan")}, "not nan"),
        ({"timeout": float("inf")}, "not inf"),
    ],
)
def test_impossible_wish_is_refused_with_its_value(changes: dict[str, object], text: str) -> None:
    table = make_table()
    with pytest.raises(JoinRefusedError) as refusal:
        table.join(replace(wish(), **changes), 0.0)  # type: ignore[arg-type]
    assert text in str(refusal.value)
    assert table.status() == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"world_size": 3}, "rank 1 asks for job 'train' with world size 3, while rank 0 at 10.0.0.1:{} joined with 4"),
        ({"values": 64}, "rank 1 asks for job 'train' with 64 values per packet, while rank 0 at 10.0.0.1:{} joined"),
        ({"rank": 0}, "rank 0 of job 'train' is taken by 10.0.0.1:{}; 10.0.0.2:5 asked for it too"),
    ],
)
def test_wish_that_does_not_fit_the_others_is_refused_and_does_them_no_harm(
    changes: dict[str, object], text: str
) -> None:
    table = make_table()
    table.join(wish(0, 4), 0.0)
    with pytest.raises(JoinRefusedError) as refusal:
        table.join(replace(wish(1, 4), address=("10.0.0.2", 5), **changes), 1.0)  # type: ignore[arg-type]
    assert text.format(wish(0, 4).address[1]) in str(refusal.value)
    for rank in (1, 2, 3):
        table.join(wish(rank, 4), 2.0)
    assert only(table.effects(), Install)


def test_time_out_tells_that_a_missing_rank_was_refused() -> None:
    table = make_table()
    table.join(wish(0, 2), 0.0)
    with pytest.raises(JoinRefusedError):
        table.join(wish(1, 4), 1.0)
    table.expire(60.0)
    (failed,) = only(table.effects(), JoinFailed)
    assert "missing: rank 1 (refused: rank 1 asks for job 'train' with world size 4" in str(failed.error)


def test_rank_of_a_running_job_is_taken() -> None:
    table = make_table()
    start(table, world(2))
    with pytest.raises(JoinRefusedError, match=r"is taken by 10\.0\.0\.1:\d+, and the job is running"):
        table.join(replace(wish(1), address=("10.0.0.9", 9)), 5.0)


def test_address_belongs_to_one_rank() -> None:
    table = make_table()
    table.join(wish(0), 0.0)
    with pytest.raises(JoinRefusedError, match="belongs to rank 0 of job 'train'"):
        table.join(replace(wish(1, job="other"), address=wish(0).address), 0.0)


def test_pool_that_does_not_fit_is_refused_with_the_numbers() -> None:
    table = make_table(total_slots=1024)
    start(table, world(2, "a", slots=512))
    start(table, world(2, "b", slots=512, values=128))
    with pytest.raises(JoinRefusedError) as refusal:
        table.join(wish(0, job="c", slots=512), 0.0)
    assert str(refusal.value) == (
        "job 'c' wants 512 slots of 256 values, which takes 512 slots of 256, and the switch has 256 of 1024 free; "
        "taken: 512 by job 'a', 256 by job 'b'"
    )
    start(table, world(2, "c", slots=256))
    with pytest.raises(JoinRefusedError, match="0 of 1024 free"):
        table.join(wish(0, job="d", slots=0), 0.0)


def test_pool_that_no_longer_fits_when_the_last_rank_comes_is_refused_to_all() -> None:
    table = make_table(total_slots=1024)
    first = table.join(wish(0, slots=1024), 0.0)
    start(table, world(2, "quick", slots=1024))
    table.effects()
    with pytest.raises(JoinRefusedError, match="taken: 1024 by job 'quick'"):
        table.join(wish(1, slots=1024), 1.0)
    table.expire(60.0)
    (failed,) = only(table.effects(), JoinFailed)
    assert failed.membership == first
    assert "rank 1 (refused: job 'train' wants 1024 slots" in str(failed.error)


def test_job_numbers_go_round_and_run_out() -> None:
    table = make_table(total_slots=MAX_JOBS)
    memberships = []
    for number in range(MAX_JOBS):
        spec, (membership,) = start(
            table, [replace(wish(0, 1, f"job{number}", slots=1), address=("10.0.0.1", number + 1))]
        )
        assert spec.number == number
        memberships.append(membership)
    table.budget.total += 1
    one_more = replace(wish(0, 1, "more", slots=1), address=("10.0.0.2", 1))
    refused = table.join(one_more, 0.0)
    (failed,) = only(table.effects(), JoinFailed)
    assert failed.membership == refused
    assert "already serves 256 jobs" in str(failed.error)
    for number in (7, 3):
        table.leave(memberships[number])
    assert only(table.effects(), Remove) == [Remove(7), Remove(3)]
    assert start(table, [one_more])[0].number == 3
    assert start(table, [replace(one_more, job="again", address=("10.0.0.3", 1))])[0].number == 7


def test_number_is_not_reused_at_once() -> None:
    table = make_table()
    numbers = []
    for _ in range(4):
        spec, memberships = start(table, world(2))
        numbers.append(spec.number)
        for membership in memberships:
            table.leave(membership)
        table.effects()
    assert numbers == [0, 1, 2, 3]


@given(st.lists(st.tuples(st.sampled_from(VALUES_PER_PACKET), st.integers(0, 9)), max_size=20), st.integers(1, 5000))
def test_budget_never_promises_more_than_there_is(pools: list[tuple[int, int]], total: int) -> None:
    budget = SlotBudget(total, 512)
    given: dict[int, int] = {}
    for number, (values, power) in enumerate(pools):
        slots = 2**power
        free = total - sum(given.values())
        assert budget.free == free >= 0
        if slot_cost(slots, values) > free:
            with pytest.raises(JoinRefusedError, match=f" {free} of {total} free"):
                budget.check("job", slots, values)
            if given:
                budget.give_back(min(given))
                del given[min(given)]
        else:
            budget.check("job", slots, values)
            budget.take(number, f"job {number}", slots, values)
            given[number] = slot_cost(slots, values)
    for number in given:
        budget.give_back(number)
    assert budget.free == total


@given(st.integers(0, 14), st.sampled_from(VALUES_PER_PACKET))
def test_pools_take_the_memory_that_their_values_need(power: int, values: int) -> None:
    cost = slot_cost(2**power, values)
    assert 256 * (cost - 1) < 2**power * values <= 256 * cost


@given(st.integers(0, 5000), st.sampled_from(VALUES_PER_PACKET))
def test_default_pool_takes_half_of_the_free_slots_at_most(total: int, values: int) -> None:
    slots = SlotBudget(total, 512).default(values)
    assert slots & (slots - 1) == 0
    assert slots == 1 or slot_cost(slots, values) <= total // 2
    assert slots == 512 or slot_cost(2 * slots, values) > total // 2


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:5000", ("10.0.0.1", 5000)),
        (" switch.lab ", ("switch.lab", 50099)),
        ("[::1]:7", ("::1", 7)),
        ("[fe80::1]", ("fe80::1", 50099)),
    ],
)
def test_address_of_a_switch_is_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ":5000",
        "host:",
        "host:port",
        "host:0",
        "host:65536",
        "host:-1",
        "::1",
        "[::1",
        "[::1]7",
        "a b",
        "http://host:1",
        "host:1:2",
        "host:²",
    ],
)
def test_malformed_address_of_a_switch_is_refused_with_what_was_given(text: str) -> None:
    with pytest.raises(ValueError, match="must be HOST or HOST:PORT") as refusal:
        parse_address(text)
    assert repr(text) in str(refusal.value)


@pytest.mark.parametrize(("most", "granted"), [(0, 512), (1024, 512), (512, 512), (64, 64), (1, 1)])
def test_the_switch_chooses_no_more_than_the_workers_have_buffers_for(most: int, granted: int) -> None:
    assert SlotBudget(65536, 512).default(256, most) == granted
