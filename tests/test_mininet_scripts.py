"""wiresum's classes in Mininet scripts of other people's, which know nothing of runs."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab_runs import ROOT, why_not
from wiresum.lab.marks import VARIABLE, RunMark

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

# What `mn --custom mininet/topologies.py --topo tree,2,1 --switch KIND --controller none` does, without its clean-up
# of the whole machine.
CUSTOM = """
import runpy, sys
from mininet.net import Mininet
from wiresum.lab.nodes import own_environment
custom = runpy.run_path("mininet/topologies.py")
net = Mininet(topo=custom["topos"]["tree"](2, 1), switch=custom["switches"][sys.argv[1]], controller=None)
try:
    net.start()
    workers = []
    for rank, (host, leaf) in enumerate((("h1", "s2"), ("h2", "s3"))):
        variables = {**own_environment(), "RANK": str(rank), "WORLD_SIZE": "2", "WIRESUM_SWITCH": net[leaf].control}
        workers.append(net[host].launch(host, [sys.executable, sys.argv[2]], environment=variables))
    for worker in workers:
        print(worker.name, worker.await_line("sums .*", 60).group())
finally:
    net.stop()
"""


SUM = """
import os, numpy, wiresum
with wiresum.Communicator(rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])) as comm:
    array = numpy.full(20_000, comm.rank + 1, numpy.int32)
    comm.all_reduce(array)
    print("sums", set(array.tolist()))
"""


def run(*command: str, folder: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """Runs Python, which has ended with all that it has started when this returns."""
    with RunMark() as mark:
        environment = {**os.environ, VARIABLE: mark.id, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=90
        )


@pytest.mark.parametrize("kind", ["software", "model"])
def test_trees_for_mininets_own_command(kind: str, tmp_path: Path) -> None:
    script, worker = tmp_path / "custom.py", tmp_path / "sum.py"
    script.write_text(CUSTOM)
    worker.write_text(SUM)
    done = run(str(script), kind, str(worker))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["h1 sums {3}", "h2 sums {3}"]


def test_the_script_in_the_documentation_gives_each_way_its_own(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "mininet.md").read_text()
    (script,) = re.findall(r"(?ms)^```python\n(.*?)^```$", text)
    (tmp_path / "two_ways.py").write_text(script)
    (tmp_path / "sum.py").write_text(SUM)
    done = run("two_ways.py", "sum.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    *said, counted = done.stdout.splitlines()
    assert sorted(said) == [f"h{i} sums {{6}}" for i in (1, 2, 3)]
    ways = ast.literal_eval(counted)
    assert ways["up"]["bytes"] > 80_000
    assert ways["down"]["bytes"] > 80_000


def test_a_rack_with_two_speeds_takes_kinds_of_switches_only() -> None:
    done = run("mininet/two_speeds.py", "foo")
    assert done.returncode == 2
    assert "invalid choice: 'foo'" in done.stderr
    assert "Traceback" not in done.stderr
