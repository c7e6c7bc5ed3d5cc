"""Sums, packet by packet, on every target: what goes in, on which ports what comes out, and that nothing else does."""

import numpy as np
import numpy.typing as npt
import pytest

from protocol.packets import make_packet
from tests.packet_targets import Frames, Job, Target, Worker, frame, make_job, result_frame

pytest.importorskip("scapy")


def chunk(target: Target, job: Job, tsi: int, values: object = 1, e0: int = 0, e1: int = 0) -> bytes:
    """A packet of the job; `values` one number for all, an array, or None for exponents only."""
    full = None if values is None else np.broadcast_to(np.asarray(values, np.int64), target.values).astype(np.int32)
    packet = make_packet(tsi=tsi, slots=job.slots, values=full, per_packet=target.values, job=job.number, e0=e0, e1=e1)
    return packet.encode()


def send(target: Target, worker: Worker, payload: bytes) -> Frames:
    return target.send(worker.port, frame(worker, payload))


def to_all(job: Job, payload: bytes) -> Frames:
    return sorted((worker.port, result_frame(worker, payload)) for worker in job.workers)


def to_one(worker: Worker, payload: bytes) -> Frames:
    return [(worker.port, result_frame(worker, payload))]


def pattern(target: Target, rank: int) -> npt.NDArray[np.int64]:
    """Values that differ in every place and rank, of both signs."""
    return (np.arange(target.values) - target.values // 2) * 1_000_003 + rank * 17


@pytest.mark.parametrize("ranks", [1, 2, 31, 32])
def test_a_full_round(target: Target, ranks: int) -> None:
    job = make_job(ranks)
    target.add_job(job)
    for worker in job.workers[:-1]:
        assert send(target, worker, chunk(target, job, 0, pattern(target, worker.rank))) == []
    last = job.workers[-1]
    total = np.sum([pattern(target, rank) for rank in range(ranks)], axis=0)
    answer = chunk(target, job, 0, total.astype(np.int32))
    assert send(target, last, chunk(target, job, 0, pattern(target, last.rank))) == to_all(job, answer)
    assert target.counters(job) == {"received": ranks, "contributions": ranks, "results": 1}
    assert target.drops() == {}


def test_both_versions_of_every_slot_for_several_rounds(target: Target) -> None:
    job = make_job(2)
    target.add_job(job)
    first, second = job.workers
    for tsi in range(5 * job.slots):
        assert send(target, first, chunk(target, job, tsi, tsi)) == []
        answer = to_all(job, chunk(target, job, tsi, 3 * tsi))
        assert send(target, second, chunk(target, job, tsi, 2 * tsi)) == answer
    registers = target.registers(job)
    assert registers.newest.tolist() == [4 * job.slots + slot for slot in range(job.slots)]
    assert (registers.seen == 3).all()
    assert (registers.count == 2).all()
    for version, generation in ((0, 4), (1, 3)):
        for slot in range(job.slots):
            assert (registers.values[slot, version] == 3 * (generation * job.slots + slot)).all()


def test_the_order_of_ranks_and_slots_is_free(target: Target) -> None:
    job = make_job(3)
    target.add_job(job)
    a, b, c = job.workers
    for worker, tsi in ((c, 2), (a, 0), (b, 2), (a, 1), (c, 0)):
        assert send(target, worker, chunk(target, job, tsi, worker.rank)) == []
    assert send(target, a, chunk(target, job, 2, 0)) == to_all(job, chunk(target, job, 2, 3))
    assert send(target, b, chunk(target, job, 0, 1)) == to_all(job, chunk(target, job, 0, 3))


def test_exponents_alone(target: Target) -> None:
    job = make_job(2)
    target.add_job(job)
    a, b = job.workers
    assert send(target, a, chunk(target, job, 0, None, e0=-3, e1=7)) == []
    assert send(target, b, chunk(target, job, 0, None, e0=-128, e1=120)) == to_all(
        job, chunk(target, job, 0, None, e0=-3, e1=120)
    )
    # The values of that cell are as they were.
    assert not target.registers(job).values.any()


@pytest.mark.parametrize(
    ("mine", "other", "larger"), [(-128, -127, -127), (127, -128, 127), (-1, 0, 0), (5, -5, 5), (-2, -2, -2)]
)
def test_exponents_are_compared_with_their_signs(target: Target, mine: int, other: int, larger: int) -> None:
    job = make_job(2)
    target.add_job(job)
    a, b = job.workers
    send(target, a, chunk(target, job, 0, 1, e0=mine, e1=other))
    assert send(target, b, chunk(target, job, 0, 2, e0=other, e1=mine)) == to_all(
        job, chunk(target, job, 0, 3, e0=larger, e1=larger)
    )


def test_sums_wrap(target: Target) -> None:
    job = make_job(3)
    target.add_job(job)
    a, b, c = job.workers
    send(target, a, chunk(target, job, 0, 2**31 - 1))
    send(target, b, chunk(target, job, 0, 2**31 - 1))
    assert send(target, c, chunk(target, job, 0, 5)) == to_all(job, chunk(target, job, 0, 3))
    send(target, a, chunk(target, job, 1, -(2**31)))
    send(target, b, chunk(target, job, 1, -1))
    assert send(target, c, chunk(target, job, 1, 0)) == to_all(job, chunk(target, job, 1, 2**31 - 1))


def test_chunk_numbers_wrap(target: Target) -> None:
    job = make_job(2)
    target.add_job(job)
    a, b = job.workers
    # To a pool as new, the last chunks before zero are its current generation.
    for tsi in (*range(2**32 - job.slots, 2**32), *range(2 * job.slots)):
        assert send(target, a, chunk(target, job, tsi, tsi % 1000)) == []
        answer = chunk(target, job, tsi, 2 * (tsi % 1000))
        assert send(target, b, chunk(target, job, tsi, tsi % 1000)) == to_all(job, answer)
        assert send(target, b, chunk(target, job, tsi, 1)) == to_one(b, answer)


class TestDuplicates:
    """Each case of the slot rules in which a packet is not new."""

    def test_of_a_contribution_that_others_are_missing_for(self, target: Target) -> None:
        job = make_job(2)
        target.add_job(job)
        a, b = job.workers
        send(target, a, chunk(target, job, 0, 1, e0=1))
        assert send(target, a, chunk(target, job, 0, 100, e0=100)) == []
        assert send(target, b, chunk(target, job, 0, 2)) == to_all(job, chunk(target, job, 0, 3, e0=1))
        assert target.counters(job)["duplicates"] == 1

    def test_of_a_complete_chunk_is_answered_to_its_sender_alone(self, target: Target) -> None:
        job = make_job(3)
        target.add_job(job)
        for worker in job.workers:
            send(target, worker, chunk(target, job, 0, 1))
        for worker in job.workers:
            again = send(target, worker, chunk(target, job, 0, 55))
            assert again == to_one(worker, chunk(target, job, 0, 3))
        assert target.counters(job)["retransmitted"] == 3

    def test_of_the_generation_before_is_answered_from_the_other_version(self, target: Target) -> None:
        job = make_job(2)
        target.add_job(job)
        a, b = job.workers
        for tsi in (0, job.slots):
            send(target, a, chunk(target, job, tsi, 10 + tsi))
        # Nobody starts a generation before the last one was answered, but b may, and then miss its answer.
        send(target, b, chunk(target, job, 0, 1))
        assert send(target, a, chunk(target, job, 0, 1)) == []

    def test_of_the_generation_before_when_it_was_complete(self, target: Target) -> None:
        job = make_job(2)
        target.add_job(job)
        a, b = job.workers
        for worker in (a, b):
            send(target, worker, chunk(target, job, 0, 4))
        assert send(target, a, chunk(target, job, job.slots, 9)) == []
        assert send(target, b, chunk(target, job, 0, 4)) == to_one(b, chunk(target, job, 0, 8))
        assert send(target, b, chunk(target, job, job.slots, 1)) == to_all(job, chunk(target, job, job.slots, 10))
        assert target.counters(job)["previous"] == 1

    def test_of_exponents_alone(self, target: Target) -> None:
        job = make_job(2)
        target.add_job(job)
        a, b = job.workers
        for worker in (a, b):
            send(target, worker, chunk(target, job, 0, None, e0=worker.rank))
        assert send(target, a, chunk(target, job, 0, None, e0=9)) == to_one(a, chunk(target, job, 0, None, e0=1))


def test_two_jobs_do_not_meet(target: Target) -> None:
    one = make_job(2, number=1, slots=4, base=0, first_member=1)
    two = make_job(3, number=2, slots=8, base=8, first_member=3)
    target.add_job(one)
    target.add_job(two)
    for tsi in range(8):
        for job in (one, two):
            for worker in job.workers[:-1]:
                assert send(target, worker, chunk(target, job, tsi, job.number)) == []
        for job in (two, one):
            answer = chunk(target, job, tsi, job.number * len(job.workers))
            assert send(target, job.workers[-1], chunk(target, job, tsi, job.number)) == to_all(job, answer)
    # Each other's number is refused.
    assert send(target, one.workers[0], chunk(target, two, 0)) == []
    assert target.counters(one)["wrong_job"] == 1


def test_two_ranks_on_one_host_are_told_apart_by_their_udp_ports(target: Target) -> None:
    a = Worker(0, 1, "10.0.7.2", "02:00:00:00:07:02", 50001, 1)
    b = Worker(1, 2, "10.0.7.2", "02:00:00:00:07:02", 50002, 1)
    job = Job(7, 4, (a, b))
    target.add_job(job)
    send(target, a, chunk(target, job, 0, 1))
    assert send(target, b, chunk(target, job, 0, 2)) == to_all(job, chunk(target, job, 0, 3))
