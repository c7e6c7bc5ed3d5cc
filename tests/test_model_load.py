"""Compiled programs that are damaged, of another kind, or not for this switch."""

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from switch.model.core import ModelSwitch
from switch.model.errors import ProgramError, UnsupportedError
from switch.model.program import Program
from tests.model_programs import FOLDER, NAMES

TEXTS = {name: (FOLDER / f"{name}.json").read_bytes() for name in NAMES}
TREES: dict[str, Any] = {name: json.loads(text) for name, text in TEXTS.items()}


def load(tree: Any) -> ModelSwitch:
    return ModelSwitch.load(json.dumps(tree).encode())


@pytest.mark.parametrize("name", NAMES)
def test_programs_load(name: str) -> None:
    program = Program.load(FOLDER / f"{name}.json")
    assert program.name == f"{name}.p4"
    assert program.headers["standard_metadata"].metadata
    assert ModelSwitch(program).receive(1, bytes(64), 0.0) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "'__meta__' is missing"),
        (b"{}", "'__meta__' is missing"),
        (b'{"__meta__": {}}', "'version' is missing"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_program(text: bytes, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        Program.load(text)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        Program.load("nowhere.json")


@pytest.mark.parametrize("version", [[1, 0], [3, 0], [2, 99]])
def test_another_version(version: list[int]) -> None:
    tree = copy.deepcopy(TREES["headers"])
    tree["__meta__"]["version"] = version
    with pytest.raises(ProgramError, match=f"version {version[0]}.{version[1]}"):
        load(tree)


def state(tree: Any, name: str) -> Any:
    return next(each for each in tree["parsers"][0]["parse_states"] if each["name"] == name)


def no_field(tree: Any) -> None:
    tree["pipelines"][0]["conditionals"][0]["expression"] = {"type": "field", "value": ["command", "nothing"]}


def no_state(tree: Any) -> None:
    state(tree, "start")["transitions"][0]["next_state"] = "nowhere"


def no_action(tree: Any) -> None:
    tree["pipelines"][0]["tables"][0]["action_ids"] = [9999]


def no_table(tree: Any) -> None:
    tree["pipelines"][0]["init_table"] = "nothing"


def twice(tree: Any) -> None:
    tree["headers"].append(tree["headers"][0])


def wide(tree: Any) -> None:
    tree["header_types"][1]["fields"][0][1] = 1 << 30


def loop(tree: Any) -> None:
    first = tree["pipelines"][0]["conditionals"][0]
    first["true_next"] = first["false_next"] = first["name"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (no_field, r"pipelines\[0\]\.conditionals\[0\]\.expression.*no field 'nothing'|conditionals\[0\].*'nothing'"),
        (no_state, r"parse_states\[\d\]\.transitions\[0\]\.next_state: there is no state 'nowhere'"),
        (no_action, r"action_ids\[0\]: there is no action with id 9999"),
        (no_table, r"init_table: there is no table or condition 'nothing'"),
        (twice, r"headers\[\d+\]: the name '\w+' is there twice"),
        (wide, r"header_types\[1\]\.fields\[0\]\[1\]: 1073741824 is not within"),
        (loop, r"'node_\d+' follows itself"),
    ],
)
def test_damage_is_named_by_its_place(damage: Callable[[Any], None], words: str) -> None:
    tree = copy.deepcopy(TREES["headers"])
    damage(tree)
    with pytest.raises(ProgramError, match=words):
        load(tree)


def strange_primitive(tree: Any) -> None:
    action = next(each for each in tree["actions"] if each["primitives"])
    action["primitives"][0]["op"] = "teleport"


def strange_extern(tree: Any) -> None:
    tree["extern_instances"] = [
        {"name": "x", "id": 0, "type": "Teleporter", "source_info": {"filename": "a.p4", "line": 7}}
    ]


def strange_hash(tree: Any) -> None:
    tree["calculations"][0]["algo"] = "md5"


def strange_architecture(tree: Any) -> None:
    tree["parsers"][0]["name"] = "ingress_parser"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (strange_primitive, r"primitive 'teleport' is not supported, at externs.p4:\d+"),
        (strange_extern, r"extern 'Teleporter' is not supported, at a.p4:7"),
        (strange_hash, "hash algorithm 'md5' is not supported"),
        (strange_architecture, "an architecture whose parsers are ingress_parser .*only v1model"),
    ],
)
def test_what_cannot_run_is_named_with_its_place(damage: Callable[[Any], None], words: str) -> None:
    tree = copy.deepcopy(TREES["externs"])
    damage(tree)
    with pytest.raises(UnsupportedError, match=words):
        load(tree)


