"""Seeded faults: the same for the same packets, as often as asked for, and nothing comes out twice or never."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.faults import FaultInjector, FaultRates
from protocol.packets import PacketBatch, batches, decode, make_packet

SLOTS = 64
VALUES = 32
BYTES = 138


def packet(chunk: int, *, exponents_only: bool = False) -> bytes:
    values = None if exponents_only else np.full(VALUES, chunk)
    return make_packet(tsi=chunk, slots=SLOTS, values=values, per_packet=VALUES).encode()


def chunk_of(payload: bytes) -> int:
    return int.from_bytes(payload[2:6], "big")


def stream(chunks: range | list[int], size: int = 30) -> list[PacketBatch]:
    """Packets of these chunks in batches of up to `size`."""
    chosen = list(chunks)
    return [
        batch for start in range(0, len(chosen), size) for batch in batches(map(packet, chosen[start : start + size]))
    ]


@cache
def long_stream() -> list[PacketBatch]:
    return stream(range(10_000), 60)


@dataclass
class Outcome:
    """What came out of an injector: (time, packet) in order."""

    packets: list[tuple[float, bytes]] = field(default_factory=list)

    @property
    def chunks(self) -> list[int]:
        return [chunk_of(payload) for _, payload in self.packets]


def run(injector: FaultInjector, inputs: list[PacketBatch], *, step: float = 0.0, flow: int = 0) -> Outcome:
    """Passes batches `step` seconds apart, then waits for all that is held."""
    out = Outcome()
    now = 0.0
    for batch in inputs:
        out.packets += [(now, payload) for payload in injector.apply(batch, now, flow=flow)]
        now += step
        collect(injector, now, out, flow)
    while (due := injector.next_due()) is not None:
        collect(injector, due, out, flow)
    return out


def collect(injector: FaultInjector, now: float, out: Outcome, flow: int = 0) -> None:
    for owner, batch in injector.due(now):
        assert owner == flow
        out.packets += [(now, payload) for payload in batch]


ALL_KINDS = FaultRates(loss=0.1, duplicate=0.1, reorder=0.1, delay=0.1, corrupt=0.1)


class TestRates:
    def test_parses_what_a_command_line_says(self) -> None:
        assert FaultRates.parse("loss=0.01, duplicate=1e-3,delay_seconds=0.2") == FaultRates(
            loss=0.01, duplicate=0.001, delay_seconds=0.2
        )
        assert FaultRates.parse("") == FaultRates()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("los=0.1", "NAME one of loss, duplicate, .*got 'los=0.1'"),
            ("loss", "got 'loss'"),
            ("loss=much", "loss must be a number, not 'much'"),
            ("loss=0.1,loss=0.2", "loss is given twice"),
            ("loss=1.5", r"loss must be a rate from 0 to 1, not 1\.5"),
            ("corrupt=-0.1", r"corrupt must be a rate from 0 to 1, not -0\.1"),
            ("delay=nan", "delay must be a rate from 0 to 1, not nan"),
            ("delay_seconds=inf", "delay_seconds must be a finite number of seconds, not below 0, not inf"),
            ("reorder_seconds=-1", "reorder_seconds must be a finite number"),
        ],
    )
    def test_refuses_with_the_value_and_what_was_expected(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            FaultRates.parse(text)

    def test_any_tells_whether_something_can_happen(self) -> None:
        assert not FaultRates(delay_seconds=1.0).any
        for name in ("loss", "duplicate", "reorder", "delay", "corrupt"):
            assert FaultRates.parse(f"{name}=0.001").any


class TestDeterminism:
    @given(size=st.integers(1, 64), step=st.sampled_from([0.0, 0.0004, 0.3]), seed=st.integers())
    def test_fate_does_not_depend_on_batching_or_timing(self, size: int, step: float, seed: int) -> None:
        # Each chunk comes twice in a row: the second time is a retransmission.
        chunks = [chunk for chunk in range(150) for _ in range(2)]
        reference = FaultInjector(ALL_KINDS, seed=seed)
        other = FaultInjector(ALL_KINDS, seed=seed)
        expected = run(reference, stream(chunks, 30))
        got = run(other, stream(chunks, size), step=step)
        assert Counter(payload for _, payload in got.packets) == Counter(payload for _, payload in expected.packets)
        assert other.counters == reference.counters

    def test_seeds_streams_and_flows_differ(self) -> None:
        rates = FaultRates(loss=0.3)

        def lost(seed: int, which: int, flow: int) -> set[int]:
            injector = FaultInjector(rates, seed=seed, stream=which)
            return set(range(2000)) - set(run(injector, stream(range(2000)), flow=flow).chunks)

        runs = [lost(1, 0, 0), lost(2, 0, 0), lost(1, 1, 0), lost(1, 0, 1), lost(-1, 0, 0)]
        for i, one in enumerate(runs):
            for other in runs[:i]:
                # Independent sets of 0.3 * 2000 share 0.09 * 2000 = 180, with a standard deviation of 13.
                assert 110 < len(one & other) < 250

    def test_flows_of_one_injector_do_not_disturb_each_other(self) -> None:
        alone = FaultInjector(FaultRates(loss=0.3), seed=5)
        shared = FaultInjector(FaultRates(loss=0.3), seed=5)
        for batch in stream(range(300)):
            expected = list(alone.apply(batch, 0.0, flow=3))
            shared.apply(batch, 0.0, flow=9)
            assert list(shared.apply(batch, 0.0, flow=3)) == expected

    def test_kinds_are_drawn_independently(self) -> None:
        # Were they one draw, each packet that is delayed would be duplicated too.
        injector = FaultInjector(FaultRates(duplicate=0.5, delay=0.5), seed=0)
        out = run(injector, stream(range(4000), 4000))
        copies = Counter(out.chunks)
        late = {chunk_of(payload) for now, payload in out.packets if now > 0}
        fates = Counter((chunk in late, copies[chunk] == 2) for chunk in range(4000))
        assert all(
            fates[late, twice] == pytest.approx(1000, abs=130) for late in (False, True) for twice in (False, True)
        )

    def test_a_retransmission_gets_a_fresh_draw(self) -> None:
        # At 90 % loss every chunk still gets through, and the number of tries is geometric with mean 10.
        injector = FaultInjector(FaultRates(loss=0.9), seed=11)
        tries = []
        for chunk in range(500):
            batch = stream([chunk])[0]
            tries.append(next(n for n in range(1, 500) if len(injector.apply(batch, 0.0))))
        assert np.mean(tries) == pytest.approx(10, abs=2)

    def test_versions_and_types_of_a_slot_are_told_apart(self) -> None:
        # In turn through one slot: both versions, with and without values. None may reset the count of another.
        injector = FaultInjector(FaultRates(loss=0.9), seed=12)
        packets = [packet(chunk, exponents_only=kind) for chunk in (5, 5 + SLOTS) for kind in (False, True)]
        arrived: Counter[bytes] = Counter()
        for _ in range(300):
            for payload in packets:
                arrived.update(injector.apply(batches([payload])[0], 0.0))
        assert all(arrived[payload] > 5 for payload in packets)


class TestKinds:
    def test_no_faults_hand_back_the_batch_itself(self) -> None:
        injector = FaultInjector(FaultRates(), seed=1)
        for batch in stream(range(100)):
            assert injector.apply(batch, 0.0) is batch
        assert injector.counters == dict.fromkeys(injector.counters, 0) | {"passed": 100}
        assert injector.next_due() is None
        assert injector.due(1e9) == []

    def test_an_empty_batch_passes(self) -> None:
        empty = PacketBatch.of(np.zeros(0, np.uint8), BYTES)
        assert len(FaultInjector(ALL_KINDS, seed=1).apply(empty, 0.0)) == 0

    @pytest.mark.parametrize("rate", [0.001, 0.01, 0.3])
    @pytest.mark.parametrize(
        ("name", "counter"),
        [
            ("loss", "lost"),
            ("duplicate", "duplicated"),
            ("reorder", "reordered"),
            ("delay", "delayed"),
            ("corrupt", "corrupted"),
        ],
    )
    def test_rates_hold(self, name: str, counter: str, rate: float) -> None:
        n = 10_000
        injector = FaultInjector(FaultRates.parse(f"{name}={rate}"), seed=7)
        for batch in long_stream():
            injector.apply(batch, 0.0)
        assert injector.counters[counter] == pytest.approx(n * rate, abs=4.5 * (n * rate * (1 - rate)) ** 0.5)
        assert sum(injector.counters.values()) == n + (injector.counters[counter] if name != "loss" else 0)

    def test_loss_of_all(self) -> None:
        injector = FaultInjector(FaultRates(loss=1.0), seed=1)
        assert run(injector, stream(range(100))).packets == []
        assert injector.counters["lost"] == 100

    def test_lost_packets_leave_the_others_in_order_and_whole(self) -> None:
        out = run(FaultInjector(FaultRates(loss=0.2), seed=1), stream(range(1000)))
        assert out.chunks == sorted(set(out.chunks))
        assert all(payload == packet(chunk_of(payload)) for _, payload in out.packets)

    def test_duplicates_come_right_away(self) -> None:
        injector = FaultInjector(FaultRates(duplicate=0.2), seed=1)
        out = run(injector, stream(range(1000)))
        assert set(out.chunks) == set(range(1000))
        assert out.chunks == sorted(out.chunks)
        assert len(out.chunks) == 1000 + injector.counters["duplicated"]

    def test_a_duplicate_of_a_shorter_last_packet_is_due_at_once(self) -> None:
        [batch] = batches([packet(0), packet(1), packet(2, exponents_only=True)])
        injector = FaultInjector(FaultRates(duplicate=1.0), seed=1)
        assert [*map(chunk_of, injector.apply(batch, 3.0))] == [0, 0, 1, 1, 2]
        assert injector.next_due() == 3.0
        [(flow, late)] = injector.due(3.0)
        assert (flow, list(late)) == (0, [packet(2, exponents_only=True)])

    def test_delayed_packets_wait_their_time(self) -> None:
        injector = FaultInjector(FaultRates(delay=0.3, delay_seconds=0.25), seed=1)
        out = run(injector, stream(range(900), 30), step=0.125)
        sent = {chunk: chunk // 30 * 0.125 for chunk in range(900)}
        waited = [now - sent[chunk_of(payload)] for now, payload in out.packets]
        assert sorted(out.chunks) == list(range(900))
        assert set(waited) == {0.0, 0.25}
        assert waited.count(0.25) == injector.counters["delayed"]

    def test_nothing_comes_before_its_time(self) -> None:
        injector = FaultInjector(FaultRates(delay=1.0, delay_seconds=0.25), seed=1)
        assert len(injector.apply(stream([4])[0], 10.0)) == 0
        assert injector.next_due() == 10.25
        assert injector.due(10.2499) == []
        assert [(flow, [*batch]) for flow, batch in injector.due(10.25)] == [(0, [packet(4)])]
        assert injector.next_due() is None

    def test_reordered_packets_are_overtaken_and_come_once(self) -> None:
        injector = FaultInjector(FaultRates(reorder=0.3, reorder_seconds=0.5), seed=1)
        out = run(injector, stream(range(900), 30), step=0.1)
        assert sorted(out.chunks) == list(range(900))
        assert all(before <= after for (before, _), (after, _) in pairwise(out.packets))
        waited = [now - chunk_of(payload) // 30 * 0.1 for now, payload in out.packets]
        assert max(waited) <= 0.5 + 0.1  # collected at the next step at the latest
        assert len({round(wait, 3) for wait in waited}) > 3
        overtaken = sum(after < before for before, after in pairwise(out.chunks))
        assert overtaken > 0.2 * injector.counters["reordered"]

    def test_held_packets_go_back_to_their_flows(self) -> None:
        injector = FaultInjector(FaultRates(delay=1.0), seed=1)
        injector.apply(stream([1, 2])[0], 0.0, flow=8)
        injector.apply(stream([3])[0], 0.0, flow=4)
        injector.apply(stream([5])[0], 0.0, flow=8)
        released = {flow: [*map(chunk_of, batch)] for flow, batch in injector.due(1.0)}
        assert released == {8: [1, 2, 5], 4: [3]}

    def test_corruption_flips_one_to_three_bits_anywhere(self) -> None:
        n = 3000
        injector = FaultInjector(FaultRates(corrupt=1.0), seed=1)
        flipped: Counter[int] = Counter()
        positions = np.zeros(BYTES * 8, np.int64)
        for batch in stream(range(n)):
            before = batch.data.copy()
            after = injector.apply(batch, 0.0)
            assert np.array_equal(batch.data, before)
            bits = np.unpackbits(before ^ after.data).reshape(len(batch), -1)
            flipped.update(np.count_nonzero(bits, axis=1).tolist())
            positions += np.count_nonzero(bits, axis=0)
        assert set(flipped) == {1, 2, 3}
        assert all(flipped[k] == pytest.approx(n / 3, rel=0.15) for k in (1, 2, 3))
        # 2 * 3000 flips over 1104 bits: 5.4 for each, Poisson, so 0.5 % of the bits are missed.
        assert np.count_nonzero(positions) > 0.98 * positions.size
        assert positions.max() < 25

    def test_corrupted_packets_may_be_held_too(self) -> None:
        out = run(FaultInjector(FaultRates(corrupt=1.0, delay=1.0), seed=1), stream(range(100)))
        assert len(out.packets) == 100
        assert not {payload for _, payload in out.packets} & {packet(chunk) for chunk in range(100)}

    def test_a_duplicate_of_a_corrupted_packet_is_whole(self) -> None:
        out = run(FaultInjector(FaultRates(corrupt=1.0, duplicate=1.0), seed=1), stream(range(100)))
        whole = [payload for _, payload in out.packets if payload in {packet(chunk) for chunk in range(100)}]
        assert [decode(payload).tsi for payload in whole] == list(range(100))
        assert len(out.packets) == 200


@given(
    seed=st.integers(0, 2**64 - 1),
    rates=st.tuples(*[st.sampled_from([0.0, 0.05, 0.5, 1.0])] * 4),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
def test_the_books_balance(seed: int, rates: tuple[float, ...], sizes: list[int]) -> None:
    loss, duplicate, reorder, delay = rates
    injector = FaultInjector(FaultRates(loss=loss, duplicate=duplicate, reorder=reorder, delay=delay), seed=seed)
    offered = list(range(sum(sizes)))
    inputs = [batch for k, size in enumerate(sizes) for batch in stream(offered[sum(sizes[:k]) :][:size], 64)]
    out = run(injector, inputs, step=0.0007)
    counters = injector.counters
    assert counters["lost"] + counters["passed"] == len(offered)
    assert len(out.packets) == counters["passed"] + counters["duplicated"]
    assert len(set(out.chunks)) == counters["passed"]
    assert counters["corrupted"] == 0


@given(data=st.binary(min_size=1, max_size=400), segment=st.integers(1, 90), seed=st.integers(0, 99))
def test_garbage_of_any_size_passes_through(data: bytes, segment: int, seed: int) -> None:
    batch = PacketBatch.of(np.frombuffer(data, np.uint8), segment)
    injector = FaultInjector(ALL_KINDS, seed=seed)
    out = run(injector, [batch])
    assert len(out.packets) == injector.counters["passed"] + injector.counters["duplicated"]
    assert all(len(payload) in {segment, len(data) % segment or segment} for _, payload in out.packets)


def test_the_batch_is_left_alone() -> None:
    [batch] = stream(range(60), 60)
    writable = PacketBatch.of(batch.data.copy(), batch.segment)
    injector = FaultInjector(FaultRates(loss=0.5, duplicate=0.5, corrupt=0.5), seed=1)
    out = injector.apply(writable, 0.0)
    assert np.array_equal(writable.data, batch.data)
    assert not np.shares_memory(out.data, writable.data)


def test_a_flow_that_ended_is_forgotten() -> None:
    """Its number may come again for another flow, which then meets the same faults."""
    injector = FaultInjector(FaultRates(loss=0.3, delay=0.2, duplicate=0.1), seed=1)
    inputs = stream(range(100), 30)
    first = [list(injector.apply(batch, 0.0, flow=5)) for batch in inputs]
    assert [list(injector.apply(batch, 0.0, flow=5)) for batch in inputs] != first
    injector.apply(inputs[0], 0.0, flow=6)
    injector.forget(5)
    injector.forget(7)  # never seen
    assert {flow for flow, _ in injector.due(1.0)} == {6}
    assert [list(injector.apply(batch, 1.0, flow=5)) for batch in inputs] == first
