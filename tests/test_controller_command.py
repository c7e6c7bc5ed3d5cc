"""`wiresum controller` as a process: how it starts, what it says, how it ends."""

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from host.control import ControlClient
from protocol.errors import JoinRefusedError, SwitchLostError, WiresumError
from switch.controller.program_files import find
from tests.fake_target import FakeTarget, fake_target
from tests.ranks import LIMIT
from tests.waiting import wait_until
from wiresum.cli import main

READY = re.compile(r"wiresum controller ready: control 127\.0\.0\.1:(\d+) data 10\.0\.0\.254:48864\n")


@pytest.fixture
def target() -> Iterator[FakeTarget]:
    with fake_target() as made:
        made.hosts = {"127.0.0.1": (0x020000000001, 3)}
        yield made


@contextmanager
def started(target: FakeTarget, *options: str) -> Iterator["tuple[subprocess.Popen[str], str]"]:
    """The command, and its control address once it is ready; killed at the end if it still runs."""
    words = ["controller", "--target", target.address, "--address", "10.0.0.254", "--bind", "127.0.0.1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "wiresum", *words, "--control-port", "0", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            ready = READY.fullmatch(process.stdout.readline())
            assert ready, process.communicate()
            yield process, f"127.0.0.1:{ready[1]}"
        finally:
            process.kill()


@contextmanager
def joined(switch: str) -> "Iterator[queue.SimpleQueue[WiresumError]]":
    """The only rank of a job; what ends the job."""
    failures: queue.SimpleQueue[WiresumError] = queue.SimpleQueue()
    client = ControlClient(switch)
    try:
        client.join(job="train", rank=0, world_size=1, udp=("127.0.0.1", 4711), values=64, slots=0, timeout=LIMIT)
        client.watch(on_failure=failures.put, explain=lambda _: "")
        yield failures
    finally:
        client.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_goodbye_and_ends_well(target: FakeTarget, number: signal.Signals) -> None:
    with started(target) as (process, address), joined(address) as failures:
        assert target.params("workers 2130706433 4711")[5] == 16  # slots, since it asked for none in particular
        process.send_signal(number)
        signalled = time.monotonic()
        failure = failures.get(timeout=LIMIT)
        output, complaints = process.communicate(timeout=LIMIT)
        assert time.monotonic() - signalled < 5
        assert (process.returncode, output, complaints) == (0, "", "")
        assert isinstance(failure, SwitchLostError)
        assert str(failure) == f"the switch at {address} is shutting down"
    assert target.names("workers") == target.names("members") == []
    assert target.names("group") == ["group 1"]  # it goes on forwarding


def test_a_lost_target_is_told_to_workers_and_in_one_line(target: FakeTarget) -> None:
    with started(target) as (process, address), joined(address) as failures:
        target.outbox.put(None)
        assert isinstance(failures.get(timeout=LIMIT), SwitchLostError)
        output, complaints = process.communicate(timeout=LIMIT)
        assert (process.returncode, output) == (1, "")
        assert complaints == f"wiresum: the target at {target.address} is lost: it ended the connection\n"


def test_what_the_target_refuses_is_told_to_the_worker(target: FakeTarget) -> None:
    target.refuse = lambda update: "INTERNAL" if update.entity.WhichOneof("entity") == "table_entry" else None
    with pytest.raises(AssertionError, match=r"did not insert table WiresumIngress\.own_arp"), started(target):
        pass
    target.refuse = lambda _: None
    with started(target) as (process, address):
        target.refuse = lambda _: "RESOURCE_EXHAUSTED"
        with pytest.raises(JoinRefusedError, match=r"could not set up job .train.: .*RESOURCE_EXHAUSTED"):
            joined(address).__enter__()
        target.refuse = lambda _: None
        with joined(address):
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT) == 0


