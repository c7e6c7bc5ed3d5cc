"""Packets that do not belong: dropped and counted, on both sides, while a job runs on unharmed."""

import itertools
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host.communicator import Communicator
from protocol.constants import MSG_EXPONENTS, MSG_VALUES
from protocol.datagrams import DatagramSocket
from protocol.packets import Packet, make_packet
from switch.server import SoftwareSwitch
from tests.ranks import errors, fresh_job, start_ranks, wait_until_idle
from tests.veths import MISSING
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
SLOTS, VALUES = 16, 64
SIZE = 50_000


@pytest.fixture(scope="module")
def switch() -> Iterator[SoftwareSwitch]:
    with SoftwareSwitch(port=0, control_port=0) as server:
        yield server


class Attacker:
    """Sends datagrams from a port of its own, or from one that it shares with its victim."""

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))

    def send(self, packets: list[bytes], to: tuple[str, int]) -> None:
        for packet in packets:
            self._socket.sendto(packet, to)

    def close(self) -> None:
        self._socket.close()


class Summing:
    """A job of two ranks that sums from the first look at it until it is told to stop."""

    def __init__(self, switch: SoftwareSwitch) -> None:
        self.switch = switch
        self.rounds = 0
        self.port: dict[int, int] = {}  # UDP port by rank
        self.statistics: dict[int, dict[str, float]] = {}
        self._stop = threading.Event()
        self.job = fresh_job()
        self._ranks = start_ranks(switch, 2, self._body, job=self.job, slots=SLOTS, values_per_packet=VALUES)
        self.progress(1)
        (number,) = [job.number for job in switch.jobs() if job.name == self.job]
        assert number is not None
        self.number = number

    def _body(self, communicator: Communicator) -> None:
        self.port[communicator.rank] = communicator._engine._udp.address[1]
        go_on, array = np.ones(1, np.int32), np.zeros(SIZE, np.float32)
        while go_on[0]:
            array[:] = communicator.rank + 1
            communicator.all_reduce(array)
            assert (array == 3).all()
            go_on[0] = not self._stop.is_set()
            communicator.all_reduce(go_on)
            self.statistics[communicator.rank] = communicator.statistics()
            if communicator.rank == 0:
                self.rounds += 1

    def progress(self, rounds: int) -> None:
        """Waits for so many further sums."""
        goal = self.rounds + rounds
        wait_until(lambda: self.rounds >= goal or not self.alive, "the job did not go on")
        assert self.alive, errors(self._ranks)

    @property
    def alive(self) -> bool:
        return all(rank.is_alive() for rank in self._ranks)

    def finish(self) -> None:
        """Ends the job, all of whose sums must have been right."""
        self._stop.set()
        assert errors(self._ranks) == [None, None]

    def counts(self, rank: int | None) -> Counter[str]:
        """The switch's counters of a rank of this job; without a rank, those of the whole switch."""
        job = None if rank is None else self.job
        rows = self.switch.statistics()
        return Counter({row.name: row.value for row in rows if (row.job, row.rank) == (job, rank)})


@pytest.fixture
def job(switch: SoftwareSwitch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Summing]:
    # So that an attacker can send from a worker's own address.
    monkeypatch.setattr("host.communicator.DatagramSocket", partial(DatagramSocket, share=True))
    summing = Summing(switch)
    yield summing
    summing.progress(5)
    summing.finish()
    wait_until_idle(switch)


def packet(summing: Summing, tsi: int = 0, **changes: Any) -> bytes:
    """A packet of this job's shape, with some fields as no worker sends them."""
    made = make_packet(tsi=tsi, slots=SLOTS, values=np.full(VALUES, 99), per_packet=VALUES, job=summing.number)
    fields = {name: getattr(made, name) for name in Packet.__dataclass_fields__}
    return Packet(**fields | changes).encode()


def wrong_packets(job: Summing) -> list[tuple[str, list[bytes]]]:
    """By the counter that each must end up in."""
    good = packet(job)
    return [
        ("wrong_size", [b"x", b"\0" * 9, good[:-1], good + b"\0", good[:10], b"\x16" * 1000]),
        ("wrong_size", [b"\xff" * 65507, good * 60]),  # the largest datagrams that there are
        ("wrong_size", [packet(job, size=3), packet(job, msg_type=MSG_EXPONENTS), packet(job, msg_type=0)]),
        ("wrong_job", [packet(job, job=(job.number + 1) % 256), packet(job, job=(job.number + 128) % 256)]),
        ("reserved_bits", [packet(job, reserved=1), packet(job, pool_index=0x4000)]),
        ("outside_pool", [packet(job, pool_index=SLOTS), packet(job, pool_index=0x3FFF)]),
        ("wrong_index", [packet(job, pool_index=1), packet(job, pool_index=0x8000), packet(job, tsi=5, pool_index=4)]),
        # Replayed: chunks whose slots have long gone on, and some that no worker will come to in this test.
        ("stale", [packet(job, tsi=tsi) for tsi in range(SLOTS)]),
        ("stale", [packet(job, tsi=tsi) for tsi in (2**31, 2**31 - SLOTS, 2**32 - SLOTS, 2**30)]),
    ]


