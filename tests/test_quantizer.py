"""Numbers against exact arithmetic: what the protocol promises in its section 4, checked with fractions."""

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from host.quantizer import block_exponent, dequantize, headroom_bits, quantize
from protocol.constants import EXPONENT_MIN, EXPONENT_NAN, EXPONENT_ZERO, DType, Op
from protocol.packets import batches, decode, make_packet
from switch.slots import Aggregator
from tests.rack import NUMPY_TYPES, Rack

Block = npt.NDArray[np.float32]

MAX_FLOAT = float(np.finfo(np.float32).max)
LARGEST = float(np.nextafter(np.float32(2.0**126), np.float32(0)))  # the largest number that can be sent
DENORMAL = 2.0**-149
CORNERS = [0.0, -0.0, DENORMAL, -DENORMAL, 2.0**-126, -(2.0**-127), 1.0, -1.0, LARGEST, -LARGEST]
# Digits of the mantissa after the point, exponent of the smallest normal number, largest finite number.
FORMATS = {
    DType.FLOAT32: (23, -126, Fraction(MAX_FLOAT)),
    DType.FLOAT16: (10, -14, Fraction(65504)),
    DType.BFLOAT16: (7, -126, Fraction(2**128 - 2**120)),
}

sendable = st.floats(-LARGEST, LARGEST, width=32) | st.sampled_from(CORNERS)
workers = st.integers(1, 32)


@st.composite
def blocks(draw: st.DrawFn, elements: st.SearchStrategy[float] = sendable) -> list[Block]:
    """A block of the same size from each of 1 to 32 workers, all of about one magnitude or of wild ones."""
    shape = draw(st.tuples(workers, st.integers(1, 12)))
    array = draw(npst.arrays(np.float32, shape, elements=elements))
    if draw(st.booleans()):
        scale = draw(st.integers(-149, 100))
        with np.errstate(over="ignore"):
            array = np.ldexp(array / np.float32(2.0**100), scale).astype(np.float32)
        array[~(np.abs(array) <= LARGEST)] = 1
    return list(array)


def rounded(exact: Fraction, dtype: DType, *, negative: bool = False) -> float:
    """The number of a format that is nearest to `exact`, ties to even; infinite beyond the largest by half a step."""
    digits, lowest, largest = FORMATS[dtype]
    if exact == 0:
        return -0.0 if negative else 0.0
    magnitude = abs(exact)
    exponent = max(math.frexp(magnitude)[1] - 1, lowest)
    step = Fraction(2) ** (exponent - digits)
    nearest = round(magnitude / step) * step  # Python rounds fractions half to even
    value = math.inf if nearest > largest else float(nearest)
    return math.copysign(value, exact)


