"""Bad arguments of a Communicator and of its calls: named, and without effect."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from host.communicator import Communicator
from protocol.errors import WiresumError
from switch.ports import UdpSwitch
from switch.server import SoftwareSwitch
from tests.ranks import alone, text

Array = npt.NDArray[Any]


pytestmark = pytest.mark.usefixtures("idle_afterwards")


def read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


SHARED = np.zeros(100, np.float32)
BAD_CALLS: list[tuple[Callable[[Communicator], Any], type[Exception], str]] = [
    (lambda c: c.all_reduce([1.0, 2.0]), TypeError, "array must be a numpy array, not list"),  # type: ignore[arg-type]
    (lambda c: c.all_reduce(np.float32(1)), TypeError, "array must be a numpy array, not float32"),  # type: ignore[arg-type]
    (lambda c: c.all_reduce(np.ma.zeros(3, np.float32)), TypeError, "must be a numpy array, not MaskedArray"),
    (lambda c: c.all_reduce(np.zeros(3)), TypeError, "cannot add float64; it adds float32, float16, int32"),
    (lambda c: c.all_reduce(np.zeros(3, np.int64)), TypeError, "cannot add int64"),
    (lambda c: c.all_reduce(np.zeros(3, np.complex64)), TypeError, "cannot add complex64"),
    (lambda c: c.all_reduce(np.zeros(3, bool)), TypeError, "cannot add bool"),
    (lambda c: c.all_reduce(np.zeros(3, np.uint16)), TypeError, "cannot add uint16; .* bfloat16 as its bits in uint16"),
    (lambda c: c.all_reduce(np.zeros(3, ">f4")), TypeError, "cannot add >f4"),
    (lambda c: c.all_reduce(np.zeros(3, np.float32), "max"), ValueError, "op must be 'sum' or 'mean', not 'max'"),
    (lambda c: c.all_reduce(np.zeros(3, np.int32), "mean"), TypeError, "the mean of int32 is not defined"),
    (
        lambda c: c.all_reduce(np.zeros(3, np.float16), dtype="bfloat16"),
        TypeError,
        "bfloat16 comes as its bits in a uint16 array, not as float16",
    ),
    (
        lambda c: c.all_reduce(np.zeros(3, np.float32), dtype="float32"),
        ValueError,
        "dtype must be None or 'bfloat16', not 'float32'",
    ),
    (lambda c: c.all_reduce(read_only(np.zeros(3, np.float32))), ValueError, "the output is read-only"),
    (
        lambda c: c.all_reduce(np.zeros(3, np.float32), out=read_only(np.zeros(3, np.float32))),
        ValueError,
        "the output is read-only",
    ),
    (lambda c: c.all_reduce(np.broadcast_to(np.float32(1), (3,))), ValueError, "the output is read-only"),
    (
        lambda c: c.all_reduce(np.zeros(3, np.float32), out=np.zeros((3, 1), np.float32)),
        ValueError,
        r"out must have shape \(3,\) and dtype float32, not \(3, 1\) and float32",
    ),
    (
        lambda c: c.all_reduce(np.zeros(3, np.float32), out=np.zeros(3)),
        ValueError,
        r"out must have shape \(3,\) and dtype float32, not \(3,\) and float64",
    ),
    (
        lambda c: c.all_reduce_many([np.zeros(1, np.int8), np.zeros(1)]),
        TypeError,
        "cannot add float64",
    ),
    (lambda c: c.all_reduce_many([SHARED[:60], SHARED[70:], SHARED[50:]]), ValueError, "arrays 0 and 2 share memory"),
    (lambda c: c.all_reduce_many([SHARED, SHARED]), ValueError, "arrays 0 and 1 share memory"),
]


def test_bad_arguments_are_named_and_change_nothing(switch: SoftwareSwitch) -> None:
    with alone(switch) as communicator:
        for call, kind, message in BAD_CALLS:
            with pytest.raises(kind, match=message):
                call(communicator)
        columns = np.ones((50, 4), np.float32)
        communicator.all_reduce_many([columns[:, i] for i in range(4)])  # interleaved, but apart
        assert (columns == 1).all()
        readable = read_only(np.ones(5, np.float32))
        assert (communicator.all_reduce(readable, out=np.zeros(5, np.float32)) == 1).all()
        assert communicator.statistics()["rejected"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 2}, "rank must be from 0 to world_size - 1 = 1, not 2"),
        ({"rank": -1}, "rank must be from 0 to world_size - 1 = 1, not -1"),
        ({"world_size": 0}, "world_size must be at least 1, not 0"),
        ({"slots": 3}, "slots must be a power of two from 1 to 16384, not 3"),
        ({"slots": 0}, "slots must be a power of two from 1 to 16384, not 0"),
        ({"slots": 32768}, "slots must be a power of two from 1 to 16384, not 32768"),
        ({"values_per_packet": 100}, r"values per packet must be one of \(32, .*\), not 100"),
        ({"timeout": 0}, "timeout must be above 0 seconds, not 0"),
        ({"timeout": float("nan")}, "timeout must be above 0 seconds, not nan"),
        ({"join_timeout": -1}, "join_timeout must be above 0 seconds, not -1"),
        ({"switch": "127.0.0.1:http"}, "must be HOST or HOST:PORT, .* not '127.0.0.1:http'"),
        ({"switch": ""}, "must be HOST or HOST:PORT, .* not ''"),
    ],
)
def test_bad_options_are_named(switch: SoftwareSwitch, changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"switch": text(switch.control_address), "rank": 0, "world_size": 2} | changes
    with pytest.raises(ValueError, match=message):
        Communicator(**options)
    (name,) = changes
    if name in ("rank", "world_size", "slots", "values_per_packet"):
        with pytest.raises(TypeError, match=f"{name} must be an integer, not '1'"):
            Communicator(**options | {name: "1"})


def test_switch_from_the_environment(switch: SoftwareSwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WIRESUM_SWITCH", raising=False)
    with pytest.raises(ValueError, match="give switch='host:port' or set WIRESUM_SWITCH=host:port"):
        Communicator(rank=0, world_size=1)
    monkeypatch.setenv("WIRESUM_SWITCH", "127.0.0.1:1")
    with pytest.raises(WiresumError, match=r"127\.0\.0\.1:1"):
        Communicator(rank=0, world_size=1)
    monkeypatch.setenv("WIRESUM_SWITCH", text(switch.control_address))
    with Communicator(rank=0, world_size=1) as communicator:
        assert (communicator.all_reduce(np.ones(3, np.float32)) == 1).all()
        assert communicator.job == "default"


def test_rank_from_the_environment(switch: SoftwareSwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torchrun and `wiresum mininet` set it."""
    monkeypatch.setenv("WIRESUM_SWITCH", text(switch.control_address))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="no rank: give rank=, or set RANK as torchrun does"):
        Communicator(world_size=1)
    with pytest.raises(ValueError, match="no world_size: give world_size=, or set WORLD_SIZE as torchrun does"):
        Communicator(rank=0)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with Communicator() as communicator:
        assert (communicator.rank, communicator.world_size) == (0, 1)
        assert (communicator.all_reduce(np.ones(3, np.float32)) == 1).all()
    with pytest.raises(ValueError, match="rank must be from 0 to world_size - 1 = 0, not 1"):
        Communicator(rank=1)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ValueError, match="RANK must be a whole number, not 'first'"):
        Communicator()


