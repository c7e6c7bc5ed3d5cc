"""Forked processes are like those that are started: standard streams, environment, exit code, and their end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.starter import ForkedChild, Starter
from tests.test_processes import DEADLINE, await_end, is_running
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent


class Forked(ForkedChild, starter=Starter("timeit")):
    """Runs a statement, in a module of the standard library that does so."""

    def __init__(self, code: str, **environment: str) -> None:
        self.lines: list[str | None] = []
        options = ["-n", "1", "-r", "1", code]
        super().__init__("timeit", options, name="it", on_line=self.lines.append, environment=environment)


def test_streams_environment_and_session() -> None:
    code = "import os, sys; print(os.environ['WIRESUM_TEST'], os.getsid(0)); print('what', file=sys.stderr)"
    with Forked(code, WIRESUM_TEST="yes") as child:
        assert child.wait(DEADLINE) == 0
        assert child.stderr() == "what"
        pid = child.pid
    assert child.lines[0] == f"yes {pid}"
    assert child.lines[-1] is None
    assert "WIRESUM_TEST" not in os.environ


@pytest.mark.parametrize(
    ("code", "expected", "said"),
    [
        ("import os; os._exit(7)", 7, ""),
        ("raise KeyError('that')", 1, "KeyError: 'that'"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(print, 'at the end')", 0, ""),
    ],
)
def test_how_it_ends(code: str, expected: int, said: str) -> None:
    with Forked(code) as child:
        assert child.wait(DEADLINE) == expected
        assert child.returncode() == expected
        assert child.stderr().endswith(said)
    if "atexit" in code:
        assert child.lines[-2:] == ["at the end", None]


def test_many_at_once_each_have_their_own_exit_code() -> None:
    children = [Forked(f"import os; os._exit({code})") for code in range(20)]
    assert [child.wait(DEADLINE) for child in children] == [*range(20)]
    for child in children:
        child.kill()


def test_signals_reach_it() -> None:
    with Forked("import signal; print('here', flush=True); signal.pause()") as child:
        wait_until(lambda: "here" in child.lines, "the child has not started")
        assert child.returncode() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(DEADLINE) == 1
        assert child.stderr().endswith("KeyboardInterrupt")


def test_nothing_outlives_a_parent_that_is_killed() -> None:
    script = (
        "import sys; from tests.test_starter import Forked\n"
        "with Forked('import signal; signal.pause()') as it: print(it.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        starter = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        parent.kill()
    await_end(pid)
    await_end(starter)
