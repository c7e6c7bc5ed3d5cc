"""The process group of backend "wiresum": sums and averages through the switch, everything else over Gloo."""

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed exports them, but not to type checkers
from torch.distributed.distributed_c10d import GroupName

from host.communicator import Communicator
from host.pytorch.collectives import GlooCollectives
from host.pytorch.connection import open_communicator
from host.pytorch.fallback import Fallback, fallback_policy
from host.pytorch.options import BackendOptions
from host.pytorch.registration import BACKEND
from host.pytorch.rendezvous import agree_on_job, fresh_store
from host.pytorch.tensors import SUMMED, as_array, dtype_name, why_not
from host.pytorch.work import FailedWork, SumWork
from protocol.errors import ClosedError, WiresumError


class WiresumGroup(GlooCollectives):
    """A process group whose sums and averages go through the switch.

    `all_reduce` with SUM of float32, float16, bfloat16, int32, int16, int8 and uint8, and with AVG of the floating
    point types, goes through the switch: the result is the same bits on every rank. Everything else goes to an inner
    Gloo group, as `BackendOptions.fallback` says. A group of one rank needs no switch.

    A failure ends the group's sums for good, all with the same error; destroy the group and make a new one.

    The default group joins its job when it is made, so that a wrong address is known at once. A subgroup joins at its
    first sum: one that never sums takes no slots, and its first sum waits for all its ranks.

    Args:
        store: where the ranks meet; of this group alone.
        rank: this process's rank in the group.
        size: ranks in the group.
        timeout: of each collective, and of the wait for the other ranks to join.
        options: settings; the environment's are already in them.
        name: the group's name within the run, None for the default group.

    Raises:
        ValueError: no address of a switch was given, and there are other ranks.
        WiresumError: the default group could not join.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        timeout: timedelta,
        options: BackendOptions,
        name: str | None,
    ) -> None:
        if size > 1 and not options.switch:
            raise ValueError(
                f"backend {BACKEND!r} needs a switch: set WIRESUM_SWITCH=host:port, or give"
                " pg_options=wiresum.BackendOptions(switch='host:port')"
            )
        store = fresh_store(store, rank)
        # torch lets no subclass use the form with a store, which is the only one that its stubs know.
        super().__init__(rank, size)  # type: ignore[call-arg]
        self.options = options
        self._store = store
        self._timeout = timeout
        self._suffix = "" if name is None else f"/{name}"
        self._name = name or "0"
        self._lock = threading.Lock()
        self._communicator: Communicator | None = None
        self._closed = False
        self._fallback = Fallback(fallback_policy(options.fallback), to="Gloo")
        if name is None and size > 1:
            self.connect()
        try:
            gloo = dist.ProcessGroupGloo(PrefixStore("gloo/", store), rank, size, timeout=timeout)
        except BaseException:
            self._close_communicator()
            raise
        gloo._set_sequence_number_for_group()
        # Only the inner group holds Gloo. When DDP lets go of a group, it holds the GIL, which Gloo's threads may need
        # before they can be joined; when Python lets go of one, torch releases the GIL first.
        self._gloo = dist.ProcessGroup(store, rank, size)
        self._gloo._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            self._gloo._register_backend(torch.device(device), dist.ProcessGroup.BackendType.GLOO, gloo)

    def connect(self) -> Communicator:
        """The group's communicator, which joins the group's job on the first call; then all ranks must call.

        Raises:
            WiresumError: the switch cannot be reached or refuses, or a rank does not join in time; or the group is
                closed.
        """
        with self._lock:
            if self._closed:
                raise ClosedError(f"process group {self._name!r} is closed")
            if self._communicator is None:
                seconds = self._timeout.total_seconds()
                self._communicator = open_communicator(
                    self.options,
                    job=agree_on_job(
                        self._store,
                        rank=self.rank(),
                        wanted=self.options.job,
                        suffix=self._suffix,
                        timeout=self._timeout,
                    ),
                    rank=self.rank(),
                    world_size=self.size(),
                    timeout=seconds,
                    join_timeout=seconds,
                )
            return self._communicator

    def statistics(self) -> dict[str, float]:
        """The communicator's counters since it joined, such as bytes_sent and retransmissions; empty before."""
        with self._lock:
            return self._communicator.statistics() if self._communicator is not None else {}

    # What torch asks a group about itself.

    def getBackendName(self) -> str:  # noqa: N802
        """The name of the backend."""
        return BACKEND

    @property
    def group_name(self) -> GroupName:
        """The group's name within the run."""
        return GroupName(self._name)

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def get_group_store(self) -> Store:
        """The store where the group's ranks meet."""
        return self._store

    # Sums.

    def allreduce(self, tensors: Any, opts: Any = None, **arguments: Any) -> dist.Work:  # type: ignore[override]
        """Sums or averages one tensor over all ranks, in place.

        Args:
            tensors: a list of one tensor, or the tensor.
            opts: an AllreduceOptions, or a ReduceOp.
            arguments: `op` and `timeout`, as torch's own method has them. Such a time-out is Gloo's alone; a sum in the
                switch has the group's.

        Raises:
            WiresumError: it failed, if `opts.asyncOp` is false; else the work raises it.
            ValueError: more than one tensor, or one whose elements share memory.
        """
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if len(tensors) != 1:
            raise ValueError(f"allreduce takes a list of one tensor, not of {len(tensors)}")
        return self._all_reduce("all_reduce", tensors, _options(dist.AllreduceOptions(), opts, **arguments))

    def allreduce_coalesced(self, tensors: Sequence[torch.Tensor], opts: Any = None, **arguments: Any) -> dist.Work:
        """Sums or averages each tensor over all ranks, in place; they are streamed back to back."""
        options = _options(dist.AllreduceCoalescedOptions(), opts, **arguments)
        return self._all_reduce("all_reduce_coalesced", list(tensors), options)

    def _all_reduce(self, method: str, tensors: list[torch.Tensor], opts: dist.AllreduceOptions) -> dist.Work:
        try:
            op, reason = _reduction(opts.reduceOp)
            reasons = [reason] if reason else [f"of {why}" for why in map(why_not, tensors) if why is not None]
            if reasons:
                self._fallback.passes(f"{method} {reasons[0]}")
            else:
                return self._sum(tensors, op, synchronous=not opts.asyncOp)
        except WiresumError as error:
            if not opts.asyncOp:
                raise
            return FailedWork(error, tensors)
        if method == "all_reduce":
            return self._gloo.allreduce(tensors, opts)
        return self._gloo.allreduce_coalesced(tensors, opts)

    def _sum(self, tensors: list[torch.Tensor], op: str, *, synchronous: bool) -> dist.Work:
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) > 1:
            names = ", ".join(sorted(map(dtype_name, dtypes)))
            raise ValueError(f"tensors that are summed together must have one dtype, not {names}")
        if op == "mean" and not all(dtype.is_floating_point for dtype in dtypes):
            raise TypeError(f"the average of {dtype_name(dtypes.pop())} is not defined; use SUM, or floats")
        if self.size() == 1 or not tensors:
            return SumWork(None, tensors)
        communicator = self.connect()
        arrays, dtype = [as_array(tensor) for tensor in tensors], SUMMED[dtypes.pop()]
        if synchronous:
            communicator.all_reduce_many(arrays, op, dtype=dtype)
            return SumWork(None, tensors)
        return SumWork(communicator.all_reduce_many_async(arrays, op, dtype=dtype), tensors)

    # The end.

    def shutdown(self) -> None:
        """Leaves the job and closes all connections; collectives under way fail. Doing it again changes nothing."""
        self._close_communicator()
        self._gloo.shutdown()

    def abort(self) -> None:
        """The same as `shutdown`."""
        self._close_communicator()
        self._gloo.abort()

    def _close_communicator(self) -> None:
        with self._lock:
            self._closed = True
            communicator, self._communicator = self._communicator, None
        if communicator is not None:
            communicator.close()


