"""A DDP communication hook that averages gradients through the switch, whatever backend the process group has."""

# Annotations here must be objects: DDP compares those of a hook, so this module does without the __future__ import.

import threading
import warnings
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket  # torch.distributed exports it, but not to type checkers

from host.communicator import Communicator
from host.pytorch.connection import open_communicator
from host.pytorch.fallback import Fallback, fallback_policy
from host.pytorch.options import BackendOptions
from host.pytorch.rendezvous import fresh_name
from host.pytorch.tensors import SUMMED, as_array, why_not
from host.pytorch.work import failed_future, future_of
from protocol.faults import FaultRates

_TRANSIENT: Final = ("_lock", "_communicator", "_failure")


class DDPState:
    """The state of `ddp_hook`: which switch, which job, and the connection to them.

    It connects when the first gradients are ready, or in `connect()`; all ranks of the process group must get there. It
    can be pickled, as in a checkpoint: what is loaded connects anew, and under a new job name unless it was given one.
    After a failure, each further bucket fails with the same error, until `close()` makes the state connect anew.

    Args:
        process_group: the one that DDP has; None is the default group. It is not pickled.
        switch: control address of the switch, "host:port" or "host"; else the environment's WIRESUM_SWITCH.
        job: name of the job at the switch; else WIRESUM_JOB; else one that no other run has, agreed on by a broadcast.
        rank: this process's rank in the job; else that in the process group.
        world_size: ranks in the job; else that of the process group. A job of one rank needs no switch.
        fallback: what to do about a bucket that the switch cannot add, such as one of float64: "warn" once and use the
            process group's all_reduce, "silent" does that without a word, "raise" makes the backward pass fail; else
            WIRESUM_FALLBACK, else "warn".
        values_per_packet: values in each packet; else WIRESUM_VALUES_PER_PACKET, else as the agent chooses.
        slots: slots of the job's pool, a power of two; else WIRESUM_SLOTS, else as the agent chooses.
        timeout: seconds that the averaging of a bucket may take.
        join_timeout: seconds to wait for the other ranks to join.
        faults: faults to inject on this worker's side, in both directions.
        fault_seed: seed of those faults.

    Raises:
        ValueError: `fallback`, or a variable of the environment, holds something else than it should.
    """

    _lock: threading.Lock
    _communicator: Communicator | None
    _failure: Exception | None

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        switch: str | None = None,
        job: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        fallback: str | None = None,
        values_per_packet: int | None = None,
        slots: int | None = None,
        timeout: float = 300.0,
        join_timeout: float = 60.0,
        faults: FaultRates | None = None,
        fault_seed: int = 0,
    ) -> None:
        self.process_group = process_group
        self.timeout = timeout
        self.join_timeout = join_timeout
        self.rank = rank
        self.world_size = world_size
        self.options = BackendOptions(
            switch=switch,
            job=job,
            fallback=fallback,
            values_per_packet=values_per_packet,
            slots=slots,
            faults=faults,
            fault_seed=fault_seed,
        )
        self.options.with_environment()  # to complain early
        self._disconnected()

    def connect(self) -> Communicator | None:
        """The connection to the switch, opened if there is none; then all ranks must call. None for a job of one rank.

        Raises:
            WiresumError: the switch cannot be reached or refuses, or a rank does not join in time.
            ValueError: no address of a switch was given.
            RuntimeError: torch.distributed is not initialized, and it is needed.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._communicator is None and self.ranks > 1:
                try:
                    self._communicator = self._open()
                except Exception as error:
                    self._failure = error
                    raise
            return self._communicator

    def _open(self) -> Communicator:
        options = self.options.with_environment()
        return open_communicator(
            options,
            job=options.job or self._agree_on_job(),
            rank=dist.get_rank(self.process_group) if self.rank is None else self.rank,
            world_size=self.ranks,
            timeout=self.timeout,
            join_timeout=self.join_timeout,
        )

    def _agree_on_job(self) -> str:
        names: list[Any] = [fresh_name()]
        dist.broadcast_object_list(names, group=self.process_group, group_src=0)
        return str(names[0])

    @property
    def ranks(self) -> int:
        """How many ranks the average is over."""
        return dist.get_world_size(self.process_group) if self.world_size is None else self.world_size

    def statistics(self) -> dict[str, float]:
        """The connection's counters, such as bytes_sent and retransmissions; empty while there is none."""
        with self._lock:
            return self._communicator.statistics() if self._communicator is not None else {}

    def close(self) -> None:
        """Leaves the job. The next use connects anew, with all ranks."""
        with self._lock:
            communicator, self._communicator, self._failure = self._communicator, None, None
        if communicator is not None:
            communicator.close()

    def fall_back(self, tensor: torch.Tensor, reason: str) -> "torch.futures.Future[torch.Tensor]":
        """Averages a bucket that the switch cannot add with the process group, if the policy lets it.

        Raises:
            FallbackForbiddenError: it does not.
        """
        policy = fallback_policy(self.options.fallback)
        Fallback(policy, to="the process group").passes(f"averaging gradients of {reason}")
        tensor.div_(self.ranks)
        work = dist.all_reduce(tensor, group=self.process_group, async_op=True)
        future: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
        return future

    def _disconnected(self) -> None:
        self._lock = threading.Lock()
        self._communicator = None
        self._failure = None

    def __getstate__(self) -> dict[str, Any]:
        if self.process_group is not None:
            warnings.warn(
                "a process group cannot be pickled: set process_group of the DDPState that is loaded, or it has the"
                " default group",
                stacklevel=2,
            )
        return {
            **{name: value for name, value in vars(self).items() if name not in _TRANSIENT},
            "process_group": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._disconnected()


def ddp_hook(state: DDPState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients over all ranks through the switch; for `register_comm_hook`.

    The result is the same bits on every rank. The error bound is that of a sum in blocks of one packet (see the
    protocol, section 4). Whatever goes wrong makes the backward pass raise a RuntimeError with our error's text, and
    leaves the model usable.

    Example:
        >>> model.register_comm_hook(DDPState(), ddp_hook)
    """
    tensor = bucket.buffer()
    # A hook that raises leaves DDP unusable, so that every error must come out of the future.
    try:
        reason = why_not(tensor)
        if reason is not None:
            return state.fall_back(tensor, reason)
        communicator = state.connect()
        if communicator is None:
            return future_of(None, tensor)
        handle = communicator.all_reduce_async(as_array(tensor), "mean", dtype=SUMMED[tensor.dtype])
    except Exception as error:
        return failed_future(error)
    return future_of(handle, tensor)