def test_bad_packets_from_a_workers_own_address(switch: SoftwareSwitch, job: Summing) -> None:
    attacker = Attacker(job.port[1])
    try:
        job.progress(3)  # more than two generations, so that replayed chunks are old
        before = job.counts(1)
        expected: Counter[str] = Counter()
        for counter, packets in wrong_packets(job):
            for _ in range(5):
                attacker.send(packets, switch.data_address)
                expected[counter] += len(packets)
            job.progress(1)
        attacker.send([b""], switch.data_address)
        counted = {counter: job.counts(1)[counter] - before[counter] for counter in expected}
        assert counted.pop("stale") >= expected.pop("stale")  # a late retransmission is one, too
        assert counted == expected
        assert job.counts(None)["empty"] >= 1
        assert not any(job.counts(0)[counter] for counter in expected)
    finally:
        attacker.close()


def test_packets_of_the_current_chunks_that_come_again_change_nothing(switch: SoftwareSwitch, job: Summing) -> None:
    """A replay within the window: answered, as it might be a retransmission, and never added twice."""
    attacker = Attacker(job.port[0])
    try:
        before, duplicates = job.counts(0), 0
        while duplicates < 50:
            newest = switch._plane._core.jobs[job.number].aggregator.pool["newest"].tolist()
            attacker.send([packet(job, tsi=chunk - SLOTS) for chunk in newest], switch.data_address)
            after = job.counts(0)
            duplicates = sum(after[name] - before[name] for name in ("previous", "duplicates", "stale"))
        job.progress(1)
    finally:
        attacker.close()


def test_packets_from_nobody_of_the_job(switch: SoftwareSwitch, job: Summing) -> None:
    strangers = [Attacker(), Attacker()]
    try:
        before, of_job = job.counts(None), job.counts(0) + job.counts(1)
        packets = [p for _, group in wrong_packets(job) for p in group] + [packet(job, tsi=t) for t in range(50)]
        for stranger in strangers:
            stranger.send(packets, switch.data_address)
        wait_until(
            lambda: job.counts(None)["unknown_source"] - before["unknown_source"] == 2 * len(packets),
            "not all packets of strangers were counted",
        )
        job.progress(3)
        after = job.counts(0) + job.counts(1)
        assert not any(after[name] - of_job[name] for name in ("wrong_size", "wrong_job", "wrong_index"))
    finally:
        for stranger in strangers:
            stranger.close()


def test_bad_answers_from_the_switchs_own_address(switch: SoftwareSwitch, job: Summing) -> None:
    """And strangers' packets to a worker, which its connected socket does not even let in."""
    stranger, impostor = Attacker(), Attacker(switch.data_address[1])
    try:
        before = dict(job.statistics)
        victims = [("127.0.0.1", port) for port in job.port.values()]
        wrong = [p for counter, group in wrong_packets(job) for p in group if counter != "stale"]
        old = [packet(job, tsi=tsi, e1=5) for tsi in range(SLOTS)]
        old += [packet(job, tsi=tsi, msg_type=MSG_VALUES, e1=5) for tsi in (2**31, 2**32 - 1)]
        for victim, sender in itertools.product(victims, (stranger, impostor)):
            sender.send(wrong + old, victim)
        job.progress(3)
        for rank in (0, 1):
            rejected, duplicates = (
                job.statistics[rank][name] - before[rank][name] for name in ("rejected", "duplicates")
            )
            assert 0 < rejected <= len(wrong)
            assert rejected + duplicates >= len(wrong) + len(old)
    finally:
        stranger.close()
        impostor.close()


def icmp_error(kind: int, code: int, source: int, target: int) -> bytes:
    """An ICMP message that complains of a UDP packet from one port of 127.0.0.1 to another."""
    local = socket.inet_aton("127.0.0.1")
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 36, 0, 0, 64, socket.IPPROTO_UDP, 0, local, local)
    udp = struct.pack("!HHHH", source, target, 16, 0)
    message = struct.pack("!BBHHH", kind, code, 0, 0, 1400) + ip + udp
    folded = sum(struct.unpack(f"!{len(message) // 2}H", message))
    folded = (folded >> 16) + (folded & 0xFFFF)
    return message[:2] + struct.pack("!H", ~(folded + (folded >> 16)) & 0xFFFF) + message[4:]


def icmp_storm() -> None:
    """A job goes on while everything is said of its packets that ICMP can say."""
    unreachable, parameter_problem = 3, 12
    with (
        SoftwareSwitch(port=0, control_port=0) as switch,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw,
    ):
        job, data = Summing(switch), switch.data_address[1]
        for worker in job.port.values():
            for source, target in ((data, worker), (worker, data)):
                for kind, code in [*((unreachable, code) for code in range(16)), (parameter_problem, 0)]:
                    for _ in range(3):
                        raw.sendto(icmp_error(kind, code, source, target), ("127.0.0.1", 0))
                job.progress(2)
        job.finish()
        assert switch.alive


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_icmp_messages_stop_nobody() -> None:
    """Connected sockets are told what they say, and anybody can send them.

    In a namespace of its own, since the kernel believes for minutes what they say of the path's MTU.
    """
    storm = (sys.executable, "-c", "from tests.test_bad_packets import icmp_storm; icmp_storm()")
    inside = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *storm)
    done = subprocess.run(inside, capture_output=True, text=True, timeout=100, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_garbage_at_the_control_port(switch: SoftwareSwitch, job: Summing) -> None:
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 2000, bytes(5000)):
        with socket.create_connection(switch.control_address, timeout=5) as connection:
            connection.sendall(garbage)
    job.progress(2)
