"""Ranks in processes of their own, for what cannot be done to a thread: to be killed, stopped, interrupted, forked.

`RankProcess` starts one; the rest of this file is what runs in it.
"""

import hashlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from host.communicator import Communicator
from host.control import ControlClient
from protocol.errors import WiresumError
from tests.starter import ForkedChild, Starter

_LIMIT: Final = 60.0


class RankProcess(
    ForkedChild, starter=Starter("host.communicator", "host.control", "protocol.control_grpc", "tests.host_kernels")
):
    """One rank of a job that runs one of the scenarios below.

    Args:
        scenario: name of a function of this file.
        switch: control address.
        timeout: seconds that a collective may take.
        values: per packet; None leaves it to the switch.
        prefix: `ip netns exec NAME`, or nothing.
    """

    def __init__(
        self,
        scenario: str,
        switch: str,
        *,
        job: str,
        rank: int,
        world_size: int,
        timeout: float = 300.0,
        values: int | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        super().__init__(
            "tests.rank_process",
            [scenario, switch, job, str(rank), str(world_size), str(timeout), str(values or 0)],
            name=f"rank {rank}",
            on_line=self._lines.put,
            prefix=prefix,
        )

    def expect(self, line: str) -> None:
        """Waits for the process to say this; fails if it says something else, or ends."""
        said = self._lines.get(timeout=_LIMIT)
        assert said == line, self.failure(f"said {said!r} instead of {line!r}")

    def read(self) -> str:
        """Waits for the process to say anything; fails if it ends."""
        said = self._lines.get(timeout=_LIMIT)
        assert said is not None, self.failure("ended without a word")
        return said


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def sum_once(communicator: Communicator) -> None:
    array = np.ones(1000, np.float32)
    communicator.all_reduce(array)
    assert (array == communicator.world_size).all()


def sum_for_ever(communicator: Communicator) -> None:
    """One large tensor after another; says how many."""
    array = np.zeros(4_000_000, np.int32)
    while True:
        array[:] = communicator.rank + 1
        communicator.all_reduce(array)
        assert (array == communicator.world_size * (communicator.world_size + 1) // 2).all()
        say("summed")


def sum_as_long_as_rank_0_wants(communicator: Communicator) -> None:
    array = np.zeros(500_000, np.float32)
    while True:
        array[:] = communicator.rank + 1
        communicator.all_reduce(array)
        assert (array == communicator.world_size * (communicator.world_size + 1) // 2).all()
        go_on = np.zeros(1, np.int32)
        if not communicator.all_reduce(go_on):
            return
        say("summed")


def end_without_close(communicator: Communicator) -> None:
    """What a script does that does not know of `close`: sums, and something still under way at its end."""
    sum_once(communicator)
    communicator.all_reduce_async(np.ones(10, np.float32)).wait()
    communicator.all_reduce_async(np.ones(10, np.float32))
    say("ending")


def raise_in_user_code(communicator: Communicator) -> None:
    sum_once(communicator)
    raise LookupError("a fault of the user's")


def wait_in_vain(communicator: Communicator) -> None:
    """For a collective that the others do not call."""
    sum_once(communicator)
    say("waiting")
    communicator.all_reduce(np.ones(100_000, np.float32))


def wait_for_handle_in_vain(communicator: Communicator) -> None:
    sum_once(communicator)
    handle = communicator.all_reduce_async(np.ones(100_000, np.float32))
    say("waiting")
    handle.wait()


def fork(communicator: Communicator) -> None:
    """Children as a data loader makes them: they neither disturb their parent nor can they use its Communicator."""
    sum_once(communicator)
    pending = communicator.all_reduce_async(np.ones(3_000_000, np.float32))
    child = os.fork()
    if child == 0:
        refused = 0
        calls: list[Callable[[], object]] = [
            lambda: sum_once(communicator),
            lambda: communicator.all_reduce_async(np.ones(3, np.float32)),
            communicator.statistics,
            pending.wait,
        ]
        for call in calls:
            try:
                call()
            except WiresumError as error:
                refused += "forked child" in str(error)
        with communicator:
            pass
        communicator.close()
        try:
            ControlClient(sys.argv[2], timeout=0.5)
        except WiresumError as error:
            refused += "forked" in str(error)
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    assert (pending.wait() == communicator.world_size).all()
    sum_once(communicator)
    say("fine")
    communicator.close()


def bits_of_sums(communicator: Communicator) -> str:
    """A digest of the bits of sums of several types and sizes."""
    rng = np.random.default_rng(communicator.rank)
    digest = hashlib.sha256()
    for size in (1, 63, 5000):
        floats = rng.standard_normal(size) * 10.0 ** rng.integers(-30, 30, size)
        for dtype in (np.float32, np.float16):
            with np.errstate(over="ignore"):
                digest.update(communicator.all_reduce(floats.astype(dtype)).tobytes())
        for kind in (np.int32, np.int8):
            limits = np.iinfo(kind)
            array = rng.integers(limits.min, limits.max, size, endpoint=True).astype(kind)
            digest.update(communicator.all_reduce(array).tobytes())
    return digest.hexdigest()


def say_sums(communicator: Communicator) -> None:
    say(bits_of_sums(communicator))
    communicator.close()


def sum_and_leave(communicator: Communicator) -> None:
    sum_once(communicator)
    communicator.close()
    say("left")


def sum_and_idle(communicator: Communicator) -> None:
    """Never comes to the second collective."""
    sum_once(communicator)
    say("idle")
    time.sleep(_LIMIT)


def say_what_fails(communicator: Communicator) -> None:
    """Says the error of a second collective."""
    sum_once(communicator)
    say("waiting")
    try:
        communicator.all_reduce(np.ones(1000, np.float32))
    except WiresumError as error:
        say(f"{type(error).__name__}: {error}")


def watchdog() -> None:
    """A rank that hangs must not outlive its test, which reports it by the exit code."""
    time.sleep(_LIMIT)
    os._exit(99)


def main() -> None:
    scenario, switch, job, rank, world_size, timeout, values = sys.argv[1:]
    threading.Thread(target=watchdog, daemon=True).start()
    communicator = Communicator(
        switch=switch,
        job=job,
        rank=int(rank),
        world_size=int(world_size),
        values_per_packet=int(values) or None,
        timeout=float(timeout),
    )
    body: Callable[[Communicator], None] = globals()[scenario.removeprefix("with:")]
    if scenario.startswith("with:"):
        with communicator:
            body(communicator)
    else:
        body(communicator)


if __name__ == "__main__":
    main()
