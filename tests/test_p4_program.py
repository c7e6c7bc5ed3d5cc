"""The compiled P4 program: that it is what its source says, and what it would need of a switch."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from switch.model.program import Program
from switch.model.resources import LOGICAL_TABLES, SRAM_BLOCKS, STATEFUL_ALUS, estimate
from wiresum.cli import main

P4 = Path(__file__).resolve().parent.parent / "p4"
SIZES = (32, 64, 256)


def substance(compiled: Any) -> Any:
    """A compiled program without what says only where it was compiled, by which p4c, and from which line."""
    if isinstance(compiled, dict):
        return {name: substance(part) for name, part in compiled.items() if name not in ("source_info", "__meta__")}
    if isinstance(compiled, list):
        return [substance(part) for part in compiled]
    return compiled


@pytest.mark.parametrize("values", SIZES)
def test_what_is_committed_was_compiled_from_the_source(values: int, tmp_path: Path) -> None:
    if shutil.which("p4c-bm2-ss") is None:
        pytest.skip("p4c-bm2-ss is not on PATH")
    shutil.copytree(P4, tmp_path / "p4")
    shutil.rmtree(tmp_path / "p4" / "compiled")
    subprocess.run(
        ["make", "-s", "-C", tmp_path / "p4", f"compiled/wiresum_{values}.json"], check=True, capture_output=True
    )
    name = f"wiresum_{values}"
    for suffix in (".json", ".p4info.txtpb"):
        fresh, committed = (folder / "compiled" / (name + suffix) for folder in (tmp_path / "p4", P4))
        if suffix == ".json":
            assert substance(json.loads(fresh.read_text())) == substance(json.loads(committed.read_text()))
        else:
            assert fresh.read_text() == committed.read_text()


@pytest.mark.parametrize("values", SIZES)
def test_registers_are_in_the_order_of_a_pipeline(values: int) -> None:
    """Each register in one stage, each stage after what it depends on: newest, seen, count and exponents, values."""
    program = Program.load(P4 / "compiled" / f"wiresum_{values}.json")
    stages = estimate(program).ingress
    places = {name.rpartition(".")[2]: number for number, stage in enumerate(stages) for name in stage.registers}
    assert set(places) == {"newest", "seen", "count", "final", "e0", "e1"} | {f"value_{i:02x}" for i in range(values)}
    assert places["newest"] < places["seen"] < places["count"]
    assert places["seen"] < min(place for name, place in places.items() if name.startswith("value_"))
    for stage in stages:
        assert len(stage.registers) <= STATEFUL_ALUS
        assert len(stage.tables) <= LOGICAL_TABLES
        assert stage.sram <= SRAM_BLOCKS


def test_two_registers_in_one_alu_need_fewer_stages() -> None:
    program = Program.load(P4 / "compiled" / "wiresum_64.json")
    one, two = estimate(program, per_alu=1), estimate(program, per_alu=2)
    assert (one.alus, two.alus) == (70, 35)
    assert one.register_bits == two.register_bits == 2048 * 32 + 4096 * (32 + 4 * 8 + 64 * 32)
    assert one.header_bits == 8 * (14 + 20 + 8 + 8 + 2 + 4 * 64)
    assert len(two.ingress) <= len(one.ingress) - 8
    with pytest.raises(ValueError, match="one register or two, not 3"):
        estimate(program, per_alu=3)


def test_the_command_prints_needs_beside_limits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["p4resources", "--per-alu", "2", str(P4 / "compiled" / "wiresum_32.json")]) == 0
    out = capsys.readouterr().out
    assert "4x12" in out
    assert "wiresum_32" in out
    assert "Taken for granted" in out


def test_the_command_refuses_what_is_no_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert main(["p4resources", str(tmp_path / "x.json")]) == 1
    assert "x.json: not the JSON that p4c-bm2-ss writes" in capsys.readouterr().err
