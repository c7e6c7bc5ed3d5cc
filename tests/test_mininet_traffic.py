"""Traffic that is not wiresum's, and wiresum's through the deepest tree, between real hosts."""

import shutil
from collections import Counter
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import pytest

from protocol.faults import FaultRates
from tests.lab_runs import LabRun, why_not
from wiresum.lab.wire import Fates

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

GLOO = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.arange(50_000, dtype=torch.float32) + dist.get_rank()
dist.all_reduce(tensor)
assert torch.equal(tensor, 2 * torch.arange(50_000, dtype=torch.float32) + 1)
dist.destroy_process_group()
print("crossed")
"""
IPERF3 = """
import json, os, subprocess, time
if os.environ["RANK"] == "0":
    subprocess.run(["iperf3", "--server", "--one-off"], check=True)
else:
    # When all is given to the client's kernel, the server closes, and what that kernel still has is dropped.
    sizes = ["--bytes", "500000", "--window", "64K"]
    client = ["iperf3", "--json", *sizes, "--client", os.environ["MASTER_ADDR"]]
    while "end" not in (done := json.loads(subprocess.run(client, capture_output=True).stdout)) or "error" in done:
        assert "refused" in done["error"], done["error"]  # the server is not there yet
        time.sleep(0.05)
    assert done["end"]["sum_sent"]["bytes"] >= 200_000, done  # the server ends before it has counted all
print("crossed")
"""
# One request to the switch, and no other.
PING = """
import os, socket, struct
if os.environ["RANK"] == "1":
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.settimeout(10)
        raw.sendto(struct.pack("!BBHHH", 8, 0, 0xF7FD, 1, 1), (os.environ["WIRESUM_SWITCH"].partition(":")[0], 0))
        assert raw.recv(100)[20] == 0
print("answered")
"""
# Sums that a float could not hold, of numbers that differ everywhere.
SUM = """
import os
import numpy as np
import wiresum
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def numbers(rank):
    return np.random.default_rng(rank).integers(-2**27, 2**27, 30_000, dtype=np.int32)
with wiresum.Communicator(rank=rank, world_size=world) as comm:
    for _ in range(2):
        array = numbers(rank)
        comm.all_reduce(array)
        assert np.array_equal(array, sum(map(numbers, range(world))))
print("exact")
"""


@pytest.mark.parametrize("kind", ["software", "model"])
@pytest.mark.parametrize("what", ["gloo", "iperf3"])
def test_ordinary_traffic_crosses_a_rack(what: str, kind: str, tmp_path: Path) -> None:
    if what == "iperf3" and shutil.which("iperf3") is None:
        pytest.skip("needs iperf3 on PATH")
    if what == "gloo" and find_spec("torch") is None:
        pytest.skip("needs torch")
    script = tmp_path / f"{what}.py"
    script.write_text(GLOO if what == "gloo" else IPERF3)
    command = ["--hosts", "2", "--switch", kind, "--", "python", str(script)]
    with LabRun(*command, out=tmp_path / "runs") as run:
        assert run.end() == 0, run.stdout.decode() + run.stderr
        assert run.left() == []
    assert {"[h1] crossed", "[h2] crossed"} <= set(run.stdout.decode().splitlines())
    links = run.summary()["links"]
    # It took the links, from the second host to the first at least.
    assert links["h2"]["up"]["bytes"] > 100_000
    assert links["h1"]["down"]["bytes"] > 100_000


def test_a_tree_of_three_levels_with_loss_everywhere_sums_exactly(tmp_path: Path) -> None:
    script = tmp_path / "sum.py"
    script.write_text(SUM)
    command = ["--tree", "2x2x2", "--loss", "0.02", "--faults-by", "injector", "--", "python", str(script)]
    with LabRun(*command, out=tmp_path / "runs") as run:
        assert run.end() == 0, run.stdout.decode() + run.stderr
        assert run.left() == []
    lost: Counter[str] = Counter()
    for report in run.summary()["counters"].values():
        lost.update({row["name"]: row["value"] for row in report["counters"] if row["job"] is None})
    for way in ("in", "out", "up_in", "up_out"):
        assert lost[f"fault_{way}_lost"] > 0, way


def test_a_neighbour_is_found_on_a_link_that_loses_the_first_questions(tmp_path: Path) -> None:
    rates = FaultRates(loss=0.3)

    def passes(seed: str, frames: int) -> list[bool]:
        fates = Fates(rates, seed)
        return [fates.take(b"", 0.0) == 1 for _ in range(frames)]

    # More questions are lost than a kernel asks by default; then question, answer, request and reply pass.
    there = [False] * 5 + [True] * 4
    seed = next(n for n in count() if passes(f"{n} h2 there", 9) == there and all(passes(f"{n} h2 back", 4)))
    script = tmp_path / "ping.py"
    script.write_text(PING)
    faults = ["--loss", str(rates.loss), "--faults-by", "wire", "--seed", str(seed)]
    with LabRun("--hosts", "2", *faults, "--", "python", str(script), out=tmp_path / "runs") as run:
        assert run.end() == 0, run.stdout.decode() + run.stderr
        assert run.left() == []
