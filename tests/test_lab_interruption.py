"""Signals that end a run: while a network is taken down they wait, and are not lost."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from wiresum.lab.interruption import signals_later

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def taken(number: signal.Signals) -> list[int]:
    """What a handler hears of a signal that came within, from the main thread or beside another one."""
    heard: list[int] = []
    before = signal.signal(number, lambda number, _: heard.append(number))
    try:
        with signals_later():
            os.kill(os.getpid(), number)
            assert heard == []
    finally:
        signal.signal(number, before)
    return heard


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_waits_and_is_not_lost(number: signal.Signals) -> None:
    assert taken(number) == [number]


def test_it_waits_where_another_thread_may_take_it() -> None:
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    try:
        assert taken(signal.SIGINT) == [signal.SIGINT]
    finally:
        end.set()
        other.join()


def test_programs_started_meanwhile_are_spared() -> None:
    program = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('lives')"
    with signals_later():
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "lives\n"