def create_group(request: Any, options: Any) -> WiresumGroup:
    """Makes the process group that torch asks for; torch's creator function of the backend.

    Args:
        request: torch's DistributedBackendOptions.
        options: what `pg_options` was: a BackendOptions, or None.

    Raises:
        TypeError: `options` is something else.
    """
    default = dist.group.WORLD
    if options is None:
        # No default group yet means that it is the one to be made.
        options = default.options if isinstance(default, WiresumGroup) else BackendOptions()
    if not isinstance(options, BackendOptions):
        raise TypeError(f"pg_options of backend {BACKEND!r} must be a wiresum.BackendOptions, not {options!r}")
    return WiresumGroup(
        request.store,
        request.group_rank,
        request.group_size,
        timeout=request.timeout,
        options=options.with_environment(),
        name=request.group_id if request.global_ranks_in_group else None,
    )


def _reduction(op: Any) -> tuple[str, str | None]:
    """The communicator's name of a torch reduction, and why the switch cannot do it, if so."""
    # ReduceOp compares equal to its members, but does not hash as they do.
    if op == dist.ReduceOp.SUM:
        return "sum", None
    if op == dist.ReduceOp.AVG:
        return "mean", None
    name = getattr(op, "op", op)
    return "", f"with {getattr(name, 'name', name)}: the switch computes sums and averages"


def _options(options: Any, opts: Any, *, op: Any = None, timeout: timedelta | None = None) -> Any:
    """The options of a call, whichever of torch's three ways the caller chose to give them."""
    if isinstance(opts, dist.AllreduceOptions | dist.AllreduceCoalescedOptions):
        return opts
    chosen = opts if opts is not None else op
    if chosen is not None:
        options.reduceOp = chosen
    if timeout is not None:
        options.timeout = timeout
    return options
