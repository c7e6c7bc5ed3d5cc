import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import wiresum.lab.kernel
import wiresum.lab.shaping
from protocol.faults import FaultRates
from wiresum.lab.faults import plan_faults
from wiresum.lab.kernel import Kernel, check_machine
from wiresum.lab.marks import VARIABLE, RunMark, end_processes, marks_folder, processes_of, remove_leftovers
from wiresum.lab.namespaces import claim_namespace
from wiresum.lab.network import Lab
from wiresum.lab.programs import LabError, Program, run_in
from wiresum.lab.shaping import dropped, lose, lost_frames, shape
from wiresum.lab.topology import Direction, rack, tree
from wiresum.lab.wire import Fates

BARE = Kernel(htb=True, netem=False, nftables=True)
FULL = Kernel(htb=True, netem=True, nftables=True)
LOSSY = Direction(loss=0.01)
SLOW = Direction(delay=0.01, loss=0.01)


def test_no_faults() -> None:
    assert plan_faults(rack(2, up=Direction(rate=10)), "software", BARE).mechanism == "none"


@pytest.mark.parametrize(
    ("kernel", "kind", "mechanism"),
    [(FULL, "software", "netem"), (FULL, "bmv2", "netem"), (BARE, "software", "injector"), (BARE, "model", "wire")],
)
def test_netem_where_there_is_netem_and_else_our_own(kernel: Kernel, kind: str, mechanism: str) -> None:
    plan = plan_faults(rack(2, up=LOSSY), kind, kernel)
    assert plan.mechanism == mechanism
    assert mechanism in plan.what
    assert plan.missing == ()


def test_what_ordinary_traffic_does_not_meet_is_said() -> None:
    plan = plan_faults(rack(2, up=SLOW), "software", BARE)
    assert plan.ordinary_loss
    (text,) = plan.missing
    assert "meets no delay" in text
    assert "has no netem" in text
    (text,) = plan_faults(rack(2, up=SLOW), "software", FULL, "injector").missing
    assert "the mechanism 'netem' would do it" in text
    coarse = plan_faults(rack(2, up=LOSSY), "software", replace(BARE, htb=False))
    assert not coarse.ordinary_loss
    assert "not lost: this kernel has no HTB" in coarse.missing[0]
    without = plan_faults(rack(2, up=LOSSY), "software", replace(BARE, nftables=False))
    assert not without.ordinary_loss
    assert "not lost" in without.missing[0]
    assert plan_faults(rack(2, up=SLOW), "software", BARE, "wire").missing == ()


def test_faults_that_the_injector_cannot_do_go_by_wire() -> None:
    uneven = rack(2, up=LOSSY)
    uneven = replace(uneven, links=(uneven.links[0], replace(uneven.links[1], up=Direction())))
    assert plan_faults(uneven, "software", BARE).mechanism == "wire"
    with pytest.raises(LabError, match="alike"):
        plan_faults(uneven, "software", BARE, "injector")
    with pytest.raises(LabError, match="'model'"):
        plan_faults(rack(2, up=LOSSY), "model", BARE, "injector")
    with pytest.raises(LabError, match="no netem"):
        plan_faults(rack(2, up=LOSSY), "software", BARE, "netem")


def test_leaf_switches_make_the_faults_of_their_links_up() -> None:
    assert plan_faults(tree((1, 1), trunk_up=LOSSY), "software", BARE).mechanism == "injector"


def test_the_fates_of_frames_depend_on_the_seed_alone() -> None:
    rates = FaultRates(loss=0.2, duplicate=0.1, reorder=0.1, reorder_seconds=0.5)

    def fates(seed: str) -> list[int]:
        drawn = Fates(rates, seed)
        return [drawn.take(b"frame", 0.0) for _ in range(1000)]

    assert fates("1") == fates("1") != fates("2")


def test_frames_are_lost_repeated_and_held_as_often_as_asked() -> None:
    fates = Fates(FaultRates(loss=0.2, duplicate=0.5, delay=0.5, delay_seconds=2.0), "3")
    sent = 10_000
    now = sum(fates.take(b"%d" % i, 1.0) for i in range(sent))
    assert fates.due(2.9) == []
    assert fates.next_due() == 3.0
    later = fates.due(3.0)
    counters = fates.counters
    assert counters["frames"] == sent
    assert abs(counters["lost"] - 0.2 * sent) < 200
    assert abs(counters["duplicated"] - 0.4 * sent) < 250
    assert abs(counters["delayed"] - 0.4 * sent) < 250
    assert now + len(later) == sent - counters["lost"] + counters["duplicated"]
    assert [int(frame) for frame in later] == sorted(int(frame) for frame in later)
    assert fates.next_due() is None