def as_floats(result: npt.NDArray[Any], dtype: DType) -> npt.NDArray[np.float64]:
    """Numbers of any of the float types, bfloat16 given as its bits."""
    if dtype is DType.BFLOAT16:
        result = (result.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return result.astype(np.float64)


def same_bits(result: npt.NDArray[Any], expected: list[float], dtype: DType) -> bool:
    """Whether all numbers are equal, zeros with their signs."""
    return as_floats(result, dtype).tobytes() == np.array(expected).tobytes()


def reduce(parts: list[Block], dtype: DType = DType.FLOAT32, op: Op = Op.SUM) -> tuple[npt.NDArray[Any], int]:
    """What all workers end up with, and the exponent that they agreed on."""
    exponent = max(block_exponent(part) for part in parts)
    sums = np.sum([quantize(part, exponent, len(parts)).astype(np.int64) for part in parts], axis=0)
    assert sums.min() >= -(2**31)
    assert sums.max() < 2**31
    return dequantize(sums.astype(np.int32), exponent, len(parts), dtype, op), exponent


# Exponents


@given(npst.arrays(np.float32, st.integers(1, 40), elements=sendable))
@example(np.array([DENORMAL], np.float32))
@example(np.array(CORNERS, np.float32))
def test_block_exponent_is_the_smallest_that_covers_the_block(block: Block) -> None:
    exponent = block_exponent(block)
    largest = max(Fraction(float(x)) for x in np.abs(block))
    if largest == 0:
        assert exponent == EXPONENT_ZERO
        return
    assert EXPONENT_MIN <= exponent < EXPONENT_NAN
    assert largest < Fraction(2) ** exponent
    assert exponent == EXPONENT_MIN or largest >= Fraction(2) ** (exponent - 1)


@pytest.mark.parametrize("power", range(-149, 128))
def test_block_exponent_around_every_power_of_two(power: int) -> None:
    exactly = np.float32(2.0**power)
    below, above = np.nextafter(exactly, np.float32(0)), np.nextafter(exactly, np.float32(np.inf))
    for number, least in ((below, power), (exactly, power + 1), (above, power + 1)):
        for signed in (number, -number):
            expected = EXPONENT_ZERO if number == 0 else min(max(least, EXPONENT_MIN), EXPONENT_NAN)
            assert block_exponent(np.array([0, signed], np.float32)) == expected


def test_bits_that_a_sum_needs() -> None:
    assert [headroom_bits(n) for n in (1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32)] == [0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5]


# Integers


@given(npst.arrays(np.float32, st.integers(1, 20), elements=sendable), st.integers(0, 40), workers)
def test_integers_are_the_nearest_and_within_the_limit(block: Block, above: int, ranks: int) -> None:
    """Another worker may have the larger exponent."""
    own = block_exponent(block)
    exponent = min(max(own, EXPONENT_MIN) + above, EXPONENT_NAN - 1)
    headroom = headroom_bits(ranks)
    scale = Fraction(2) ** (31 - headroom - exponent)
    limit = 2 ** (31 - headroom) - 1
    expected = [min(max(round(Fraction(float(x)) * scale), -limit), limit) for x in block]
    assert quantize(block, exponent, ranks).tolist() == expected


@pytest.mark.parametrize("ranks", range(1, 33))
def test_the_largest_sum_does_not_overflow(ranks: int) -> None:
    for exponent in (EXPONENT_MIN, -20, 0, 1, 126):
        largest = np.nextafter(np.float32(2.0**exponent), np.float32(0))
        for sign in (1, -1):
            sent = quantize(np.array([sign * largest], np.float32), exponent, ranks)
            assert abs(int(sent[0])) * ranks < 2**31
            exact = Fraction(float(sign * largest)) * ranks
            assert dequantize(sent * np.int32(ranks), exponent, ranks)[0] == rounded(exact, DType.FLOAT32)


# Sums


@given(blocks())
@example([np.array(CORNERS, np.float32)] * 32)
@example([np.array([LARGEST, 1.0, -LARGEST], np.float32)] * 3)
@example([np.array([DENORMAL, -DENORMAL], np.float32)] * 32)
def test_error_of_a_sum_is_within_the_bound(parts: list[Block]) -> None:
    ranks = len(parts)
    result, exponent = reduce(parts)
    exact = [sum((Fraction(float(part[i])) for part in parts), Fraction(0)) for i in range(result.size)]
    if exponent == EXPONENT_ZERO:
        assert not np.signbit(result).any()
        assert not result.any()
        return
    quantization = ranks * Fraction(2) ** (exponent + headroom_bits(ranks) - 32)
    for got, wanted in zip(result, exact, strict=True):
        if np.isinf(got):
            assert abs(wanted) + quantization > MAX_FLOAT
        else:
            half_step = Fraction(float(np.spacing(np.abs(got)))) / 2 if abs(got) < MAX_FLOAT else Fraction(2) ** 103
            assert abs(Fraction(float(got)) - wanted) <= quantization + half_step


@given(st.data())
def test_arrival_order_and_duplicates_change_no_bit(data: st.DataObject) -> None:
    """Through the switch's slots, which add in the order of arrival."""
    parts = data.draw(blocks())
    ranks = len(parts)
    parts = [np.resize(part, 32) for part in parts]
    exponents = [block_exponent(part) for part in parts]
    exponent = max(exponents)
    packets = [
        make_packet(tsi=0, slots=1, values=quantize(part, exponent, ranks), per_packet=32, e0=own).encode()
        for part, own in zip(parts, exponents, strict=True)
    ]
    order = data.draw(st.permutations(range(ranks)))
    repeated = data.draw(st.lists(st.sampled_from(order), max_size=5))
    switch = Aggregator(job=0, ranks=ranks, slots=1, values=32)
    results = []
    for rank in itertools.chain(repeated, order):
        (batch,) = batches([packets[rank]])
        results += [decode(packet) for to, result in switch.receive(batch, rank) if to is None for packet in result]
    (result,) = results
    assert result.e0 == exponent
    summed = dequantize(result.values, exponent, ranks)
    assert summed.tobytes() == np.resize(reduce(parts)[0], 32).tobytes()


@given(
    blocks(),
    st.sampled_from([math.nan, math.inf, -math.inf, MAX_FLOAT, -MAX_FLOAT, 2.0**126, -(2.0**126)]),
    st.data(),
)
def test_what_cannot_be_sent_makes_the_block_nan_for_everyone(
    parts: list[Block], special: float, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, len(parts) - 1))
    parts[rank] = parts[rank].copy()
    parts[rank][data.draw(st.integers(0, parts[rank].size - 1))] = special
    for dtype, op in itertools.product(FORMATS, Op):
        result, exponent = reduce(parts, dtype, op)
        assert exponent == EXPONENT_NAN
        assert np.isnan(as_floats(result, dtype)).all()


