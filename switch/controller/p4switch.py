"""The data plane on a P4Runtime target: BMv2, or any other that runs the wiresum P4 program."""

import logging
import queue
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any, Final

from protocol.constants import DATA_PORT, DEFAULT_VALUES
from protocol.errors import WiresumError
from protocol.packets import Address
from switch.controller.client import P4RuntimeClient
from switch.controller.diagnosis import open_slots, open_slots_by_count
from switch.controller.errors import TargetLostError, UnsupportedByTargetError
from switch.controller.forwarding import Forwarding
from switch.controller.installed import InstalledJob, Owners
from switch.controller.pools import Numbers, PoolSpace
from switch.controller.program import DROPS, EVENTS, WiresumProgram, read_counters
from switch.controller.requests import Requests
from switch.controller.setup import prepare_target
from switch.dataplane import Counter, JobSpec, StalledSlot

# The pool of a job that leaves it to the switch. A few slots keep BMv2 busy. With more of them packets wait longer in
# its queues, which hold 64, than the workers' timers do, and half of its work is for packets that were sent in vain.
_DEFAULT_SLOTS: Final = 16
_DEFAULT_SLOTS_LARGE: Final = 8  # from 256 values on
_FIRST_UPLINK: Final = 49152  # UDP ports from which a leaf sends to its parents
_UPLINKS: Final = 256
_POLL_SECONDS: Final = 1.0  # between readings of the counters that tell who was heard
_POLL_FAILURES: Final = 2  # in a row, after which the target is given up
_STALL_SECONDS: Final = 0.05  # for which an answer about stalled slots is good
_log = logging.getLogger(__name__)


