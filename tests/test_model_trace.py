"""What a trace shows of the P4 source: whole statements where the source is there, and never nothing."""

import re
from pathlib import Path

import pytest

from switch.model.core import ModelSwitch
from switch.model.expressions import Source
from switch.model.source_text import condition_text, whole_text
from tests.model_programs import FOLDER

WIRESUM = Path(__file__).resolve().parent.parent / "p4" / "compiled" / "wiresum_64.json"
ARP = bytes.fromhex("ffffffffffff 0200000000aa 0806") + bytes(28)

SOURCE = """\
const bit<16> GROUP = 1; // where to
enum bit<8> Reason {
    REPLY = 0, // to a question
    CLEARED = 1    // it has been done
}
    if (!meta.done) { a = b; /* ; */ c = true; }
    else if (hdr.a.isValid() && (x == 1
        || y == 2)) {
        meta.worker = {member, f(job, 0)};
        hdr.e.e0 = larger ? one
            : other;
"""


@pytest.mark.parametrize(
    ("place", "fragment", "whole"),
    [
        ((1, 22), "1; ...", "const bit<16> GROUP = 1"),
        ((3, 12), "0, // to a question ...", "REPLY = 0"),
        ((4, 14), "1 // it has been done ...", "CLEARED = 1"),
        ((6, 9), "meta", "meta.done"),
        ((6, 22), "a = b", "a = b"),
        ((6, 39), "= true; ...", "c = true"),
        ((7, 13), "hdr.a.isValid() && (x == 1 ...", "hdr.a.isValid() && (x == 1 || y == 2)"),
        ((9, 8), "meta.worker = {member", "meta.worker = {member, f(job, 0)}"),
        ((10, 8), "hdr.e.e0 =", "hdr.e.e0 = larger ? one : other"),
        # Not what stands there: another version of the source, or text from a macro.
        ((6, 9), "other", "other"),
        ((60, 9), "meta", "meta"),
        ((6, 9000), "meta", "meta"),
        ((2, 0), "", ""),
    ],
)
def test_the_whole_text_of_a_piece(tmp_path: Path, place: tuple[int, int], fragment: str, whole: str) -> None:
    (tmp_path / "some.p4").write_text(SOURCE)
    (tmp_path / "compiled").mkdir()
    line, column = place
    source = Source("some.p4", line, fragment, column)
    for folder in (tmp_path, tmp_path / "compiled"):
        assert whole_text(source, folder) == whole
    assert whole_text(source, tmp_path / "compiled" / "deeper") == fragment
    assert whole_text(source, None) == fragment


def conditions(switch: ModelSwitch, packet: bytes) -> list[str]:
    lines = str(switch.trace(0, packet, 0.0)).splitlines()
    return [found[1] for line in lines if (found := re.match(r" +if \((.*)\) at ", line))]


def test_conditions_of_our_program_are_whole() -> None:
    with_source = conditions(ModelSwitch.load(WIRESUM), ARP)
    assert with_source[3] == "meta.is_mine"
    assert (
        "meta.is_mine && hdr.udp.isValid() && meta.drop == Drop.NONE && (hdr.udp.dst == DATA_PORT || "
        "hdr.udp.src == DATA_PORT)"
    ) in with_source
    without = conditions(ModelSwitch.load(WIRESUM.read_bytes()), ARP)
    assert without[3] == "meta.is_mine"
    assert "meta.is_mine && hdr.udp.isValid() && meta.drop == Drop.NONE ..." in without


def test_a_condition_without_a_place_in_the_source_is_named() -> None:
    switch = ModelSwitch.load(FOLDER / "control.json")
    of_compiler = [
        condition_text(each.source, each.condition, each.name, FOLDER)
        for each in switch.program.ingress.conditionals.values()
        if not each.source.file
    ]
    assert of_compiler
    assert set(of_compiler) == {"hasReturned"}