# Rounding of the result

integers = st.integers(-(2**31), 2**31 - 1) | st.integers(-300, 300) | st.sampled_from([2**24 + 1, 2**24 + 3, -(2**31)])


@given(
    st.lists(integers, min_size=1, max_size=20),
    st.integers(EXPONENT_MIN, EXPONENT_NAN - 1),
    workers,
    st.sampled_from(list(FORMATS)),
    st.sampled_from(Op),
)
def test_sums_are_rounded_once_to_nearest_even_and_means_divided_after(
    sums: list[int], exponent: int, ranks: int, dtype: DType, op: Op
) -> None:
    unit = Fraction(2) ** (exponent + headroom_bits(ranks) - 31)
    expected = []
    for number in sums:
        value = rounded(number * unit, dtype)
        if op is Op.MEAN and math.isfinite(value):
            value = rounded(Fraction(value) / ranks, dtype, negative=math.copysign(1, value) < 0)
        expected.append(value)
    assert same_bits(dequantize(np.array(sums, np.int32), exponent, ranks, dtype, op), expected, dtype)


@pytest.mark.parametrize("op", Op)
def test_float16_rounds_as_numpy_does(op: Op) -> None:
    rng = np.random.default_rng(1)
    for exponent in range(-60, 40):
        sums = rng.integers(-(2**31), 2**31, 2000).astype(np.int32)
        sums[:1000] >>= rng.integers(0, 31, 1000).astype(np.int32)
        with np.errstate(over="ignore"):
            expected = np.ldexp(sums.astype(np.float64), exponent + 2 - 31).astype(np.float16)
            if op is Op.MEAN:
                expected = (expected.astype(np.float64) / 3).astype(np.float16)
        assert dequantize(sums, exponent, 3, DType.FLOAT16, op).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_every_narrow_number_comes_back_from_a_sum_with_zeros(dtype: DType) -> None:
    """Widening is exact, and so is the rounding back: all 65536 bit patterns, in blocks of one magnitude each."""
    bits = np.arange(2**16, dtype=np.uint16)
    array = bits if dtype is DType.BFLOAT16 else bits.view(np.float16)
    rack = Rack(ranks=2)
    result, _ = rack.submit([array, np.zeros_like(array)], dtype)
    rack.run()
    expected = as_floats(array, dtype)
    got = as_floats(result, dtype)
    sent = np.isfinite(expected) & (np.abs(expected) < 2.0**126)
    assert np.array_equal(got[sent], expected[sent])
    assert np.isnan(got[~sent]).all()


# Integers of all widths


@given(st.sampled_from([dtype for dtype in DType if not dtype.is_float]), st.integers(1, 8), st.data())
def test_integer_sums_wrap(dtype: DType, ranks: int, data: st.DataObject) -> None:
    kind = np.dtype(NUMPY_TYPES[dtype])
    info = np.iinfo(kind)
    elements = st.integers(int(info.min), int(info.max)) | st.sampled_from([int(info.min), int(info.max)])
    arrays = list(data.draw(npst.arrays(kind, (ranks, data.draw(st.integers(1, 70))), elements=elements)))
    rack = Rack(ranks=ranks)
    results = rack.submit(arrays, dtype)
    rack.run()
    modulus = 2 ** (8 * kind.itemsize)
    for i in range(arrays[0].size):
        exact = sum(int(array[i]) for array in arrays)
        wrapped = (exact - int(info.min)) % modulus + int(info.min)
        assert {int(result[i]) for result in results} == {wrapped}
