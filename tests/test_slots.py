"""The slot rules of the switch, held against a second, plain statement of them."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.constants import SlotEvent
from protocol.packets import Packet, batches, decode, make_packet
from switch.slots import Aggregator, Result

JOB, PARENT_JOB, SLOTS, VALUES = 7, 201, 4, 32


@dataclass
class PlainSlot:
    newest: int
    final: list[bool] = field(default_factory=lambda: [False, False])
    seen: list[set[int]] = field(default_factory=lambda: [set(), set()])
    exponents: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0), (0, 0)])
    values: list[npt.NDArray[np.int64]] = field(
        default_factory=lambda: [np.zeros(VALUES, np.int64), np.zeros(VALUES, np.int64)]
    )


class PlainSwitch:
    """Sections 2 and 7 of the protocol, one packet at a time, with none of the tricks of the real one."""

    def __init__(self, ranks: int, first: int = 0, leaf: bool = False) -> None:
        self.ranks, self.leaf = ranks, leaf
        self.slots = [PlainSlot((first + s - SLOTS) % 2**32) for s in range(SLOTS)]

    def receive(self, packet: Packet, rank: int) -> tuple[str, Packet] | None:
        if packet.job != (PARENT_JOB if rank == self.ranks else JOB):
            return None
        if rank == self.ranks:
            return self.receive_result(packet)
        slot, v = self.slots[packet.slot], packet.version
        ahead = (packet.tsi - slot.newest + 2**31) % 2**32 - 2**31
        fresh = False
        if ahead == SLOTS:
            fresh = True
            slot.newest, slot.seen[v], slot.exponents[v] = packet.tsi, {rank}, (packet.e0, packet.e1)
            slot.final[v] = False
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
        if self.leaf and not slot.final[v]:
            return None if ahead == -SLOTS else ("parent", self.packet(packet, PARENT_JOB))
        return ("all" if fresh else "one", self.packet(packet, JOB))

    def receive_result(self, packet: Packet) -> tuple[str, Packet] | None:
        slot, v = self.slots[packet.slot], packet.version
        if packet.tsi != slot.newest or len(slot.seen[v]) < self.ranks or slot.final[v]:
            return None
        slot.final[v], slot.exponents[v] = True, (packet.e0, packet.e1)
        if packet.msg_type == 1:
            slot.values[v] = packet.values.astype(np.int64)
        return "all", self.packet(packet, JOB)

    def packet(self, of: Packet, job: int) -> Packet:
        slot, v = self.slots[of.slot], of.version
        return make_packet(
            tsi=of.tsi,
            slots=SLOTS,
            values=None if of.msg_type == 2 else slot.values[v].astype(np.uint32).astype(np.int32),
            per_packet=VALUES,
            job=job,
            e0=slot.exponents[v][0],
            e1=slot.exponents[v][1],
        )


def sent(results: list[Result], parent: int = -1) -> list[tuple[str, bytes]]:
    names = {None: "all", parent: "parent"}
    return [(names.get(to, "one"), packet) for to, batch in results for packet in batch]


def aggregator(ranks: int, first: int = 0, leaf: bool = False) -> Aggregator:
    made = Aggregator(job=JOB, ranks=ranks, slots=SLOTS, values=VALUES, parent_job=PARENT_JOB if leaf else None)
    made.pool["newest"] = (first + np.arange(SLOTS) - SLOTS) % 2**32
    return made


def give(target: Aggregator, rank: int, *packets: bytes) -> list[tuple[str, bytes]]:
    return [found for batch in batches(packets) for found in sent(target.receive(batch, rank), target.parent)]


def count(target: Aggregator, name: str) -> int:
    return int(target.counters[:, SlotEvent[name.upper()]].sum())


def chunk(tsi: int, values: object = 1, e0: int = 0, e1: int = 0, job: int = JOB) -> bytes:
    full = None if values is None else np.broadcast_to(np.asarray(values), VALUES)
    return make_packet(tsi=tsi, slots=SLOTS, values=full, per_packet=VALUES, job=job, e0=e0, e1=e1).encode()


steps = st.tuples(
    st.integers(0, 32),  # rank, or parent
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
    leaf=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_any_packets_lead_to_what_the_rules_say(
    ranks: int, first: int, script: list[tuple[int, int, bool, int, int, int]], size: int, leaf: bool
) -> None:
    """Any sequence, also of packets that no worker would send, in batches of any size."""
    fast, plain = aggregator(ranks, first, leaf), PlainSwitch(ranks, first, leaf)
    present = first
    for start in range(0, len(script), size):
        rank = script[start][0] % (ranks + leaf)
        packets = []
        for _, distance, with_values, e0, e1, value in script[start : start + size]:
            tsi = (present + distance) % 2**32
            present += distance > 0
            values = np.arange(VALUES) * 77_777_777 + value if with_values else None
            if values is not None:
                values = values.astype(np.uint32).astype(np.int32)
            packets.append(chunk(tsi, values, e0, e1, PARENT_JOB if rank == ranks else JOB))
        expected = [found for p in packets if (found := plain.receive(decode(p), rank)) is not None]
        got = give(fast, rank, *packets)
        assert sorted(got) == sorted((where, packet.encode()) for where, packet in expected)
    for slot, registers in zip(plain.slots, fast.pool, strict=True):
        assert slot.newest == registers["newest"]
        assert [len(s) for s in slot.seen] == list(registers["count"])
        assert slot.final == list(registers["final"])


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
    assert counted(target, 0) == {"received": 1, counter: 1}
    assert (target.pool == before).all()
    assert give(target, 0, GOOD) == [("all", GOOD)]


@given(st.lists(st.binary(max_size=200), max_size=20))
@settings(deadline=None)
def test_garbage_is_dropped_and_counted(garbage: list[bytes]) -> None:
    target = aggregator(2)
    assert give(target, 0, *[g for g in garbage if g]) == []
    assert count(target, "received") == sum(bool(g) for g in garbage)


def counted(target: Aggregator, row: int) -> dict[str, int]:
    return {event.counter: int(value) for event, value in zip(SlotEvent, target.counters[row], strict=True) if value}


def test_a_round_at_a_leaf() -> None:
    target = aggregator(2, leaf=True)
    give(target, 0, chunk(0, 1, e0=3))
    partial = ("parent", chunk(0, 3, e0=4, job=PARENT_JOB))
    assert give(target, 1, chunk(0, 2, e0=4)) == [partial]
    assert give(target, 0, chunk(0, 1, e0=3)) == [partial]  # again: it may have been lost
    assert [s.missing for s in target.open_slots()] == [()]
    assert give(target, target.parent, chunk(0, 100, e0=9, job=PARENT_JOB)) == [("all", chunk(0, 100, e0=9))]
    assert target.open_slots() == []
    assert give(target, target.parent, chunk(0, 100, e0=9, job=PARENT_JOB)) == []
    assert give(target, 1, chunk(0, 2, e0=4)) == [("one", chunk(0, 100, e0=9))]
    give(target, 0, chunk(SLOTS, 5))
    assert give(target, 1, chunk(0, 2, e0=4)) == [("one", chunk(0, 100, e0=9))]  # the generation before
    assert give(target, target.parent, chunk(SLOTS, 7, job=PARENT_JOB)) == []  # which is not complete here
    assert counted(target, 0) == {"received": 3, "contributions": 2, "duplicates": 1, "partials_again": 1}
    assert counted(target, 1) == {
        "received": 3, "contributions": 1, "duplicates": 1, "previous": 1, "retransmitted": 2, "partials": 1,
    }  # fmt: skip
    assert counted(target, target.parent) == {"received": 3, "results": 1, "unneeded": 2}


def test_a_leaf_takes_its_own_number_from_below_and_the_parents_from_above() -> None:
    target = aggregator(1, leaf=True)
    assert give(target, 0, chunk(0, 1, job=PARENT_JOB)) == []
    assert give(target, 0, chunk(0, 1)) == [("parent", chunk(0, 1, job=PARENT_JOB))]
    assert give(target, target.parent, chunk(0, 1)) == []
    assert count(target, "wrong_job") == 2


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
    with pytest.raises(ValueError, match="a job number is 0 to 255, not 300"):
        Aggregator(job=0, ranks=2, slots=4, values=32, parent_job=300)
