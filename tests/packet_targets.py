"""Switches to hold to the same bytes: what goes in at which port, what comes out where, what the registers say then.

A target is one of the fast aggregator, our model of a programmable switch and BMv2. The latter two run the P4 program.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw

from protocol.constants import DATA_PORT, SlotEvent
from protocol.packets import batches
from switch.core import Member, Outgoing, SwitchCore
from switch.dataplane import JobSpec, Uplink

SWITCH_IP = "10.0.0.254"
SWITCH_MAC = "02:00:00:00:be:e0"
PORTS = (1, 2, 3, 4)
PROBE_PORT = 9  # floods the end mark of a target of which nobody knows when it has nothing more to send

Frames = list[tuple[int, bytes]]  # port and frame, sorted: between ports there is no order


@dataclass(frozen=True)
class Worker:
    """One rank of a job, where it is, and its number among the members of all jobs."""

    rank: int
    member: int
    ip: str
    mac: str
    udp: int
    port: int


@dataclass(frozen=True)
class Parent:
    """A leaf's parent in one job: `udp` is the leaf's own port towards it, `job` its number for the job."""

    member: int
    ip: str
    mac: str
    udp: int
    port: int
    job: int


@dataclass(frozen=True)
class Job:
    """A job as the control plane sees it; with a parent, the switch is a leaf."""

    number: int
    slots: int
    workers: tuple[Worker, ...]
    base: int = 0
    group: int = 16
    parent: Parent | None = None


def make_job(
    ranks: int, *, number: int = 7, slots: int = 4, base: int = 0, first_member: int = 1, leaf: bool = False
) -> Job:
    """A job whose workers are spread over the ports."""
    workers = []
    for rank in range(ranks):
        member = first_member + rank
        host = member % 100
        ip, mac = f"10.0.{number}.{host + 1}", f"02:00:00:00:{number:02x}:{host + 1:02x}"
        workers.append(Worker(rank, member, ip, mac, 40000 + member, PORTS[member % len(PORTS)]))
    parent = None
    if leaf:
        member = first_member + ranks
        parent = Parent(
            member, f"10.0.{number}.200", f"02:00:00:00:{number:02x}:c8", 50000 + member, PORTS[-1], number + 90
        )
    return Job(number, slots, tuple(workers), base, 16 + number, parent)


def frame(
    worker: Worker, payload: bytes, *, ether: dict[str, Any] | None = None, ip: dict[str, Any] | None = None, **udp: Any
) -> bytes:
    """What a worker's kernel sends for a payload; the keywords replace fields."""
    for_ip: dict[str, Any] = {"src": worker.ip, "dst": SWITCH_IP, "flags": "DF", "id": 4711, "tos": 4}
    packet: ScapyPacket = (
        Ether(**{"src": worker.mac, "dst": SWITCH_MAC} | (ether or {}))
        / IP(**for_ip | (ip or {}))
        / UDP(**{"sport": worker.udp, "dport": DATA_PORT} | udp)
        / Raw(payload)
    )
    return bytes(packet)


def result_frame(worker: Worker, payload: bytes) -> bytes:
    """The frame that brings a result to a worker: no UDP checksum, and nothing that depends on who came last."""
    return bytes(
        Ether(src=SWITCH_MAC, dst=worker.mac)
        / IP(src=SWITCH_IP, dst=worker.ip, flags="DF", id=0, ttl=64)
        / UDP(sport=DATA_PORT, dport=worker.udp, chksum=0)
        / Raw(payload)
    )


def from_parent(parent: Parent, payload: bytes, *, ip: dict[str, Any] | None = None, **udp: Any) -> bytes:
    """The frame that brings a parent's result to the leaf; the keywords replace fields."""
    for_ip: dict[str, Any] = {"src": parent.ip, "dst": SWITCH_IP, "flags": "DF", "id": 0, "ttl": 64}
    return bytes(
        Ether(src=parent.mac, dst=SWITCH_MAC)
        / IP(**for_ip | (ip or {}))
        / UDP(**{"sport": DATA_PORT, "dport": parent.udp} | udp)
        / Raw(payload)
    )


def partial_frame(parent: Parent, payload: bytes) -> bytes:
    """The frame that brings a leaf's partial result to its parent."""
    return bytes(
        Ether(src=SWITCH_MAC, dst=parent.mac)
        / IP(src=SWITCH_IP, dst=parent.ip, flags="DF", id=0, ttl=64)
        / UDP(sport=parent.udp, dport=DATA_PORT, chksum=0)
        / Raw(payload)
    )


@dataclass
class Registers:
    """The registers of one job's pool: shapes (slots,), (slots, 2), and (slots, 2, values)."""

    newest: npt.NDArray[np.uint32]
    seen: npt.NDArray[np.uint32]
    count: npt.NDArray[np.int64]
    final: npt.NDArray[np.int64]
    e0: npt.NDArray[np.int64]
    e1: npt.NDArray[np.int64]
    values: npt.NDArray[np.uint32]

    def differences(self, other: "Registers") -> list[str]:
        """What is not the same, in words."""
        found = []
        for name in self.__dataclass_fields__:
            mine, theirs = getattr(self, name), getattr(other, name)
            places = np.argwhere(mine != theirs)[:3].tolist()
            found += [f"{name}{at}: {mine[tuple(at)]} and {theirs[tuple(at)]}" for at in places]
        return found