@contextmanager
def inside_a_namespace() -> Iterator["subprocess.Popen[bytes]"]:
    """A process without variables in a network namespace of its own."""
    code = "print(flush=True); import time; time.sleep(1000)"
    command = ["unshare", "--net", "env", "-i", sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is there
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is run, instead of running it."""
    found: list[str] = []

    def run_in(pid: int | None, *command: str, timeout: float = 0) -> str:
        found.append(" ".join(command))
        return ""

    monkeypatch.setattr(wiresum.lab.shaping, "run_in", run_in)
    return found


def test_a_rate_is_htb_with_a_queue_in_bytes(commands: list[str]) -> None:
    shape(1, "eth0", Direction(rate=100, queue=10), BARE)
    assert [c for c in commands if "htb rate 100000kbit ceil 100000kbit" in c]
    assert [c for c in commands if c.endswith("bfifo limit 15140")]


def test_netem_is_told_every_fault(commands: list[str]) -> None:
    shape(1, "eth0", Direction(rate=5, delay=0.01, loss=0.01, duplicate=0.002, reorder=0.03), FULL, netem=True)
    (command,) = [command for command in commands if "netem" in command]
    assert command == (
        "tc qdisc add dev eth0 parent 1:2 handle 10: netem limit 1032 delay 10000us loss 1.000000000% "
        "duplicate 0.200000000% reorder 3.000000000%"
    )


HTB = "htb 1: root refcnt 3 r2q 10 default 0x2 direct_packets_stat 0 direct_qlen 1000"
NETEM = "netem 10: parent 1:2 limit 1032 delay 10ms loss 1% duplicate 0.2% reorder 3%"
FIFO = "bfifo 10: parent 1:2 limit 15140b"


@pytest.mark.parametrize(
    ("queues", "found"),
    [
        ({"noqueue 0: root refcnt 2": 0}, {"queue_dropped": 0}),
        ({HTB: 12, FIFO: 12}, {"queue_dropped": 12}),
        ({HTB: 12, FIFO: 5, "tbf 11: parent 1:3 rate 1Tbit burst 1600b lat 0us": 7}, {"queue_dropped": 12}),
        ({HTB: 12, NETEM: 12}, {"queue_dropped": 0, "lost": 12}),
        ({HTB: 15, NETEM: 12}, {"queue_dropped": 3, "lost": 12}),
        ({NETEM.replace("parent 1:2", "root refcnt 2"): 12}, {"queue_dropped": 0, "lost": 12}),
        ({HTB: 0, NETEM: 0}, {"queue_dropped": 0, "lost": 0}),
        ({}, {"queue_dropped": 0}),
    ],
)
def test_what_netem_loses_on_purpose_is_no_drop_of_a_queue(queues: dict[str, int], found: dict[str, int]) -> None:
    shown = "".join(
        f"qdisc {queue}\n Sent 94716 bytes 64 pkt (dropped {number}, overlimits 8 requeues 0) \n"
        " backlog 0b 0p requeues 0\n"
        for queue, number in queues.items()
    )
    assert dropped(shown) == found


def test_no_htb_is_said_before_anything_is_done(commands: list[str]) -> None:
    with pytest.raises(LabError, match="no HTB"):
        shape(1, "eth0", Direction(rate=10), replace(BARE, htb=False))
    assert commands == []
    shape(1, "eth0", Direction(), replace(BARE, htb=False))


@pytest.mark.parametrize(
    ("share", "draws"), [(0.01, 10_000_000), (1e-12, 1), (0.9999999, 999_999_900), (1 - 1e-12, 999_999_999)]
)
def test_shares_of_lost_frames_are_never_none_and_never_all(share: float, draws: int, commands: list[str]) -> None:
    lose(1, "eth0", share)
    assert f"numgen random mod 1000000000 < {draws} counter drop" in commands[0]


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nft") is None, reason="needs root and nft")
def test_nftables_takes_the_closest_shares() -> None:
    with inside_a_namespace() as process:
        for share in (1e-12, 1 - 1e-12):
            lose(process.pid, "lo", share)
            assert lost_frames(process.pid, "lo") == 0
            run_in(process.pid, "nft", "flush", "ruleset")


# Frames of 1,500 bytes, many more than the buffer of a wire holds.
FLOOD = """
import socket
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
    out.bind(("below", 0))
    for _ in range(20_000):
        out.send(b"\\xff" * 12 + b"\\x88\\xb5" + bytes(1486))
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mnexec") is None, reason="needs root and Mininet")
def test_what_a_wire_cannot_take_is_counted_and_a_killed_one_is_not_passed_over() -> None:
    with inside_a_namespace() as process:
        for end, inner in (("below", "w0"), ("above", "w1")):
            run_in(process.pid, "ip", "link", "add", end, "type", "veth", "peer", "name", inner)
            for name in (end, inner):
                run_in(process.pid, "ip", "link", "set", name, "up")
        command = [sys.executable, "-m", "wiresum.lab.wire", "w0", "w1"]
        wires = {name: Program(name, command, namespace=process.pid) for name in ("h1", "h2")}
        for wire in wires.values():
            wire.await_line("wire ready", 60)
        wires["h1"].send_signal(signal.SIGSTOP)
        wires["h2"].end(grace=0)
        run_in(process.pid, sys.executable, "-c", FLOOD)
        counters = Lab.wire_counters(cast("Lab", SimpleNamespace(_wires=wires)))
    assert 0 < counters["h1"]["there"]["overflowed"] < 20_000
    assert counters["h1"]["back"]["overflowed"] == 0
    assert counters["h2"] == {}


# What torchrun sets for itself: its own store and error file, signals that it handles; and for NCCL, which needs GPUs.
AGENTS_OWN = {
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_SIGNALS_TO_HANDLE",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
}


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_workers_have_the_variables_that_torchrun_sets() -> None:
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1", "--no_python"]
    said = subprocess.check_output([sys.executable, *torchrun, sys.executable, "-c", script], text=True)
    theirs = {name: value for name, value in json.loads(said).items() if os.environ.get(name) != value}
    lab = SimpleNamespace(
        topology=rack(1), interfaces=lambda link: ((1, "h1-eth0"),), control_of=str, mark=SimpleNamespace(id="x")
    )
    ours = Lab.worker_environment(cast("Lab", lab), 0)
    set_by_it = {
        name for name in theirs if name.startswith(("TORCH", "ROLE_", "GROUP_", "LOCAL_", "RANK", "WORLD_", "MASTER_"))
    }
    assert "ROLE_NAME" in set_by_it
    assert set_by_it - AGENTS_OWN <= ours.keys()
    for name in theirs.keys() & ours.keys() - {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}:
        assert ours[name] == theirs[name], name


def test_missing_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match=r"needs root.*: sudo .*wiresum mininet"):
        check_machine()


