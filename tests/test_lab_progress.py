"""What a run shows while hosts are silent."""

import io
import os
import socket
from typing import Any

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
