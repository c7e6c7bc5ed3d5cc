"""A leaf of a tree of switches, packet by packet, on every target: partial results go up, the parent's results down."""

import pytest

from protocol.constants import DATA_PORT
from protocol.packets import make_packet
from tests.packet_targets import Frames, Job, Target, Worker, from_parent, make_job, partial_frame
from tests.test_target_sums import chunk, send, to_all, to_one


@pytest.fixture
def job(target: Target) -> Job:
    made = make_job(2, leaf=True)
    target.add_job(made)
    return made


def upward(target: Target, job: Job, tsi: int, values: int | None, e0: int = 0, e1: int = 0) -> bytes:
    """A packet of the job under the parent's number for it."""
    full = None if values is None else [values] * target.values
    packet = make_packet(
        tsi=tsi, slots=job.slots, values=full, per_packet=target.values, job=job.number + 90, e0=e0, e1=e1
    )
    return packet.encode()


def to_parent(job: Job, payload: bytes) -> Frames:
    assert job.parent is not None
    return [(job.parent.port, partial_frame(job.parent, payload))]


def send_result(target: Target, job: Job, payload: bytes) -> Frames:
    assert job.parent is not None
    return target.send(job.parent.port, from_parent(job.parent, payload))


def test_a_round(target: Target, job: Job) -> None:
    a, b = job.workers
    assert send(target, a, chunk(target, job, 0, 1, e0=-3)) == []
    assert send(target, b, chunk(target, job, 0, 2, e0=4)) == to_parent(job, upward(target, job, 0, 3, e0=4))
    # Other racks have more, and larger exponents.
    result = chunk(target, job, 0, 100, e0=9, e1=5)
    assert send_result(target, job, upward(target, job, 0, 100, e0=9, e1=5)) == to_all(job, result)
    assert send(target, a, chunk(target, job, 0, 1)) == to_one(a, result)
    assert target.counters(job) == {
        "received": 4,
        "contributions": 2,
        "duplicates": 1,
        "partials": 1,
        "results": 1,
        "retransmitted": 1,
    }
    assert target.registers(job).final.tolist()[0] == [1, 0]


def test_exponents_alone(target: Target, job: Job) -> None:
    for worker in job.workers:
        last = send(target, worker, chunk(target, job, 0, None, e0=worker.rank))
    assert last == to_parent(job, upward(target, job, 0, None, e0=1))
    assert send_result(target, job, upward(target, job, 0, None, e0=7)) == to_all(
        job, chunk(target, job, 0, None, e0=7)
    )
    assert not target.registers(job).values.any()


def test_a_lost_partial_result_is_sent_again_when_a_worker_asks(target: Target, job: Job) -> None:
    a, b = job.workers
    for worker in (a, b):
        send(target, worker, chunk(target, job, 0, 1))
    for worker in (b, a):
        assert send(target, worker, chunk(target, job, 0, 1)) == to_parent(job, upward(target, job, 0, 2))
    assert target.counters(job)["partials_again"] == 2


def test_a_worker_that_is_alone_in_its_rack(target: Target) -> None:
    job = make_job(1, leaf=True)
    target.add_job(job)
    (a,) = job.workers
    for tsi in range(3 * job.slots):
        assert send(target, a, chunk(target, job, tsi, 5)) == to_parent(job, upward(target, job, tsi, 5))
        assert send_result(target, job, upward(target, job, tsi, 50)) == to_all(job, chunk(target, job, tsi, 50))