def test_options_reach_the_target(target: FakeTarget) -> None:
    json, p4info = find(32)
    options = ["--json", str(json), "--p4info", str(p4info), "--ports", "0-1,7", "--mac", "02:00:00:00:AA:01"]
    with started(target, *options, "--slots", "64") as (_, address):
        assert target.pipeline.p4_device_config == json.read_bytes()
        assert target.replicas(1) == [(0, 0), (1, 0), (7, 0)]
        assert target.params(target.names("own_arp")[0]) == [0x02000000AA01]
        client = ControlClient(address)
        assert (client.info.values_supported, client.info.total_slots) == ((32,), 8)
        client.close()
    with started(target):
        assert target.params(target.names("own_arp")[0]) == [0x02000A0000FE]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--target", "here"], "'here' is not HOST:PORT"),
        (["--target", "here:0"], "'here:0' is not HOST:PORT"),
        (["--address", "10.0.0.256"], "'10.0.0.256' is not an IPv4 address"),
        (["--target", "::1:9559"], "'::1:9559' is not HOST:PORT"),
        (["--address", "224.0.0.1"], "'224.0.0.1' is a multicast address, not that of one host"),
        (["--address", "255.255.255.255"], "'255.255.255.255' is a broadcast address, not that of one host"),
        (["--address", "0.0.0.0"], "'0.0.0.0' is the address of a network or a broadcast, not of one host"),
        (["--address", "10.0.0.0"], "'10.0.0.0' is the address of a network or a broadcast, not of one host"),
        (["--address", "10.0.0.255"], "'10.0.0.255' is the address of a network or a broadcast, not of one host"),
        (["--address", "127.0.0.1"], "'127.0.0.1' is a loopback address"),
        (["--bind", "224.0.0.1"], "'224.0.0.1' is a multicast address"),
        (["--mac", "02:00:00:00:00"], "'02:00:00:00:00' is not a MAC address such as"),
        (["--mac", "01:00:5e:00:00:01"], "is not the MAC address of one host"),
        (["--ports", "3-1"], "'3-1' is not a list of ports from 0 to 509"),
        (["--ports", "510"], "'510' is not a list of ports"),
        (["--values", "100"], "invalid choice: 100"),
        (["--slots", "0"], "'0' is not a number of slots from 1 to"),
        (
            ["--slots", "7"],
            "--slots must be a power of two from 4 to the 2048 that the P4 program for 64 values has, n",
        ),
        (["--slots", "2"], "--slots must be a power of two from 4 to the 2048"),
        (
            ["--slots", "4096"],
            "--slots must be a power of two from 4 to the 2048 that the P4 program for 64 values has",
        ),
        (["--device-id", "-1"], "'-1' is not a number from 0 to"),
        (["--parent", "here:no"], "must be HOST or HOST:PORT, with a port from 1 to 65535, not 'here:no'"),
        (["--election-id", "0"], "'0' is not a number from 1 to"),
        (["--json", "x"], "--json and --p4info belong together"),
        (["--json", "x", "--p4info", "y", "--values", "64"], "give one of them"),
    ],
)
def test_wrong_arguments_are_named(options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["controller", "--target", "127.0.0.1:1", "--address", "10.0.0.254", *options]
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 2
    assert complaint in capsys.readouterr().err


def test_failures_are_one_line(target: FakeTarget, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["controller", "--target", target.address, "--address", "10.0.0.254", "--bind", "127.0.0.1"]
    missing = tmp_path / "missing"
    assert main([*words, "--json", str(missing), "--p4info", str(missing)]) == 1
    assert capsys.readouterr().err == f"wiresum: cannot read {missing}: No such file or directory\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*words, "--control-port", str(port)]) == 1
        assert capsys.readouterr().err == f"wiresum: cannot serve control at 127.0.0.1:{port}: Address already in use\n"


def test_it_can_be_told_to_stop_before_anybody_has_joined(target: FakeTarget) -> None:
    with started(target) as (process, _):
        wait_until(lambda: target.pipeline is not None, "no program was loaded")
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(LIMIT) == 0
