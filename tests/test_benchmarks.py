import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common import Measured, positive, short
from benchmarks.group import Group
from benchmarks.targets import LARGE, SMALL, loss_targets, speed_targets
from tests.test_processes import await_end

ROOT = Path(__file__).resolve().parent.parent


def measured(side: str, elements: int, *seconds: float) -> Measured:
    return Measured(
        workers=2,
        elements=elements,
        side=side,
        iterations=1,
        seconds=seconds,
        worker_cpu=0.1,
        switch_cpu=0.2,
        error=0.0,
    )


def test_what_follows_from_samples() -> None:
    one = measured("wiresum", LARGE, 0.3, 0.1, 0.2)
    assert one.time == 0.2
    assert one.bandwidth == pytest.approx(500e6)
    assert one.cpu_per_gb == pytest.approx((2 * 0.1 + 0.2) / (2 * 0.1))


def test_targets_compare_with_gloo() -> None:
    results = [
        measured("wiresum", LARGE, 0.3),
        measured("gloo", LARGE, 0.1),
        measured("wiresum", SMALL, 1.4),
        measured("gloo", SMALL, 1.0),
    ]
    bandwidth, latency = speed_targets(results)
    assert (round(bandwidth.measured, 3), bandwidth.limit, bandwidth.met) == (0.333, "at least 0.5", False)
    assert (latency.measured, latency.limit, latency.met) == (1.4, "at most 1.5", True)
    assert speed_targets(results[:1]) == []


def test_targets_for_loss_leave_out_other_sizes() -> None:
    rows = [{"loss": 0.01, "elements": LARGE, "ratio": 1.6}, {"loss": 0.01, "elements": SMALL, "ratio": 1.0}]
    (target,) = loss_targets(rows)
    assert not target.met


@pytest.mark.parametrize(("text", "value"), [("25M", 25_000_000), ("1Ki", 1024), ("4Mi", 1 << 22), ("7", 7)])
def test_sizes_read_and_write(text: str, value: int) -> None:
    assert positive(text) == value
    assert short(value).replace(" ", "") == text


def test_workers_that_fail_are_named_and_can_be_closed() -> None:
    with Group(2) as group:
        pids = group.pids
        with pytest.raises(RuntimeError, match="close failed; worker 0: KeyError: 'x'; worker 1: KeyError: 'x'"):
            group.call("close", name="x")
    for pid in pids:
        await_end(pid)


def test_a_worker_that_is_killed_is_named() -> None:
    group = Group(2)
    try:
        group.call("allocate", elements=10)
        os.kill(group.pids[1], signal.SIGKILL)
        await_end(group.pids[1])
        with pytest.raises(RuntimeError, match=r"allocate failed; worker 1: ended$"):
            group.call("allocate", elements=10)
    finally:
        group.kill()


def test_allreduce_measures_both_sides(tmp_path: Path) -> None:
    options = ["--parts", "speed", "--sizes", "1Ki", "--workers", "2", "--runs", "2", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.allreduce", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "time of 1 Ki elements with 2 workers, of Gloo's" in done.stdout
    assert (tmp_path / "allreduce.png").read_bytes().startswith(b"\x89PNG")
    saved = json.loads((tmp_path / "allreduce.json").read_text())
    assert [one["side"] for one in saved["speed"]] == ["wiresum", "gloo"]
    for one in saved["speed"]:
        assert len(one["seconds"]) == 2
        assert one["error"] < 1e-5
        assert one["worker_cpu"] > 0
    assert saved["speed"][0]["switch_cpu"] > 0
    assert saved["versions"]["torch"]
