"""The tables at the end of a run, and its file."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

pytest.importorskip("mininet")

from wiresum.lab.faults import FaultPlan
from wiresum.lab.network import Lab, LabSettings
from wiresum.lab.run import CommandResult
from wiresum.lab.summary import add_trace, show, summarize
from wiresum.lab.topology import rack


def shown(**changes: Any) -> str:
    way = {"bytes": 17_700_000, "packets": 1777, "dropped": 0, "queue_dropped": 0}
    summary = {
        "run": "x", "switch": "software", "hosts": [{"name": "h1", "code": 0, "seconds": 1.0}],
        "links": {"h1": {"up": way, "down": way}}, "counters": {}, "wires": {},
        "faults": {"what": "none", "missing": []},
        "problems": [], "frames_are_packets": True, **changes,
    }  # fmt: skip
    file = io.StringIO()
    show(summary, Console(file=file, width=120))
    return file.getvalue()


def test_links_count_frames_and_large_ones_are_explained() -> None:
    for text in (shown(), shown(frames_are_packets=False)):
        assert "frames up" in text
        assert "packets up" not in text
        assert "1,777" in text
    assert "A frame may hold many packets" in shown(frames_are_packets=False)
    assert "A frame may hold many packets" not in shown()


def test_what_netem_has_lost_is_shown_where_there_is_netem() -> None:
    way = {"bytes": 1, "packets": 1, "dropped": 0, "queue_dropped": 2}
    assert "lost" not in shown()
    (row,) = [
        line for line in shown(links={"h1": {"up": way, "down": way | {"lost": 1234}}}).splitlines() if "h1" in line
    ]
    assert row.split("│")[-3:-1] == ["           4 ", " 1,234 "]


def test_what_wires_have_lost_is_shown_and_more_than_their_faults_is_a_problem() -> None:
    quiet = dict.fromkeys(("frames", "lost", "duplicated", "delayed", "reordered", "dropped", "overflowed"), 0)
    wires = {
        "h1": {"there": quiet | {"lost": 1200, "overflowed": 30_000}, "back": quiet | {"lost": 34, "dropped": 5}},
        "h2": {"there": quiet, "back": quiet},
        "h3": {},
    }
    topology = rack(3)
    way = {"bytes": 1, "packets": 1, "dropped": 0, "queue_dropped": 0}
    lab = SimpleNamespace(
        topology=topology,
        settings=LabSettings(topology=topology),
        plan=FaultPlan(mechanism="wire", what="a wire"),
        frames_are_packets=True,
        counters=lambda switch: {},
        link_counters=lambda link: {"up": way, "down": way},
        wire_counters=lambda: wires,
    )
    summary = summarize(
        cast("Lab", lab),
        name="x",
        command=["true"],
        result=CommandResult(code=0, hosts=(), problems=()),
        seconds=1.0,
        captures={},
        problems=[],
    )
    assert json.loads(json.dumps(summary))["wires"] == wires
    file = io.StringIO()
    show(summary, Console(file=file, width=120))
    lines = file.getvalue().splitlines()
    assert "wire of h1: lost 1,234" in lines
    assert "wire of h2: no faults" in lines
    assert [line for line in lines if line.startswith("!")] == [
        "! the wire of h1 was given more frames than it can take, and 30,005 more were lost than its faults say",
        "! how many frames the wire of h3 has lost is not known: it was killed",
    ]


def test_a_summary_stays_whole_if_the_trace_cannot_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    path.write_text('{"run": "x"}')

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="No space"):
            add_trace(tmp_path, ["trace.txt"])
    assert json.loads(path.read_text()) == {"run": "x"}
    add_trace(tmp_path, ["trace.txt"])
    assert json.loads(path.read_text()) == {"run": "x", "trace": ["trace.txt"]}
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]
