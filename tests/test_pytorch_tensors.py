"""What needs neither a switch nor other processes: tensors as arrays, the fallback policy, options."""

import pickle
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from host.pytorch.fallback import Fallback, FallbackForbiddenError, FallbackWarning
from host.pytorch.hook import DDPState
from host.pytorch.options import BackendOptions
from host.pytorch.tensors import SUMMED, as_array, why_not
from tests.pytorch_pool import recorded


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SWITCH", "JOB", "FALLBACK", "VALUES_PER_PACKET", "SLOTS"):
        monkeypatch.delenv(f"WIRESUM_{name}", raising=False)
    Fallback._told.clear()
    yield
    Fallback._told.clear()


@pytest.mark.parametrize("dtype", SUMMED)
@pytest.mark.parametrize("strided", [False, True])
def test_array_shares_the_memory_of_the_tensor(dtype: torch.dtype, strided: bool) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    if strided:
        tensor = tensor.t()[1:, ::2]
    array = as_array(tensor)
    assert array.shape == tuple(tensor.shape)
    assert array.ctypes.data == tensor.data_ptr()
    assert array.strides == tuple(stride * tensor.element_size() for stride in tensor.stride())
    expected = np.uint16 if dtype == torch.bfloat16 else str(dtype).removeprefix("torch.")
    assert array.dtype == np.dtype(expected)
    array[...] = 0
    assert not tensor.any()


def test_bits_of_bfloat16() -> None:
    bits = as_array(torch.tensor([1.0, -2.0], dtype=torch.bfloat16))
    assert bits.tolist() == [0x3F80, 0xC000]


def test_tensor_that_requires_grad() -> None:
    assert as_array(torch.ones(2, requires_grad=True)).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (torch.zeros(1, dtype=torch.float64), "float64: the switch adds float32, float16, bfloat16"),
        (torch.zeros(1, dtype=torch.int64), "int64"),
        (torch.zeros(1, dtype=torch.complex64), "complex64"),
        (torch.zeros(1, dtype=torch.bool), "bool"),
        (torch.eye(2).to_sparse(), "sparse_coo tensors"),
        (torch.zeros(1, device="meta"), "tensors on meta"),
    ],
)
def test_what_the_switch_cannot_add(tensor: torch.Tensor, words: str) -> None:
    reason = why_not(tensor)
    assert reason is not None
    assert words in reason
    with pytest.raises(TypeError, match=words.split(":")[0]):
        as_array(tensor)


def test_tensor_whose_elements_share_memory() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 2\).*contiguous\(\)"):
        as_array(torch.zeros(1, 2).expand(3, 2))


def test_each_kind_is_told_once_and_names_the_callers_line() -> None:
    with recorded() as caught:
        for _ in range(3):
            for group in (Fallback("warn", to="Gloo"), Fallback("warn", to="Gloo")):
                group.passes("all_reduce of float64")
                group.passes("reduce")
    assert [w.category for w in caught] == [FallbackWarning] * 2
    assert "all_reduce of float64. It goes over Gloo" in str(caught[0].message)
    assert {w.filename for w in caught} == {__file__}


def test_silence_and_refusal() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Fallback("silent", to="Gloo").passes("reduce")
        Fallback("raise", to="Gloo").passes("barrier", necessary=True, tell=False)
    with pytest.raises(FallbackForbiddenError, match=r"reduce .*Gloo.*WIRESUM_FALLBACK is raise"):
        Fallback("raise", to="Gloo").passes("reduce")


def test_options_come_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BackendOptions().with_environment() == BackendOptions(fallback="warn")
    monkeypatch.setenv("WIRESUM_SWITCH", "there:1")
    monkeypatch.setenv("WIRESUM_JOB", "mine")
    monkeypatch.setenv("WIRESUM_FALLBACK", "raise")
    monkeypatch.setenv("WIRESUM_VALUES_PER_PACKET", "64")
    monkeypatch.setenv("WIRESUM_SLOTS", "8")
    assert BackendOptions().with_environment() == BackendOptions(
        switch="there:1", job="mine", fallback="raise", values_per_packet=64, slots=8
    )
    given = BackendOptions(switch="here:2", job="other", fallback="silent", values_per_packet=32, slots=16)
    assert given.with_environment() == given


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("WIRESUM_SLOTS", "many", "WIRESUM_SLOTS must be a power of two from 1 to 16384, not 'many'"),
        ("WIRESUM_VALUES_PER_PACKET", "1.5", "WIRESUM_VALUES_PER_PACKET must be one of 32, .*2048, not '1.5'"),
        ("WIRESUM_FALLBACK", "no", "WIRESUM_FALLBACK must be one of warn, raise, silent, not 'no'"),
    ],
)
def test_bad_environment(monkeypatch: pytest.MonkeyPatch, variable: str, text: str, words: str) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=words):
        BackendOptions().with_environment()
    with pytest.raises(ValueError, match=words):
        DDPState()


def test_bad_fallback() -> None:
    with pytest.raises(ValueError, match="fallback must be one of warn, raise, silent, not 'never'"):
        BackendOptions(fallback="never")


def test_bad_numbers_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="slots must be a power of two from 1 to 16384, not 0"):
        BackendOptions(slots=0)
    with pytest.raises(ValueError, match=r"values per packet must be one of \(32, .*\), not 33"):
        DDPState(values_per_packet=33)


def test_state_of_the_hook_can_be_pickled() -> None:
    state = DDPState(switch="there:1", job="mine", fallback="raise", slots=8, timeout=7.0, rank=1, world_size=3)
    loaded = pickle.loads(pickle.dumps(state))
    assert loaded.options == state.options
    assert (loaded.timeout, loaded.rank, loaded.world_size) == (7.0, 1, 3)
    assert loaded.statistics() == {}
    loaded.close()


def test_entry_point_registers_the_backend_and_loads_little() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    module, function = project["project"]["entry-points"]["torch.backends"]["wiresum"].split(":")
    getattr(import_module(module), function)()
    assert torch.distributed.is_backend_available("wiresum")
    # It runs at the end of each `import torch`, so neither numba nor grpc may come with it.
    code = f"import sys, {module}; assert not {{'numba', 'grpc', 'numpy', 'torch'}} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
