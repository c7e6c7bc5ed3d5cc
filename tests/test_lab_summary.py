"""The tables at the end of a run, and its file."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("mininet")

from wiresum.lab.summary import add_trace, show


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
