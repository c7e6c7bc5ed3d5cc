"""`wiresum mininet` on good days: real hosts, switches and links."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.lab_runs import ROOT, LabRun, why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

# A worker that sums, and beside it pings the first host, and reaches it by TCP, as Gloo would.
WORKER = """
import os, socket, struct, sys, time
import numpy as np
import wiresum

def ping(host):
    packet = struct.pack("!BBHHH", 8, 0, 0xF7FE - os.getpid() % 256, os.getpid() % 256, 1)  # echo request, checksum
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.settimeout(1)
        for _ in range(10):
            raw.sendto(packet, (host, 0))
            try:
                while True:
                    reply, sender = raw.recvfrom(100)
                    if reply[20] == 0 and sender[0] == socket.gethostbyname(host):
                        return
            except TimeoutError:
                pass
    sys.exit(f"{host} does not answer pings")

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
listener = socket.create_server(address) if rank == 0 else None
with wiresum.Communicator(rank=rank, world_size=world) as comm:
    array = np.full(int(sys.argv[1]), rank + 1, np.float32)
    comm.all_reduce(array)
    assert (array == world * (world + 1) / 2).all(), array
if rank:
    ping(address[0])
if listener:
    for _ in range(world - 1):
        with listener.accept()[0] as connection:
            assert connection.recv(100) == b"ordinary traffic"
