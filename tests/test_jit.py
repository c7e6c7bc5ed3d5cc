"""The kernel cache: fast when nothing changed, and never stale when a callee in another file did."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

CALLEE = """
from protocol.jit import kernel

@kernel
def inner(x: int) -> int:
    return x + {step}
"""
CALLER = """
from protocol.callee_kernels import inner
from protocol.jit import kernel

@kernel
def outer(x: int) -> int:
    return inner(x) * 10
"""
SCRIPT = """
from host.caller_kernels import outer
print(outer(1), sum(outer.stats.cache_hits.values()), sum(outer.stats.cache_misses.values()))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with this project's jit.py, and a kernel that calls into a file of another package."""
    for room in ("protocol", "switch", "host"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
    for name in ("jit.py", "constants.py"):
        shutil.copy(ROOT / "protocol" / name, tmp_path / "protocol" / name)
    (tmp_path / "protocol" / "callee_kernels.py").write_text(CALLEE.format(step=1))
    (tmp_path / "host" / "caller_kernels.py").write_text(CALLER)
    return tmp_path


def call(tree: Path, **environment: str) -> tuple[int, int, int]:
    """What `outer(1)` gives in a new process, with the cache's hits and misses."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)} | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    value, hits, misses = map(int, done.stdout.split())
    return value, hits, misses


def test_an_edited_callee_recompiles_its_callers_in_other_files(tree: Path) -> None:
    assert call(tree) == (20, 0, 1)
    assert call(tree) == (20, 1, 0)
    (tree / "protocol" / "callee_kernels.py").write_text(CALLEE.format(step=2))
    assert call(tree) == (30, 0, 1)
    assert call(tree) == (30, 1, 0)


def test_an_edited_constant_recompiles_too(tree: Path) -> None:
    call(tree)
    with (tree / "protocol" / "constants.py").open("a") as source:
        source.write("\nANOTHER = 1\n")
    assert call(tree) == (20, 0, 1)


def test_a_tree_that_cannot_be_written_caches_in_the_users_directory(tree: Path, tmp_path: Path) -> None:
    # A file in the place of __pycache__ stops root too, whom permissions do not.
    for room in ("protocol", "host"):
        (tree / room / "__pycache__").write_text("")
    home = tmp_path / "home"
    environment = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    assert call(tree, **environment) == (20, 0, 1)
    assert call(tree, **environment) == (20, 1, 0)
    assert list(home.rglob("*.nbi"))


PREPARE = """
import sys, time
from host.caller_kernels import outer
from protocol.jit import prepare
prepare(outer)
print(sum(outer.stats.cache_misses.values()))
"""


def test_of_processes_that_prepare_together_one_compiles(tree: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PREPARE],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    printed = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4
    assert sorted(printed) == ["0\n"] * 3 + ["1\n"]