class P4Switch:
    """A `LeafPlane` on a P4Runtime target, of which it is the primary controller while it lives.

    It also makes the target answer for the switch's address, and forward by the MAC addresses that it learns.

    BMv2 cannot read registers. What is stalled then comes from the counters, which is the same unless packets are under
    way or lost; and `last_heard` is known to a second only, on any target.

    Args:
        target: "host:port" of its P4Runtime server.
        program: what it runs.
        address: the switch's IPv4 address among the workers.
        mac: its MAC address.
        ports: of the target; frames for everybody go out of all.
        device_id: the number that the target was started with.
        election_id: the controller with the highest one is the primary.
        keep_pipeline: whether the target runs the program already, so that it need not be loaded.
        total_slots: slots of the program's size to use; None for all.
        on_failure: called once, from any thread, when the target is lost.

    Raises:
        ControllerError: the target cannot be reached or used.
        ValueError: more slots than the program has, or none.
    """

    def __init__(
        self,
        target: str,
        program: WiresumProgram,
        *,
        address: str,
        mac: int,
        ports: Iterable[int],
        device_id: int = 0,
        election_id: int = 1,
        keep_pipeline: bool = False,
        total_slots: int | None = None,
        on_failure: Callable[[WiresumError], None] = lambda _: None,
    ) -> None:
        slots = program.slots if total_slots is None else total_slots
        if not 1 <= slots <= program.slots:
            raise ValueError(f"the P4 program has {program.slots} slots of {program.values} values, not {slots}")
        self._program, self._mac = program, mac
        self._address = (address, DATA_PORT)
        self._pools = PoolSpace(slots)
        self._members = Numbers(1, program.members, "ranks")
        self._uplinks = Numbers(_FIRST_UPLINK, _UPLINKS, "jobs with a parent")
        self._on_failure = on_failure
        self._jobs: dict[int, InstalledJob] = {}
        self._owners: Owners = {}
        self._ended: Tally[str] = Tally()  # counters of jobs that are over
        self._changing = threading.Lock()  # one job is added or removed at a time
        self._reading = threading.Lock()  # the worker table is read, or changed together with its owners
        self._reads_registers = True  # until the target says otherwise
        self._stalled: dict[int, tuple[float, list[StalledSlot]]] = {}
        self._requests = Requests(program, address=address, mac=mac, send=lambda *packet: self._client.send(*packet))
        self._digests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client = P4RuntimeClient(
            target,
            program.info,
            device_id=device_id,
            election_id=election_id,
            on_message=self._take,
            on_failure=self._lost,
        )
        try:
            prepare_target(self._client, program, address=address, mac=mac, ports=ports, keep_pipeline=keep_pipeline)
        except BaseException:
            self._client.close()
            raise
        self._forwarding = Forwarding(self._client, program, mac)
        self._keeper = threading.Thread(target=self._keep_house, name="wiresum-p4-housekeeping", daemon=True)
        self._keeper.start()

    @property
    def address(self) -> Address:
        """Where workers send their packets."""
        return self._address

    @property
    def total_slots(self) -> int:
        """Slots of 256 values that jobs share."""
        return self._pools.total * self._program.values // DEFAULT_VALUES

    @property
    def values_supported(self) -> tuple[int, ...]:
        """The one number of values that the program was compiled for."""
        return (self._program.values,)

    @property
    def default_slots(self) -> int:
        """The pool of a job that leaves its size to the switch."""
        return _DEFAULT_SLOTS if self._program.values < DEFAULT_VALUES else _DEFAULT_SLOTS_LARGE

    @property
    def failure(self) -> WiresumError | None:
        """What has happened to the target, if it is lost."""
        return self._client.failure

    def close(self) -> None:
        """Leaves the target, which goes on forwarding; idempotent."""
        self._client.close()
        self._digests.put(None)
        self._keeper.join()

    # Jobs

    def add_job(self, spec: JobSpec) -> None:
        """Installs a job; takes as long as its workers need to answer ARP."""
        with self._changing, ExitStack() as undo:
            if spec.number in self._jobs:
                raise ValueError(f"job number {spec.number} is taken by job {self._jobs[spec.number].spec.name!r}")
            neighbours = self._requests.find_workers(spec)
            base = self._pools.take(spec.slots)
            undo.callback(self._pools.give_back, base)
            members = self._members.take(len(neighbours))
            undo.callback(self._members.give_back, members)
            self._requests.clear(base, spec.slots)
            job = InstalledJob(
                spec=spec,
                base=base,
                members=members,
                neighbours=neighbours,
                before=read_counters(self._client.read(self._program.events(members))),
            )
            undo.callback(self._uninstall, job)
            self._client.insert([job.group(self._program), *job.member_entries(self._program)])
            self._claim(job)
            self._jobs[spec.number] = job
            undo.pop_all()

    def remove_job(self, number: int) -> None:
        """Removes a job; afterwards its packets are dropped. Addresses that a newer job has taken stay there."""
        with self._changing:
            job = self._jobs.pop(number, None)
            self._stalled.pop(number, None)
            if job is None or self._client.failure is not None:
                return
            # If this fails, nobody may have the pool: packets of this job could still reach it.
            self._poll()
            self._uninstall(job)
            for counter in job.counters(read_counters(self._client.read(self._program.events(job.members)))):
                self._ended[counter.name] += counter.value
            self._pools.give_back(job.base)
            self._members.give_back(job.members)
            if job.spec.uplink is not None:
                self.close_uplink(job.spec.uplink.address)

    def open_uplink(self, parent: Address) -> Address:
        """Takes a source address for the packets of one job to its parent."""
        (number,) = self._uplinks.take(1)
        return self._address[0], number

    def close_uplink(self, address: Address) -> None:
        """Gives a source address back."""
        self._uplinks.give_back((address[1],))

    def _claim(self, job: InstalledJob) -> None:
        """Makes the addresses of a job its own, also those that an older one has."""
        with self._reading:
            older = [
                owner[0].worker_entry(self._program, owner[1])
                for address in job.spec.workers
                if (owner := self._owners.get(address)) is not None
            ]
            if older:
                self._poll_locked()  # what they have counted so far is the older jobs'
                self._client.delete(older)
            for rank, address in enumerate(job.spec.workers):
                self._owners[address] = job, rank
            self._client.insert([job.worker_entry(self._program, rank) for rank in range(job.ranks)])

    def _uninstall(self, job: InstalledJob) -> None:
        """Deletes whatever is there of a job."""
        with self._reading:
            own = [rank for rank, at in enumerate(job.spec.workers) if self._owners.get(at) == (job, rank)]
            self._client.delete([job.worker_entry(self._program, rank) for rank in own])
            for rank in own:
                del self._owners[job.spec.workers[rank]]
        self._client.delete([*job.member_entries(self._program), job.group(self._program)])

    # Questions

    def stalled(self, number: int) -> list[StalledSlot]:
        """Slots of a job that wait for some of its ranks at this moment."""
        job = self._jobs.get(number)
        if job is None:
            return []
        now = time.monotonic()
        good_until, found = self._stalled.get(number, (now, []))
        if now >= good_until:
            found = self._read_stalled(job)
            self._stalled[number] = now + _STALL_SECONDS, found
        return found

    def _read_stalled(self, job: InstalledJob) -> list[StalledSlot]:
        slots, leaf = job.spec.slots, job.spec.uplink is not None
        if self._reads_registers:
            try:
                cells = self._client.read(self._program.registers(job.base, slots))
            except UnsupportedByTargetError:
                self._reads_registers = False
            else:
                return open_slots(*self._program.read_pool(cells, job.base, slots), job.ranks, leaf=leaf)
        counted = read_counters(self._client.read(self._program.events(job.members, ["contributions"])))
        return open_slots_by_count(job.contributions(counted), slots)

    def last_heard(self, number: int) -> list[float | None]:
        """Seconds since the last packet of each rank; None for a rank that was never heard."""
        job = self._jobs.get(number)
        if job is None:
            return []
        self._poll()
        now = time.monotonic()
        return [None if heard is None else now - heard for heard in job.heard]

    def statistics(self) -> list[Counter]:
        """All counters, of the switch as a whole, of jobs and of ranks."""
        self._poll()
        jobs = [job for _, job in sorted(self._jobs.items())]
        members = [member for job in jobs for member in job.members]
        cells = read_counters(self._client.read(self._program.events(members))) if members else {}
        rows = [counter for job in jobs for counter in job.counters(cells)]
        totals: dict[str, int] = dict.fromkeys(("received", *EVENTS.values(), "bytes_in"), 0) | self._ended
        for row in rows:
            totals[row.name] += row.value
        drops = read_counters(self._client.read(self._program.drops()))
        totals |= {name: drops.get(index, 0) for index, name in DROPS.items()}
        rows.extend(Counter(name=n, job=None, job_number=None, rank=None, value=v) for n, v in totals.items())
        return rows

    def _poll(self) -> None:
        """Reads whose packets have come."""
        with self._reading:
            self._poll_locked()

    def _poll_locked(self) -> None:
        if not self._owners:
            self._client.read(self._program.drops())  # only whether the target is still there
            return
        found = self._client.read([self._program.received()])
        now = time.monotonic()
        for entity in found:
            address, packets, size = self._program.read_received(entity)
            if address in self._owners:
                job, rank = self._owners[address]
                job.heed(rank, packets, size, now)

    # What the target sends

    def _take(self, message: Any) -> None:
        """A message of the stream, in the client's thread."""
        kind = message.WhichOneof("update")
        if kind == "digest":
            self._digests.put(message.digest)
        elif kind == "packet":
            self._requests.take(message.packet)
        elif kind == "error":
            _log.warning("the target complains: %s", message.error.message or message.error)

    def _lost(self, failure: WiresumError) -> None:
        self._requests.fail(failure)
        self._on_failure(failure)

    def _keep_house(self) -> None:
        """Learns from digests as they come, and looks once a second who was heard."""
        due, failures = time.monotonic() + _POLL_SECONDS, 0
        while True:
            try:
                digests = self._digests.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                due = time.monotonic() + _POLL_SECONDS
                failures = 0 if self._is_there() else failures + 1
                if failures == _POLL_FAILURES:
                    self._client.give_up("it does not answer any more")
                continue
            if digests is None:
                return
            self._forwarding.learn(digests)

    def _is_there(self) -> bool:
        try:
            self._poll()
        except TargetLostError:
            return False
        except WiresumError as error:
            _log.warning("cannot read who was heard: %s", error)
        return True
