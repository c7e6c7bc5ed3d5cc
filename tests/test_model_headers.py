"""Header stacks, unions and copies in controls."""

import pytest

from switch.model.core import ModelSwitch
from tests.model_programs import load, one


@pytest.fixture(scope="module")
def switch() -> ModelSwitch:
    return load("headers")


def run(switch: ModelSwitch, command: int, index: int = 0, value: int = 0, more: bytes = b"") -> bytes:
    packet = bytes([command, index, value]) + b"abc" + more
    data = one(switch, packet)
    assert switch.trace(1, packet, 0.0).out == [(2, data)]
    return data


def test_push_front_moves_all(switch: ModelSwitch) -> None:
    assert run(switch, 1, value=ord("x")) == b"xabc"


def test_pop_front_takes_the_first(switch: ModelSwitch) -> None:
    assert run(switch, 2) == b"c"


@pytest.mark.parametrize(("index", "value"), [(0, b"a"), (2, b"c")])
def test_an_index_of_the_packet_is_read(switch: ModelSwitch, index: int, value: bytes) -> None:
    assert run(switch, 3, index) == value + b"\0abc"


def test_an_index_of_the_packet_is_written(switch: ModelSwitch) -> None:
    assert run(switch, 4, 1, ord("x")) == b"axc"


@pytest.mark.parametrize("command", [3, 4])
def test_an_index_out_of_range_drops_the_packet(switch: ModelSwitch, command: int) -> None:
    faults = switch.counters.faults
    assert switch.receive(1, bytes([command, 4, 0]) + b"abc", 0.0) == []
    assert switch.counters.faults == faults + 1


def test_a_stack_is_assigned(switch: ModelSwitch) -> None:
    assert run(switch, 5) == b"bc" + b"abc"


def test_a_union_has_one_valid_header(switch: ModelSwitch) -> None:
    assert run(switch, 6) == b"abc\x02"


def test_headers_are_assigned_and_compared(switch: ModelSwitch) -> None:
    assert run(switch, 7) == b"\x01\x00" + b"abc" + b"a"  # the fourth item is invalid, and so is its copy


def test_a_header_made_valid_is_zero(switch: ModelSwitch) -> None:
    assert run(switch, 8) == b"\0\0abc"


def test_a_varbit_is_copied(switch: ModelSwitch) -> None:
    assert run(switch, 9, value=4, more=b"text, and more") == b"abc" + b"text" + b"text" + b", and more"