class Target(Protocol):
    """A switch under test."""

    name: str
    values: int

    def add_job(self, job: Job) -> None:
        """Installs a job, with a pool as new."""

    def reset(self) -> None:
        """Removes all jobs and what they left in the counters."""

    def send(self, port: int, packet: bytes) -> Frames:
        """Lets a frame in, and returns all that leaves on account of it."""

    def registers(self, job: Job) -> Registers:
        """The registers of a job's pool."""

    def counters(self, job: Job) -> dict[str, int]:
        """What was counted for a job's ranks, and a parent, together, without zeros."""

    def drops(self) -> dict[str, int]:
        """What was dropped on no rank's account, without zeros."""


class P4Target(Target, Protocol):
    """A switch that runs the P4 program, and so does more than sums."""

    def learn(self, mac: str, port: int) -> None:
        """Installs what the control plane does on a digest."""

    def learned(self) -> list[tuple[str, int]]:
        """The senders in digests since the last call."""

    def packet_out(self, packet: bytes) -> Frames:
        """Lets a packet in from the control plane, its header in front, and returns all that leaves."""

    def packet_ins(self) -> list[bytes]:
        """What the control plane was sent since the last call, its header in front."""


class AggregatorTarget:
    """The software switch's core. The kernel around it, which checks and builds frames, is a few lines here."""

    name = "aggregator"

    def __init__(self, values: int) -> None:
        self.values = values
        self.reset()

    def reset(self) -> None:
        self._core = SwitchCore()
        self._jobs: dict[int, Job] = {}

    def add_job(self, job: Job) -> None:
        parent = job.parent
        uplink = None
        if parent is not None:
            uplink = Uplink(address=(SWITCH_IP, parent.udp), parent=(parent.ip, DATA_PORT), job=parent.job)
        spec = JobSpec(
            number=job.number,
            name=f"job {job.number}",
            slots=job.slots,
            values=self.values,
            workers=tuple((worker.ip, worker.udp) for worker in job.workers),
            uplink=uplink,
        )
        self._core.add_job(spec)
        self._jobs[job.number] = job

    def send(self, port: int, packet: bytes) -> Frames:
        parsed = Ether(packet)
        udp = parsed.getlayer(UDP)
        if udp is None or parsed[IP].dst != SWITCH_IP or not _sound(packet):
            return []
        payload = packet[14 + 20 + 8 : 14 + parsed[IP].len]
        source = parsed[IP].src, udp.sport
        results: list[Outgoing] = []
        for batch in batches([payload]):
            if udp.dport == DATA_PORT:
                results += self._core.receive(batch, source, 0.0)
            elif (parent := self._parent(source, udp.dport)) is not None:
                results += self._core.receive_from(parent, batch, 0.0)
        frames: Frames = []
        for outgoing in (*results, *self._core.flush()):
            for member in outgoing.members:
                frames += [self._frame(member, answer) for answer in outgoing.batch]
        return sorted(frames)

    def _parent(self, source: tuple[str, int], port: int) -> Member | None:
        """Whose socket, connected to a parent, a datagram arrives at."""
        for job in self._jobs.values():
            if job.parent is not None and port == job.parent.udp and source == (job.parent.ip, DATA_PORT):
                return self._core.jobs[job.number].parent
        return None

    def _frame(self, member: Member, payload: bytes) -> tuple[int, bytes]:
        job = self._jobs[member.job.spec.number]
        if member.rank == len(job.workers):
            assert job.parent is not None
            return job.parent.port, partial_frame(job.parent, payload)
        worker = job.workers[member.rank]
        return worker.port, result_frame(worker, payload)

    def registers(self, job: Job) -> Registers:
        aggregator = self._core.jobs[job.number].aggregator
        pool = aggregator.pool
        return Registers(
            newest=pool["newest"].copy(),
            seen=pool["seen"].copy(),
            count=pool["count"].astype(np.int64),
            final=pool["final"].astype(np.int64),
            e0=pool["e0"].astype(np.int64),
            e1=pool["e1"].astype(np.int64),
            values=aggregator.registers.copy(),
        )

    def counters(self, job: Job) -> dict[str, int]:
        sums = self._core.jobs[job.number].aggregator.counters.sum(axis=0)
        return {event.counter: int(value) for event, value in zip(SlotEvent, sums, strict=True) if value}

    def drops(self) -> dict[str, int]:
        return {"unknown_source": self._core.unknown_source} if self._core.unknown_source else {}