def test_pool_packets_and_job_from_the_environment(switch: SoftwareSwitch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIRESUM_SWITCH", text(switch.control_address))
    monkeypatch.setenv("WIRESUM_SLOTS", "8")
    monkeypatch.setenv("WIRESUM_VALUES_PER_PACKET", "64")
    monkeypatch.setenv("WIRESUM_JOB", "mine")
    with Communicator(rank=0, world_size=1) as communicator:
        assert (communicator.all_reduce(np.ones(1000, np.float32)) == 1).all()
        assert (communicator.job, communicator.slots, communicator.values_per_packet) == ("mine", 8, 64)
    with Communicator(rank=0, world_size=1, slots=16, values_per_packet=32, job="other") as communicator:
        assert (communicator.job, communicator.slots, communicator.values_per_packet) == ("other", 16, 32)
    for name in ("SLOTS", "VALUES_PER_PACKET", "JOB"):
        monkeypatch.setenv(f"WIRESUM_{name}", "")  # as good as not set
    with Communicator(rank=0, world_size=1) as communicator:
        assert (communicator.job, communicator.values_per_packet) == ("default", 256)


@pytest.mark.parametrize(
    ("variable", "value", "message", "given"),
    [
        ("SLOTS", "7", "WIRESUM_SLOTS must be a power of two from 1 to 16384, not '7'", {"slots": 8}),
        ("SLOTS", "many", "WIRESUM_SLOTS must be a power of two from 1 to 16384, not 'many'", {"slots": 8}),
        (
            "VALUES_PER_PACKET",
            "100",
            "WIRESUM_VALUES_PER_PACKET must be one of 32, 64, 128, 256, 512, 1024, 2048, not '100'",
            {"values_per_packet": 32},
        ),
        ("SWITCH", "here:no", "WIRESUM_SWITCH: .* must be HOST or HOST:PORT, .* not 'here:no'", None),
    ],
)
def test_bad_variables_are_named_unless_an_argument_counts_instead(
    switch: SoftwareSwitch,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    message: str,
    given: dict[str, Any] | None,
) -> None:
    address: dict[str, Any] = {"switch": text(switch.control_address)}
    monkeypatch.setenv(f"WIRESUM_{variable}", value)
    with pytest.raises(ValueError, match=message):
        Communicator(rank=0, world_size=1, **({} if given is None else address))
    with Communicator(rank=0, world_size=1, **address, **(given or {})) as communicator:
        communicator.barrier()


def test_numbers_of_numpy_will_do(switch: SoftwareSwitch) -> None:
    with Communicator(
        switch=text(switch.control_address),
        rank=np.int64(0),  # type: ignore[arg-type]
        world_size=np.int32(1),  # type: ignore[arg-type]
        slots=np.int64(16),  # type: ignore[arg-type]
        values_per_packet=np.int64(64),  # type: ignore[arg-type]
    ) as communicator:
        assert (communicator.all_reduce(np.ones(1000, np.float32)) == 1).all()


@pytest.mark.parametrize(
    ("supported", "chosen"), [((32, 64), 64), ((64,), 64), ((128, 256, 512, 2048), 256), ((2048, 512), 512)]
)
def test_values_per_packet_are_the_most_that_the_switch_adds_and_a_frame_holds(
    monkeypatch: pytest.MonkeyPatch, supported: tuple[int, ...], chosen: int
) -> None:
    monkeypatch.setattr(UdpSwitch, "values_supported", supported)
    with SoftwareSwitch(port=0, control_port=0) as server, alone(server) as communicator:
        assert communicator.values_per_packet == chosen
        assert (communicator.all_reduce(np.ones(1000, np.float32)) == 1).all()
