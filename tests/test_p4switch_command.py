"""`wiresum p4switch` as a process, and what it says to bad arguments."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from switch.p4runtime.errors import Code
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests import veths
from tests.p4runtime_client import Client
from tests.p4runtime_rig import COMPILED, config_of
from wiresum.cli import main

JSON, P4INFO = str(COMPILED / "p4rt_all.json"), str(COMPILED / "p4rt_all.p4info.txtpb")
READY = re.compile(r"wiresum p4switch ready: P4Runtime (127\.0\.0\.1:\d+) device (\d+) ports (.*)\n")


@contextmanager
def started(*options: str, before: tuple[str, ...] = ()) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "wiresum", "p4switch", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ready(process: "subprocess.Popen[str]") -> tuple[str, int, str]:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = READY.fullmatch(line)
    assert found, (line, process.poll() is None or process.communicate()[1])
    return found[1], int(found[2]), found[3]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_and_ends_within_a_second(number: signal.Signals) -> None:
    options = (
        "--p4info",
        P4INFO,
        "--json",
        JSON,
        "--grpc-addr",
        "127.0.0.1:0",
        "--cpu-port",
        "255",
        "--device-id",
        "3",
    )
    with started(*options) as process:
        address, device, ports = ready(process)
        assert (device, ports) == (3, "none")
        with Client(address) as client:
            assert client.next("arbitration").status.code == Code.OK
            assert len(client.read(pb.TableEntry())) == 2  # those of the program
            began = time.monotonic()
            process.send_signal(number)
            assert process.wait(timeout=10) == 0
            assert time.monotonic() - began < 1.5  # a second, and a busy machine
            assert client.status()[0] in ("UNAVAILABLE", "CANCELLED")
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    "options",
    [
        (JSON, "--", "--grpc-server-addr", "127.0.0.1:0", "--cpu-port", "255"),
        ("--device-id", "3", "--thrift-port", "9090", JSON, "-L", "error", "--", "--grpc-server-addr", "127.0.0.1:0"),
        ("--no-p4", "--log-console", "--", "--grpc-server-addr=127.0.0.1:0", "--disable-swap"),
    ],
)
def test_options_as_simple_switch_grpc_has_them(options: tuple[str, ...]) -> None:
    with started(*options) as process:
        address, device, _ = ready(process)
        with Client(address, device=device) as client:
            client.next("arbitration")
            client.set_pipeline(config_of())
            assert len(client.read(pb.TableEntry())) == 2


@pytest.mark.skipif(bool(veths.MISSING), reason=veths.MISSING)
def test_packets_between_interfaces_are_captured(tmp_path: Path) -> None:
    import socket

    with veths.veths(2) as made:
        inside = ("ip", "netns", "exec", made.switch)
        options = ("-i", "0@port0", "-i", "1@port1", f"--pcap={tmp_path}", "--grpc-addr", "127.0.0.1:0", JSON)
        with started(*options, "--p4info", P4INFO, before=inside) as process:
            assert ready(process)[2] == "0@port0 1@port1"
            near, far = (
                made.run_in(host, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
                for host in made.hosts
            )
            with near, far:
                near.bind(("eth0", 0))
                far.bind(("eth0", 0))
                far.settimeout(20)
                packet = (
                    bytes(6) + bytes(5) + b"\x0a\x88\xb5" + bytes((4, 0, 0, 0x10)) + bytes(42)
                )  # an entry of the program
                near.send(packet)
                while far.recv(2048) != packet:
                    pass
            process.terminate()
            assert process.wait(timeout=10) == 0
    for name in ("port0_in.pcap", "port1_out.pcap"):
        assert packet in (tmp_path / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ([], 2, "give the compiled program, with --json, or --no-p4"),
        (["--json", "a.json", "b.json"], 2, "the program is given twice: a.json and b.json"),
        (["nothere.json"], 1, "cannot read nothere.json: No such file or directory"),
        ([P4INFO], 1, "p4rt_all.p4info.txtpb: not JSON"),
        (["--p4info", JSON, JSON], 1, "p4rt_all.json is not p4info as text"),
        (["--no-p4", "-i", "veth0"], 2, "-i: expected PORT@INTERFACE with a port from 0 to 511, got 'veth0'"),
        (["--no-p4", "-i", "0@lo", "-i", "0@lo"], 2, "port 0 or interface 'lo' stands twice"),
        (["--no-p4", JSON], 2, f"--no-p4 starts without a program, and {JSON} is given"),
        (["--no-p4", "--json", JSON], 2, f"--no-p4 starts without a program, and {JSON} is given"),
        (["--no-p4", "--p4info", P4INFO], 2, f"--no-p4 starts without a program, and {P4INFO} is given"),
        ([""], 2, "the name of the file of the program, or of its p4info, is empty"),
        (["--json", ""], 2, "the name of the file of the program, or of its p4info, is empty"),
        (["--no-p4", "-i", "0@wsnothere"], 1, "wsnothere"),
        (["--no-p4", "--cpu-port", "0"], 2, "the CPU port must be neither 0 nor the drop port 511, got 0"),
        (["--no-p4", "--cpu-port", "5", "-i", "5@lo"], 2, "5 is the CPU port or the drop port"),
        (["--no-p4", "--pcap=/nothere"], 2, "--pcap: /nothere is not a directory"),
        (["--no-p4", "--grpc-server-ssl"], 2, "needs --grpc-server-cert and --grpc-server-key"),
        (["--no-p4", "--grpc-server-cert", "x"], 2, "--grpc-server-cert has no meaning without --grpc-server-ssl"),
        (["--no-p4", "--grpc-server-with-client-auth"], 2, "--grpc-server-with-client-auth has no meaning without"),
        (
            ["--no-p4", "--grpc-server-ssl", "--grpc-server-cert", JSON, "--grpc-server-key", JSON],
            1,
            f"{JSON} is no certificate or key in PEM form",
        ),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["p4switch", "--grpc-addr", "127.0.0.1:0", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("wiresum: ")
    assert captured.err.count("\n") == 1
    assert text in captured.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--device-id", "x"],
        ["--device-id", str(2**64)],
        ["--cpu-port", "512"],
        ["-L", "loud"],
        ["--grpc-addr", "nowhere"],
        ["--grpc-addr", "127.0.0.1:65536"],
        ["--unknown"],
    ],
)
def test_wrong_options(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["p4switch", *arguments])
    assert caught.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_p4info_of_another_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.txtpb"
    other.write_text(Path(P4INFO).read_text().replace('"MyIngress.by_port"', '"MyIngress.other"'))
    arguments = ["--grpc-addr", "127.0.0.1:0", "--p4info", str(other), JSON]
    assert main(["p4switch", *arguments]) == 1
    assert (
        "p4info has counter MyIngress.other, which the program has not; it has MyIngress.by_port"
        in capsys.readouterr().err
    )
