"""The slot rules of the switch, held against a second, plain statement of them."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.packets import Packet, batches, decode, make_packet
from switch.slot_kernels import COUNTERS
from switch.slots import Aggregator, Result

JOB, SLOTS, VALUES = 7, 4, 32


@dataclass
class PlainSlot:
    newest: int
    seen: list[set[int]] = field(default_factory=lambda: [set(), set()])
    exponents: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0), (0, 0)])
    values: list[npt.NDArray[np.int64]] = field(
        default_factory=lambda: [np.zeros(VALUES, np.int64), np.zeros(VALUES, np.int64)]
    )


class PlainSwitch:
    """Section 2 of the protocol, one packet at a time, with none of the tricks of the real one."""

    def __init__(self, ranks: int, first: int = 0) -> None:
        self.ranks = ranks
        self.slots = [PlainSlot((first + s - SLOTS) % 2**32) for s in range(SLOTS)]

    def receive(self, packet: Packet, rank: int) -> tuple[str, Packet] | None:
        slot, v = self.slots[packet.slot], packet.version
        ahead = (packet.tsi - slot.newest + 2**31) % 2**32 - 2**31
        fresh = False
        if ahead == SLOTS:
            fresh = True
            slot.newest, slot.seen[v], slot.exponents[v] = packet.tsi, {rank}, (packet.e0, packet.e1)
            if packet.msg_type == 1:
                slot.values[v] = packet.values.astype(np.int64)
        elif ahead == 0 and rank not in slot.seen[v]:
            fresh = True
            slot.seen[v].add(rank)
            slot.exponents[v] = (max(slot.exponents[v][0], packet.e0), max(slot.exponents[v][1], packet.e1))
            if packet.msg_type == 1:
                slot.values[v] = slot.values[v] + packet.values
        elif ahead not in (0, -SLOTS):
            return None
        if rank not in slot.seen[v] or len(slot.seen[v]) != self.ranks:
            return None
        result = make_packet(
            tsi=packet.tsi,
            slots=SLOTS,
            values=None if packet.msg_type == 2 else slot.values[v].astype(np.uint32).astype(np.int32),
            per_packet=VALUES,
            job=JOB,
            e0=slot.exponents[v][0],
            e1=slot.exponents[v][1],
        )
        return ("all" if fresh else "one", result)


def sent(results: list[Result]) -> list[tuple[str, bytes]]:
    return [("all" if to is None else "one", packet) for to, batch in results for packet in batch]


def aggregator(ranks: int, first: int = 0) -> Aggregator:
    made = Aggregator(job=JOB, ranks=ranks, slots=SLOTS, values=VALUES)
    made.pool["newest"] = (first + np.arange(SLOTS) - SLOTS) % 2**32
    return made


def give(target: Aggregator, rank: int, *packets: bytes) -> list[tuple[str, bytes]]:
    return [found for batch in batches(packets) for found in sent(target.receive(batch, rank))]


def count(target: Aggregator, name: str) -> int:
    return int(target.counters[:, COUNTERS.index(name)].sum())


def chunk(tsi: int, values: object = 1, e0: int = 0, e1: int = 0) -> bytes:
    full = None if values is None else np.broadcast_to(np.asarray(values), VALUES)
    return make_packet(tsi=tsi, slots=SLOTS, values=full, per_packet=VALUES, job=JOB, e0=e0, e1=e1).encode()


steps = st.tuples(
    st.integers(0, 31),  # rank
    st.integers(-3 * SLOTS, 3 * SLOTS),  # chunk, about the present
    st.booleans(),  # with values
    st.integers(-128, 127),
    st.integers(0, 126),
    st.integers(-(2**31), 2**31 - 1),
)


@given(
    ranks=st.sampled_from([1, 2, 3, 32]),
    first=st.sampled_from([0, 2**31 - 8, 2**32 - 8]),
    script=st.lists(steps, max_size=60),
    size=st.integers(1, 20),
)
@settings(max_examples=300, deadline=None)
def test_any_packets_lead_to_what_the_rules_say(
    ranks: int, first: int, script: list[tuple[int, int, bool, int, int, int]], size: int
) -> None:
    """Any sequence, also of packets that no worker would send, in batches of any size."""
    fast, plain = aggregator(ranks, first), PlainSwitch(ranks, first)
    present = first
    for start in range(0, len(script), size):
        rank = script[start][0] % ranks
        packets = []
        for _, distance, with_values, e0, e1, value in script[start : start + size]:
            tsi = (present + distance) % 2**32
            present += distance > 0
            values = np.arange(VALUES) * 77_777_777 + value if with_values else None
            if values is not None:
                values = values.astype(np.uint32).astype(np.int32)
            packets.append(chunk(tsi, values, e0, e1))
        expected = [found for p in packets if (found := plain.receive(decode(p), rank)) is not None]
        got = give(fast, rank, *packets)
        assert sorted(got) == sorted((where, packet.encode()) for where, packet in expected)
    for slot, registers in zip(plain.slots, fast.pool, strict=True):
        assert slot.newest == registers["newest"]
        assert [len(s) for s in slot.seen] == list(registers["count"])


def test_a_round() -> None:
    target = aggregator(3)
    assert give(target, 0, chunk(0, 2**31 - 1, e0=-5, e1=3)) == []
    assert give(target, 2, chunk(0, 5, e0=-128, e1=3)) == []
    assert give(target, 1, chunk(0, -7, e0=-3, e1=3)) == [("all", chunk(0, 2**31 - 3, e0=-3, e1=3))]
    again = give(target, 1, chunk(0, -7, e0=-3, e1=3))
    assert again == [("one", chunk(0, 2**31 - 3, e0=-3, e1=3))]


def test_sums_wrap() -> None:
    target = aggregator(2)
    give(target, 0, chunk(0, 2**31 - 1))
    assert give(target, 1, chunk(0, 1)) == [("all", chunk(0, -(2**31)))]


def test_a_result_stays_to_be_had_until_its_slot_comes_round_twice() -> None:
    target = aggregator(2)
    for rank in (0, 1):
        give(target, rank, chunk(0, 1))
    give(target, 0, chunk(SLOTS, 10))  # the next generation has begun
    assert give(target, 1, chunk(0, 1)) == [("one", chunk(0, 2))]
    assert give(target, 1, chunk(SLOTS, 20)) == [("all", chunk(SLOTS, 30))]
    give(target, 0, chunk(2 * SLOTS, 1))
    assert give(target, 1, chunk(0, 1)) == []
    assert count(target, "stale") == 1


def test_a_duplicate_changes_nothing() -> None:
    target = aggregator(2)
    give(target, 0, chunk(0, 1))
    assert give(target, 0, chunk(0, 100)) == []
    assert give(target, 1, chunk(0, 2)) == [("all", chunk(0, 3))]
    assert count(target, "duplicates") == 1


def test_exponents_alone_leave_values_alone() -> None:
    target = aggregator(2)
    give(target, 0, chunk(0, None, e0=4))
    assert give(target, 1, chunk(0, None, e0=9)) == [("all", chunk(0, None, e0=9))]


def mutate(packet: bytes, at: int, value: int) -> bytes:
    return packet[:at] + bytes([value]) + packet[at + 1 :]


GOOD = chunk(1, 5)


@pytest.mark.parametrize(
    ("packet", "counter"),
    [
        (GOOD[:3], "wrong_size"),
        (GOOD[:-1], "wrong_size"),
        (GOOD + b"\0", "wrong_size"),
        (GOOD[:10], "wrong_size"),
        (mutate(GOOD, 0, 0x11), "wrong_size"),
        (mutate(GOOD, 0, 0x30), "wrong_size"),
        (mutate(GOOD, 0, 0x00), "wrong_size"),
        (mutate(GOOD, 0, 0x18), "reserved_bits"),
        (mutate(GOOD, 6, 0x40), "reserved_bits"),
        (mutate(GOOD, 1, JOB + 1), "wrong_job"),
        (mutate(GOOD, 7, SLOTS), "outside_pool"),
        (mutate(GOOD, 6, 0x80), "wrong_index"),
        (mutate(GOOD, 7, 0x02), "wrong_index"),
        (chunk(1 + 2 * SLOTS, 5), "stale"),
        (chunk(2**32 - 4 * SLOTS + 1, 5), "stale"),
    ],
)
def test_each_bad_packet_is_dropped_and_counted(packet: bytes, counter: str) -> None:
    target = aggregator(1)
    before = target.pool.copy()
    assert give(target, 0, packet) == []
    assert {name: count(target, name) for name in COUNTERS if count(target, name)} == {"received": 1, counter: 1}
    assert (target.pool == before).all()
    assert give(target, 0, GOOD) == [("all", GOOD)]


@given(st.lists(st.binary(max_size=200), max_size=20))
@settings(deadline=None)
def test_garbage_is_dropped_and_counted(garbage: list[bytes]) -> None:
    target = aggregator(2)
    assert give(target, 0, *[g for g in garbage if g]) == []
    assert count(target, "received") == sum(bool(g) for g in garbage)


def test_stalled_slots_name_who_is_missing() -> None:
    target = aggregator(3)
    give(target, 0, chunk(2), chunk(1))
    give(target, 2, chunk(1))
    give(target, 1, chunk(3))
    found = [(s.slot, s.chunk, s.seen, s.missing) for s in target.open_slots()]
    assert found == [(1, 1, (0, 2), (1,)), (2, 2, (0,), (1, 2)), (3, 3, (1,), (0, 2))]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="a job has 1 to 32 ranks, not 33"):
        Aggregator(job=0, ranks=33, slots=4, values=32)
    with pytest.raises(ValueError, match=r"slots must be a power of two .* not 5"):
        Aggregator(job=0, ranks=2, slots=5, values=32)
    with pytest.raises(ValueError, match="a job number is 0 to 255, not 256"):
        Aggregator(job=256, ranks=2, slots=4, values=32)
