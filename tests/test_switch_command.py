"""`wiresum switch` as a process: how it starts, what it says, how it ends."""

import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from host.communicator import Communicator
from host.control import ControlClient
from protocol.errors import SwitchLostError
from switch.server import SoftwareSwitch
from tests.ranks import LIMIT, errors, run_ranks, start_ranks
from tests.waiting import wait_until
from wiresum.cli import main
from wiresum.processes import SwitchProcess

READY = re.compile(r"wiresum switch ready: control 127\.0\.0\.1:(\d+) data 127\.0\.0\.1:(\d+)\n")
COMMAND = [sys.executable, "-m", "wiresum", "switch", "--port", "0", "--control-port", "0"]


@contextmanager
def started(*options: str, stdout: int = subprocess.PIPE, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """The command as a shell would start it; killed at the end if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, *options],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_ready(process: "subprocess.Popen[str]") -> str:
    """Control address of a switch that says it is ready."""
    assert process.stdout is not None
    line = process.stdout.readline()
    ready = READY.fullmatch(line)
    assert ready, f"the switch said {line!r}"
    return f"127.0.0.1:{ready[1]}"


def sums(communicator: Communicator) -> bytes:
    """Bits of a few sums."""
    rng = np.random.default_rng(communicator.rank)
    arrays = [rng.standard_normal(100_000).astype(dtype) for dtype in (np.float32, np.float16)]
    arrays.append(rng.integers(-(2**31), 2**31, 50_000).astype(np.int32))
    return b"".join(communicator.all_reduce(array).tobytes() for array in arrays)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_goodbye_and_ends_well(number: signal.Signals, tmp_path: Path) -> None:
    """Nothing is left behind: no open port, no file, no word on stderr."""
    began: list[int] = []

    def body(communicator: Communicator) -> None:
        communicator.barrier()
        began.append(communicator.rank)
        if communicator.rank == 0:  # the other waits for it, and then rank 0 for nothing
            wait_until(lambda: waiting[0].error, "rank 1 was not told")
        communicator.all_reduce(np.ones(100_000, np.float32))

    with started(TMPDIR=str(tmp_path)) as process:
        address = read_ready(process)
        waiting = start_ranks(address, 2, body, missing=(0,), job="goodbye")
        waiting += start_ranks(address, 2, body, missing=(1,), job="goodbye")
        wait_until(lambda: len(began) == 2, "the job did not begin")
        process.send_signal(number)
        signalled = time.monotonic()
        output, complaints = process.communicate(timeout=LIMIT)
        assert time.monotonic() - signalled < 5
        assert process.returncode == 0
        assert (output, complaints) == ("", "")
        for error in errors(waiting):
            assert isinstance(error, SwitchLostError)
            assert str(error) == f"the switch at {address} is shutting down"
    assert not list(tmp_path.iterdir())
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        pass


def test_ports_that_are_in_use_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        control, data = tcp.getsockname()[1], udp.getsockname()[1]
        assert main(["switch", "--port", "0", "--control-port", str(control)]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == f"wiresum: cannot serve control at 127.0.0.1:{control}: Address already in use\n"
        assert main(["switch", "--port", str(data), "--control-port", "0"]) == 1
        assert f"cannot serve data at UDP 127.0.0.1:{data}: Address already in use" in capsys.readouterr().err
    assert main(["switch", "--bind", "192.0.2.1", "--port", "0", "--control-port", "0"]) == 1
    assert "192.0.2.1" in capsys.readouterr().err


def test_two_switches_cannot_share_a_port(capsys: pytest.CaptureFixture[str]) -> None:
    with SoftwareSwitch(port=0, control_port=0) as first:
        for options in (
            ("--port", first.data_address[1], "--control-port", 0),
            ("--port", 0, "--control-port", first.control_address[1]),
        ):
            assert main(["switch", *map(str, options)]) == 1
            assert "Address already in use" in capsys.readouterr().err
        run_ranks(first, 2, sums)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "65536"], "'65536' is not a port from 0 to 65535"),
        (["--port", "-1"], "'-1' is not a port"),
        (["--control-port", "http"], "'http' is not a port"),
        (["--bind", "nowhere"], "'nowhere' is not an IPv4 address"),
        (["--bind", "::1"], "'::1' is not an IPv4 address"),
        (["--bind", "224.0.0.1"], "'224.0.0.1' is a multicast address, not that of one host"),
        (["--bind", "255.255.255.255"], "'255.255.255.255' is a broadcast address, not that of one host"),
        (["--slots", "0"], "'0' is not a number of slots from 1 to 33554432"),
        (["--slots", "many"], "'many' is not a number of slots from 1 to"),
        (["--slots", "99999999999"], "'99999999999' is not a number of slots from 1 to"),
        (["--port", "\u0663"], "is not a port"),
        (["--seed", "x"], "invalid int value: 'x'"),
        (["--faults-in", "loss=1.5"], "1.5"),
        (["--faults-in", "loss"], "'loss'"),
        (["--faults-out", "gain=0.1"], "gain"),
        (["--faults-out", "delay=0.1,delay=0.2"], "delay is given twice"),
        (["--faults-up-in", "loss=2"], "2"),
        (["--parent", "nowhere:port"], "HOST:PORT"),
        (["--fault", "loss=0.1"], "--fault"),
        (["surplus"], "surplus"),
    ],
)
def test_bad_options_are_named(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["switch", *options])
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err


def test_without_offload_the_bits_are_the_same() -> None:
    with SwitchProcess("--no-offload") as without, SoftwareSwitch(port=0, control_port=0) as switch:
        assert switch.offload
        results = run_ranks(without.address, 3, sums) + run_ranks(switch, 3, sums)
        assert without.stderr() == ""
    assert len(set(results)) == 1


def test_faults_of_both_directions_are_injected_and_counted() -> None:
    faults = ["--faults-in", "loss=0.05,duplicate=0.1", "--faults-out", "reorder=0.1,delay=0.01,delay_seconds=0.002"]
    with SwitchProcess(*faults, "--seed", "3") as switch, SoftwareSwitch(port=0, control_port=0) as clean:
        assert set(run_ranks(switch.address, 2, sums)) == set(run_ranks(clean, 2, sums))
        with closing(ControlClient(switch.address)) as client:
            counts = {row.name: row.value for row in client.statistics() if row.job is None}
        assert not any(row.name.startswith("fault") for row in clean.statistics())
    assert counts["fault_in_lost"] > 0
    assert counts["fault_in_duplicated"] > 0
    assert counts["fault_out_reordered"] > 0
    assert counts["fault_out_delayed"] > 0
    assert counts["fault_in_reordered"] == counts["fault_out_lost"] == counts["fault_out_duplicated"] == 0


def test_a_leaf_injects_faults_towards_its_parent() -> None:
    faults = ["--faults-up-in", "loss=0.05,delay=0.01,delay_seconds=0.002", "--faults-up-out", "loss=0.1"]
    with SoftwareSwitch(port=0, control_port=0) as root:
        parent = f"127.0.0.1:{root.control_address[1]}"
        with SwitchProcess("--parent", parent, *faults, "--seed", "3") as leaf:
            assert set(run_ranks(leaf.address, 2, sums)) == set(run_ranks(root, 2, sums))
            with closing(ControlClient(leaf.address)) as client:
                counts = {row.name: row.value for row in client.statistics() if row.job is None}
            assert leaf.stderr() == ""
    for name in ("fault_up_in_lost", "fault_up_in_delayed", "fault_up_out_lost", "partials_again"):
        assert counts[name] > 0
    assert "fault_in_lost" not in counts


def test_a_parent_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["switch", "--port", "0", "--control-port", "0", "--parent", "127.0.0.1:1"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "wiresum: cannot reach the parent switch's control service at 127.0.0.1:1: connection refused; "
        "start the parent first, and give its control address\n"
    )
    assert main(["switch", "--faults-up-out", "loss=0.1"]) == 2
    assert "need a parent" in capsys.readouterr().err


def test_watch_on_a_pipe_writes_a_line_each_second() -> None:
    with started("--watch") as process:
        assert process.stdout is not None
        address = read_ready(process)
        run_ranks(address, 2, sums)
        lines = [process.stdout.readline() for _ in range(2)]
        assert all(re.match(r"jobs=\d+ packets_in_per_s=\d+ ", line) for line in lines)
        process.send_signal(signal.SIGTERM)
        rest, complaints = process.communicate(timeout=LIMIT)
        assert process.returncode == 0
        assert complaints == ""
        assert all(line.startswith("jobs=") for line in rest.splitlines())


def test_watch_on_a_terminal_shows_jobs() -> None:
    ours, theirs = pty.openpty()
    try:
        with started("--watch", stdout=theirs, TERM="xterm", COLUMNS="120", LINES="40") as process:
            os.close(theirs)
            shown = read_terminal(ours, until=r"ready: control 127\.0\.0\.1:(\d+)")
            port = re.search(r"control 127\.0\.0\.1:(\d+)", shown)
            assert port

            def body(communicator: Communicator) -> None:
                sums(communicator)
                if communicator.rank == 0:
                    shown = read_terminal(ours, until=r"a-job-to-see \[/x\].*running.*2/2")
                    assert "packets/s" in shown
                communicator.barrier()

            run_ranks(f"127.0.0.1:{port[1]}", 2, body, job="a-job-to-see [/x]")
            process.send_signal(signal.SIGINT)
            assert process.wait(LIMIT) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
    finally:
        os.close(ours)


def read_terminal(terminal: int, *, until: str) -> str:
    """What appears on a terminal up to a match of a pattern."""
    shown = ""
    deadline = time.monotonic() + LIMIT
    while not re.search(until, shown, re.DOTALL):
        left = deadline - time.monotonic()
        assert left > 0, f"no {until!r} in {shown!r}"
        if select.select([terminal], [], [], left)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
    return shown


@pytest.mark.parametrize("options", [(), ("--watch",)])
def test_it_serves_on_when_nobody_reads_its_output(options: tuple[str, ...]) -> None:
    """As in `wiresum switch | head -1`."""
    with started(*options) as process:
        address = read_ready(process)
        assert process.stdout is not None
        process.stdout.close()
        if options:
            time.sleep(1.5)  # until it has something to say again
        run_ranks(address, 2, sums)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