def without(monkeypatch: pytest.MonkeyPatch, *tools: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(wiresum.lab.kernel, "find_spec", lambda name: object())
    monkeypatch.setattr(wiresum.lab.kernel, "_works", lambda *command: True)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in tools else f"/bin/{tool}")


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "mnexec", "tcpdump")
    with pytest.raises(LabError, match=r"needs mnexec, tcpdump: apt-get install mininet tcpdump$"):
        check_machine(tools=("tcpdump",))


def test_a_container_without_the_privilege(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    monkeypatch.setattr(wiresum.lab.kernel, "_works", lambda *command: False)
    with pytest.raises(LabError, match="may not make network namespaces"):
        check_machine()


@pytest.mark.parametrize(
    "error", [subprocess.TimeoutExpired("unshare", 20), FileNotFoundError("unshare"), PermissionError("unshare")]
)
def test_what_hangs_or_cannot_be_started_does_not_work(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", run)
    assert wiresum.lab.kernel.kernel.__wrapped__() == Kernel(htb=False, netem=False, nftables=False)


def test_missing_bmv2(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "simple_switch_grpc")
    check_machine()
    with pytest.raises(LabError, match=r"simple_switch_grpc on PATH.*'model'"):
        check_machine(bmv2=True)


def test_missing_mininet(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    monkeypatch.setattr(wiresum.lab.kernel, "find_spec", lambda name: None)
    with pytest.raises(LabError, match=r"-m pip install mininet==2\.3\.0\.dev6"):
        check_machine()


def sleeper(run: str) -> "subprocess.Popen[bytes]":
    code = "print(flush=True); import time; time.sleep(1000)"
    made = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, VARIABLE: run}, stdout=subprocess.PIPE)
    assert made.stdout is not None
    made.stdout.readline()  # it has its environment
    return made


def test_a_run_ends_its_own_processes_and_no_others() -> None:
    with RunMark() as mark, RunMark() as other, sleeper(mark.id) as one, sleeper(other.id) as two:
        assert remove_leftovers().count(other.id) == 0  # a run that lives is let alone, even by itself
        assert processes_of(mark.id) == {one.pid}
        mark.close()
        assert one.wait(10) < 0
        assert two.poll() is None
        assert end_processes(other.id) == 1
    assert not [path for path in marks_folder().iterdir() if mark.id in path.name or other.id in path.name]


def test_what_a_killed_run_has_left_is_removed() -> None:
    code = (
        "import sys; from wiresum.lab.marks import RunMark; mark = RunMark(); (mark.scratch / 'file').touch();"
        "print(mark.id, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    root = Path(__file__).parent.parent
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root) as owner:
        assert owner.stdout is not None
        run = owner.stdout.readline().decode().strip()
        with sleeper(run) as left:
            assert run not in remove_leftovers()
            assert left.poll() is None
            owner.kill()
            owner.wait()
            assert (marks_folder() / run / "file").exists()
            assert run in remove_leftovers()
            assert left.wait(10) < 0
    assert not [path for path in marks_folder().iterdir() if run in path.name]
    assert remove_leftovers() == [] or run not in remove_leftovers()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_namespace_tells_whose_the_processes_in_it_are() -> None:
    with RunMark() as mark, inside_a_namespace() as one, inside_a_namespace() as other:
        claim_namespace(one.pid, mark.id)
        claim_namespace(other.pid, f"{mark.id}0")
        assert processes_of(mark.id) == {one.pid}
        assert end_processes(mark.id) == 1
        assert one.wait(10) < 0
        assert other.poll() is None
