"""Ways through a control, and the several forms in which the compiler can write them."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switch.model import emit_actions, emit_control, emit_parser
from switch.model.core import ModelSwitch
from switch.model.errors import ImmutableError
from switch.model.program import Program
from tests.model_programs import FOLDER, NAMES, load, one


def way(switch: ModelSwitch, command: int, key: int = 0, count: int = 0) -> str:
    packet = bytes([command, key, count]) + bytes(4)
    data = one(switch, packet)
    assert switch.trace(1, packet, 0.0).out == [(2, data)]
    return data[3:7].hex().lstrip("0")


@pytest.fixture
def switch() -> ModelSwitch:
    return load("control")


@pytest.mark.parametrize(
    ("command", "key", "expected"),
    [
        pytest.param(1, 1, "17af", id="hit"),
        pytest.param(1, 2, "", id="hit, and exit"),
        pytest.param(1, 3, "83af", id="miss, then hit"),
        pytest.param(1, 4, "89", id="miss twice, and return"),
        pytest.param(2, 1, "17f", id="action_run"),
        pytest.param(2, 2, "", id="action_run, and exit"),
        pytest.param(2, 3, "93f", id="action_run of the default"),
        pytest.param(2, 4, "9f", id="action_run of the default, and a miss"),
        pytest.param(3, 0, "5f", id="no key"),
        pytest.param(9, 0, "f", id="nothing"),
    ],
)
def test_ways(switch: ModelSwitch, command: int, key: int, expected: str) -> None:
    assert way(switch, command, key) == expected


def test_defaults_that_may_change(switch: ModelSwitch) -> None:
    switch.state.tables["TestIngress.keyless"].set_default("TestIngress.pass", (6,))
    assert way(switch, 3) == "6f"
    switch.state.tables["TestIngress.first"].set_default("TestIngress.pass", (4,))
    assert way(switch, 1, 9) == "489"
    with pytest.raises(ImmutableError):
        switch.state.tables["TestIngress.second"].set_default("TestIngress.leave")
    switch.reset()
    assert way(switch, 3) == "5f"


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 11, 200])
def test_a_loop_in_an_action(switch: ModelSwitch, count: int) -> None:
    total = sum(i for i in range(min(count, 10)) if i != 3)
    assert way(switch, 4, count=count) == f"{total << 4 | 15:x}"


def unstructured(*_: object) -> None:
    raise emit_actions.UnstructuredError


FORMS = ("pipelines by number", "actions by number", "parser states by number")


def other_form(name: str, form: str) -> ModelSwitch:
    """A switch whose program was compiled in a form that is for graphs which do not nest."""
    with pytest.MonkeyPatch.context() as patch:
        if form == FORMS[0]:
            patch.setattr(emit_control, "_MOST_COPIES", -(1 << 20))
        elif form == FORMS[1]:
            patch.setattr(emit_actions._ActionEmitter, "_range", unstructured)
        else:
            patch.setattr(emit_parser, "_MANY_STATES", 0)
            patch.setattr(emit_parser, "_MAX_INLINE", 0)
        return ModelSwitch(Program.load(FOLDER / f"{name}.json"))


USUAL = {(name, form): load(name) for name in NAMES for form in FORMS}
OTHERS = {(name, form): other_form(name, form) for name in NAMES for form in FORMS}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(NAMES),
    st.sampled_from(FORMS),
    st.integers(0, 30),
    st.integers(0, 5),
    st.binary(min_size=8, max_size=90),
)
def test_all_forms_do_the_same(name: str, form: str, command: int, second: int, rest: bytes) -> None:
    packet = bytes([command, second]) + rest
    usual, other = USUAL[name, form], OTHERS[name, form]
    assert other.receive(1, packet, 0.0) == usual.receive(1, packet, 0.0)
    for register, cells in usual.state.registers.items():
        assert other.state.registers[register].cells == cells.cells
