"""The runner of STF files: what it understands, and that it tells right from wrong."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switch.model import stf
from switch.model.core import ModelSwitch
from switch.model.stf_run import Outcome, StfRun
from switch.model.stf_syntax import (
    COMMANDS,
    Add,
    CheckCounter,
    Command,
    Expect,
    Packet,
    SetDefault,
    StfError,
    parse_stf,
)

FOLDER = Path(__file__).parent / "p4"
PROGRAM, TEST = FOLDER / "tables.json", FOLDER / "tables.stf"

SWITCH = ModelSwitch.load(PROGRAM)


def run(text: str) -> Outcome:
    SWITCH.state.reset()
    return StfRun(SWITCH).run(parse_stf(text))


def test_file_of_all_statements_passes() -> None:
    result = stf.run_test(PROGRAM, TEST)
    assert (result.verdict, result.reason) == ("passed", "")
    assert result.outcome is not None
    notes = "\n".join(result.outcome.notes)
    assert "refused: table MyIngress.exact_t has an entry hdr.h.value=Exact(value=16) already" in notes
    assert "register MyIngress.last[3] = 43981" in notes
    assert "clone session 5: CloneSession(port=3" in notes


@pytest.mark.parametrize("number", range(13))
def test_any_wrong_digit_is_found(number: int) -> None:
    text = TEST.read_text()
    digits = list(re.finditer(r"^expect \d ([0-9A-F ]+)", text, re.MULTILINE))
    match = digits[number * len(digits) // 13]
    wrong = f"{(int(text[match.start(1)], 16) + 1) % 16:X}"
    outcome = run(text[: match.start(1)] + wrong + text[match.start(1) + 1 :])
    line = text.count("\n", 0, match.start()) + 1
    assert len(outcome.failures) == 1
    assert outcome.failures[0].startswith(f"line {line}: packet on port {text[match.start() + 7]}: differs at byte 0")


SENT = "add exact_t value:1 forward(port:1)\npacket 0 0001 0000 FF\n"


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (SENT, "port 1: expected 0 packets, got 1: 00010000ff"),
        (SENT + "expect 1\nexpect 1", "port 1: expected 2 packets, got 1: 00010000ff"),
        (SENT + "expect 1 0001 0000 $", "line 3: packet on port 1: expected 4 bytes, got 5: 00010000FF"),
        (SENT + "expect 1 0001 0000 FF00", "line 3: packet on port 1: expected at least 6 bytes, got 5: 00010000FF"),
        (SENT + "expect 1 0001 0000 **", None),
        (SENT + "expect 1 0001 $", "line 3: packet on port 1: expected 2 bytes, got 5: 00010000FF"),
        (SENT + "expect 1\ncheck_counter by_port(0) packets == 2", "expected packets == 2, got 1"),
        (SENT + "expect 1\ncheck_counter by_port(0) bytes < 5", "expected bytes < 5, got 5"),
        (SENT + "expect 1\ncheck_counter by_port(0)", None),
    ],
)
def test_verdicts(text: str, failure: str | None) -> None:
    # Port 1 is known, so that what leaves by it counts.
    outcome = run(f"packet 1 0000 0000\n{text}" if "expect" not in text else text)
    if failure is None:
        assert outcome.failures == []
    else:
        assert failure in outcome.failures[0]


def test_what_leaves_by_a_port_that_nobody_names_is_lost() -> None:
    assert run(SENT).passed


def test_statements() -> None:
    text = """
    # a comment
    PACKET 3 0A 0b   # another
    expect 2 0A** $
    expect 5
    add ing.t$1.x 7 h$0.f:0x1* "a.b".valid:1 act(p:0b01, "q":3) = name
    setdefault t act()
    check_counter c($name) packets >= 0x10
    mc_node_create 1
        2 3
    wait
    no_packet
    """
    assert parse_stf(text) == [
        Packet(3, 3, b"\x0a\x0b"),
        Expect(4, 2, "0A**", True),
        Expect(5, 5, None, False),
        Add(6, "ing.t$1.x", 7, (("h$0.f", "0x1*"), ("a.b.valid", "1")), "act", (("p", "0b01"), ("q", "3")), "name"),
        SetDefault(7, "t", "act", ()),
        CheckCounter(8, "c", "$name", "packets", ">=", 16),
        Command(9, "mc_node_create", ("1", "2", "3")),
        Command(11, "wait", ()),
        Command(12, "no_packet", ()),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("packet x 00", "line 1: expected a port number after packet, got 'x'"),
        ("\npacket 1 0", "line 2: '0' is no packet: expected an even number of hex digits"),
        ("expect 1 0g", "'0G' is no packet"),
        ("frobnicate 1", "unknown statement 'frobnicate'"),
        ("add t x:1", r"expected ACTION\(NAME:VALUE, ...\), got ''"),
        ("add t x:1 a(1)", "expected NAME:VALUE, got '1'"),
        ("setdefault t a", r"expected ACTION\(NAME:VALUE, ...\), got 'a'"),
        ("check_counter c", r"expected check_counter NAME\(INDEX\)"),
        ("register_write r 1", "register_write takes 3 words, got 2"),
        ("mc_node_create", "takes some words, got 0"),
        ("add nosuch value:1 forward(port:1)", "no table is called 'nosuch'"),
        ("add _t value:1 forward(port:1)", "more than one table is called '_t'"),
        ("add exact_t nosuch:1 forward(port:1)", r"has no key field 'nosuch'; its fields are hdr\.h\.value"),
        ("add exact_t value:1 nosuch()", r"no action of table MyIngress\.exact_t is called 'nosuch'"),
        ("add exact_t value:1 forward()", r"takes \['port'\], got \[\]"),
        ("add ternary_t value:1 forward(port:1)", "needs a priority"),
        ("add range_t 1 value:1 paced(port:1)", "STF files cannot write ranges"),
        ("add lpm_t value:1/9 forward(port:1)", "prefix length 9 of '1/9'"),
        ("check_counter by_port($x) packets == 1", "no entry is called 'x'"),
        ("meter_set_rates by_kind 0 1:1", "expected two RATE:BURST, got 'by_kind 0 1:1'"),
        ("mirroring_add x 1", "expected a number, got 'x'"),
        ("mc_node_update -1 1", "expected a number, got '-1'"),
        ("register_write last 1 0x", "expected a number, got '0x'"),
        ("meter_set_rates by_kind 0 a:1 1:1", "expected two RATE:BURST"),
        ("register_read nosuch 0", "no register is called 'nosuch'"),
    ],
)
def test_statement_that_cannot_be_run(text: str, says: str) -> None:
    with pytest.raises(StfError, match=says):
        run(text)


WORDS = [
    *("packet", "expect", "add", "setdefault", "check_counter", *COMMANDS),
    *(
        "exact_t",
        "lpm_t",
        "ternary_t",
        "group_t",
        "value:0x1*",
        "value:7",
        "note:0/3",
        "value:0x/",
        "1",
        "0b1",
        "0x",
        "-1",
    ),
    *(
        "forward(port:1)",
        "forward(port:0x1*)",
        "drop()",
        "= x",
        "$",
        "*",
        "00",
        "by_port(0)",
        "by_port($x)",
        "packets == 1",
    ),
    *("last", "by_port", "by_kind", "1:1", "0.5:2", "5", "99999999999999999999", "\n", "#", "(", "²"),
]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=40))
def test_no_file_makes_the_runner_fail_otherwise(text: str) -> None:
    with suppress(StfError):
        run(text)


def test_writes_that_the_switch_refuses_are_noted() -> None:
    outcome = run("add exact_t value:0x100 forward(port:1)\nregister_write last 4 0\nmc_node_associate 1 0")
    assert outcome.passed
    assert [note.partition(": ")[2].split(":")[0] for note in outcome.notes] == ["refused"] * 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"good": "expect 1", "bad": "expect 2", "odd": "packet 0 0", "left_out": ""}.items():
        (tmp_path / f"{name}.stf").write_text(f"{SENT}{text}\n")
        if name != "left_out":
            (tmp_path / f"{name}.json").write_bytes(PROGRAM.read_bytes())
    (tmp_path / "broken.stf").write_text("")
    (tmp_path / "broken.json").write_text("{")
    return tmp_path


def test_folder_with_totals(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stf.main([str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:4]] == [
        ["failed", "bad"],
        ["refused", "broken"],
        ["passed", "good"],
        ["bad", "test"],
    ]
    assert "port 2: expected 1 packets, got 0: none" in lines[0]
    assert lines[-1] == "1 of 4 passed (1 bad test, 1 failed, 1 refused)"


def test_folder_beside_what_bmv2_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = folder / "bmv2_results.tsv"
    reference.write_text("good\tPASS\nbad\tFAIL\tport 2\nodd\tpass\nbroken\tfail\n")
    assert stf.main([str(folder)]) == 1
    out = capsys.readouterr().out
    assert "1 of 2 that BMv2 passes passed (50.0 %)" in out
    assert re.search(r"failed +bad +BMv2 fails", out)
    reference.write_text("good\tPASS\n")
    assert stf.main([str(folder)]) == 0
    assert stf.main([str(folder), "--only", "bad"]) == 0


def test_one_test_in_detail(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stf.main([str(folder), "--verbose", "good"]) == 0
    out = capsys.readouterr().out
    assert "table MyIngress.exact_t(hdr.h.value 1): hit" in out
    assert "good: passed" in out
    assert stf.main([str(folder), "--verbose", "bad"]) == 1
    assert stf.main([str(folder), "--verbose", "left_out"]) == 2
    assert "left_out.json does not exist" in capsys.readouterr().err


def test_folder_without_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stf.main([str(tmp_path)]) == 2
    assert "holds no NAME.stf" in capsys.readouterr().err