else:
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(b"ordinary traffic")
print("summed on", os.environ["GLOO_SOCKET_IFNAME"], os.environ["LOCAL_RANK"], os.getcwd())
"""


@pytest.fixture
def worker(tmp_path: Path) -> str:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    return str(path)


def test_a_command_runs_on_every_host(tmp_path: Path, worker: str) -> None:
    options = ["--hosts", "2", "--rate", "200", "--loss", "0.02", "--faults-by", "injector", "--seed", "3", "--pcap"]
    with LabRun(*options, "--", "python", worker, "100000", out=tmp_path / "runs") as run:
        assert run.end() == 0, run.stderr
        assert run.left() == []
        assert set(run.namespaces) == {"h1", "h2", "s1"}
        assert len(set(run.namespaces.values())) == 3
    for host in ("h1", "h2"):
        assert f"[{host}] summed on {host}-eth0 0 {ROOT}".encode() in run.stdout
    summary = run.summary()
    assert summary["exit_code"] == 0
    assert [host["code"] for host in summary["hosts"]] == [0, 0]
    assert summary["problems"] == []
    assert summary["faults"]["mechanism"] == "injector"
    assert "seeded injector" in run.stderr
    counters = {c["name"]: c["value"] for c in summary["counters"]["s1"]["counters"] if c["job"] is None}
    assert counters["results"] >= 100_000 / 256
    assert counters["fault_in_lost"] > 0
    assert counters["fault_out_lost"] > 0
    for link in summary["links"].values():
        assert link["up"]["bytes"] > 400_000
        assert link["down"]["bytes"] > 400_000
    (folder,) = (tmp_path / "runs").glob("*-rack2-software")
    assert {path.name for path in folder.iterdir()} == {
        "h1.log", "h2.log", "s1.log", "h1.pcap", "h2.pcap", "summary.json",
        "trace.txt", "trace.png",
    }  # fmt: skip
    assert summary["trace"] == ["trace.txt", "trace.png"]
    trace = (folder / "trace.txt").read_text()
    assert "job 0 at s1 (10.254.1.1): 2 ranks" in trace
    assert f"rounds: {counters['results']:,} finished, 0 without a result" in trace  # up to the last packet
    assert "summary.json, trace.txt, trace.png, 3 logs, 2 captures" in run.stderr
    assert "summed on" in (folder / "h1.log").read_text()
    assert (folder / "h1.pcap").stat().st_size > 800_000


@pytest.mark.parametrize("kind", ["model", "bmv2"])
def test_p4_switches_with_faults_on_the_wire(kind: str, tmp_path: Path, worker: str) -> None:
    if kind == "bmv2" and shutil.which("simple_switch_grpc") is None:
        pytest.skip("needs BMv2's simple_switch_grpc on PATH")
    faults = ["--loss", "0.05", "--duplicate", "0.05", "--delay", "1", "--reorder", "0.1", "--faults-by", "wire"]
    command = ["--hosts", "2", "--switch", kind, *faults, "--", "python", worker, "3000"]
    with LabRun(*command, out=tmp_path / "runs") as run:
        assert run.end() == 0, run.stderr
        assert run.left() == []
    summary = run.summary()
    assert summary["faults"] == {
        "mechanism": "wire",
        "what": "wiresum's seeded wire, on every link with faults, for all traffic",
        "missing": [],
    }
    counted = {
        path.stem.removeprefix("wire-"): json.loads(path.read_text().splitlines()[-1])
        for path in (tmp_path / "runs").glob("*/wire-h?.log")
    }
    assert len(counted) == 2
    assert summary["wires"] == counted
    assert re.search(r"^wire of h1: lost \d+, duplicated \d+", run.stderr, re.MULTILINE)
    for fate in ("lost", "duplicated", "delayed", "reordered"):
        assert sum(way[fate] for wire in counted.values() for way in wire.values()) > 0, (fate, counted)


def test_a_tree_of_unequal_racks_with_loss_between_switches(tmp_path: Path, worker: str) -> None:
    options = [
        "--tree",
        "2,1",
        "--rate",
        "500",
        "--trunk-rate",
        "300",
        "--trunk-loss",
        "0.05",
        "--faults-by",
        "injector",
    ]
    with LabRun(*options, "--", "python", worker, "100000", out=tmp_path / "runs") as run:
        assert run.end() == 0, run.stderr
        assert run.left() == []
    summary = run.summary()
    for leaf in ("s2", "s3"):
        counters = {c["name"]: c["value"] for c in summary["counters"][leaf]["counters"] if c["job"] is None}
        assert counters["fault_up_in_lost"] > 0
        assert counters["fault_up_out_lost"] > 0
        assert summary["links"][leaf]["up"]["bytes"] > 400_000


@pytest.mark.parametrize("kind", ["model", "bmv2"])
def test_trees_of_p4_switches(kind: str, tmp_path: Path, worker: str) -> None:
    if kind == "bmv2" and shutil.which("simple_switch_grpc") is None:
        pytest.skip("needs BMv2's simple_switch_grpc on PATH")
    with LabRun("--tree", "2,1", "--switch", kind, "--", "python", worker, "3000", out=tmp_path / "runs") as run:
        assert run.end() == 0, run.stderr
        assert run.left() == []
    summary = run.summary()
    for leaf in ("s2", "s3"):
        counters = {c["name"]: c["value"] for c in summary["counters"][leaf]["counters"] if c["job"] is None}
        assert counters["partials"] == counters["results"] >= 47
        for way in ("up", "down"):  # some 150; frames that two switches took to be behind each other would be thousands
            assert summary["links"][leaf][way]["packets"] < 1000


def test_two_runs_at_once(tmp_path: Path, worker: str) -> None:
    command = ["--hosts", "2", "--quiet", "--", "python", worker, "20000"]
    with LabRun(*command, out=tmp_path / "a") as one, LabRun(*command, out=tmp_path / "b") as other:
        assert one.end() == 0, one.stderr
        assert other.end() == 0, other.stderr
        assert one.left() == other.left() == []
    assert "left behind" not in one.stderr + other.stderr


# Two collectives, and between them a rank that keeps the others waiting until a file is there.
LATE = """
import os, sys, time
import numpy as np
import wiresum
with wiresum.Communicator(rank=int(os.environ["RANK"]), world_size=2) as comm:
    comm.all_reduce(np.ones(2560, np.float32))
    while comm.rank == 1 and not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    comm.all_reduce(np.ones(2560, np.float32))
