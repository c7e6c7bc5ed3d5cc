"""Worker processes that have torch loaded and run one scenario after the other, each in a process group of its own.

Loading torch takes seconds and a scenario a fraction of one, so the tests of a file share the processes.
"""

import contextlib
import multiprocessing
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any, Self, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

from host.pytorch.fallback import Fallback
from host.pytorch.options import BackendOptions
from host.pytorch.registration import register
from wiresum.processes import die_with_parent

T = TypeVar("T")

SECONDS = 30.0  # that a collective may take
PATIENCE = 100.0  # that a scenario may take; above the time-out of what it calls


class Rank:
    """What a scenario knows of the process that it runs in."""

    def __init__(self, rank: int, size: int, switch: str, store_port: int) -> None:
        self.rank, self.size, self.switch = rank, size, switch
        self._store_port = store_port
        self._store: TCPStore | None = None
        self._kept: list[dist.ProcessGroup] = []
        self.scenario = 0

    def store(self, part: str = "") -> PrefixStore:
        """A store of this scenario's own, the same on all ranks."""
        if self._store is None:
            self._store = TCPStore("127.0.0.1", self._store_port, is_master=False, timeout=timedelta(seconds=SECONDS))
        return PrefixStore(f"{self.scenario}/{part}", self._store)

    @contextlib.contextmanager
    def group(
        self, backend: str = "wiresum", *, part: str = "", seconds: float = SECONDS, **options: Any
    ) -> Iterator[Any]:
        """The default process group, for as long as the context lasts."""
        options.setdefault("switch", self.switch)
        # An init_process_group that fails leaves this counter behind, which is part of the next group's name.
        dist.distributed_c10d._world.group_count = 0
        dist.init_process_group(
            backend,
            store=self.store(part),
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=seconds),
            pg_options=BackendOptions(**options) if "wiresum" in backend else None,
        )
        try:
            world = dist.group.WORLD
            assert world is not None
            if backend == "gloo":
                # In torch 2.13 a group of plain Gloo that is let go too soon may hang or abort the process: a thread of
                # its own may still need the GIL, or hold the last reference.
                self._kept.append(world)
            yield world
        finally:
            dist.destroy_process_group()


class WorkerPool:
    """`size` processes, ranks 0 to size - 1.

    Args:
        size: how many.
        switch: control address of the switch.
    """

    def __init__(self, size: int, switch: str) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._scenarios = 0
        # Forked from one process that has loaded torch: loading it takes seconds of processor time.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__, "torch._dynamo"])
        self._connections: list[Connection] = []
        self.processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, size, switch, self._store.port), daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self.processes.append(process)

    def start(self, scenario: Callable[..., Any], *args: Any) -> None:
        """Has every worker call `scenario(rank, *args)`; it must be a function of a module."""
        assert self._connections, "the workers were ended when they did not finish an earlier scenario"
        self._scenarios += 1
        for connection in self._connections:
            connection.send((self._scenarios, scenario, args))

    def results(self, *, but: tuple[int, ...] = ()) -> list[Any]:
        """What the workers returned, by rank; without the ranks in `but`, which are not waited for."""
        waiting = {c: rank for rank, c in enumerate(self._connections) if rank not in but}
        results: dict[int, Any] = {}
        failures = []
        while waiting:
            ready = wait(list(waiting), PATIENCE)
            if not ready:
                self.close()
                raise AssertionError(f"ranks {sorted(waiting.values())} did not finish in {PATIENCE} s")
            for connection in ready:
                assert isinstance(connection, Connection)
                rank = waiting.pop(connection)
                try:
                    good, result = connection.recv()
                except EOFError:
                    good, result = False, "the process ended"
                if good:
                    results[rank] = result
                else:
                    failures.append(f"rank {rank}:\n{result}")
        assert not failures, "\n".join(failures)
        return [results[rank] for rank in sorted(results)]

    def store(self, scenario: int, part: str) -> PrefixStore:
        """The store that the ranks have under the same name in the pool's scenario of that number, from 1."""
        return PrefixStore(f"{scenario}/{part}", self._store)

    def run(self, scenario: Callable[..., T], *args: Any) -> list[T]:
        """What `scenario(rank, *args)` returned on every worker."""
        self.start(scenario, *args)
        return self.results()

    def close(self) -> None:
        """Ends the processes, at once: torch alone takes half a second to leave."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()
            process.close()
        for connection in self._connections:
            connection.close()
        self._connections, self.processes = [], []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(connection: Connection, rank: int, size: int, switch: str, store_port: int) -> None:
    # The process that forked this one ends with the tests, even if those are killed in the middle of a scenario.
    die_with_parent(os.getppid())
    register()
    torch.set_num_threads(1)
    me = Rank(rank, size, switch, store_port)
    with contextlib.suppress(EOFError):
        while True:
            me.scenario, scenario, args = connection.recv()
            torch.manual_seed(0)
            Fallback._told.clear()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    answer = True, scenario(me, *args)
            except BaseException:
                answer = False, traceback.format_exc()
            connection.send(answer)


@contextlib.contextmanager
def recorded() -> Iterator[list[warnings.WarningMessage]]:
    """Every warning that the block makes, repeated ones too."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def bits(tensor: torch.Tensor) -> bytes:
    """The bytes of a tensor, to compare it bit for bit across processes."""
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
