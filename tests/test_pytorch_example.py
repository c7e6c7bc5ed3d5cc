"""The example script under torchrun, unmodified, with torch finding the backend as an installed plug-in."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import from that holds what an installation of wiresum adds for torch to find: its entry points."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["torch.backends"]
    folder = tmp_path_factory.mktemp("installed")
    metadata = folder / "wiresum_plugin-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wiresum-plugin\nVersion: 0\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[torch.backends]", *lines, ""]))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "wiresum"])
def test_train_ddp_runs_with_either_backend(torch_switch: str, installed: Path, backend: str) -> None:
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [sys.executable, *command, "examples/train_ddp.py", backend, "--epochs", "3"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{installed}{os.pathsep}{ROOT}",
            "WIRESUM_SWITCH": torch_switch,
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    accuracy = re.search(rf"{backend}: test accuracy ([\d.]+)%", done.stdout)
    assert accuracy is not None, done.stdout
    assert float(accuracy[1]) > 90
    # All that a user of plain DDP is told: that what it starts up with does not go through the switch.
    warnings = re.findall(r"FallbackWarning: wiresum: (\w+)", done.stderr)
    assert warnings == ([] if backend == "gloo" else ["all_gather", "broadcast"])
