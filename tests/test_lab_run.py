"""How a command on several hosts ends; the hosts here are this machine, so that no root is needed."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from wiresum.lab.folders import hand_over, new_folder, own_folder
from wiresum.lab.programs import LabError, Program, end_all, run_in
from wiresum.lab.run import CommandResult, run_command
from wiresum.lab.topology import Topology, rack


class Nearby:
    """A network without namespaces."""

    def __init__(self, hosts: int) -> None:
        self.topology: Topology = rack(hosts)
        self.own: list[Program] = []

    def host(self, name: str) -> "Nearby":
        return self

    def launch(self, name: str, command: list[str], **options: Any) -> Program:
        return Program(name, command, namespace=None, **options)

    def worker_environment(self, rank: int) -> dict[str, str]:
        return {"RANK": str(rank)}

    def lost_nodes(self) -> list[str]:
        return []

    def programs(self) -> list[Program]:
        return self.own

    def failed_programs(self) -> list[tuple[Program, int]]:
        return [(program, code) for program in self.own if (code := program.poll()) is not None]


@pytest.fixture
def nearby() -> Iterator[Nearby]:
    made = Nearby(3)
    yield made
    end_all(made.own, grace=0)


def run(nearby: Nearby, script: str, logs: Path, **options: Any) -> CommandResult:
    return run_command(nearby, ["bash", "-c", script], logs=logs, **options)  # type: ignore[arg-type]


def test_all_is_well(nearby: Nearby, tmp_path: Path) -> None:
    lines: list[tuple[str, str]] = []
    result = run(nearby, "echo $RANK $MORE", tmp_path, environment={"MORE": "x"}, on_line=lambda *a: lines.append(a))
    assert result.code == 0
    assert result.problems == ()
    assert sorted(lines) == [("h1", "0 x"), ("h2", "1 x"), ("h3", "2 x")]
    assert [(host.name, host.code, host.log) for host in result.hosts] == [(f"h{i}", 0, f"h{i}.log") for i in (1, 2, 3)]
    assert (tmp_path / "h3.log").read_text() == "2 x\n"


def test_commands_find_our_own_python_first(nearby: Nearby, tmp_path: Path) -> None:
    run(nearby, "command -v python", tmp_path)
    assert Path((tmp_path / "h1.log").read_text().strip()).parent == Path(sys.executable).parent


def test_the_first_failure_in_time_is_the_exit_code(
    nearby: Nearby, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wiresum.lab.run._POLL_SECONDS", 5.0)  # so that ends themselves must wake it up
    result = run(nearby, "case $RANK in 2) exit 7;; *) sleep 1; exit 3;; esac", tmp_path)
    assert result.code == 7
    assert [host.code for host in result.hosts] == [3, 3, 7]
    assert result.problems[0] == "h3 exited with code 7"
    assert sorted(result.problems[1:]) == ["h1 exited with code 3", "h2 exited with code 3"]


def test_others_have_a_while_to_notice(nearby: Nearby, tmp_path: Path) -> None:
    result = run(nearby, "[ $RANK = 1 ] && kill -9 $$; exec sleep 987", tmp_path, grace=0.2)
    assert result.code == 128 + signal.SIGKILL
    assert [host.code for host in result.hosts] == [128 + signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM]
    assert result.problems[0] == "h2 was killed by SIGKILL"
    assert "h1, h3 did not end by themselves within 0.2 s" in result.problems[1]


def test_a_command_that_is_deaf_to_sigterm_is_killed(nearby: Nearby, tmp_path: Path) -> None:
    result = run(nearby, "trap '' TERM; while :; do sleep 0.1; done", tmp_path, time_limit=2.0)
    assert result.code == 124
    assert {host.code for host in result.hosts} == {128 + signal.SIGKILL}
    assert result.problems == ("the time limit has passed with h1, h2, h3 still running",)


def test_a_switch_that_ends_early(nearby: Nearby, tmp_path: Path) -> None:
    nearby.own.append(Program("s1", ["bash", "-c", "echo bad luck; exit 4"], namespace=None))
    result = run(nearby, "exec sleep 987", tmp_path, grace=0.2)
    assert result.code == 1
    assert result.problems[0] == "s1 exited with code 4 while hosts were running; it said last: bad luck"


def test_a_log_on_a_full_disk_is_said_and_the_command_goes_on(nearby: Nearby, tmp_path: Path) -> None:
    for i in (1, 2, 3):
        (tmp_path / f"h{i}.log").symlink_to("/dev/full")
    result = run(nearby, "for i in 1 2 3; do echo $i; done", tmp_path)
    assert result.code == 0
    assert len(result.problems) == 3
    assert "h1.log is not complete: No space left on device" in result.problems[0]


def test_a_switchs_log_on_a_full_disk_is_said(nearby: Nearby, tmp_path: Path) -> None:
    (tmp_path / "s1.log").symlink_to("/dev/full")
    command = ["bash", "-c", "echo ready; exec sleep 987"]
    nearby.own.append(Program("s1", command, namespace=None, log=tmp_path / "s1.log"))
    nearby.own[0].await_line("ready", 20)
    result = run(nearby, "true", tmp_path)
    assert result.code == 0
    assert result.problems == (f"{tmp_path}/s1.log is not complete: No space left on device",)


def test_lines_that_come_after_the_end_are_left_out(nearby: Nearby, tmp_path: Path) -> None:
    late_comer = f"while [ ! -e {tmp_path}/over ]; do echo late; sleep 0.01; done"
    script = f"echo in time; setsid bash -c '{late_comer}' & sleep 0.1"
    result = run(nearby, script, tmp_path)
    assert result.code == 0
    written = (tmp_path / "h1.log").read_text()
    assert written.startswith("in time\n")
    late = [thread for thread in threading.enumerate() if thread.name.startswith("output of h")]
    assert late
    (tmp_path / "over").touch()
    for thread in late:
        thread.join(20)  # an exception in one of them fails the test
    assert (tmp_path / "h1.log").read_text() == written


def test_a_program_that_never_gets_ready() -> None:
    program = Program("it", ["bash", "-c", "echo hello; exec sleep 987"], namespace=None)
    with pytest.raises(LabError, match=r"it did not get ready within 0.3 s; it said:\nhello"):
        program.await_line("ready", 0.3)
    assert program.end(grace=0) == -signal.SIGKILL
    gone = Program("it", ["bash", "-c", "echo sorry; exit 3"], namespace=None)
    with pytest.raises(LabError, match=r"it exited with code 3 before it was ready; it said:\nsorry"):
        gone.await_line("ready", 20)
    gone.end()


def test_outputs_that_others_hold_open_are_waited_for_at_the_same_time() -> None:
    holders: list[str] = []
    command = ["bash", "-c", "setsid sleep 987 & echo $!"]
    made = [Program(f"p{i}", command, namespace=None, on_line=holders.append) for i in range(8)]
    try:
        for program in made:
            program.await_line("[0-9]+", 20)
        start = time.monotonic()
        end_all(made, grace=0)
        for program in made:
            program.end(grace=0)
        assert time.monotonic() - start < 5  # one second, and not one for each
    finally:
        for pid in holders:
            os.kill(int(pid), signal.SIGKILL)
        for thread in threading.enumerate():
            if thread.name.startswith("output of p"):
                thread.join(20)


def test_commands_that_fail() -> None:
    with pytest.raises(LabError, match=r"ls /nowhere: .*No such file"):
        run_in(None, "ls", "/nowhere")
    with pytest.raises(LabError, match="no-such-command is not installed"):
        run_in(None, "no-such-command")
    with pytest.raises(LabError, match=r"has not ended within 0.1 s"):
        run_in(None, "sleep", "5", timeout=0.1)


def test_folders_of_runs(tmp_path: Path) -> None:
    made = {new_folder(tmp_path / "runs", "x") for _ in range(3)}
    assert len(made) == 3
    assert all(folder.is_dir() for folder in made)
    assert [own_folder(tmp_path / "captures", "x").name for _ in range(3)] == ["x", "x-2", "x-3"]
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="cannot make the run's folder"):
        new_folder(tmp_path / "file", "x")


@pytest.mark.skipif(bool(os.geteuid()), reason="needs root, to give folders to others")
def test_folders_are_theirs_who_called_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "2345")
    made = new_folder(tmp_path / "my" / "runs", "x")
    (made / "log").touch()
    hand_over(made)
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in (tmp_path, *tmp_path.rglob("*"))}
    assert owners == dict.fromkeys(("my", "runs", made.name, "log"), (1234, 2345)) | {tmp_path.name: (0, 0)}


def test_programs_end_with_whoever_started_them(tmp_path: Path) -> None:
    code = (
        "import os; from wiresum.lab.programs import Program\n"
        f"program = Program('it', ['bash', '-c', 'echo $$ > {tmp_path}/pid; exec sleep 987'], namespace=None)\n"
        f"while not os.path.exists('{tmp_path}/pid') or not open('{tmp_path}/pid').read(): pass\n"
        "os.kill(os.getpid(), 9)"
    )
    done = run_in_child(code)
    assert done == -signal.SIGKILL
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not running(pid), "the program is still there")


def running(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())  # of one that nobody has waited for it is empty
    except OSError:
        return False


def run_in_child(code: str) -> int:
    import subprocess

    root = Path(__file__).parent.parent
    return subprocess.run([sys.executable, "-c", code], cwd=root, timeout=60, check=False).returncode