@pytest.mark.parametrize("levels", [10, 100, 200, 2000, 100_000])
def test_deep_expressions_run_or_are_refused(levels: int) -> None:
    tree = copy.deepcopy(TREES["arithmetic"])
    action = next(
        each for each in tree["actions"] if each["primitives"] and each["primitives"][0]["op"] == "add_header"
    )
    target = next(each for each in action["primitives"] if each["parameters"][0]["value"] == ["results", "extended"])
    text = json.dumps({"type": "field", "value": ["operands", "a8"]})
    one_more = '{"type": "expression", "value": {"op": "+", "left": %s, "right": {"type": "hexstr", "value": "0x1"}}}'
    before, after = one_more.split("%s")
    target["parameters"][1]["value"] = "HERE"
    damaged = json.dumps(tree).replace('"HERE"', before * levels + text + after * levels)
    if levels > 200:
        with pytest.raises(ProgramError, match=r"nested|not JSON"):
            ModelSwitch.load(damaged.encode())
        return
    ((_, data),) = ModelSwitch.load(damaged.encode()).receive(1, b"\x05" + bytes(63), 0.0)
    assert (levels + 5).to_bytes(9, "big") in data


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all values in a tree."""
    found = [path] if path else []
    if isinstance(tree, dict):
        for key, value in tree.items():
            found += places(value, (*path, key))
    elif isinstance(tree, list):
        for key, value in enumerate(tree):
            found += places(value, (*path, key))
    return found


PLACES = {name: [path for path in places(tree) if "source_info" not in path] for name, tree in TREES.items()}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 300),
    st.sampled_from(
        [1 << 40, -1, "", "0x", "0xzz", "0x1ff", "field", "header", "expression", "+", [], {}, [1, 2], 1.5]
    ),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(NAMES), st.data())
def test_any_damage_is_refused_or_runs(name: str, data: st.DataObject) -> None:
    """One value is replaced or removed: the loader says no by its own errors, or what it made takes packets."""
    tree = copy.deepcopy(TREES[name])
    *way, last = data.draw(st.sampled_from(PLACES[name]))
    node = tree
    for step in way:
        node = node[step]
    if data.draw(st.booleans()):
        del node[last]
    else:
        node[last] = data.draw(JUNK)
    try:
        switch = load(tree)
    except ProgramError:
        return
    packet = data.draw(st.binary(max_size=60))
    switch.receive(1, packet, 0.0)
    switch.trace(2, packet, 1.0)


@pytest.mark.parametrize("kind", ["header_stacks", "header_unions"])
def test_metadata_in_a_stack_or_union_is_refused(kind: str) -> None:
    tree = copy.deepcopy(TREES["headers"])
    number = tree[kind][0]["header_ids"][-1]
    (header,) = [each for each in tree["headers"] if each["id"] == number]
    header["metadata"] = True
    with pytest.raises(ProgramError, match=r"is metadata, so it cannot be in a stack or union"):
        load(tree)


@given(st.sampled_from(NAMES), st.integers(0, 1 << 16), st.binary(min_size=1, max_size=3))
def test_damaged_bytes(name: str, place: int, junk: bytes) -> None:
    text = bytearray(TEXTS[name])
    place %= len(text)
    text[place : place + len(junk)] = junk
    with suppress(ProgramError):
        ModelSwitch.load(bytes(text))


SWITCHES = {name: ModelSwitch.load(text) for name, text in TEXTS.items()}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NAMES), st.integers(0, 511), st.binary(max_size=80))
def test_any_packet_comes_to_an_end(name: str, port: int, packet: bytes) -> None:
    switch = SWITCHES[name]
    faults = switch.counters.faults
    for out, data in switch.receive(port, packet, 0.0):
        assert 0 <= out < 512
        assert isinstance(data, bytes)
    # Only what the programs ask for: asserts, stack indexes out of range, endless resubmission.
    assert switch.counters.faults - faults <= 1
