"""The torch-free front of the host agent: sums numpy arrays over the ranks of a job."""

import atexit
import operator
import os
import threading
import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from host import environment
from host.arrays import prepare
from host.control import ControlClient
from host.engine import Engine
from host.handle import Handle
from host.history import History
from host.prepare import prepare_host
from host.worker import Worker
from protocol.constants import DEFAULT_VALUES, MAX_SLOTS, check_slots, packet_bytes, size_code
from protocol.control import format_address
from protocol.datagrams import DatagramSocket
from protocol.errors import SwitchUnreachableError, WiresumError
from protocol.faults import FaultInjector, FaultRates

DEFAULT_JOB = "default"


class Communicator:
    """One rank of one job on a wiresum switch. Thread-safe; a context manager.

    At its end a with statement waits for what is under way, and raises the error of a collective that has failed
    without anybody having asked its handle. When an exception leaves it, it does not wait.

    All ranks must call the same collectives in the same order, whatever threads they call them from. If they do not,
    all are told, but a tensor of a few packets may have reached a rank before that, wrong: it is told in its next call.
    After a failure every further call raises the same error; a new Communicator makes a new job.

    Args:
        switch: control address, "host:port" or "host"; None takes the environment variable WIRESUM_SWITCH.
        job: name that the ranks of one job share and no other job on the switch uses at the same time; None takes
            WIRESUM_JOB, or else "default".
        rank: 0 to world_size - 1; None takes RANK, which torchrun sets.
        world_size: ranks of the job, at most 32 on one switch and 1024 over a tree of switches; None takes WORLD_SIZE.
        values_per_packet: 32, 64, 128, 256 (which fits an Ethernet frame), 512, 1024 or 2048; None takes
            WIRESUM_VALUES_PER_PACKET, or else the most that the switch can add, up to 256.
        slots: pool size, a power of two; None takes WIRESUM_SLOTS, or else leaves it to the switch, which takes no more
            than the workers' receive buffers hold. The smallest wish of all ranks counts.
        timeout: seconds that one collective may take, from the call on.
        join_timeout: seconds to wait for the other ranks.
        faults: faults to inject into this worker's packets, in both directions.
        fault_seed: their seed.

    Raises:
        TypeError, ValueError: a malformed address or number, or a variable of the environment that holds one.
        SwitchUnreachableError, JoinRefusedError, JoinTimeoutError: see there.
    """

    _is_open = False

    def __init__(
        self,
        *,
        switch: str | None = None,
        job: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        values_per_packet: int | None = None,
        slots: int | None = None,
        timeout: float = 300.0,
        join_timeout: float = 60.0,
        faults: FaultRates | None = None,
        fault_seed: int = 0,
    ) -> None:
        switch = environment.switch_or(switch)
        if switch is None:
            raise ValueError(f"no switch: give switch='host:port' or set {environment.SWITCH}=host:port")
        rank = _integer("rank", environment.rank_or(rank))
        world_size = _integer("world_size", environment.world_size_or(world_size))
        if values_per_packet is not None:
            values_per_packet = _integer("values_per_packet", values_per_packet)
            size_code(values_per_packet)
        if world_size < 1:
            raise ValueError(f"world_size must be at least 1, not {world_size}")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, not {rank}")
        for name, seconds in (("timeout", timeout), ("join_timeout", join_timeout)):
            if not seconds > 0:
                raise ValueError(f"{name} must be above 0 seconds, not {seconds}")
        if job is not None and not isinstance(job, str):
            raise TypeError(f"job must be a string, not {job!r}")
        if slots is not None:
            slots = check_slots(_integer("slots", slots))
        job = environment.job_or(job)
        job = DEFAULT_JOB if job is None else job
        values_per_packet, slots = environment.values_or(values_per_packet), environment.slots_or(slots)
        self._rank, self._world_size, self._job = rank, world_size, job
        self._timeout = timeout
        self._history = History()
        self._process = os.getpid()
        self._final_statistics: dict[str, float] | None = None
        self._control = ControlClient(switch)  # first, so that a wrong address is known at once
        prepare_host()
        engine: Engine | None = None
        udp: DatagramSocket | None = None
        try:
            info = self._control.info
            self._values = values_per_packet or _most_values(info.values_supported)
            udp = DatagramSocket(("0.0.0.0", 0))
            try:
                udp.connect((info.data_host, info.data_port))
            except OSError as error:
                address = format_address((info.data_host, info.data_port))
                reason = error.strerror or error
                raise SwitchUnreachableError(
                    f"the switch at {switch} takes packets at {address}, which cannot be reached from here: {reason}"
                ) from error
            membership = self._control.join(
                job=job,
                rank=rank,
                world_size=world_size,
                udp=udp.address,
                values=self._values,
                slots=slots or 0,
                most_slots=_slots_for(udp.receive_bytes, self._values),
                timeout=join_timeout,
            )
            self._slots = membership.slots
            worker = Worker(
                job=membership.job_number, world_size=world_size, slots=membership.slots, values=self._values
            )
            faulty = faults is not None and faults.any
            # No thread may refer to this object, or it could never be collected.
            control = self._control
            self._engine = engine = Engine(
                worker,
                udp,
                flow=rank,
                outbound=FaultInjector(faults, seed=fault_seed, stream=0) if faults and faulty else None,
                inbound=FaultInjector(faults, seed=fault_seed, stream=1) if faults and faulty else None,
                describe_stall=lambda: _describe_stall(control, worker),
                report_disagreement=control.disagree,
                give_up=control.leave,
            )
            control.watch(on_failure=engine.fail, explain=self._history.explain)
        except BaseException:
            if engine is not None:
                engine.close()
            elif udp is not None:
                udp.close()
            self._control.close()
            raise
        self._is_open = True
        _open.add(self)

    @property
    def rank(self) -> int:
        """This worker's rank."""
        return self._rank

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self._world_size

    @property
    def job(self) -> str:
        """Name of the job."""
        return self._job

    @property
    def slots(self) -> int:
        """Slots of the job's pool, as granted."""
        return self._slots

    @property
    def values_per_packet(self) -> int:
        """Values that one packet carries."""
        return self._values

    def all_reduce(
        self,
        array: npt.NDArray[Any],
        op: str = "sum",
        *,
        out: npt.NDArray[Any] | None = None,
        dtype: str | None = None,
    ) -> npt.NDArray[Any]:
        """Reduces an array over all ranks and returns the result, the same bits on every rank.

        Args:
            array: any shape and strides; float32, float16, int32, int16, int8 or uint8.
            op: "sum", or "mean" for floats.
            out: where the result goes, of the array's shape and dtype; None puts it in the array's place.
            dtype: "bfloat16" for a uint16 array that holds the bits of bfloat16 numbers.

        Raises:
            TypeError, ValueError: an argument that cannot be reduced, or written to.
            WiresumError: the collective failed, see protocol/errors.py.
        """
        handle, _ = self._start([array], op, None if out is None else [out], dtype)
        self._engine.wait_for(handle, None)
        result: npt.NDArray[Any] = handle.wait()[0]
        return result

    def all_reduce_async(
        self,
        array: npt.NDArray[Any],
        op: str = "sum",
        *,
        out: npt.NDArray[Any] | None = None,
        dtype: str | None = None,
    ) -> Handle:
        """Starts `all_reduce` and returns a handle; neither array may be touched until it is done."""
        handle, outs = self._start([array], op, None if out is None else [out], dtype)
        handle.result = outs[0]
        self._engine.drive_in_background()
        return handle

    def all_reduce_many(
        self, arrays: Sequence[npt.NDArray[Any]], op: str = "sum", *, dtype: str | None = None
    ) -> list[npt.NDArray[Any]]:
        """Reduces several arrays in their places, streamed back to back."""
        handle, _ = self._start(list(arrays), op, None, dtype)
        self._engine.wait_for(handle, None)
        result: list[npt.NDArray[Any]] = handle.wait()
        return result

    def all_reduce_many_async(
        self, arrays: Sequence[npt.NDArray[Any]], op: str = "sum", *, dtype: str | None = None
    ) -> Handle:
        """Starts `all_reduce_many` and returns one handle for all arrays."""
        handle, _ = self._start(list(arrays), op, None, dtype)
        self._engine.drive_in_background()
        return handle

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self.all_reduce(np.zeros(1, np.int32))

    def statistics(self) -> dict[str, float]:
        """Packets and bytes that this worker sent and received, retransmissions, drops; times in seconds."""
        return dict(self._final_statistics) if self._final_statistics is not None else self._engine.statistics()

    def close(self) -> None:
        """Leaves the job; what is still under way fails with `ClosedError`. Idempotent."""
        if os.getpid() != self._process:
            return  # a forked child: the job is its parent's
        self._is_open = False
        _open.discard(self)
        if self._final_statistics is None:
            self._final_statistics = self._engine.statistics()
        _shut(self._engine, self._control)

    def __del__(self) -> None:
        if not self._is_open or os.getpid() != self._process:
            return
        # Whatever thread happens to be collecting garbage here may hold the locks that closing needs.
        threading.Thread(target=_shut, args=(self._engine, self._control), name="wiresum-close", daemon=True).start()
        warnings.warn(
            f"rank {self._rank} of job {self._job!r} was never closed: use a with statement, or close()",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._engine.drain()
        finally:
            self.close()

    def _start(
        self, arrays: list[npt.NDArray[Any]], op: str, outs: list[npt.NDArray[Any]] | None, dtype: str | None
    ) -> tuple[Handle, list[npt.NDArray[Any]]]:
        targets = arrays if outs is None else outs
        tensors, finish = prepare(arrays, targets, op, dtype)
        handle = Handle(self._engine, len(tensors), self._timeout)
        handle.result, handle.finish, handle.owner = targets, finish, self
        self._engine.submit(handle, tensors, self._history.add)
        return handle, targets


_open: WeakSet[Communicator] = WeakSet()


@atexit.register
def _close_all() -> None:
    """A rank whose program has ended has left: others that still fetch their last results must not call it dead."""
    for communicator in list(_open):
        communicator.close()


def _integer(name: str, number: int) -> int:
    """A plain integer, as launchers and numpy do not always give it."""
    try:
        return operator.index(number)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {number!r}") from None


def _shut(engine: Engine, control: ControlClient) -> None:
    engine.close()
    control.close()


def _describe_stall(control: ControlClient, worker: Worker) -> str:
    try:
        text = control.stall().describe()
    except WiresumError as error:
        text = f"and the switch could not say why: {error}"
    if not worker.statistics()["packets_received"]:
        address = format_address((control.info.data_host, control.info.data_port))
        text += (
            f". Not one packet has come here from {address}: is UDP filtered, or does the switch answer from another "
            "of its addresses? Then start it with --bind and the one that workers use"
        )
    return text


def _most_values(supported: Sequence[int]) -> int:
    """The values per packet of a job that leaves them to the switch: as many as fit an Ethernet frame."""
    return max(
        (values for values in supported if values <= DEFAULT_VALUES), default=min(supported, default=DEFAULT_VALUES)
    )


def _slots_for(receive_bytes: int, values: int) -> int:
    """The largest pool whose results fit into the receive buffer even one by one, each with its overhead."""
    fitting = max(1, receive_bytes // (3 * packet_bytes(values)))
    return min(MAX_SLOTS, 1 << (fitting.bit_length() - 1))
