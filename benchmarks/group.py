"""Drives the worker processes of a benchmark."""

import contextlib
import multiprocessing
import os
from multiprocessing.connection import wait
from statistics import fmean
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.participant import Timing, serve

_SECONDS: Final = 180.0  # no command takes longer


class Group:
    """A number of worker processes that carry out the same command at the same time.

    They stay alive from one command to the next, and end with this process.
    """

    def __init__(self, world_size: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(world_size)  # its semaphores go when this object goes
        self.world_size = world_size
        self._connections = []
        self._processes = []
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            arguments = (theirs, rank, world_size, self._barrier, os.getpid())
            process = context.Process(target=serve, args=arguments, name=f"worker {rank}", daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    @property
    def pids(self) -> list[int]:
        """Process ids by rank."""
        return [process.pid for process in self._processes if process.pid is not None]

    def call(self, method: str, **arguments: Any) -> list[Any]:
        """Has every worker carry out a method of `Participant`; returns the results by rank.

        Raises:
            RuntimeError: a worker failed, ended or did not answer; the text names each.
        """
        for connection in self._connections:
            with contextlib.suppress(ConnectionError):  # it has ended; told below
                connection.send((method, arguments))
        results = []
        failures = []
        for rank, (connection, process) in enumerate(zip(self._connections, self._processes, strict=True)):
            ready = wait([connection, process.sentinel], _SECONDS)
            if connection in ready:
                try:
                    succeeded, result = connection.recv()
                except (EOFError, ConnectionError):
                    succeeded, result = False, "ended"
            else:
                succeeded, result = False, "ended" if ready else f"did not answer within {_SECONDS:g} s"
            results.append(result)
            if not succeeded:
                failures.append(f"worker {rank}: {result}")
        if failures:
            raise RuntimeError(f"{method} failed; " + "; ".join(failures))
        return results

    def time(self, name: str, iterations: int) -> Timing:
        """One sample: the slowest worker's time for one all_reduce, and the mean of the workers' CPU time."""
        timings: list[Timing] = self.call("time", name=name, iterations=iterations)
        return Timing(
            seconds=max(timing.seconds for timing in timings),
            cpu_seconds=fmean(timing.cpu_seconds for timing in timings),
        )

    def close(self) -> None:
        """Has the workers close what they opened and ends them."""
        try:
            self.call("shut_down")
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends the workers at once."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(2.0)
            process.kill()
            process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.kill()
