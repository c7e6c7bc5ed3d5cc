"""The control service when processes die, stop, fork or are not what they seem: real processes, real signals."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from host.control import ControlClient
from protocol.errors import PeerLostError, SwitchLostError, SwitchUnreachableError
from tests.control_rack import ControlWorker, Rack, end, join_all, open_rack, python, read_line
from tests.test_control import in_thread, wait_until

AT_ONCE = 2.0  # seconds: some milliseconds in truth, but the machine may be busy; without the stream it would take ten

WORKER = """
import sys, time
from tests.control_rack import ControlWorker
worker = ControlWorker(sys.argv[1], int(sys.argv[2]))
print("connected", flush=True)
worker.join(int(sys.argv[3]))
print("joined", flush=True)
"""
THEN_WAIT = "time.sleep(600)\n"
# A data loader's process, which lives a while longer than its parent. It must not hold the connection open.
FORK_AND_WAIT = """
import os
child = os.fork()
if child == 0:
    time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""
FORK_AND_USE = """
import gc, multiprocessing, os
from protocol.errors import ClosedError

def child():
    try:
        worker.client.statistics()
    except ClosedError as error:
        assert "forked child" in str(error)
    else:
        raise AssertionError("the child could use it")
    worker.client.close()

forking = multiprocessing.get_context("fork")
children = [forking.Process(target=child) for _ in range(4)]
for each in children:
    each.start()
for each in children:
    each.join()
    assert each.exitcode == 0
if (number := os.fork()) == 0:  # ends as an ordinary script does
    del worker
    gc.collect()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) == 7
worker.client.statistics()
print("forked", flush=True)
sys.stdin.read()
worker.client.close()
"""
SWITCH = """
import time
from switch.control import ControlServer
from tests.control_rack import FakePlane
host, port = ControlServer(FakePlane(), host="127.0.0.1", port=0).start()
print(f"{host}:{port}", flush=True)
time.sleep(600)
"""


@pytest.fixture
def rack() -> Iterator[Rack]:
    with open_rack() as opened:
        yield opened


def worker_beside(rack: Rack, code: str) -> "tuple[ControlWorker, subprocess.Popen[str]]":
    """A job of this process, rank 0, and another, rank 1."""
    worker = rack.worker(0)
    thread, _ = in_thread(lambda: worker.join(2))
    process = rack.process(WORKER + code, rack.switch, 1, 2)
    assert [read_line(process) for _ in range(2)] == ["connected", "joined"]
    thread.join()
    return worker, process


def assert_lost_at_once(rack: Rack, worker: ControlWorker, since: float) -> None:
    failure = worker.failure()
    assert time.monotonic() - since < AT_ONCE
    assert isinstance(failure, PeerLostError)
    assert str(failure).startswith("rank 1 (127.0.0.1:")
    assert str(failure).endswith(") of job 'train' died")
    assert rack.server.jobs() == []


def test_killed_worker_is_named_at_once_and_its_job_can_begin_again(rack: Rack) -> None:
    worker, process = worker_beside(rack, THEN_WAIT)
    process.kill()
    assert_lost_at_once(rack, worker, time.monotonic())
    again = rack.joined(2)
    assert again[0].client.info.free_slots == 4096
    wait_until(lambda: len(rack.plane.jobs) == 1, "removal of the old job")


def test_killed_worker_is_named_at_once_though_its_forked_child_lives(rack: Rack) -> None:
    worker, process = worker_beside(rack, FORK_AND_WAIT)
    child = int(read_line(process))
    try:
        process.kill()
        assert_lost_at_once(rack, worker, time.monotonic())
    finally:
        os.kill(child, signal.SIGKILL)


def test_forked_children_can_do_no_harm_and_make_no_noise(rack: Rack) -> None:
    worker, process = worker_beside(rack, FORK_AND_USE)
    assert read_line(process) == "forked"
    assert worker.failures.empty()
    output, complaints = process.communicate(timeout=20)
    assert (output, complaints, process.returncode) == ("", "", 0)
    assert [job.joined for job in rack.server.jobs()] == [(0,)]


def test_worker_killed_while_it_waits_frees_its_rank(rack: Rack) -> None:
    process = rack.process(WORKER, rack.switch, 1, 2)
    assert read_line(process) == "connected"
    wait_until(lambda: len(rack.server.jobs()) == 1, "the join")
    process.kill()
    wait_until(lambda: rack.server.jobs() == [], "the switch to notice")
    rack.joined(2)


@pytest.mark.slow
def test_worker_that_stops_for_five_seconds_lives_and_one_that_stops_for_long_is_lost(rack: Rack) -> None:
    worker, process = worker_beside(rack, THEN_WAIT)
    process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    failure = worker.failure()
    assert isinstance(failure, PeerLostError)
    assert 5.5 < time.monotonic() - began < 14


def test_killed_switch_is_noticed_at_once_and_its_successor_serves() -> None:
    process = python(SWITCH)
    workers: list[ControlWorker] = []
    try:
        switch = read_line(process)
        workers = [ControlWorker(switch, rank) for rank in range(3)]
        join_all(workers)
        process.kill()
        began = time.monotonic()
        failures = [worker.failure() for worker in workers]
        assert time.monotonic() - began < AT_ONCE
        for failure in failures:
            assert isinstance(failure, SwitchLostError)
            assert str(failure).startswith(f"the switch at {switch} went away")
    finally:
        for worker in workers:
            worker.client.close()
        end(process)
    with pytest.raises(SwitchUnreachableError, match=switch):
        ControlClient(switch)
    with open_rack() as rack:
        rack.joined(3)


def test_killed_switch_ends_a_join_that_waits() -> None:
    process = python(SWITCH)
    worker = None
    try:
        switch = read_line(process)
        worker = waiting = ControlWorker(switch, 0)
        thread, outcome = in_thread(lambda: waiting.join(2))
        watcher = ControlClient(switch)
        wait_until(lambda: len(watcher.report().jobs) == 1, "the join")
        watcher.close()
        process.kill()
        began = time.monotonic()
        thread.join()
        assert time.monotonic() - began < AT_ONCE
        assert isinstance(outcome[0], SwitchLostError)
    finally:
        if worker is not None:
            worker.client.close()
        end(process)


# What is not a switch


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_address_where_nobody_listens_is_refused_at_once() -> None:
    port = free_port()
    began = time.monotonic()
    with pytest.raises(SwitchUnreachableError, match=f"127.0.0.1:{port}: connection refused"):
        ControlClient(f"127.0.0.1:{port}", timeout=30.0)
    assert time.monotonic() - began < AT_ONCE


def test_host_that_has_no_address_is_refused() -> None:
    with pytest.raises(SwitchUnreachableError, match=r"no-such-host\.invalid:50099"):
        ControlClient("no-such-host.invalid")


def test_service_that_says_nothing_is_given_up_on_after_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(SwitchUnreachableError, match=f"127.0.0.1:{port} accepts connections, but .* within 0.5 s"):
            ControlClient(f"127.0.0.1:{port}", timeout=0.5)
        assert 0.4 < time.monotonic() - began < 0.5 + AT_ONCE


class QuietHandler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_service_that_is_something_else_is_refused() -> None:
    with HTTPServer(("127.0.0.1", 0), QuietHandler) as web:
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.raises(SwitchUnreachableError, match="does not answer as a switch's control service"):
                ControlClient(f"127.0.0.1:{web.server_port}", timeout=20.0)
        finally:
            web.shutdown()
            thread.join()


def test_proxies_of_the_environment_are_not_asked(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    rack.joined(2)
