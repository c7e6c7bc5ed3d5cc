import os
import signal
import subprocess
import sys
import time

import pytest

from wiresum.processes import Child, ProcessFailedError, SwitchProcess

DEADLINE = 30.0


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def await_end(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.01)


def test_switch_gets_ready_and_ends_in_order() -> None:
    with SwitchProcess() as switch:
        for address in (switch.address, switch.data_address):
            host, port = address.split(":")
            assert host == "127.0.0.1"
            assert int(port) > 0
        assert switch.returncode() is None
    assert switch.returncode() == 0
    assert switch.stop() == 0


def test_a_stopped_switch_is_ended_too() -> None:
    with SwitchProcess() as switch:
        switch.send_signal(signal.SIGSTOP)
    assert switch.returncode() == 0


def test_a_switch_that_cannot_start_says_why() -> None:
    with pytest.raises(ProcessFailedError, match=r"(?s)the switch exited with code 2 before it was ready.*gibberish"):
        SwitchProcess("--faults-in", "gibberish=1")


def test_a_switch_that_is_not_ready_in_time() -> None:
    with pytest.raises(ProcessFailedError, match="the switch did not get ready in time"):
        SwitchProcess(ready_within=0.0)


def test_nothing_outlives_a_parent_that_is_killed() -> None:
    script = (
        "import sys, time; from wiresum.processes import SwitchProcess\n"
        "with SwitchProcess() as switch: print(switch.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
    await_end(pid)


def test_a_child_that_ignores_sigterm_is_killed() -> None:
    lines: list[str | None] = []
    # A module of the standard library that runs what it is given.
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    with Child("timeit", ["-n", "1", "-r", "1", code], name="the deaf one", on_line=lines.append) as child:
        deadline = time.monotonic() + DEADLINE
        while "deaf" not in lines:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert child.stop(grace=0.1) == -signal.SIGKILL
    assert lines == ["deaf", None]
    assert not is_running(child.pid)


def test_what_a_child_said_last() -> None:
    with Child("wiresum", ["nonsense"], name="the odd one", on_line=lambda line: None) as child:
        assert child.wait(DEADLINE) == 2
        assert "the odd one failed; it said:\nusage: wiresum" in str(child.failure("failed"))


def test_a_child_sees_what_is_added_to_its_environment() -> None:
    lines: list[str | None] = []
    code = "import os; print(os.environ['WIRESUM_TEST'])"
    with Child(
        "timeit",
        ["-n", "1", "-r", "1", code],
        name="it",
        on_line=lines.append,
        environment={"WIRESUM_TEST": "yes"},
    ) as child:
        child.wait(DEADLINE)
    assert lines[0] == "yes"
    assert "WIRESUM_TEST" not in os.environ
