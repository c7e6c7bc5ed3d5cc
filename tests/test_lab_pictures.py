"""What a run leaves of its captures: a report and pictures, or a line that says why not."""

import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.test_trace_trees import links, summary, write
from tests.trace_captures import pcap, save

pytest.importorskip("mininet.node")
pytestmark = pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")

from wiresum.lab.pictures import RunTrace  # noqa: E402


def traced(folder: Path, captures: list[Path], **options: Any) -> list[str]:
    """What is told at the end of a run with these captures."""
    told: list[str] = []
    with RunTrace(folder, tell=told.append, **options) as trace:
        trace.follow(SimpleNamespace(files=captures))  # type: ignore[arg-type]
        assert not told
    return told


def by_hand(folder: Path) -> str:
    return f"by hand: wiresum trace {folder}/*.pcap --png {folder}/trace.png"


def test_report_and_pictures_are_left_and_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = summary(tmp_path)
    reading, left = traced(tmp_path, write(tmp_path, links()))
    assert reading == "reading 0 MB of captures; Ctrl-C leaves that out"
    assert left == (
        f"left in {tmp_path}: summary.json, trace.txt, 3 pictures (trace-1-s1.png ... trace-3-s10.png), "
        "5 captures of 0 MB"
    )
    said = json.loads(path.read_text())
    assert said["run"] == "x"
    assert said["trace"] == ["trace.txt", "trace-1-s1.png", "trace-2-s2.png", "trace-3-s10.png"]
    assert "job 3 at s2 (10.254.2.1), below s1: 2 ranks" in (tmp_path / "trace.txt").read_text()


def test_without_matplotlib_the_text_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wiresum.lab.pictures.find_spec", lambda name: None)
    path = summary(tmp_path)
    told = traced(tmp_path, write(tmp_path, links()))
    assert told[0].startswith("no picture of the trace: that needs matplotlib; install it with: pip install")
    assert json.loads(path.read_text())["trace"] == ["trace.txt"]


def test_captures_in_a_folder_of_their_own_still_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wiresum.lab.pictures.find_spec", lambda name: None)
    run, elsewhere = tmp_path / "run", tmp_path / "my captures"
    for folder in (run, elsewhere):
        folder.mkdir()
    summary(run)
    captures = write(elsewhere, links())[:1]
    traced(run, captures)
    assert "job 3 at s1" in (run / "trace.txt").read_text()
    told = traced(run, captures, most_bytes=1)
    assert f"wiresum trace '{captures[0]}' --summary {run}/summary.json --png {run}/trace.png" in told[0]


def test_large_captures_are_left_to_the_user(tmp_path: Path) -> None:
    path = summary(tmp_path)
    told, left = traced(tmp_path, write(tmp_path, links()), most_bytes=1000)
    assert told == f"no trace: the captures have 0 MB, more than 0; {by_hand(tmp_path)}"
    assert "summary.json, 5 captures" in left
    assert "trace" not in json.loads(path.read_text())


@pytest.mark.parametrize("when", ["before", "during", "too long"])
def test_a_trace_that_is_ended_leaves_nothing(when: str, tmp_path: Path) -> None:
    calls = []

    def stop() -> signal.Signals | None:
        calls.append(1)
        return signal.SIGINT if when == "before" or (when == "during" and len(calls) > 1) else None

    options = {"longest_seconds": 0.0} if when == "too long" else {}
    path = summary(tmp_path)
    told = traced(tmp_path, write(tmp_path, links()), stop=stop, **options)
    reason = {
        "before": "the run was interrupted by SIGINT",
        "during": "interrupted by SIGINT",
        "too long": "it took more than 0 s",
    }[when]
    assert told[-2] == f"no trace: {reason}; {by_hand(tmp_path)}"
    assert not list(tmp_path.glob("trace*"))
    assert "trace" not in json.loads(path.read_text())


def test_a_trace_that_fails_is_one_line(tmp_path: Path) -> None:
    summary(tmp_path)
    told = traced(tmp_path, [save(tmp_path, "h1.pcap", pcap([]))])
    assert told[-2].startswith("no trace: no packets from or to UDP port 48864")
    assert told[-2].endswith(by_hand(tmp_path))
    assert not list(tmp_path.glob("trace*"))


def test_a_capture_that_has_gone_is_one_line(tmp_path: Path) -> None:
    (told,) = traced(tmp_path, [tmp_path / "none.pcap"])
    assert told.startswith("no trace: ")
    assert "none.pcap" in told


def test_a_run_that_fails_is_not_traced(tmp_path: Path) -> None:
    told: list[str] = []
    trace = RunTrace(tmp_path, tell=told.append)
    trace.follow(SimpleNamespace(files=write(tmp_path, links())))  # type: ignore[arg-type]
    with pytest.raises(KeyError), trace:
        raise KeyError
    assert not told