print("summed", flush=True)
"""


def test_the_prompt(tmp_path: Path) -> None:
    script, go = tmp_path / "late.py", tmp_path / "go"
    script.write_text(LATE)
    with LabRun("--hosts", "2", "--cli", out=tmp_path / "runs", keep_stdin=True) as run:
        # An address without a name is answered as such, at once: torch warns of anything else.
        run.type("h1 python3 -c \"import socket; print(socket.getnameinfo(('::ffff:10.0.0.2', 5, 0, 0), 0))\"")
        run.type(
            "help", "slots", "stalls s1", "h1 grep -w h2 /etc/hosts", "workers env", f"workers python {script} {go} &"
        )
        while b"do not move" not in run.stdout:
            run.type("stalls", "sh echo asked")
            run.read_until(b"asked\n")
        run.type("slots", "jobs", "ranks", "trace s1 2")
        run.read_until(b"capturing for 2 s\n")
        go.touch()
        run.read_until(b"[h2] summed\n")
        run.type(
            "counters",
            "links",
            "packets h1 0.1",
            "trace h3",
            "slots s2",
            "h2 ip link set h2-eth0 down",
            "trace h2 1",
            "links",
            "sh echo still here",
            "workers sleep 987 &",
            "exit",
        )
        assert run.end() == 0, run.stderr
        assert run.left() == []
    said = run.stdout.decode()
    assert "('::ffff:10.0.0.2', '5')" in run.stderr
    assert "10.0.0.2\th2" in run.stderr  # where Mininet writes
    assert "10.0.0.2\th2" not in Path("/etc/hosts").read_text()
    assert "[h2] RANK=1" in said
    assert "[h1] WIRESUM_SWITCH=10.254.1.1:50099" in said
    for line in (
        "  stalls [SWITCH]              Slots that have waited for the same ranks for half a second, and for whom.",
        "s1: no jobs",
        "s1: job 'default' (number 0): of 512 slots of 256 values, 10 do not move",
        "s1: job 'default' (number 0): of 512 slots of 256 values, 502 are free and 10 wait",
        "  slot 20 version 0 chunk 20: has rank 0 (h1); lacks rank 1 (h2)",
        "s1: 65,024 of 65,536 slots are free",
        "  job 'default': number 0, running, 2 of 2 ranks, 512 slots of 256 values",
        "job 0 at 10.254.1.1: 2 ranks",  # of `wiresum trace`
        "  results ",
        "h1-s1 up: bytes",
        "h1: no packets of wiresum",
        "say at which host or switch, of h1, h2, s1",
        "there is no switch s2; there are s1",
        "That device is not up",  # and the prompt goes on
        "still here",
    ):
        assert line in said, line
    assert re.search(r"^  rank 1 \(h2\) is missing in 10; heard \d+\.\d s ago$", said, re.MULTILINE)
    assert re.search(
        r"^(wiresum> )?s1: job 'default' rank 0: received [0-9,]+, contributions [0-9,]+", said, re.MULTILINE
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--hosts", "0", "--", "true"], "not [0]"),
        (["--hosts", "2"], "say what to run"),
        (["--loss", "2", "--", "true"], "'2' is not a share of lost packets from 0 to below 1"),
        (["--trunk-loss", "0.1", "--", "true"], "--trunk-loss is for links between switches, which only a --tree has"),
        (["--trunk-loss", "1", "--", "true"], "'1' is not a share of lost packets from 0 to below 1"),
        (["--duplicate", "2", "--", "true"], "'2' is not a share from 0 to 1"),
        (["--delay", "nan", "--", "true"], "'nan' is not a delay in milliseconds from 0 to 10000"),
        (["--rate", "0", "--", "true"], "'0' is not a rate in Mbit/s from 0.01 to 100000"),
        (["--grace", "-1", "--", "true"], "'-1' is not a time in seconds from 0 to 86400"),
        (["--tree", "99x99x99", "--", "true"], "up to 250 hosts, not 970299"),
        (["--pcap=/proc/x", "--", "true"], "/proc/x: "),
        (["--tree", "x", "--", "true"], "not 'x'"),
        (["--slots", "3", "--", "true"], "slots must be a power of two"),
        (["--values", "4000", "--", "true"], "values per packet must be one of"),
        (["--time-limit", "0", "--", "true"], "'0' is not a time in seconds above 0 and up to 31536000"),
        (["--name", "../x", "--", "true"], "not '../x'"),
        (["--name", "", "--", "true"], "not ''"),
    ],
)
def test_what_cannot_be_is_said_at_once(args: list[str], said: str, tmp_path: Path) -> None:
    with LabRun(*args, out=tmp_path / "runs") as run:
        assert run.end() in (1, 2)
        assert said in run.stderr
        assert "Traceback" not in run.stderr
        assert not list((tmp_path / "runs").glob("*/"))
