"""What a compiled program says of its tables and externs, and that a reset comes back to it."""

from pathlib import Path

import pytest

from switch.model.errors import ImmutableError
from switch.model.externs import MeterRates
from switch.model.matching import Exact, KeyField, Lpm, MatchKind, Range, Ternary
from switch.model.program import Program
from switch.model.replication import CloneSession
from switch.model.state import PRIORITY_PIVOT, SwitchState, build_state

PROGRAM = Path(__file__).parent / "p4" / "tables.json"


@pytest.fixture(scope="module")
def program() -> Program:
    return Program.load(PROGRAM)


@pytest.fixture
def state(program: Program) -> SwitchState:
    return build_state(program)


def test_tables_have_the_keys_and_sizes_of_the_source(state: SwitchState) -> None:
    found = {name: [(key.name, key.kind, key.width) for key in table.keys] for name, table in state.tables.items()}
    # p4c makes tables without a key of actions that are called directly.
    assert {name: keys for name, keys in found.items() if not name.startswith("tbl_")} == {
        "MyIngress.exact_t": [("hdr.h.value", MatchKind.EXACT, 8)],
        "MyIngress.lpm_t": [("hdr.h.value", MatchKind.LPM, 8)],
        # p4c writes optional fields as ternary ones
        "MyIngress.ternary_t": [("hdr.h.value", MatchKind.TERNARY, 8), ("note", MatchKind.TERNARY, 16)],
        "MyIngress.range_t": [("hdr.h.value", MatchKind.RANGE, 8)],
        "MyIngress.const_t": [("hdr.h.value", MatchKind.TERNARY, 8)],
        "MyIngress.member_t": [("hdr.h.value", MatchKind.EXACT, 8)],
        "MyIngress.group_t": [("hdr.h.value", MatchKind.EXACT, 8)],
    }
    table = state.tables["MyIngress.exact_t"]
    assert (table.size, table.has_counter, table.meter) == (4, True, None)
    assert state.tables["MyIngress.lpm_t"].size == 1024
    assert [action.name for action in table.actions][:2] == ["MyIngress.forward", "MyIngress.note"]
    assert table.actions[1].parameters == (("text", 16), ("port", 9))
    assert isinstance(table.keys[0], KeyField)


def test_defaults_and_which_are_constant(state: SwitchState) -> None:
    table = state.tables["MyIngress.lpm_t"]
    assert (table.default.args, table.default.hit) == ((7,), False)
    table.set_default("MyIngress.note", [0xFFFF, 3])
    assert table.lookup((9,)).args == (0xFFFF, 3)
    with pytest.raises(ImmutableError, match=r"table MyIngress\.ternary_t: the default action is constant"):
        state.tables["MyIngress.ternary_t"].set_default("MyIngress.forward", [1])


def test_const_entries_win_in_the_order_of_the_source(state: SwitchState) -> None:
    table = state.tables["MyIngress.const_t"]
    assert [table.lookup((value,)).args for value in (0x11, 0x21, 0x22)] == [(1,), (2,), (3,)]
    assert [entry.matches for entry in table.entries()] == [(Ternary(0x10, 0xF0),), (Ternary(0x01, 0x0F),), (None,)]
    priorities = [entry.priority for entry in table.entries()]
    assert priorities == sorted(priorities, reverse=True)
    assert all(0 < priority <= PRIORITY_PIVOT for priority in priorities)
    with pytest.raises(ImmutableError):
        table.insert([Ternary(1, 1)], "MyIngress.drop", priority=1)


def test_externs(state: SwitchState) -> None:
    assert {name: (each.width, len(each)) for name, each in state.registers.items()} == {"MyIngress.last": (16, 4)}
    assert {name: len(each) for name, each in state.counters.items()} == {"MyIngress.by_port": 4}
    assert {name: (each.kind, len(each)) for name, each in state.meters.items()} == {"MyIngress.by_kind": ("bytes", 2)}
    assert state.direct_counters == {"MyIngress.hits": state.tables["MyIngress.exact_t"]}
    assert state.direct_meters == {"MyIngress.pace": state.tables["MyIngress.range_t"]}


def test_direct_meter_is_in_each_entry_and_counts_packets(state: SwitchState) -> None:
    table = state.tables["MyIngress.range_t"]
    entry = table.insert([Range(1, 5)], "MyIngress.paced", [1], priority=1)
    assert entry.meter is not None
    entry.meter.set_rates(MeterRates(0, 1, 0, 2), name="pace")
    assert [entry.meter.execute(1.0, 1500) for _ in range(3)] == [0, 1, 2]
    assert table.default.meter is None


def test_profiles(state: SwitchState) -> None:
    plain, choice = state.profiles["MyIngress.plain"], state.profiles["MyIngress.choice"]
    assert (plain.size, plain.selector, choice.selector) == (4, False, True)
    assert set(choice.actions) == {"MyIngress.forward", "MyIngress.drop", "NoAction"}
    assert state.tables["MyIngress.member_t"].profile is plain
    choice.insert_member(1, "MyIngress.forward", [4])
    choice.insert_group(1, {1: 1})
    table = state.tables["MyIngress.group_t"]
    table.insert_group([Exact(1)], 1)
    assert table.lookup((1,), 12345).args == (4,)


def test_reset_comes_back_to_the_program(state: SwitchState) -> None:
    exact, prefix, fixed = (state.tables[f"MyIngress.{name}_t"] for name in ("exact", "lpm", "const"))
    register, counter = state.registers["MyIngress.last"], state.counters["MyIngress.by_port"]
    meter = state.meters["MyIngress.by_kind"]
    exact.insert([Exact(1)], "MyIngress.drop").packets = 5
    prefix.insert([Lpm(0x10, 4)], "MyIngress.forward", [1])
    prefix.set_default("MyIngress.forward", [2])
    fixed.entries()[0].packets = 5
    register.write(1, 7)
    counter.write(1, 2, 3)
    meter.set_rates(0, MeterRates(1, 1, 1, 1))
    member = state.profiles["MyIngress.choice"].insert_member(1, "MyIngress.forward", [4])
    state.tables["MyIngress.group_t"].insert_member([Exact(1)], 1)
    state.replication.insert_group(1, [(1, 1)])
    state.replication.insert_session(5, CloneSession(port=1))
    state.reset()
    assert (len(exact), len(prefix), len(fixed)) == (0, 0, 3)
    assert prefix.lookup((0x10,)).args == (7,)
    assert [entry.packets for entry in fixed.entries()] == [0, 0, 0]
    assert (register.cells, counter.read(1), meter.rates(0)) == ([0] * 4, (0, 0), None)
    assert state.profiles["MyIngress.choice"].members == {}
    assert member.references == 0
    assert (state.replication.groups, state.replication.clone_sessions) == ({}, {})
    assert state.registers["MyIngress.last"] is register