def _sound(frame: bytes) -> bool:
    """What the kernel checks before a socket gets a datagram: lengths, fragments, and checksums over all of it."""
    header, datagram = frame[14:34], frame[34:]
    length, fragment, size = (int.from_bytes(frame[at : at + 2], "big") for at in (16, 20, 38))
    if header[0] != 0x45 or fragment & 0x3FFF or length != size + 20 or len(datagram) < size:
        return False
    pseudo = header[12:20] + bytes([0, 17]) + datagram[4:6]
    return _adds_up(header) and (datagram[6:8] == b"\0\0" or _adds_up(pseudo + datagram[:size]))


def _adds_up(data: bytes) -> bool:
    """Whether the one's complement sum of data with its checksum in it is minus zero, as it must be."""
    words = np.frombuffer(data + bytes(len(data) % 2), ">u2")
    return int(words.sum(dtype=np.int64)) % 0xFFFF == 0


@dataclass(frozen=True)
class TableRow:
    """One entry of an exact table of the P4 program."""

    table: str
    key: dict[str, int]
    action: str
    arguments: dict[str, int]


def number(address: str) -> int:
    """A dotted IPv4 or a MAC address as an integer."""
    if ":" in address:
        return int(address.replace(":", ""), 16)
    parts = [int(part) for part in address.split(".")]
    return int.from_bytes(bytes(parts), "big")


def own_rows() -> list[TableRow]:
    """The entries that give the switch its address."""
    mac = {"mac": number(SWITCH_MAC)}
    return [
        TableRow("WiresumIngress.own_arp", {"hdr.arp.target": number(SWITCH_IP)}, "WiresumIngress.own", mac),
        TableRow("WiresumIngress.own_address", {"hdr.ipv4.dst": number(SWITCH_IP)}, "WiresumIngress.own", mac),
    ]


def job_rows(job: Job) -> Iterable[TableRow]:
    """The entries of a job."""
    for worker in job.workers:
        yield TableRow(
            "WiresumIngress.workers",
            {"hdr.ipv4.src": number(worker.ip), "hdr.udp.src": worker.udp},
            "WiresumIngress.worker",
            {
                "member": worker.member,
                "job": job.number,
                "rank_bit": 1 << worker.rank,
                "ranks": len(job.workers),
                "base": job.base,
                "pool_size": job.slots,
                "group": job.group,
                "port": worker.port,
                "is_leaf": int(job.parent is not None),
                "up": job.parent.member if job.parent else 0,
                "up_port": job.parent.port if job.parent else 0,
            },
        )
        yield _member_row(worker, worker.udp, DATA_PORT, job.number)
    if job.parent is not None:
        yield TableRow(
            "WiresumIngress.parents",
            {"hdr.ipv4.src": number(job.parent.ip), "hdr.udp.dst": job.parent.udp},
            "WiresumIngress.parent",
            {
                "member": job.parent.member,
                "job": job.parent.job,
                "ranks": len(job.workers),
                "base": job.base,
                "pool_size": job.slots,
                "group": job.group,
            },
        )
        yield _member_row(job.parent, DATA_PORT, job.parent.udp, job.parent.job)


def _member_row(member: Worker | Parent, port: int, own_port: int, job: int) -> TableRow:
    arguments = {"mac": number(member.mac), "ip": number(member.ip), "port": port, "own_port": own_port, "job": job}
    key = {"meta.worker.member": member.member}
    return TableRow("WiresumEgress.members", key, "WiresumEgress.address", arguments)


def members_of(job: Job) -> list[int]:
    """The numbers of a job's ranks and, in a leaf, of its parent."""
    return [worker.member for worker in job.workers] + ([job.parent.member] if job.parent else [])


def clear_packet(job: Job, tag: int) -> bytes:
    """The packet-out that makes a pool as new, as it enters at the CPU port."""
    return bytes([2]) + tag.to_bytes(2, "big") + job.base.to_bytes(2, "big") + job.slots.to_bytes(2, "big")


def cleared_packet(tag: int) -> bytes:
    """The packet-in that says so."""
    return bytes([1, 0, 0]) + tag.to_bytes(2, "big")


def registers_of(job: Job, values: int, read: Any) -> Registers:
    """The registers of a pool in the P4 program; `read(name, count)` gives the cells of an array from 0 on."""
    end = job.base + job.slots

    def cells(name: str) -> npt.NDArray[np.int64]:
        return np.array(read(f"WiresumIngress.slots.{name}", 2 * end), np.int64)[2 * job.base :].reshape(job.slots, 2)

    def signed(name: str) -> npt.NDArray[np.int64]:
        return (cells(name) + 128) % 256 - 128

    stored = [cells(f"values.value_{i:02x}") for i in range(values)]
    return Registers(
        newest=np.array(read("WiresumIngress.slots.newest", end), np.uint32)[job.base :],
        seen=cells("seen").astype(np.uint32),
        count=cells("count"),
        final=cells("final"),
        e0=signed("e0"),
        e1=signed("e1"),
        values=np.stack(stored, axis=2).astype(np.uint32),
    )