class TestResultsOfTheParentThatDoNotCount:
    """They are dropped, and leave all registers alone."""

    def assert_unneeded(self, target: Target, job: Job, payload: bytes, counter: str = "unneeded") -> None:
        before = target.registers(job)
        count = target.counters(job).get(counter, 0)
        assert send_result(target, job, payload) == []
        assert before.differences(target.registers(job)) == []
        assert target.counters(job)[counter] == count + 1

    def test_for_a_slot_that_is_not_complete(self, target: Target, job: Job) -> None:
        send(target, job.workers[0], chunk(target, job, 0, 1))
        self.assert_unneeded(target, job, upward(target, job, 0, 9))

    def test_for_a_slot_that_is_final(self, target: Target, job: Job) -> None:
        for worker in job.workers:
            send(target, worker, chunk(target, job, 0, 1))
        send_result(target, job, upward(target, job, 0, 9))
        self.assert_unneeded(target, job, upward(target, job, 0, 9))

    def test_for_another_generation(self, target: Target, job: Job) -> None:
        for tsi in (0, job.slots):
            for worker in job.workers:
                send(target, worker, chunk(target, job, tsi, 1))
            if not tsi:
                send_result(target, job, upward(target, job, tsi, 9))
        self.assert_unneeded(target, job, upward(target, job, 0, 9))
        self.assert_unneeded(target, job, upward(target, job, 2 * job.slots, 9))

    def test_under_another_job_number(self, target: Target, job: Job) -> None:
        for worker in job.workers:
            send(target, worker, chunk(target, job, 0, 1))
        self.assert_unneeded(target, job, chunk(target, job, 0, 9), "wrong_job")

    def test_of_a_wrong_size(self, target: Target, job: Job) -> None:
        for worker in job.workers:
            send(target, worker, chunk(target, job, 0, 1))
        self.assert_unneeded(target, job, upward(target, job, 0, 9)[:-4], "wrong_size")

    @pytest.mark.parametrize("field", ["source", "port"])
    def test_of_somebody_else(self, target: Target, job: Job, field: str) -> None:
        for worker in job.workers:
            send(target, worker, chunk(target, job, 0, 1))
        assert job.parent is not None
        payload = upward(target, job, 0, 9)
        before = target.registers(job)
        frame = (
            from_parent(job.parent, payload, ip={"src": "10.0.0.99"})
            if field == "source"
            else from_parent(job.parent, payload, dport=job.parent.udp + 1)
        )
        assert target.send(job.parent.port, frame) == []
        assert before.differences(target.registers(job)) == []


def test_the_generation_before_is_answered_only_with_the_parents_result(target: Target, job: Job) -> None:
    a, b = job.workers
    for worker in (a, b):
        send(target, worker, chunk(target, job, 0, 1))
    send(target, a, chunk(target, job, job.slots, 1))  # which nobody may: the first is not answered
    assert send(target, b, chunk(target, job, 0, 1)) == []
    for worker in (a, b):
        send(target, worker, chunk(target, job, 1, 1))
    send_result(target, job, upward(target, job, 1, 9))
    send(target, a, chunk(target, job, 1 + job.slots, 1))
    assert send(target, b, chunk(target, job, 1, 1)) == to_one(b, chunk(target, job, 1, 9))
    assert target.counters(job)["previous"] == 2


def test_a_new_generation_is_not_final(target: Target, job: Job) -> None:
    for tsi in (0, job.slots, 2 * job.slots):
        for worker in job.workers:
            last = send(target, worker, chunk(target, job, tsi, tsi + 1))
        assert last == to_parent(job, upward(target, job, tsi, 2 * tsi + 2))
        assert send_result(target, job, upward(target, job, tsi, 7)) == to_all(job, chunk(target, job, tsi, 7))


def test_a_root_takes_a_leaf_for_a_rank(target: Target) -> None:
    """The partial result that a leaf sends is a contribution like any other."""
    leaf = Worker(0, 1, "10.0.7.50", "02:00:00:00:07:50", 50003, 1)
    worker = Worker(1, 2, "10.0.7.3", "02:00:00:00:07:03", 40002, 2)
    job = Job(7, 4, (leaf, worker))
    target.add_job(job)
    send(target, leaf, chunk(target, job, 0, 30, e0=3))
    assert send(target, worker, chunk(target, job, 0, 4)) == to_all(job, chunk(target, job, 0, 34, e0=3))
    assert DATA_PORT not in (leaf.udp, worker.udp)
