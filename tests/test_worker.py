"""The worker's state machine against the real slot logic, in memory, with faults and literal seconds."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host.quantizer import block_exponent, headroom_bits
from host.worker import INITIAL_RTO, Tensor, Worker
from protocol.constants import MSG_EXPONENTS, MSG_VALUES, DType, Op
from protocol.faults import FaultRates
from protocol.packets import Packet, batches, decode, make_packet
from tests.rack import NUMPY_TYPES, Rack, as_float64

ROUGH = FaultRates(loss=0.1, duplicate=0.05, reorder=0.1)


def random_array(rng: np.random.Generator, dtype: DType, size: int) -> npt.NDArray[Any]:
    if not dtype.is_float:
        info = np.iinfo(NUMPY_TYPES[dtype])
        return rng.integers(info.min, info.max, size, endpoint=True).astype(NUMPY_TYPES[dtype])
    floats = rng.standard_normal(size).astype(np.float32)
    if dtype is DType.BFLOAT16:
        return (floats.view(np.uint32) >> 16).astype(np.uint16)
    return floats.astype(NUMPY_TYPES[dtype])


def error_bound(arrays: list[npt.NDArray[Any]], out: npt.NDArray[Any], dtype: DType, values: int) -> Any:
    """The bound of the protocol for each element, with the rounding of narrow floats."""
    ranks = len(arrays)
    wide = [as_float64(a, dtype).astype(np.float32) for a in arrays]
    bound = np.zeros(out.size)
    for start in range(0, out.size, values):
        e = max(block_exponent(w[start : start + values]) for w in wide)
        bound[start : start + values] = 0 if e == -128 else ranks * 2.0 ** (e + headroom_bits(ranks) - 32)
    digits = {DType.FLOAT32: 24, DType.FLOAT16: 11, DType.BFLOAT16: 8}[dtype]
    smallest = 2.0**-25 if dtype is DType.FLOAT16 else 2.0**-134 if dtype is DType.BFLOAT16 else 2.0**-150
    return bound + np.maximum(np.abs(as_float64(out, dtype)) * 2.0**-digits, smallest)


def check_sums(arrays: list[npt.NDArray[Any]], outs: list[npt.NDArray[Any]], dtype: DType, values: int) -> None:
    for out in outs[1:]:
        assert out.tobytes() == outs[0].tobytes()
    if dtype.is_float:
        exact = sum(as_float64(a, dtype) for a in arrays)
        assert (np.abs(as_float64(outs[0], dtype) - exact) <= error_bound(arrays, outs[0], dtype, values)).all()
    else:
        wrapped = sum(a.astype(np.int64) for a in arrays)
        assert (outs[0] == np.asarray(wrapped).astype(outs[0].dtype)).all()


@pytest.mark.parametrize("faults", [FaultRates(), ROUGH], ids=["clean", "rough"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_type_is_summed_on_every_worker(ranks: int, faults: FaultRates) -> None:
    rng = np.random.default_rng(ranks)
    rack = Rack(ranks=ranks, up=faults, down=faults)
    cases = []
    for size in (1, 31, 32, 33, 16 * 32, 16 * 32 + 1, 5000):
        for dtype in DType:
            arrays = [random_array(rng, dtype, size) for _ in range(ranks)]
            cases.append((arrays, rack.submit(arrays, dtype), dtype))
    rack.run()
    for arrays, outs, dtype in cases:
        check_sums(arrays, outs, dtype, rack.values)


@given(
    ranks=st.integers(1, 4),
    slots=st.sampled_from([1, 2, 4, 16]),
    sizes=st.lists(st.tuples(st.sampled_from(list(DType)), st.integers(1, 700)), min_size=1, max_size=6),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    seed=st.integers(0, 2**32 - 1),
    wraps=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_sums_are_right_whatever_happens_on_the_way(
    ranks: int, slots: int, sizes: list[tuple[DType, int]], loss: float, seed: int, wraps: bool
) -> None:
    rng = np.random.default_rng(seed)
    faults = FaultRates(loss=loss, duplicate=loss, reorder=loss, delay=loss / 2)
    first = 2**32 - 2 * slots if wraps else 0
    rack = Rack(ranks=ranks, slots=slots, up=faults, down=faults, seed=seed, first_chunk=first)
    cases = []
    for dtype, size in sizes:
        arrays = [random_array(rng, dtype, size) for _ in range(ranks)]
        cases.append((arrays, rack.submit(arrays, dtype), dtype))
    rack.run()
    for arrays, outs, dtype in cases:
        check_sums(arrays, outs, dtype, rack.values)


def test_the_bits_do_not_depend_on_faults_or_arrival_order() -> None:
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(3000).astype(np.float32) * 10.0 ** rng.integers(-30, 30) for _ in range(4)]
    results = set()
    for seed in range(5):
        faults = ROUGH if seed else FaultRates()
        rack = Rack(ranks=4, up=faults, down=faults, seed=seed)
        outs = rack.submit(arrays)
        rack.run()
        results |= {out.tobytes() for out in outs}
    assert len(results) == 1


def test_mean_is_the_sum_divided() -> None:
    rng = np.random.default_rng(6)
    for dtype in (DType.FLOAT32, DType.FLOAT16):
        arrays = [random_array(rng, dtype, 500) for _ in range(3)]
        rack = Rack(ranks=3)
        sums, means = rack.submit(arrays, dtype), rack.submit(arrays, dtype, Op.MEAN)
        rack.run()
        assert (means[0] == sums[0] / sums[0].dtype.type(3)).all()


def test_special_values_reach_every_worker() -> None:
    specials = np.array([np.nan, np.inf, -np.inf, np.finfo(np.float32).max, 2.0**126], np.float32)
    for special in specials:
        arrays = [np.ones(96, np.float32) for _ in range(2)]
        arrays[0][40] = special
        rack = Rack(ranks=2)
        outs = rack.submit(arrays)
        rack.run()
        for out in outs:
            assert np.isnan(out[32:64]).all()
            assert (out[:32] == 2).all()
            assert (out[64:] == 2).all()
    rack = Rack(ranks=2)
    tiny = np.array([0.0, -0.0, 1e-45, -1e-40, 2.0**-126], np.float32)
    outs = rack.submit([tiny, np.zeros(5, np.float32)])
    zeros = rack.submit([np.full(40, -0.0, np.float32)] * 2)
    rack.run()
    assert (outs[0] == tiny).all()
    assert zeros[0].tobytes() == np.zeros(40, np.float32).tobytes()


def test_results_may_stand_in_the_place_of_the_tensor_even_with_loss() -> None:
    rng = np.random.default_rng(8)
    arrays = [rng.standard_normal(4000).astype(np.float32) for _ in range(3)]
    apart, rough = Rack(ranks=3), Rack(ranks=3, up=ROUGH, down=ROUGH)
    expected = apart.submit(arrays)[0]
    apart.run()
    for worker, array in zip(rough.workers, arrays, strict=True):
        worker.submit(Tensor(source=array, target=array, dtype=DType.FLOAT32, op=Op.SUM))
    rough.run()
    assert all(array.tobytes() == expected.tobytes() for array in arrays)


def drain(worker: Worker, now: float = 0.0) -> list[Packet]:
    packets = []
    while (batch := worker.packets(now)) is not None:
        packets += [decode(p) for p in batch]
    return packets


def one_worker(elements: int, *, dtype: DType = DType.FLOAT32, slots: int = 4) -> Worker:
    worker = Worker(job=3, world_size=2, slots=slots, values=32)
    array = np.ones(elements, NUMPY_TYPES[dtype])
    worker.submit(Tensor(source=array, target=array, dtype=dtype, op=Op.SUM))
    return worker


def answer(worker: Worker, packet: Packet, now: float) -> None:
    (batch,) = batches([packet.encode()])
    worker.receive(batch, now)


def test_numbers_that_a_tensor_takes() -> None:
    """An integer tensor of N chunks takes N numbers, a float tensor min(W, N) + N."""
    worker = Worker(job=3, world_size=2, slots=4, values=32)
    for elements, dtype, taken in ((33, DType.INT32, 2), (33, DType.FLOAT32, 4), (32 * 9, DType.FLOAT32, 13)):
        before = worker._next_chunk
        array = np.ones(elements, NUMPY_TYPES[dtype])
        worker.submit(Tensor(source=array, target=array, dtype=dtype, op=Op.SUM))
        assert worker._next_chunk - before == taken


def test_exponents_travel_ahead_of_their_values() -> None:
    worker = one_worker(32 * 6)
    first = drain(worker)
    assert [(p.msg_type, p.tsi, p.e0) for p in first] == [(MSG_EXPONENTS, c, 1) for c in range(4)]
    answer(worker, first[2], 0.001)
    (values,) = drain(worker, 0.001)
    assert (values.msg_type, values.tsi, values.slot, values.version) == (MSG_VALUES, 6, 2, 1)
    assert values.e0 == -128  # block 2 + D = 6 does not exist
    answer(worker, first[0], 0.001)
    (values,) = drain(worker, 0.001)
    assert (values.tsi, values.e0) == (4, 1)  # announces block 4
    assert (values.values == 1 << 29).all()  # 1 = 2^(31 - L - e) with L = 1 and e = 1


def test_one_chunk_is_outstanding_for_each_slot() -> None:
    worker = one_worker(32 * 10, dtype=DType.INT32)
    assert [p.tsi for p in drain(worker)] == [0, 1, 2, 3]
    assert drain(worker) == []


def test_timer_resends_and_doubles_its_wait() -> None:
    worker = one_worker(10, dtype=DType.INT32)
    (first,) = drain(worker, 100.0)
    wait, at = INITIAL_RTO, 100.0
    for _ in range(4):
        assert worker.deadline == pytest.approx(at + wait)
        worker.handle_timer(at + wait - 1e-6)
        assert drain(worker, at + wait - 1e-6) == []
        at += wait
        worker.handle_timer(at + 1e-9)
        (again,) = drain(worker, at)
        assert again.encode() == first.encode()
        wait *= 2
    answer(worker, first, at)
    assert worker.deadline == np.inf
    assert not worker.finished()[0].source[10:].size
    assert worker.statistics()["retransmissions"] == 4


def test_the_wait_follows_the_measured_round_trip() -> None:
    worker = one_worker(32 * 40, dtype=DType.INT32, slots=1)
    now = 0.0
    for _ in range(30):
        (packet,) = drain(worker, now)
        now += 0.02
        answer(worker, packet, now)
    drain(worker, now)
    assert worker.statistics()["srtt"] == pytest.approx(0.02, rel=0.01)
    assert now + 0.02 <= worker.deadline <= now + 0.03


def test_a_chunk_that_was_overtaken_is_sent_again_before_its_timer() -> None:
    worker = one_worker(32 * 40, dtype=DType.INT32)
    lost, *others = drain(worker, 0.0)
    for packet in others:
        answer(worker, packet, 0.001)
    others = drain(worker, 0.001)
    assert lost.tsi not in [p.tsi for p in others]  # sent together with those answered: it may still come
    for packet in others:
        answer(worker, packet, 0.002)
    assert lost.tsi in [p.tsi for p in drain(worker, 0.002)]


def test_a_time_out_sends_a_few_probes_and_the_highest_answer_tells_the_rest() -> None:
    worker = one_worker(32 * 64, dtype=DType.INT32, slots=64)
    packets = drain(worker, 0.0)
    for packet in packets[:32]:
        answer(worker, packet, 0.001)
    at = worker.deadline
    worker.handle_timer(at)
    *low, high = drain(worker, at)
    assert [p.tsi for p in low] == [32, 33, 34, 35, 36, 37, 38]
    assert high.tsi == 63
    for packet in low:  # a rank that was late begins to send
        answer(worker, packet, at + 0.001)
    assert drain(worker, at + 0.001) == []
    answer(worker, high, at + 0.002)  # and has come to its end: between the two, packets were lost
    assert {p.tsi for p in drain(worker, at + 0.002)} == set(range(39, 63))


def test_the_quick_answer_to_a_late_chunk_is_no_sign_of_loss() -> None:
    """Whoever lost a result sends its next chunk late; the others have sent it long before, so the answer is quick."""
    worker = one_worker(32 * 40, dtype=DType.INT32)
    late, *others = drain(worker, 0.0)
    for packet in others:
        answer(worker, packet, 0.001)
    assert [p.tsi for p in drain(worker, 0.001)] == [5, 6, 7]
    answer(worker, late, 0.0018)
    (next_of_late,) = drain(worker, 0.0018)
    assert next_of_late.tsi == 4
    answer(worker, next_of_late, 0.0019)
    assert [p.tsi for p in drain(worker, 0.0019)] == [8]


def test_wrong_answers_change_nothing() -> None:
    worker = one_worker(40, dtype=DType.INT32)
    first, second = drain(worker)
    good = first.encode()
    wrong = [
        b"",
        good[:5],
        good[:-1],
        good + b"\0",
        bytes([good[0] | 8]) + good[1:],  # reserved bit
        bytes([0x21]) + good[1:],  # another type and size
        good[:1] + b"\x09" + good[2:],  # another job
        make_packet(tsi=first.tsi + 8, slots=4, values=range(32), per_packet=32, job=3, e1=first.e1).encode(),
        make_packet(tsi=first.tsi, slots=4, values=None, per_packet=32, job=3, e1=first.e1).encode(),
        good[:6] + b"\x3f\xff" + good[8:],  # slot outside the pool
        good[:6] + b"\x80\x00" + good[8:],  # the other version
    ]
    for packet in wrong:
        for batch in batches([packet]):
            worker.receive(batch, 0.0)
    assert worker.finished() == []
    answer(worker, first, 0.0)
    answer(worker, second, 0.0)
    (tensor,) = worker.finished()
    assert (tensor.target == 1).all()


def test_ranks_that_disagree_notice() -> None:
    noticed = 0
    for elements in range(33, 63):
        rack = Rack(ranks=2)
        for worker, size in zip(rack.workers, (32, elements), strict=True):
            array = np.ones(size, np.float32)
            worker.submit(Tensor(source=array, target=array, dtype=DType.FLOAT32, op=Op.SUM))
        try:
            rack.run(limit=0.01)
        except AssertionError:
            noticed += any(w.disagreement() is not None for w in rack.workers)
    assert noticed >= 29  # two equal bytes out of 127 happen


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="slots must be a power of two from 1 to 16384, not 3"):
        Worker(job=0, world_size=2, slots=3, values=32)
    with pytest.raises(ValueError, match=r"values per packet must be one of .* not 33"):
        Worker(job=0, world_size=2, slots=4, values=33)
    with pytest.raises(ValueError, match="first_chunk must be a multiple of 8, not 4"):
        Worker(job=0, world_size=2, slots=4, values=32, first_chunk=4)
