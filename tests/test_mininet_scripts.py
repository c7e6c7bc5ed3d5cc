"""wiresum's classes in Mininet scripts of other people's, which know nothing of runs."""

import os
import shutil
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
    code = (
        "import os, numpy, wiresum\\n"
        "with wiresum.Communicator(rank=int(os.environ['RANK']), world_size=2) as comm:\\n"
        "    array = numpy.full(5000, comm.rank + 1, numpy.int32)\\n"
        "    comm.all_reduce(array)\\n"
        "    print('sums', set(array.tolist()))"
    )
    workers = []
    for rank, (host, leaf) in enumerate((("h1", "s2"), ("h2", "s3"))):
        variables = {**own_environment(), "RANK": str(rank), "WIRESUM_SWITCH": net[leaf].control}
        workers.append(net[host].launch(host, [sys.executable, "-c", code], environment=variables))
    for worker in workers:
        print(worker.name, worker.await_line("sums .*", 60).group())
finally:
    net.stop()
"""


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python, which has ended with all that it has started when this returns."""
    with RunMark() as mark:
        environment = {**os.environ, VARIABLE: mark.id, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90
        )


@pytest.mark.parametrize("kind", ["software", "model", "bmv2"])
def test_trees_for_mininets_own_command(kind: str, tmp_path: Path) -> None:
    if kind == "bmv2" and shutil.which("simple_switch_grpc") is None:
        pytest.skip("needs BMv2's simple_switch_grpc on PATH")
    script = tmp_path / "custom.py"
    script.write_text(CUSTOM)
    done = run(str(script), kind)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["h1 sums {3}", "h2 sums {3}"]
