"""UDP ports of the software switch: one thread that moves batches between sockets and the core.

Every worker has a connected socket on the switch's one address, so that each has a receive buffer of its own and the
kernel sorts the senders. What comes from anybody else arrives at the unconnected one. A leaf of a tree of switches has
a further socket for each job, from which the parent knows it.
"""

import os
import select
import time

import numpy as np
import numpy.typing as npt

from protocol.constants import VALUES_PER_PACKET
from protocol.control import format_address
from protocol.datagrams import DatagramSocket
from protocol.errors import WiresumError
from protocol.faults import FaultRates
from protocol.packets import Address, PacketBatch
from switch.core import Member, Outgoing, SwitchCore
from switch.dataplane import Counter, JobSpec, StalledSlot
from switch.packet_thread import PacketThread
from switch.port_faults import PortFaults
from switch.prepare import prepare_switch
from switch.pump_kernels import BURST, EVENTS_BYTES, SMALL_BYTES, serve

_DEFAULT_SLOTS = 512
_ROUNDS = 10_000  # waits in compiled code before Python has its turn


class UdpSwitch:
    """The software switch's data plane: a `DataPlane` served over UDP by a thread of its own.

    Args:
        bind: local address; port 0 takes a free one.
        total_slots: slots of 256 values that jobs share.
        faults_in, faults_out: faults injected into what workers and leaf switches send, and into what they are sent.
        faults_up_in, faults_up_out: of a leaf: into what the parent sends, and into what it is sent.
        seed: of the faults.
        offload: whether to use UDP segmentation and receive offload where the kernel has them.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(
        self,
        bind: Address,
        *,
        total_slots: int,
        faults_in: FaultRates | None = None,
        faults_out: FaultRates | None = None,
        faults_up_in: FaultRates | None = None,
        faults_up_out: FaultRates | None = None,
        seed: int = 0,
        offload: bool = True,
    ) -> None:
        prepare_switch()
        self._core = SwitchCore()
        self._total_slots = total_slots
        self._offload = offload
        self._faults = PortFaults(faults_in, faults_out, faults_up_in, faults_up_out, seed=seed)
        self._main = DatagramSocket(bind, offload=offload)
        self._main.allow_sharing()
        self._sockets: dict[Member, DatagramSocket] = {}
        self._by_fd: dict[int, DatagramSocket] = {self._main.fileno(): self._main}
        self._ports: npt.NDArray[np.int64] = np.zeros(64, np.int64)  # by descriptor: address of its PORT, or 0
        self._events = np.zeros(EVENTS_BYTES, np.uint8)
        self._parents: dict[int, Member] = {}  # by descriptor
        self._uplinks: dict[Address, DatagramSocket] = {}  # of jobs that are not installed yet
        self._flows: dict[int, Member] = {}
        self._closed_overflows = 0
        self._thread = PacketThread("wiresum-data", self._serve, self._finish, what="the switch's data plane")
        self._epoll = select.epoll()
        self._epoll.register(self._thread.wake, select.EPOLLIN)
        self._epoll.register(self._main.fileno(), select.EPOLLIN)
        self._thread.start()

    @property
    def address(self) -> Address:
        """Where workers send their packets."""
        return self._main.address

    @property
    def total_slots(self) -> int:
        """Slots of 256 values that jobs share."""
        return self._total_slots

    @property
    def values_supported(self) -> tuple[int, ...]:
        """All sizes of the protocol."""
        return VALUES_PER_PACKET

    @property
    def default_slots(self) -> int:
        """The pool of a job that leaves its size to the switch."""
        return _DEFAULT_SLOTS

    @property
    def offload(self) -> bool:
        """Whether the kernel segments and coalesces."""
        return self._main.can_segment and self._main.can_coalesce

    @property
    def alive(self) -> bool:
        """Whether the thread moves packets."""
        return self._thread.alive

    def add_job(self, spec: JobSpec) -> None:
        """Installs a job."""
        self._thread.call(lambda: self._add_job(spec))

    def remove_job(self, number: int) -> None:
        """Removes a job; afterwards its packets are dropped."""
        self._thread.call(lambda: self._remove_job(number))

    def open_uplink(self, parent: Address) -> Address:
        """Takes a source address for the packets of one job to its parent."""
        return self._thread.call(lambda: self._open_uplink(parent))

    def close_uplink(self, address: Address) -> None:
        """Gives a source address back that no job was installed with."""
        self._thread.call(lambda: self._close_uplink(address))

    def stalled(self, number: int) -> list[StalledSlot]:
        """Slots of a job that wait for some of its ranks."""
        return self._thread.call(lambda: self._core.stalled(number))

    def last_heard(self, number: int) -> list[float | None]:
        """Seconds since the last packet of each rank; None for a rank that was never heard."""
        return self._thread.call(lambda: self._last_heard(number))

    def statistics(self) -> list[Counter]:
        """All counters, of the switch as a whole and of each rank of each job."""
        return self._thread.call(self._statistics)

    def close(self) -> None:
        """Stops the thread and closes the sockets; idempotent."""
        self._thread.close()

    def _serve(self) -> None:
        # Faults that hold packets back need Python batch by batch; else one compiled loop serves the workers.
        compiled = self._faults.immediate
        if compiled:
            self._serve_compiled()
        self._serve_once(0.0 if compiled else None)

    def _finish(self) -> None:
        self._epoll.close()
        for udp in (*self._by_fd.values(), *self._uplinks.values()):
            udp.close()

    def _serve_compiled(self) -> None:
        """Serves workers until a command or a stranger comes."""
        reason = serve(
            self._epoll.fileno(), self._events.ctypes.data, self._ports.ctypes.data, self._ports.size, _ROUNDS
        )
        if reason < 0:
            raise OSError(-reason, os.strerror(-reason))

    def _serve_once(self, timeout: float | None) -> None:
        due = self._faults.next_due()
        if due is not None:
            timeout = max(0.0, due - time.monotonic())
        for fd, _ in self._epoll.poll(timeout):
            if fd == self._thread.wake:
                self._thread.run_calls()
                continue
            udp = self._by_fd.get(fd)
            if udp is None:
                continue  # its job was removed a moment ago
            for _ in range(BURST):
                received = udp.receive()
                if received is None:
                    break
                self._take(received, fd, udp.source, time.monotonic())
                if received.size > SMALL_BYTES:
                    break  # others' turn; small pieces, such as come after a loss, are better taken together
        now = time.monotonic()
        if timeout is not None:
            self._release(now)
        for outgoing in self._core.flush():
            self._send(outgoing, now)

    def _take(self, batch: PacketBatch, fd: int, source: Address, now: float) -> None:
        member = self._parents.get(fd)
        if member is None or source != member.address:
            member = self._core.members.get(source)
        if member is not None and self._faults.any:
            batch = self._faults.arriving(member, batch, now)
            if not batch.size:
                return
        if member is None:
            self._core.receive(batch, source, now)  # which counts it
            return
        for outgoing in self._core.receive_from(member, batch, now):
            self._send(outgoing, now)

    def _send(self, outgoing: Outgoing, now: float) -> None:
        for member in outgoing.members:
            batch = outgoing.batch
            if self._faults.any:
                batch = self._faults.leaving(member, batch, now)
                if not batch.size:
                    continue
            self._send_to(member, batch)

    def _send_to(self, member: Member, batch: PacketBatch) -> None:
        udp = self._sockets.get(member)
        if udp is None:
            return
        left = udp.send(batch)
        member.record["bytes_out"] += batch.size - left
        if left:  # no room: loss like any other, which the worker's timer repairs
            member.record["unsent"] += -(-left // batch.segment)

    def _release(self, now: float) -> None:
        """Lets go of packets that the fault injector has held back long enough."""
        for flow, batch in self._faults.due_from_members(now):
            held = self._flows.get(flow)
            if held is not None:
                for outgoing in self._core.receive_from(held, batch, now):
                    self._send(outgoing, now)
        for flow, batch in self._faults.due_to_members(now):
            held = self._flows.get(flow)
            if held is not None:
                self._send_to(held, batch)

    def _open_uplink(self, parent: Address) -> Address:
        try:
            udp = DatagramSocket(("0.0.0.0", 0), offload=self._offload)
            try:
                udp.connect(parent)
                address = udp.address
            except BaseException:
                udp.close()
                raise
        except OSError as error:
            raise WiresumError(f"no way to the parent switch at UDP {format_address(parent)}: {error}") from error
        self._uplinks[address] = udp
        return address

    def _close_uplink(self, address: Address) -> None:
        udp = self._uplinks.pop(address, None)
        if udp is not None:
            udp.close()

    def _add_job(self, spec: JobSpec) -> None:
        opened: list[DatagramSocket] = []
        try:
            for address in spec.workers:
                udp = DatagramSocket(self.address, offload=self._offload, share=True)
                opened.append(udp)
                udp.connect(address)
            if spec.uplink is not None:
                opened.append(self._uplinks.pop(spec.uplink.address))
            job = self._core.add_job(spec)
        except OSError as error:
            for udp in opened:
                udp.close()
            raise WiresumError(f"no port for the workers of job {spec.name!r}: {error}") from error
        for member, udp in zip(job.ends, opened, strict=True):
            self._sockets[member] = udp
            self._flows[member.flow] = member
            member.record["link"] = udp.link
            self._faults.attach(member)
            if member is job.parent:
                self._parents[udp.fileno()] = member
            self._by_fd[udp.fileno()] = udp
            self._ports = _with_room(self._ports, udp.fileno())
            self._ports[udp.fileno()] = job.port_address(member)
            self._epoll.register(udp.fileno(), select.EPOLLIN)

    def _remove_job(self, number: int) -> None:
        job = self._core.remove_job(number)
        if job is None:
            return
        for member in job.ends:
            self._flows.pop(member.flow, None)
            self._faults.forget(member)
            udp = self._sockets.pop(member)
            self._closed_overflows += udp.overflows()
            self._epoll.unregister(udp.fileno())
            self._ports[udp.fileno()] = 0
            self._parents.pop(udp.fileno(), None)
            del self._by_fd[udp.fileno()]
            udp.close()

    def _last_heard(self, number: int) -> list[float | None]:
        job = self._core.jobs.get(number)
        if job is None:
            return []
        now = time.monotonic()
        return [None if member.heard is None else now - member.heard for member in job.members]

    def _statistics(self) -> list[Counter]:
        whole = {
            "receive_overflows": self._closed_overflows + sum(udp.overflows() for udp in self._by_fd.values()),
            "oversized": sum(udp.truncated for udp in self._by_fd.values()),
            **self._faults.counters(),
        }
        rows = self._core.statistics()
        rows.extend(Counter(name=n, job=None, job_number=None, rank=None, value=v) for n, v in whole.items())
        return rows


def _with_room(table: npt.NDArray[np.int64], index: int) -> npt.NDArray[np.int64]:
    """The table, made longer if it has no place for that index."""
    if index < table.size:
        return table
    return np.concatenate([table, np.zeros(index + 1, np.int64)])
