"""Any sequence of packets, with losses, duplicates, reordering and damage: all targets send and store the same."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.packets import make_packet
from tests.packet_targets import AggregatorTarget, Job, Parent, Worker, frame, from_parent, make_job
from tests.targets import Targets

VALUES = 32
SLOTS = 4


@dataclass(frozen=True)
class Step:
    """One packet: of which job and rank, how far from the present, what is in it, and what became of it on the way."""

    job: int
    rank: int
    from_parent: bool
    ahead: int
    with_values: bool
    e0: int
    e1: int
    value: int
    copies: int
    damage: tuple[int, int] | None  # place in the payload, bits to flip
    cut: int | None  # bytes that are left of the payload
    checksum: str  # right, none, or stale: of the packet before the damage


packets = st.builds(
    Step,
    job=st.integers(0, 1),
    rank=st.integers(0, 31),
    from_parent=st.sampled_from([False, False, True]),
    ahead=st.one_of(st.integers(-2, 1), st.integers(-3 * SLOTS, 3 * SLOTS)),
    with_values=st.booleans(),
    e0=st.integers(-128, 127),
    e1=st.integers(-128, 127),
    value=st.one_of(st.integers(-5, 5), st.sampled_from([2**31 - 1, -(2**31)]), st.integers(-(2**31), 2**31 - 1)),
    copies=st.sampled_from([0, 1, 1, 1, 1, 2]),
    damage=st.one_of(st.none(), st.none(), st.none(), st.tuples(st.integers(0, 30), st.integers(1, 255))),
    cut=st.one_of(st.none(), st.none(), st.none(), st.none(), st.integers(1, 4 * VALUES + 12)),
    checksum=st.sampled_from(["right", "right", "none", "stale"]),
)

first_chunk = st.sampled_from([0, 0, 2**32 - SLOTS])  # a new pool's current generation may be either


def frame_of(step: Step, jobs: list[Job], present: list[int]) -> tuple[int, bytes]:
    job = jobs[step.job]
    worker: Worker | Parent = job.workers[step.rank % len(job.workers)]
    number = job.number
    if step.from_parent and job.parent is not None:
        worker, number = job.parent, job.parent.job
    tsi = (present[step.job] + step.ahead) % 2**32
    values = (np.arange(VALUES) * 77_777_777 + step.value).astype(np.uint32).astype(np.int32)
    packet = make_packet(
        tsi=tsi,
        slots=job.slots,
        values=values if step.with_values else None,
        per_packet=VALUES,
        job=number,
        e0=step.e0,
        e1=step.e1,
    )
    payload = packet.encode()

    def build(payload: bytes, **udp: Any) -> bytes:
        return from_parent(worker, payload, **udp) if isinstance(worker, Parent) else frame(worker, payload, **udp)

    whole = build(payload)
    if step.cut is not None:
        payload = payload[: step.cut]
    if step.damage is not None and step.damage[0] < len(payload):
        place, bits = step.damage
        payload = payload[:place] + bytes([payload[place] ^ bits]) + payload[place + 1 :]
    if step.checksum == "none":
        return worker.port, build(payload, chksum=0)
    # The program computes no checksum of a packet of a wrong length or kind, and drops it as that.
    if step.checksum == "stale" and step.cut is None and (step.damage is None or step.damage[0] > 0):
        return worker.port, build(payload, chksum=int.from_bytes(whole[40:42], "big"))
    return worker.port, build(payload)


def check(
    targets: Targets,
    name: str,
    ranks: tuple[int, int],
    leaves: tuple[bool, bool],
    starts: tuple[int, int],
    script: list[Step],
) -> None:
    """Plays a script to a target and to the aggregator, and compares all that can be seen of them."""
    reference, target = AggregatorTarget(VALUES), targets.fresh(name, VALUES)
    jobs = [
        make_job(ranks[0], number=1, slots=SLOTS, base=0, first_member=1, leaf=leaves[0]),
        make_job(ranks[1], number=2, slots=2 * SLOTS, base=8, first_member=40, leaf=leaves[1]),
    ]
    for job in jobs:
        reference.add_job(job)
        target.add_job(job)
    present = list(starts)
    for place, step in enumerate(script):
        port, packet = frame_of(step, jobs, present)
        for _ in range(step.copies):
            assert target.send(port, packet) == reference.send(port, packet), f"step {place}: {step}"
        if step.ahead == 1:
            present[step.job] = (present[step.job] + 1) % 2**32
    for job in jobs:
        assert reference.registers(job).differences(target.registers(job)) == []
        assert target.counters(job) == reference.counters(job)


@pytest.mark.parametrize("name", ["model", "bmv2"])
def test_any_packets_do_the_same(name: str, all_targets: Targets) -> None:
    all_targets.fresh(name, VALUES)  # or skip

    @given(
        ranks=st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 31, 32])),
        leaves=st.tuples(st.booleans(), st.booleans()),
        starts=st.tuples(first_chunk, st.sampled_from([0, 2**32 - 2 * SLOTS])),
        script=st.lists(packets, max_size=40),
    )
    @settings(
        max_examples=200 if name == "model" else 40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    def play(ranks: tuple[int, int], leaves: tuple[bool, bool], starts: tuple[int, int], script: list[Step]) -> None:
        check(all_targets, name, ranks, leaves, starts, script)

    play()


@pytest.mark.parametrize("name", ["model", "bmv2"])
def test_long_rounds_of_honest_workers_with_faults(name: str, all_targets: Targets) -> None:
    """Workers that keep the rules over a network that loses, repeats and reorders, for many generations."""
    rng = np.random.default_rng(20_211_201)
    for ranks in (2, 3):
        reference, target = AggregatorTarget(VALUES), all_targets.fresh(name, VALUES)
        job = make_job(ranks, slots=SLOTS)
        reference.add_job(job)
        target.add_job(job)
        answered = [set[int]() for _ in range(ranks)]
        network: list[tuple[int, bytes]] = []
        for _ in range(600):
            rank = int(rng.integers(ranks))
            worker = job.workers[rank]
            done = answered[rank]
            low = next(tsi for tsi in range(10_000) if tsi not in done)
            tsi = low + int(rng.integers(SLOTS))
            if tsi not in done and (tsi < SLOTS or tsi - SLOTS in done):
                values = np.full(VALUES, rank * 1000 + tsi, np.int32)
                packet = make_packet(tsi=tsi, slots=SLOTS, values=values, per_packet=VALUES, job=job.number, e0=rank)
                network += [(worker.port, frame(worker, packet.encode()))] * int(rng.choice([0, 1, 1, 2]))
            while network and rng.random() < 0.7:
                port, sent = network.pop(int(rng.integers(len(network))))
                results = target.send(port, sent)
                assert results == reference.send(port, sent)
                for _, result in results:
                    receiver = next(w for w in job.workers if w.udp == int.from_bytes(result[36:38], "big"))
                    if rng.random() < 0.8:
                        answered[receiver.rank].add(int.from_bytes(result[44:48], "big"))
        assert reference.registers(job).differences(target.registers(job)) == []
        assert target.counters(job) == reference.counters(job)
        assert min(len(done) for done in answered) > 3 * SLOTS
