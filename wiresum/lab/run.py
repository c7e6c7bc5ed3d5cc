"""Runs one command on every host of a network, as torchrun would, and gathers what comes of it."""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from wiresum.lab.network import Lab
from wiresum.lab.programs import Program, end_all
from wiresum.processes import describe_exit

GRACE_SECONDS: Final = 10.0  # for the others, after one host has failed
_POLL_SECONDS: Final = 0.05
_TIME_LIMIT_CODE: Final = 124  # as of timeout(1)
_FAILURE: Final = 1
_NAMED: Final = 8


@dataclass(frozen=True, kw_only=True)
class HostResult:
    """How the command ended on one host: its exit code is 128 + N for signal N."""

    name: str
    code: int
    seconds: float
    log: str


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """How the command ended.

    Attributes:
        code: the first that was not 0, in time; 1 if only the network failed.
        hosts: by rank.
        problems: what went wrong, in words.
    """

    code: int
    hosts: tuple[HostResult, ...]
    problems: tuple[str, ...]

    def ended_by(self, number: signal.Signals | None) -> "CommandResult":
        """The result of a run that was ended by a signal, if one came, during the command or after it."""
        if number is None:
            return self
        said = any(problem.startswith(interrupted(number)) for problem in self.problems)
        return replace(
            self, code=128 + number, problems=self.problems if said else (*self.problems, interrupted(number))
        )


def run_command(
    lab: Lab,
    command: Sequence[str] | Callable[[int], Sequence[str]],
    *,
    logs: Path,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str, str], None] = lambda host, line: None,
    on_tick: Callable[[Sequence[Program]], None] = lambda programs: None,
    time_limit: float | None = None,
    grace: float = GRACE_SECONDS,
    stop: Callable[[], signal.Signals | None] = lambda: None,
) -> CommandResult:
    """Runs the command on all hosts and waits.

    When it fails on one host, or a switch ends, the others have `grace` seconds to notice. When a node's shell ends, so
    does the run.

    Args:
        lab: the network.
        command: its words, the same everywhere, or a function of the rank.
        logs: folder for HOST.log.
        environment: variables added to this process's and the worker's own.
        on_line: called from threads, one at a time, with a host's name and each line it writes.
        on_tick: called many times a second.
        time_limit: seconds until it is ended, with exit code 124.
        grace: see above.
        stop: a signal that has come and ends the command, with exit code 128 + N.
    """
    started: list[Program] = []
    deadline = None if time_limit is None else time.monotonic() + time_limit
    telling = threading.Lock()

    def tell(host: str, line: str) -> None:
        with telling:
            on_line(host, line)

    try:
        for rank, host in enumerate(lab.topology.hosts):
            if stop() is not None:
                break
            started.append(
                lab.host(host.name).launch(
                    host.name,
                    command(rank) if callable(command) else command,
                    environment=_environment(lab, rank, environment or {}),
                    log=logs / f"{host.name}.log",
                    on_line=partial(tell, host.name),
                )
            )
        with _Ends(started) as ends:
            code, problems = _await(lab, started, ends, deadline, on_tick, grace, stop)
    finally:
        end_all(started)
    codes = [_code(program.poll() or 0) for program in started]
    logs_of = [program.log for program in (*started, *lab.programs()) if program.log is not None]
    problems += [log.problem for log in logs_of if log.problem]
    return CommandResult(
        code=code,
        hosts=tuple(
            HostResult(name=program.name, code=own, seconds=round(program.seconds, 3), log=f"{program.name}.log")
            for program, own in zip(started, codes, strict=True)
        ),
        problems=tuple(problems),
    )


def _environment(lab: Lab, rank: int, more: Mapping[str, str]) -> dict[str, str]:
    # Under sudo, PATH leaves out the virtual environment that we run from.
    own = str(Path(sys.executable).parent)
    path = os.pathsep.join([own, os.environ.get("PATH", os.defpath)])
    inherited = {name: value for name, value in os.environ.items() if name != "GLOO_SOCKET_IFNAME"}
    return {**inherited, "PATH": path, **lab.worker_environment(rank), **more}


class _Ends:
    """Wakes up when a program ends, so that ends are seen in the order in which they come."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._descriptors = {program.name: os.pidfd_open(program.pid) for program in programs}
        self._poll = select.poll()
        for descriptor in self._descriptors.values():
            self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Returns after so many seconds, or when one of those ends that are not forgotten."""
        self._poll.poll(seconds * 1000)

    def forget(self, name: str) -> None:
        """Its end is known."""
        self._poll.unregister(self._descriptors[name])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


def _await(
    lab: Lab,
    running: Sequence[Program],
    ends: _Ends,
    deadline: float | None,
    on_tick: Callable[[Sequence[Program]], None],
    grace: float,
    stop: Callable[[], signal.Signals | None],
) -> tuple[int, list[str]]:
    code, problems = 0, []
    lost: set[str] = set()
    end: float | None = None
    ended: set[str] = set()
    while True:
        for program in running:
            status = program.poll()
            if status is None or program.name in ended:
                continue
            ended.add(program.name)
            ends.forget(program.name)
            if status:
                problems.append(f"{program.name} {describe_exit(status)}")
                code = code or _code(status)
                end = end or time.monotonic() + grace
        for program, status in lab.failed_programs():
            if program.name not in lost:
                lost.add(program.name)
                said = program.said().splitlines()[-1:]
                said = [f"it said last: {line}" for line in said]
                problems.append("; ".join([f"{program.name} {describe_exit(status)} while hosts were running", *said]))
                end = end or time.monotonic() + grace
        left = listed([program.name for program in running if program.name not in ended])
        if (number := stop()) is not None:
            return 128 + number, [*problems, interrupted(number, left)]
        if not left:
            return code or (_FAILURE if lost else 0), problems
        if gone := lab.lost_nodes():
            return code or _FAILURE, [*problems, lost_shells(gone)]
        now = time.monotonic()
        if deadline is not None and now > deadline:
            return code or _TIME_LIMIT_CODE, [*problems, f"the time limit has passed with {left} still running"]
        if end is not None and now > end:
            return code or _FAILURE, [*problems, f"{left} did not end by themselves within {grace:g} s of that"]
        on_tick(running)
        ends.wait(_POLL_SECONDS)


def lost_shells(names: Sequence[str]) -> str:
    """What a summary says of nodes whose shells have ended."""
    return f"the network fell apart: Mininet's shell of {listed(names)} has ended"


def listed(names: Sequence[str]) -> str:
    """Names in a line that stays short."""
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"


def interrupted(number: signal.Signals, left: str = "") -> str:
    """What a summary says of a run that a signal has ended; `left` are the hosts that were running."""
    return f"interrupted by {number.name}" + (f" with {left} still running" if left else "")


def _code(status: int) -> int:
    return status if status >= 0 else 128 - status


def terminate_on(*numbers: signal.Signals) -> None:
    """Has signals unwind the stack, with exit code 128 + N, so that everything is cleaned up as after Ctrl-C."""

    def on_signal(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    for number in numbers:
        signal.signal(number, on_signal)
