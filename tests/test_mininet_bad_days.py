"""`wiresum mininet` on bad days: a clear message, the right exit code, nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import wiresum.lab.kernel
from tests.lab_runs import MAIN, ROOT, LabRun, why_not
from wiresum.cli import main

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

SLEEP = "sleep 987"
# Somebody leaves the process group and closes everything.
DAEMON = ["--", "bash", "-c", f"setsid {SLEEP} <&- >&- 2>&- & exec {SLEEP}"]
# The same, and forgets all variables, so that only its namespace says where it is from.
NAMELESS = f"env -i setsid {SLEEP}"


def by_rank(first: str, others: str) -> list[str]:
    """A command that does one thing on the first host and another on the rest."""
    return ["--", "bash", "-c", f"if [ $RANK = 0 ]; then {first}; else {others}; fi"]


def test_a_host_that_fails(tmp_path: Path) -> None:
    command = ["--hosts", "3", "--grace", "0.3", *by_rank(f"exec {SLEEP}", "echo gone; exit 7")]
    with LabRun(*command, out=tmp_path / "runs") as run:
        assert run.end() == 7
        assert run.left() == []
    assert "h2 exited with code 7" in run.stderr
    assert "h1 did not end by themselves within 0.3 s" in run.stderr
    assert [host["code"] for host in run.summary()["hosts"]] == [128 + signal.SIGTERM, 7, 7]


def test_an_agent_that_is_killed(tmp_path: Path) -> None:
    with LabRun("--hosts", "2", "--grace", "0.3", "--", *SLEEP.split(), out=tmp_path / "runs") as run:
        os.kill(run.wait_for_many(SLEEP, 2)[0], signal.SIGKILL)
        assert run.end() == 128 + signal.SIGKILL
        assert run.left() == []
    assert "was killed by SIGKILL" in run.stderr


def test_a_switch_that_is_killed(tmp_path: Path) -> None:
    command = ["--hosts", "2", "--grace", "0.3", "--", *SLEEP.split()]
    with LabRun(*command, out=tmp_path / "runs") as run:
        run.wait_for_many(SLEEP, 2)
        os.kill(run.wait_for("wiresum switch"), signal.SIGKILL)
        assert run.end() == 1
        assert run.left() == []
    assert "s1 was killed by SIGKILL while hosts were running" in run.stderr
    assert run.summary()["counters"]["s1"]["error"].startswith("cannot reach the switch's control service")


@pytest.mark.parametrize("node", ["s1", "h1"])
def test_a_shell_of_mininets_that_is_killed(node: str, tmp_path: Path) -> None:
    faults = ["--loss", "0.1", "--faults-by", "injector"]
    with LabRun("--hosts", "2", *faults, "--", *SLEEP.split(), out=tmp_path / "runs") as run:
        run.wait_for_many(SLEEP, 2)
        os.kill(run.wait_for(f"mininet:{node}"), signal.SIGKILL)
        assert run.end(seconds=20) == 1
        assert run.left() == []
    assert "Traceback" not in run.stderr
    summary = run.summary()
    assert summary["problems"] == [f"the network fell apart: Mininet's shell of {node} has ended"]
    assert [host["code"] for host in summary["hosts"]] == [128 + signal.SIGTERM] * 2
    # Namespaces outlive the shells in them, and so does what was counted there.
    for ways in summary["links"].values():
        assert {name for name in ways if "lost_ordinary" in ways[name]} == {"up", "down"}
    assert summary["counters"]["s1"]["counters"]


def test_a_network_that_is_broken_at_the_prompt(tmp_path: Path) -> None:
    with LabRun("--hosts", "2", "--cli", out=tmp_path / "runs", keep_stdin=True) as run:
        run.type("h1 ip link delete h1-eth0", "sh echo deleted")
        run.read_until(b"deleted\n")
        os.kill(run.wait_for("mininet:h2"), signal.SIGKILL)
        run.wait_for_none("mininet:h2")
        assert run.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert run.left() == []
    assert "Traceback" not in run.stderr
    summary = run.summary()
    assert summary["problems"] == [
        "the network fell apart: Mininet's shell of h2 has ended",
        "interrupted by SIGTERM",
        "what has passed the link of h1 cannot be read",
    ]
    assert summary["links"]["h1"] == {}
    assert set(summary["links"]["h2"]) == {"up", "down"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_interrupted(number: signal.Signals, tmp_path: Path) -> None:
    with LabRun("--hosts", "2", "--pcap", *DAEMON, out=tmp_path / "runs") as run:
        run.wait_for_many(SLEEP, 4)
        start = time.monotonic()
        run.process.send_signal(number)
        if number == signal.SIGINT:  # somebody has no patience
            run.wait_for_none(SLEEP, but=2)
            run.process.send_signal(number)
        assert run.end() == 128 + number
        assert time.monotonic() - start < 10
        assert run.left() == []
    assert "Traceback" not in run.stderr
    assert ("cleaning up" in run.stderr) == (number == signal.SIGINT)
    assert "│ h2" in run.stderr
    summary = run.summary()
    assert summary["exit_code"] == 128 + number
    assert [host["code"] for host in summary["hosts"]] == [128 + signal.SIGTERM] * 2
    assert summary["problems"] == [f"interrupted by {number.name} with h1, h2 still running"]
    assert summary["captures"] == {"h1": "h1.pcap", "h2": "h2.pcap"}
    for capture in (tmp_path / "runs").glob("*/h?.pcap"):
        assert capture.stat().st_size >= 24  # with tcpdump's header


def test_a_prompt_that_is_interrupted(tmp_path: Path) -> None:
    with LabRun("--hosts", "2", "--cli", "--", "true", out=tmp_path / "runs", keep_stdin=True) as run:
        assert run.process.stdin is not None
        run.process.stdin.write(f"workers {SLEEP}\n".encode())
        run.process.stdin.flush()
        run.wait_for_many(SLEEP, 2)
        assert run.end(signal.SIGTERM) == 128 + signal.SIGTERM
        assert run.left() == []
    assert "Traceback" not in run.stderr
    assert run.summary()["problems"] == ["interrupted by SIGTERM"]
    assert [host["code"] for host in run.summary()["hosts"]] == [0, 0]  # of the command before the prompt


def test_an_interrupt_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wiresum.lab.kernel, "check_machine", lambda **_: signal.raise_signal(signal.SIGINT))
    assert main(["mininet", "--out", str(tmp_path / "runs"), "--", "true"]) == 130
    assert "Traceback" not in capfd.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_an_interrupt_while_the_network_is_built(tmp_path: Path) -> None:
    with LabRun("--hosts", "8", "--", "true", out=tmp_path / "runs") as run:
        run.wait_for("mininet:h3")
        assert run.end(signal.SIGINT) == 130
        assert run.left() == []
    assert run.stderr.splitlines()[1:] == [
        "wiresum mininet: interrupted by SIGINT while the network was built: nothing has run"
    ]
    assert not list((tmp_path / "runs").glob("*/"))


def test_processes_without_the_runs_variables_end_with_it(tmp_path: Path) -> None:
    # It keeps the host's output open, too.
    with LabRun("--hosts", "2", "--", "bash", "-c", f"{NAMELESS} & sleep 0.5", out=tmp_path / "runs") as run:
        run.wait_for_many(SLEEP, 2)
        assert run.end() == 0, run.stderr
        assert run.left() == []


@pytest.mark.parametrize("daemon", [DAEMON, ["--", "bash", "-c", f"{NAMELESS} <&- >&- 2>&- & exec {SLEEP}"]])
def test_a_run_that_is_killed_and_the_next_one(daemon: list[str], tmp_path: Path) -> None:
    with LabRun("--hosts", "2", *daemon, out=tmp_path / "runs") as killed:
        killed.wait_for_many(SLEEP, 4)
        killed.end(signal.SIGKILL)
        deadline = time.monotonic() + 20
        # The kernel ends all but those two who hid.
        while list((left := killed.processes()).values()) != [SLEEP] * 2:
            assert time.monotonic() < deadline, left
            time.sleep(0.02)
        with LabRun("--hosts", "1", "--", "true", out=tmp_path / "next") as run:
            assert run.end() == 0, run.stderr
            assert run.left() == []
        assert "had left behind: it was killed" in run.stderr
        assert killed.left() == []


@pytest.mark.parametrize("way", ["time limit", "SIGTERM"])
def test_output_that_nobody_reads_holds_no_end_up(way: str, tmp_path: Path) -> None:
    limit = ["--time-limit", "2"] if way == "time limit" else []
    with LabRun("--hosts", "2", *limit, "--", "yes", out=tmp_path / "runs") as run:
        run.wait_for_many("yes", 2)
        if not limit:
            run.process.send_signal(signal.SIGTERM)
        code = 124 if limit else 128 + signal.SIGTERM
        assert run.process.wait(30) == code
        assert run.left() == []
    assert run.summary()["exit_code"] == code
    assert "lines of hosts are only in the logs" in run.stderr


def test_a_slow_reader_costs_no_line_of_a_log(tmp_path: Path) -> None:
    with LabRun("--hosts", "2", "--", "seq", "20000", out=tmp_path / "runs") as run:
        assert run.process.stdout is not None
        while some := os.read(run.process.stdout.fileno(), 8192):
            run.stdout += some
            time.sleep(0.15)  # that is how slow it is
        assert run.end() == 0, run.stderr
    numbers = [str(number) for number in range(1, 20001)]
    for host in ("h1", "h2"):
        (log,) = run.out.glob(f"*/{host}.log")
        assert log.read_text().splitlines() == numbers
        shown = [line.removeprefix(f"[{host}] ") for line in run.stdout.decode().splitlines() if f"[{host}]" in line]
        assert shown == numbers


def test_the_prompt_survives_commands_that_fail(tmp_path: Path) -> None:
    with LabRun("--hosts", "2", "--cli", out=tmp_path / "runs", keep_stdin=True) as run:
        run.type("sh echo ready")
        run.read_until(b"ready\n")
        os.kill(run.wait_for("mininet:h1"), signal.SIGKILL)
        run.wait_for_none("mininet:h1")
        failing = ["trace h1 0.1", "packets h1 0.1", "workers true", "workers true &", "links"]
        run.type(*failing, "switch", "link h1 h2 down", "source /nowhere", "py 1/0")
        run.type("sh echo still here", "exit")
        assert run.end() == 1, run.stderr
        assert run.left() == []
    said = run.stdout.decode()
    assert "trace h1 0.1: h1 " in said
    assert "still here" in said
    assert "Traceback" not in run.stderr
    assert "Mininet's shell of h1 has ended" in " ".join(run.summary()["problems"])


def test_captures_of_two_runs_do_not_meet_in_one_folder(tmp_path: Path) -> None:
    captures = tmp_path / "made" / "captures"
    sudo = {"SUDO_UID": "1234", "SUDO_GID": "2345"}
    for name in ("a", "b"):  # folders of the same name, if they are made in the same second
        words = ["--hosts", "2", f"--pcap={captures}", "--name", "same", "--", "true"]
        with LabRun(*words, out=tmp_path / name, environment=sudo) as run:
            assert run.end() == 0, run.stderr
    found = sorted(captures.iterdir())
    assert [sorted(file.name for file in folder.iterdir()) for folder in found] == [["h1.pcap", "h2.pcap"]] * 2
    made = [captures.parent, captures, *found, *captures.glob("*/*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {(1234, 2345)}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    noise = (
        "import socket, sys\n"
        "udp = socket.socket(type=socket.SOCK_DGRAM)\n"
        "for _ in range(500): udp.sendto(bytes(1000), ('10.254.1.1', 9)); print('x' * 1000)"
    )
    command = ["--hosts", "2", "--quiet", "--pcap", "--out", str(small_disk), "--", "python", "-c", noise]
    with LabRun(*command, out=tmp_path / "runs") as run:
        assert run.end() == 1
        assert run.left() == []
    for what in (
        r"the capture of h1 is not complete: \d+ of \d+ packets are in the file: no space",
        r"h1\.log is not complete: No space",
        r"the summary",
    ):
        assert re.search(what, run.stderr), run.stderr
    assert "Traceback" not in run.stderr


def test_a_kernel_without_htb(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "tc"
    fake.write_text('#!/bin/sh\necho "Error: Specified qdisc kind is unknown." >&2\nexit 2\n')
    fake.chmod(0o755)
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    with LabRun("--hosts", "2", "--rate", "100", "--", "true", out=tmp_path / "runs", environment=path) as run:
        assert run.end() == 1
        assert run.left() == []
    assert "wiresum: this kernel has no HTB" in run.stderr


def test_tools_that_are_not_installed(tmp_path: Path) -> None:
    with LabRun("--hosts", "2", "--", "true", out=tmp_path / "runs", environment={"PATH": "/nowhere"}) as run:
        assert run.end() == 1
    assert "apt-get install ethtool iproute2 mininet util-linux" in run.stderr
    assert not list((tmp_path / "runs").glob("*/"))


def test_a_user_without_root(tmp_path: Path) -> None:
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*nobody, sys.executable, "-c", "import wiresum.cli"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("others may not read this checkout or its Python")
    command = [*nobody, sys.executable, "-c", MAIN, "--", "true"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "this needs root, for network namespaces: sudo " in done.stderr
    assert done.stderr.count("\n") == 1
