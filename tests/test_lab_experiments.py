"""The experiments: what they compute and draw, and one of them from end to end."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.lab_runs import ROOT, why_not

pytest.importorskip("mininet")
pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

import wiresum.lab.experiment
from wiresum.lab.experiment import Experiment, measurement, ring_rate
from wiresum.lab.experiment_options import check_memory, elements_for, line_rate
from wiresum.lab.measure_worker import Task
from wiresum.lab.programs import LabError

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


NAMES = sorted(path.stem for path in SCRIPTS.glob("*.py"))
SUFFIXES = (".csv", ".json", ".png")


def begin(name: str, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Experiment:
    """One with these arguments, on a machine that lacks nothing."""
    module = load(name)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    monkeypatch.setattr(wiresum.lab.experiment, "check_machine", lambda: None)
    monkeypatch.setattr(wiresum.lab.experiment, "remove_leftovers", list)
    return Experiment(module.__file__ or "", str(module.__doc__), module.options)


def simple_plot(figure: Figure) -> None:
    figure.subplots().plot([1, 2])


def run(experiment: Experiment, rows: Sequence[dict[str, Any]], then: Callable[[], object] = lambda: None) -> Any:
    """Measures these rows and does `then`; returns the exit code."""
    with pytest.raises(SystemExit) as ended, experiment.running():  # noqa: PT012
        for row in rows:
            experiment.add(**row)
        then()
    return ended.value.code


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_draws_and_saves(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load(name)
    experiment = begin(name, monkeypatch, "--out", str(tmp_path))
    if hasattr(experiment.options, "losses"):
        experiment.options.losses = [0, 0.01]
    if name == "switches":
        experiment.options.values = [32, 64]
    drawn: list[Figure] = []

    def plot(figure: Figure) -> None:
        module.plot(figure, experiment)
        drawn.append(figure)

    with experiment.running():
        for row in ROWS[name]:
            experiment.add(**row)
        experiment.finish(plot)
    assert all(axes.lines or axes.patches for axes in drawn[0].axes)
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    with (tmp_path / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(ROWS[name])
    about = json.loads((tmp_path / f"{name}.json").read_text())
    assert about["parameters"]["repeats"] == 5
    assert "out" not in about["parameters"]
    assert about["machine"]["cores"] == os.cpu_count()
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}{suffix}" for suffix in SUFFIXES}


def test_no_root_is_said_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["x.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="needs root"), Experiment("x.py", "").running():
        pass
    assert not list(tmp_path.iterdir())


def old_results(folder: Path, name: str) -> dict[str, str]:
    for suffix in SUFFIXES:
        (folder / f"{name}{suffix}").write_text("of an earlier run")
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGINT), 130, "interrupted by SIGINT; the rows so far (2) are in"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), 143, "interrupted by SIGTERM; the rows so far (2) are in"),
        (
            lambda: _raise(LabError("a measurement failed: h1")),
            1,
            "a measurement failed: h1; the rows so far (2) are in",
        ),
        (
            lambda: _raise(OSError(28, "No space left on device")),
            1,
            "No space left on device; the rows so far (2) are in",
        ),
    ],
)
def test_what_does_not_end_leaves_earlier_results(
    error: Callable[[], None],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = old_results(tmp_path, "tree")
    experiment = begin("tree", monkeypatch, "--out", str(tmp_path))
    assert run(experiment, ROWS["tree"][:2], error) == code
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(said)
    assert str(tmp_path / "tree.partial.csv") in last
    with (tmp_path / "tree.partial.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 2
    assert json.loads((tmp_path / "tree.partial.json").read_text())["experiment"] == "tree"
    for name, text in before.items():
        assert (tmp_path / name).read_text() == text
    assert len(list(tmp_path.iterdir())) == 5


def _raise(error: Exception) -> None:
    raise error


def test_a_picture_that_cannot_be_written_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = old_results(tmp_path, "tree")
    experiment = begin("tree", monkeypatch, "--out", str(tmp_path))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    assert run(experiment, ROWS["tree"], lambda: experiment.finish(simple_plot)) == 1
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if "partial" not in path.name} == before
    assert (tmp_path / "tree.partial.csv").exists()


def test_a_signal_while_results_are_written_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = begin("tree", monkeypatch, "--out", str(tmp_path))
    complete = experiment.files.complete

    def interrupted(*args: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        complete(*args)

    monkeypatch.setattr(experiment.files, "complete", interrupted)
    assert run(experiment, ROWS["tree"], lambda: experiment.finish(simple_plot)) == 130
    assert "interrupted by SIGINT; the results are complete" in capsys.readouterr().err
    assert {path.suffix for path in tmp_path.iterdir()} == set(SUFFIXES)


def test_nothing_measured_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = begin("switches", monkeypatch, "--out", str(tmp_path / "new"))
    assert run(experiment, [], lambda: experiment.finish(simple_plot)) == 1
    assert not list(tmp_path.iterdir())


BAD_NUMBERS = ("-1", "nan", "inf", "x", "", "1e99", "9" * 5000)
COUNTS = {
    "workers": ["--workers", "--slow-workers", "--slots", "--repeats", "--seed"],
    "loss": ["--workers", "--slots"],
    "pool": ["--workers", "--slots", "--values"],
    "straggler": ["--workers", "--slots"],
    "switches": ["--workers", "--chunks", "--software-factor", "--values"],
    "tree": ["--racks", "--hosts", "--slots"],
    "training": ["--workers", "--epochs", "--slots"],
}
MEASURES = {
    "workers": ["--rates", "--seconds"],
    "loss": ["--losses", "--rate", "--seconds"],
    "pool": ["--rate", "--far-rate", "--far-delay", "--seconds"],
    "straggler": ["--late", "--slow-links", "--rate", "--seconds"],
    "switches": [],
    "tree": ["--rate", "--trunk-rate", "--seconds"],
    "training": ["--rate", "--accuracy"],
}
MAY_BE_ZERO = {"--seed", "--losses", "--late", "--accuracy"}


@pytest.mark.parametrize("name", NAMES)
def test_bad_values_are_named(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module = load(name)
    numeric = {*COUNTS[name], *MEASURES[name]}
    cases = [(option, bad) for option in numeric for bad in BAD_NUMBERS]
    cases += [(option, "0") for option in numeric - MAY_BE_ZERO]
    cases += [(option, "1.5") for option in COUNTS[name]]
    cases += [(option, "3") for option in ("--slots", "--values") if option in numeric]
    for option, bad in cases:
        said = refusal(module, monkeypatch, capsys, option, bad)
        assert option in said, (option, bad, said)
        assert repr(bad) in said or f"invalid choice: {bad} " in said, (option, bad, said)
        assert " from " in said or " above " in said or "choose from" in said or "invalid int value" in said, said


def refusal(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    """What the script says of arguments that it refuses, before it has done anything else."""

    def never(*_: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr(sys, "argv", ["script.py", *arguments])
    monkeypatch.setattr(Experiment, "running", never)
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2, arguments
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("loss", "--losses 0 2", "'2' is not a share of packets from 0 to 0.5"),
        ("straggler", "--workers 5", "even number from 4, for two jobs, not 5"),
        ("straggler", "--workers 2", "even number from 4, for two jobs, not 2"),
        ("tree", "--racks 1 --hosts 1", "from 2 to 32 workers, not 1"),
        ("tree", "--racks 8 --hosts 5", "from 2 to 32 workers, not 40"),
        ("workers", "--rates 100000 --seconds 60", "GB are free"),
        ("switches", "--chunks 1000000 --software-factor 1000", "GB are free"),
    ],
)
def test_values_that_do_not_go_together(
    name: str, arguments: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(load(name), monkeypatch, capsys, *arguments.split())


def test_reductions_fit_memory_and_have_a_packet() -> None:
    assert elements_for(1, 0.001) == 256
    check_memory(10**6, 8)
    with pytest.raises(ValueError, match=r"8 workers that reduce 1,000,000,000,000 elements need 96,000\.0 GB"):
        check_memory(10**12, 8)


def test_a_value_given_twice_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert begin("loss", monkeypatch, "--losses", "0", "0.0", "0.01").options.losses == [0, 0.01]


def test_results_go_beside_the_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert begin("tree", monkeypatch).files.path(".csv") == SCRIPTS / "results" / "tree.csv"
    assert begin("tree", monkeypatch, "--out", "here").files.path(".csv").resolve() == tmp_path / "here" / "tree.csv"


def test_a_folder_that_takes_no_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/x"), Path("/proc"), Path("/" + "x" * 300)):
        with pytest.raises(SystemExit) as ended, begin("tree", monkeypatch, "--out", str(out)).running():
            raise AssertionError("something was started")
        assert ended.value.code == 2
        assert f"argument --out: no results can be written to {out}: " in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_experiment_leaves_a_clean_machine(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "loss.py"), "--out", str(tmp_path), "--workers", "2", "--losses", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*command, "--seconds", "0.05", "--repeats", "100"], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            assert first.startswith("loss 0"), first
            wait_until(lambda: any('"gloo"' in line for line in commands_with(f"TMPDIR={tmp_path}")))
            process.send_signal(number)
            rest = process.stderr.read()
            assert process.wait(30) == 128 + number
        finally:
            process.kill()
    (line,) = rest.splitlines()
    assert line.startswith(f"interrupted by {number.name}; the rows so far (1) are in {tmp_path}/loss.partial.csv, ")
    assert {path.name for path in tmp_path.iterdir()} == {"loss.partial.csv", "loss.partial.json"}
    assert not commands_with(f"TMPDIR={tmp_path}")


def wait_until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def commands_with(variable: str) -> list[str]:
    """The command lines of processes with that variable in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text())
    return found


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
