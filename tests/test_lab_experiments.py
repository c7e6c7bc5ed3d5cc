"""The experiments: what they compute and draw, and one of them from end to end."""

import csv
import json
import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.lab_runs import ROOT, why_not

pytest.importorskip("mininet")
pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from wiresum.lab.experiment import Experiment, line_rate, measurement, ring_rate
from wiresum.lab.measure_worker import Task

SCRIPTS = ROOT / "mininet" / "experiments"


def load(name: str) -> ModuleType:
    spec = spec_from_file_location(f"experiment_{name}", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_links_can_carry() -> None:
    assert line_rate(1000) == pytest.approx(1e9 / 8 / 1076 * 256)  # 256 values of 4 bytes are 1024 of 1076 bytes
    assert ring_rate(1000, 2) * 4 == pytest.approx(119.5e6, rel=0.01)
    assert ring_rate(1000, 4) * 4 == pytest.approx(79.7e6, rel=0.01)  # Gloo was seen at 77 MB/s
    assert ring_rate(200, 8) * 4 == pytest.approx(13.7e6, rel=0.01)  # and at 13.3


def test_the_slowest_rank_counts() -> None:
    def report(seconds: list[float], sent: int) -> dict[str, Any]:
        return {"seconds": seconds, "busy": 0.5, "statistics": {"packets_sent": sent}, "levels": {"srtt": sent / 1000}}

    found = measurement([report([1.0, 9.0, 2.0], 10), None, report([3.0, 4.0, 5.0], 20)], 1000)
    assert found.seconds == 4.0
    assert found.rate == 250.0
    assert found.total("packets_sent") == 30
    assert found.level("srtt") == 0.02


def test_tasks_travel_as_text() -> None:
    task = Task(backend="gloo", elements=3, repeats=2, ranks=(0, 2), job="a")
    assert Task.from_json(task.command()[-1]) == task


COMMON = {"seconds": 1.0, "elements_per_s": 1e6, "srtt_ms": 1.0, "slots": 64, "elements": 10**6}
LINE = {**COMMON, "limit": 2e6, "ring_limit": 1e6}
ROWS: dict[str, list[dict[str, Any]]] = {
    "workers": [
        {"part": "workers", "rate_mbit": rate, "workers": workers, "backend": backend, **LINE}
        for rate in (1000, 200) for workers in (2, 4) for backend in ("wiresum", "gloo")
    ],
    "loss": [
        {"loss": loss, "backend": backend, "times_as_long": 1.0, **COMMON}
        for loss in (0, 0.01) for backend in ("wiresum", "gloo")
    ],
    "pool": [
        {"part": "pool", "rate_mbit": rate, "delay_ms": delay, "bdp_packets": 10, "of_limit": 0.5, **COMMON}
        for rate, delay in ((1000.0, 0.0), (200.0, 2.0))
    ] + [{"part": "values", "values": 256, **LINE}],
    "straggler": [
        {"part": "late", "late_ms": 0, **COMMON},
        {"part": "link", "share": 0.5, **LINE},
        {"part": "jobs", "jobs": "a alone", **COMMON},
    ],
    "switches": [
        {"kind": kind, "values": values, "packets_in_per_s": 10.0, **COMMON}
        for kind in ("software", "model") for values in (32, 64)
    ],
    "tree": [
        {"topology": topology, "backend": backend, "uplink_megabytes": 1.0, "tensor_megabytes": 1.0, **COMMON}
        for topology in ("rack", "tree") for backend in ("wiresum", "gloo")
    ],
    "training": [
        {"backend": backend, "seconds": 1.0, "sent_megabytes": 1.0, "accuracy": 0.9} for backend in ("wiresum", "gloo")
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.stem for path in SCRIPTS.glob("*.py")))
def test_every_experiment_draws_and_saves(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--out", str(tmp_path)])
    experiment = Experiment(name, str(module.__doc__), module.options)
    if hasattr(experiment.options, "losses"):
        experiment.options.losses = [0, 0.01]
    experiment.rows = ROWS[name]
    experiment._start = 0.0
    if name == "switches":
        experiment.options.values = [32, 64]
    drawn: list[Figure] = []

    def plot(figure: Figure) -> None:
        module.plot(figure, experiment)
        drawn.append(figure)

    experiment.save()
    experiment.draw(plot)
    assert all(axes.lines or axes.patches for axes in drawn[0].axes)
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    with (tmp_path / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(ROWS[name])
    about = json.loads((tmp_path / f"{name}.json").read_text())
    assert about["parameters"]["repeats"] == 5
    assert about["machine"]["cores"] == os.cpu_count()


def test_no_root_is_said_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["x.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="needs root"), Experiment("x", "").running():
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_an_experiment_from_end_to_end(tmp_path: Path) -> None:
    sizes = ["--rates", "500", "--workers", "2", "--slow-workers", "--seconds", "0.02", "--repeats", "2"]
    command = [sys.executable, str(SCRIPTS / "workers.py"), "--out", str(tmp_path), *sizes]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "workers.csv").open() as file:
        rows = list(csv.DictReader(file))
    both, slower = rows[:2], rows[2:]  # the second for as long as this machine is slower than the links
    assert [(row["part"], row["backend"]) for row in both] == [("workers", "wiresum"), ("workers", "gloo")]
    assert [(row["part"], row["backend"]) for row in slower] == [("slower", "wiresum")] * len(slower)
    assert [float(row["rate_mbit"]) for row in slower] == [450.0 - 50 * i for i in range(len(slower))]
    assert (float(both[0]["of_limit"]) < 0.9) == bool(slower)
    for row in rows:
        assert 0.01 < float(row["of_limit"]) < 1.5  # bursts pass faster than the rate
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".json", ".png"}
