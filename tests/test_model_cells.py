"""Arrays that the control plane shares with a program, multicast groups and clone sessions, on their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switch.model.errors import ExistsError, InvalidError, NotFoundError
from switch.model.externs import GREEN, RED, YELLOW, Counter, Meter, MeterRates, Register
from switch.model.replication import CloneSession, Replication


def test_register_reads_what_was_written_and_starts_at_zero() -> None:
    register = Register("ingress.r", width=16, size=3)
    cells = register.cells
    register.write(2, 0xFFFF)
    assert [register.read(i) for i in range(3)] == [0, 0, 0xFFFF]
    register.reset()
    assert register.cells is cells  # compiled programs hold on to it
    assert register.read(2) == 0


@pytest.mark.parametrize(("index", "value", "says"), [(3, 0, "index 3 is not between 0 and 2"), (-1, 0, "index -1")])
def test_register_index_out_of_range(index: int, value: int, says: str) -> None:
    register = Register("ingress.r", width=16, size=3)
    with pytest.raises(InvalidError, match=says):
        register.write(index, value)
    with pytest.raises(InvalidError, match=says):
        register.read(index)


def test_register_value_must_fit() -> None:
    register = Register("ingress.r", width=16, size=1)
    for value in (0x10000, -1):
        with pytest.raises(InvalidError, match="does not fit 16 bits, unsigned"):
            register.write(0, value)
    signed = Register("ingress.s", width=8, size=1, signed=True)
    signed.write(0, -128)
    for value in (128, -129):
        with pytest.raises(InvalidError, match="does not fit 8 bits, signed"):
            signed.write(0, value)


def test_counter() -> None:
    counter = Counter("ingress.c", size=2)
    counter.write(1, 5, 500)
    assert [counter.read(i) for i in range(2)] == [(0, 0), (5, 500)]
    for packets, size in ((-1, 0), (0, 2**64)):
        with pytest.raises(InvalidError, match="does not fit 64 bits"):
            counter.write(0, packets, size)
    with pytest.raises(InvalidError, match="index 2"):
        counter.read(2)
    counter.reset()
    assert counter.read(1) == (0, 0)


def test_meter_without_rates_is_green() -> None:
    meter = Meter("ingress.m", size=1, kind="bytes")
    assert [meter.execute(0, 0.0, 10**9) for _ in range(3)] == [GREEN] * 3
    assert meter.rates(0) is None


def test_meter_colours_by_committed_and_peak_bucket() -> None:
    meter = Meter("ingress.m", size=2, kind="packets")
    meter.set_rates(1, MeterRates(cir=1, cburst=2, pir=2, pburst=4))
    assert [meter.execute(1, 10.0, 1500) for _ in range(6)] == [GREEN, GREEN, YELLOW, YELLOW, RED, RED]
    # One second later the buckets hold 1 and 2 packets more.
    assert [meter.execute(1, 11.0, 1500) for _ in range(4)] == [GREEN, YELLOW, RED, RED]
    meter.set_rates(1, None)
    assert meter.execute(1, 11.0, 1500) == GREEN


def test_meter_counts_bytes() -> None:
    meter = Meter("ingress.m", size=1, kind="bytes")
    meter.set_rates(0, MeterRates(cir=1000, cburst=1000, pir=1000, pburst=2000))
    assert [meter.execute(0, 5.0, 600) for _ in range(4)] == [GREEN, YELLOW, YELLOW, RED]
    assert meter.execute(0, 5.0, 200) == GREEN  # the committed bucket still holds 400 bytes


@pytest.mark.parametrize(
    ("rates", "says"),
    [
        (MeterRates(2, 1, 1, 1), "committed rate 2 is above peak rate 1"),
        (MeterRates(-1, 1, 1, 1), "must not be negative"),
    ],
)
def test_meter_rates_that_make_no_sense(rates: MeterRates, says: str) -> None:
    meter = Meter("ingress.m", size=1, kind="bytes")
    with pytest.raises(InvalidError, match=says):
        meter.set_rates(0, rates)
    assert meter.rates(0) is None
    with pytest.raises(InvalidError, match="index 1"):
        meter.set_rates(1, None)


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 2000)), max_size=60),
    st.integers(0, 5000),
    st.integers(0, 5000),
)
def test_meter_never_lets_more_through_than_burst_and_rate(
    steps: list[tuple[float, int]], cir: int, extra: int
) -> None:
    meter = Meter("ingress.m", size=1, kind="bytes")
    meter.set_rates(0, MeterRates(cir=cir, cburst=3000, pir=cir + extra, pburst=4000))
    now, green, not_red = 1.0, 0, 0
    for step, size in steps:
        now += step
        colour = meter.execute(0, now, size)
        green += size * (colour == GREEN)
        not_red += size * (colour != RED)
        assert green <= 3000 + cir * (now - 1.0) + 1
        assert not_red <= 4000 + (cir + extra) * (now - 1.0) + 1


def test_multicast_groups() -> None:
    replication = Replication()
    replication.insert_group(1, [(3, 1), (2, 0), (3, 2)])
    assert replication.groups[1] == [(3, 1), (2, 0), (3, 2)]
    with pytest.raises(ExistsError):
        replication.insert_group(1, [])
    replication.modify_group(1, [(511, 0xFFFF)])
    replication.delete_group(1)
    with pytest.raises(NotFoundError, match="no multicast group 1"):
        replication.modify_group(1, [])
    with pytest.raises(NotFoundError, match="no multicast group 1"):
        replication.delete_group(1)


@pytest.mark.parametrize(
    ("number", "replica", "says"),
    [
        (0, (1, 0), "group 0 is not between 1 and 65535"),
        (65536, (1, 0), "group 65536"),
        (1, (512, 0), "port 512 is not between 0 and 511"),
        (1, (1, 65536), "replication id 65536"),
        (1, (2, 5), "port 2 with replication id 5 stands twice"),
    ],
)
def test_multicast_group_that_cannot_be(number: int, replica: tuple[int, int], says: str) -> None:
    replication = Replication()
    with pytest.raises(InvalidError, match=says):
        replication.insert_group(number, [(2, 5), replica])
    assert replication.groups == {}


def test_clone_sessions() -> None:
    replication = Replication()
    replication.insert_group(4, [(1, 1), (2, 2)])
    replication.insert_session(9, CloneSession(port=5, group=4, replicas=((7, 3),), truncate_bytes=60))
    assert replication.clones(9) == [(7, 3), (1, 1), (2, 2), (5, 0)]
    assert replication.clones(8) == []
    replication.delete_group(4)
    assert replication.clones(9) == [(7, 3), (5, 0)]
    with pytest.raises(ExistsError):
        replication.insert_session(9, CloneSession())
    replication.delete_session(9)
    with pytest.raises(NotFoundError, match="no clone session 9"):
        replication.modify_session(9, CloneSession())
    for session in (CloneSession(port=512), CloneSession(group=65536), CloneSession(truncate_bytes=-1)):
        with pytest.raises(InvalidError):
            replication.set_session(1, session)
    with pytest.raises(InvalidError, match="clone session 32768 is not"):
        replication.set_session(32768, CloneSession())
    assert replication.clone_sessions == {}
