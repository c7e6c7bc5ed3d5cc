"""What a run shows while hosts are silent."""

import contextlib
import io
import os
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any, TextIO

import pytest
from rich.console import Console

from wiresum.lab.progress import Progress, Screen, Traffic
from wiresum.lab.run import listed


class Running:
    """A program that runs."""

    seconds = 12.3

    def __init__(self, name: str, code: int | None = None) -> None:
        self.name, self._code = name, code

    def poll(self) -> int | None:
        return self._code


PROGRAMS: Any = [Running("h1"), Running("h2", 0), Running("h3")]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("wiresum.lab.progress.monotonic", lambda: now[0])
    return now


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=60, legacy_windows=False)


def shown(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_silence_is_broken_rarely_where_lines_stay(clock: list[float]) -> None:
    made = console(terminal=False)
    progress = Progress(Screen(console=made))
    for _ in range(10 * 100):
        clock[0] += 0.1
        progress.tick(PROGRAMS)
    assert shown(made).splitlines() == ["wiresum mininet: 12 s: h1, h3 running"] * 4  # after 5, 10, 20 and 40 s


def test_a_terminal_has_one_line_that_host_output_replaces(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    made = console(terminal=True)
    screen = Screen(console=made)
    progress = Progress(screen)
    progress.tick(PROGRAMS)
    assert shown(made) == ""
    clock[0] += 3
    progress.tick(PROGRAMS)
    progress.tick(PROGRAMS)
    assert shown(made) == "12 s: h1, h3 running"
    clock[0] += 1.5
    progress.tick(PROGRAMS)
    assert shown(made) == "12 s: h1, h3 running\r\x1b[2K12 s: h1, h3 running"
    screen.line("h1", "epoch 1")
    assert screen.close()
    assert shown(made).endswith("\r\x1b[2K")
    assert capsys.readouterr().out == "[h1] epoch 1\n"
    progress.tick(PROGRAMS)
    assert shown(made).endswith("\r\x1b[2K")  # a host has just spoken
    screen.status("x" * 100)
    assert shown(made).endswith("K" + "x" * 59)  # or the terminal would break it


def test_steps_are_said_when_they_take_long(clock: list[float]) -> None:
    made = console(terminal=False)
    progress = Progress(Screen(console=made))
    for name in "abcd":
        progress.step(name)
        clock[0] += 3
    assert shown(made) == "wiresum mininet: c\n"


def test_a_closed_terminal_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    made = console(terminal=True)
    screen = Screen(console=made)
    screen.status("working")
    made.file.close()
    screen.tell("hello")
    screen.line("h1", "still there")
    assert screen.close()
    assert capsys.readouterr().out == "[h1] still there\n"


@pytest.fixture
def unread() -> Iterator[tuple[int, TextIO]]:
    """A pipe, for standard output: pytest takes it back between a fixture and its test."""
    reading, writing = os.pipe()
    stdout = os.fdopen(writing, "w", buffering=1)
    yield reading, stdout
    os.close(reading)  # whoever still writes fails
    with contextlib.suppress(OSError):
        stdout.close()


def write_lines(screen: Screen, count: int, ended: threading.Event) -> threading.Thread:
    def write() -> None:
        for number in range(count):
            screen.line("h1", f"{number:9,}" + 1000 * "x", lambda: not ended.is_set())

    thread = threading.Thread(target=write, name="host", daemon=True)
    thread.start()
    return thread


def test_hosts_wait_for_a_reader_and_the_run_does_not(
    unread: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", unread[1])
    made = console(terminal=False)
    screen = Screen(console=made)
    ended = threading.Event()
    thread = write_lines(screen, 1000, ended)
    thread.join(0.3)
    assert thread.is_alive()  # back-pressure
    screen.tell("hello")
    assert shown(made) == ""
    ended.set()
    thread.join(10)
    assert not thread.is_alive()  # nothing that the host has left is in its way
    screen.tell("the summary")
    assert not screen.close()
    told, summary, lost = shown(made).splitlines()
    assert (told, summary) == ("wiresum mininet: hello", "wiresum mininet: the summary")
    assert lost.endswith(" lines of hosts are only in the logs, as nobody reads them here")


def test_a_slow_reader_gets_everything_in_order(unread: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    reading, stdout = unread
    monkeypatch.setattr(sys, "stdout", stdout)
    screen = Screen(console=Console(file=stdout, width=60))
    ended = threading.Event()
    thread = write_lines(screen, 300, ended)
    read = bytearray(os.read(reading, 100))
    ended.set()
    thread.join(10)

    def go_on() -> None:
        while not read.endswith(b"summary\n"):
            read.extend(os.read(reading, 4096))

    reader = threading.Thread(target=go_on, daemon=True)
    reader.start()
    screen.tell("the summary")
    assert screen.close()
    reader.join(10)
    lines = read.decode().splitlines()
    assert [line.rstrip("x") for line in lines[:300]] == [f"[h1] {number:9,}" for number in range(300)]
    assert lines[300:] == ["wiresum mininet: the summary"]


def test_traffic_is_that_of_the_interfaces(clock: list[float]) -> None:
    traffic = Traffic([(os.getpid(), "lo"), (2**22 + 1, "lo")])  # and a host that has ended
    with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        for _ in range(100):
            udp.sendto(bytes(10_000), other.getsockname())
    clock[0] += 2
    sent, received = traffic.rates()
    assert sent >= 4.0  # a million bytes in two seconds
    assert received >= 4.0


def test_many_names_stay_short() -> None:
    assert listed(["h1", "h2"]) == "h1, h2"
    assert listed([f"h{number}" for number in range(1, 65)]) == "h1, h2, h3, h4, h5, h6, h7 and 57 more"
