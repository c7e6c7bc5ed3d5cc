import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.demo_workers import forked_workers
from tests.test_processes import DEADLINE, await_end
from wiresum.demo.command import run_demo
from wiresum.demo.display import sparkline
from wiresum.demo.report import Epoch, Report, Run
from wiresum.demo.settings import MODEL_NAMES, Settings, Task
from wiresum.demo.traffic import Traffic, tcp_traffic
from wiresum.demo.training import save_digits, train
from wiresum.processes import ProcessFailedError

SHORT = Settings(workers=2, epochs=2, loss=0.02, model="mlp")


def a_run(backend: str, accuracy: float = 0.97, digests: tuple[str, ...] = ("a", "a")) -> Run:
    epoch = Epoch(number=1, loss=0.5, accuracy=accuracy, seconds=1.0, traffic=Traffic())
    weights = np.ones(3, np.float32)
    return Run(backend=backend, lost=0, epochs=(epoch,), digests=digests, weights=weights)


def a_report(ours: Run, gloo: Run) -> Report:
    return Report(settings=SHORT, wiresum=ours, gloo=gloo)


def test_no_problems_when_both_agree() -> None:
    assert a_report(a_run("wiresum", 0.97), a_run("gloo", 0.96)).problems() == []


def test_accuracies_that_differ_too_much() -> None:
    (problem,) = a_report(a_run("wiresum", 0.95), a_run("gloo", 0.97)).problems()
    assert "95.00% with wiresum and 97.00% with Gloo" in problem


def test_workers_that_differ_are_named() -> None:
    (problem,) = a_report(a_run("wiresum", digests=("a", "b", "a", "c")), a_run("gloo")).problems()
    assert problem.startswith("wiresum: the final weights of rank(s) 1, 3 ")


def test_weights_that_are_not_finite() -> None:
    bad = a_run("wiresum")
    bad.weights[1] = np.nan
    report = a_report(bad, a_run("gloo"))
    assert any("NaN" in problem for problem in report.problems())
    assert json.loads(report.to_json())["largest_weight_difference"] is None


def test_sparkline() -> None:
    assert sparkline([1.0, 0.1, 0.01]) == "█▅▁"
    assert sparkline([2.0, 2.0]) == "▁▁"
    assert sparkline([float("nan"), 1.0, 0.0]) == "?▁▁"
    long = sparkline([0.5**i for i in range(1000)], width=8)
    assert long == "█▇▆▅▄▃▂▁"


def test_traffic_of_a_connection_is_counted() -> None:
    import socket

    before = tcp_traffic()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        one.sendall(b"x" * 1000)
        assert len(other.recv(1000, socket.MSG_WAITALL)) == 1000
        grown = tcp_traffic() - before
    assert grown.bytes_sent == 1000
    assert grown.bytes_received == 1000
    assert grown.packets_sent > 0


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_models_tell_ten_classes(model: str) -> None:
    import torch

    from wiresum.demo.models import build, flat_weights

    network = build(model)
    assert network(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
    assert flat_weights(network).numel() > 1000


def test_a_task_survives_the_command_line() -> None:
    task = Task(rank=1, backend="gloo", store="s", data="d", weights="w", settings=SHORT, flip_bit=True)
    assert Task.from_json(task.to_json()) == task


def test_demo_trains_through_a_lossy_switch_and_agrees_with_gloo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[int] = []
    assert run_demo(SHORT, tmp_path / "out", on_start=started.extend) == 0
    said = capsys.readouterr().out
    assert "All 2 workers ended with the same weights, bit for bit" in said
    assert "Gloo     epoch   2/2" in said
    assert (tmp_path / "out" / "loss.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["problems"] == []
    ours, gloo = report["wiresum"], report["gloo"]
    steps = 2 * 12  # epochs x steps of 128 of 1,437 images
    for run in (ours, gloo):
        assert run["workers_bit_identical"]
        assert len(set(run["weight_digests"])) == 1
        assert len(run["epochs"]) == 2
        assert run["epochs"][1]["loss"] < run["epochs"][0]["loss"]
        # Each worker must send at least its gradients, and they must reach somebody.
        assert run["traffic_of_all_workers"]["bytes_sent"] >= 2 * steps * 4 * report["parameters"]
        assert run["traffic_of_all_workers"]["bytes_received"] >= 2 * steps * 4 * report["parameters"]
    assert ours["packets_lost_on_purpose"] > 0
    assert ours["traffic_of_all_workers"]["retransmissions"] > 0
    assert gloo["packets_lost_on_purpose"] == 0
    assert 0 <= report["largest_weight_difference"] < 1e-3
    assert len(started) == 4
    for pid in started:
        await_end(pid)


def test_a_single_bit_of_difference_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with forked_workers():
        assert run_demo(replace(SHORT, epochs=1), tmp_path, flip_bit_of_rank=1) == 1
    said = capsys.readouterr().out
    assert "FAILED: wiresum: the final weights of rank(s) 1 are not bit for bit those of rank 0" in said
    assert len(json.loads((tmp_path / "report.json").read_text())["problems"]) == 2


def test_a_worker_that_is_killed_ends_the_training(tmp_path: Path) -> None:
    data, directory = tmp_path / "data.npz", tmp_path / "files"
    directory.mkdir()
    assert save_digits(data, 1) == (1437, 360)
    started: list[int] = []

    def on_start(pids: Sequence[int]) -> None:
        started.extend(pids)
        os.kill(pids[1], signal.SIGKILL)

    with pytest.raises(ProcessFailedError, match="worker 1 was killed by SIGKILL"):
        train(SHORT, "gloo", data=data, directory=directory, on_start=on_start)
    for pid in started:
        await_end(pid)


def test_a_worker_that_fails_tells_why(tmp_path: Path) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, train_x=np.zeros((0, 1, 8, 8), np.float32))
    with pytest.raises(ProcessFailedError, match=r"worker \d failed: KeyError: 'train_y'"):
        train(SHORT, "gloo", data=data, directory=tmp_path)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command = [sys.executable, "-m", "wiresum", "demo", "--workers", "2", "--epochs", "500", "--out", str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        while "switch at" not in demo.stdout.readline():
            assert demo.poll() is None
        # It has started at least the switch by now.
        children = [int(pid) for pid in Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()]
        demo.send_signal(signal.SIGINT)
        _, error = demo.communicate(timeout=DEADLINE)
    assert (demo.returncode, error) == (130, "")
    assert children
    for pid in children:
        await_end(pid)
    assert list(scratch.iterdir()) == []
