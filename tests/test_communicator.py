"""Sums through a Communicator: types, shapes, memory layouts; threads are the ranks of real jobs."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from host.communicator import Communicator
from protocol.constants import DType
from switch.server import SoftwareSwitch
from tests.ranks import run_ranks
from tests.test_worker import check_sums, random_array

Array = npt.NDArray[Any]


pytestmark = pytest.mark.usefixtures("idle_afterwards")


@pytest.mark.parametrize("dtype", DType)
def test_every_type_and_size(switch: SoftwareSwitch, dtype: DType) -> None:
    sizes = [1, 2, 255, 256, 257, 512 * 256, 512 * 256 + 1, 300_000]
    inputs = [[random_array(np.random.default_rng(rank), dtype, size) for size in sizes] for rank in range(3)]
    name = "bfloat16" if dtype is DType.BFLOAT16 else None

    def body(communicator: Communicator) -> list[Array]:
        return [
            communicator.all_reduce(array, out=np.empty_like(array), dtype=name) for array in inputs[communicator.rank]
        ]

    results = run_ranks(switch, 3, body)
    for i in range(len(sizes)):
        check_sums([part[i] for part in inputs], [result[i] for result in results], dtype, 256)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (3, 4, 5), (1, 1, 1, 7)])
def test_every_shape_in_place(switch: SoftwareSwitch, shape: tuple[int, ...]) -> None:
    def body(communicator: Communicator) -> Array:
        array: Array = np.full(shape, communicator.rank + 1, np.float32)
        assert communicator.all_reduce(array) is array
        result: Array = communicator.all_reduce_async(array, "mean").wait()
        assert result is array
        return result

    for result in run_ranks(switch, 2, body):
        assert result.shape == shape
        assert (result == 3).all()


def views(base: Any) -> dict[str, Any]:
    """Arrays of shape (30, 20) that look into memory of shape (60, 40) in different ways."""
    return {
        "contiguous": base[:15].reshape(30, 20),
        "steps": base[::2, ::2],
        "backwards": base[::-2, ::-2],
        "transposed": np.ascontiguousarray(base)[:20, :30].T,
        "fortran": np.asfortranarray(base[:30, :20]),
        "columns": base[:30, 10:30],
    }


@pytest.mark.parametrize("kind", list(views(np.zeros((60, 40)))))
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_views_are_read_and_written_where_they_stand(switch: SoftwareSwitch, kind: str, dtype: Any) -> None:
    def body(communicator: Communicator) -> list[Array]:
        base = (np.arange(2400, dtype=np.int64).reshape(60, 40) % 90 + communicator.rank).astype(dtype)
        array = views(base)[kind]
        expected = (array.astype(np.int64) - communicator.rank) * 2 + 1
        before = base.copy()
        out = views(np.zeros((60, 40), dtype))[kind]
        results = [
            communicator.all_reduce(array, out=np.empty((30, 20), dtype)),  # view to contiguous
            communicator.all_reduce(array.copy(), out=out),  # contiguous to view
            communicator.all_reduce(array, out=out),  # view to view
        ]
        assert results[1] is out
        assert np.array_equal(base, before)
        untouched = base.copy()
        results.append(communicator.all_reduce(array))  # in place
        changed = np.count_nonzero(base != untouched)
        assert changed <= array.size
        for result in results:
            assert np.array_equal(result, expected)
        return results

    run_ranks(switch, 2, body)


@pytest.mark.parametrize("shift", [-3, 0, 1, 256, 1000])
def test_out_may_overlap_the_array(switch: SoftwareSwitch, shift: int) -> None:
    def body(communicator: Communicator) -> None:
        memory = np.arange(200_000, dtype=np.int32)
        start = max(0, -shift)
        array, out = memory[start : start + 150_000], memory[start + shift : start + shift + 150_000]
        expected = array * 2
        assert communicator.all_reduce(array, out=out) is out
        assert np.array_equal(out, expected)

    run_ranks(switch, 2, body)


def test_mean_divides_the_sum(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> None:
        for dtype in (np.dtype(np.float32), np.dtype(np.float16)):
            values = (np.linspace(0.1, 9, 1000) * (communicator.rank + 1)).astype(dtype)
            summed = communicator.all_reduce(values, out=np.empty_like(values))
            assert np.array_equal(communicator.all_reduce(values, "mean"), summed / dtype.type(3))

    run_ranks(switch, 3, body)


def test_32_ranks(switch: SoftwareSwitch) -> None:
    def body(communicator: Communicator) -> Array:
        return communicator.all_reduce(np.full(1000, communicator.rank, np.int32))

    assert all((result == 496).all() for result in run_ranks(switch, 32, body, slots=16))


@pytest.mark.parametrize(("values", "slots"), [(32, 1), (32, 16384), (256, 2), (2048, 64), (2048, None)])
def test_packet_and_pool_sizes(switch: SoftwareSwitch, values: int, slots: int | None) -> None:
    def body(communicator: Communicator) -> Array:
        assert communicator.values_per_packet == values
        assert communicator.slots == slots or slots is None
        return communicator.all_reduce(np.arange(20_000, dtype=np.float32))

    for result in run_ranks(switch, 2, body, values_per_packet=values, slots=slots):
        assert np.array_equal(result, 2 * np.arange(20_000))
