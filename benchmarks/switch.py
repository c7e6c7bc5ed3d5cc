"""What a packet costs the software switch: packets in and out per second, and CPU time for each.

One process plays all workers with packets made in advance, so that nearly all the work is the switch's. The slot logic
alone, fed from memory in this process, is measured beside it.

    python -m benchmarks.switch
"""

import argparse
import select
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from statistics import median
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from benchmarks.common import add_common_options, console, frame, new_table, positive, save
from benchmarks.participant import cpu_seconds_of
from host.control import ControlClient
from protocol.constants import MAX_DATAGRAM, MAX_SEGMENTS, VERSION_BIT
from protocol.datagrams import DatagramSocket
from protocol.packets import PREFIX, PacketBatch, make_packet
from switch.core import SwitchCore
from switch.dataplane import JobSpec
from wiresum.processes import SwitchProcess

_SILENCE_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Of one run. `cpu_per_packet` counts packets in and out; seconds."""

    packets_in: float  # per second
    packets_out: float  # per second
    cpu_per_packet: float
    busy: float  # share of one core that the switch used


class Stream:
    """The endless stream of chunks of one worker, whose batches are overwritten by the next ones."""

    def __init__(self, *, job: int, values: int, slots: int) -> None:
        numbers = np.random.default_rng(1).integers(-(2**28), 2**28, values)
        packet = make_packet(tsi=0, slots=slots, values=numbers, per_packet=values, job=job).encode()
        self.length = min(MAX_SEGMENTS, MAX_DATAGRAM // len(packet), slots)
        self._slots = slots
        self._packets: npt.NDArray[np.uint8] = np.tile(np.frombuffer(packet, np.uint8), (self.length, 1))
        self._headers = self._packets[:, : PREFIX.itemsize].view(PREFIX)[:, 0]
        self._first = 0

    def next(self) -> PacketBatch:
        """The next `length` chunks."""
        chunks = np.arange(self._first, self._first + self.length) % 2**32
        self._headers["tsi"] = chunks
        self._headers["pool_index"] = np.where(chunks // self._slots % 2, VERSION_BIT, 0) | chunks % self._slots
        self._first += self.length
        return PacketBatch.of(self._packets.reshape(-1), self._packets.shape[1])


class Load:
    """All workers of one job, in this process."""

    def __init__(self, switch: str, *, workers: int, values: int, slots: int) -> None:
        self._sockets = [DatagramSocket(("0.0.0.0", 0)) for _ in range(workers)]
        self._clients = [ControlClient(switch) for _ in range(workers)]

        def join(rank: int) -> int:
            client, udp = self._clients[rank], self._sockets[rank]
            udp.connect((client.info.data_host, client.info.data_port))
            membership = client.join(
                job="load", rank=rank, world_size=workers, udp=udp.address, values=values, slots=slots, timeout=10
            )
            return membership.job_number

        with ThreadPoolExecutor(workers) as pool:
            job = list(pool.map(join, range(workers))).pop()
        self._stream = Stream(job=job, values=values, slots=slots)
        self._slots = slots
        self._sent = 0
        self._received = [0] * workers

    def run(self, seconds: float, pid: int) -> Rate:
        """Keeps the switch, process `pid`, busy for some seconds."""
        cpu, start, sent, received = cpu_seconds_of(pid), time.perf_counter(), self._sent, sum(self._received)
        while (now := time.perf_counter()) < start + seconds:
            if self._sent - min(self._received) + self._stream.length <= self._slots:
                batch = self._stream.next()
                for udp in self._sockets:
                    if udp.send(batch):
                        raise RuntimeError("the send buffer is full; take fewer slots")
                self._sent += self._stream.length
            elif not select.select(self._sockets, [], [], _SILENCE_SECONDS)[0]:
                raise RuntimeError("the switch does not answer: a packet was lost on the way; take fewer slots")
            for rank, udp in enumerate(self._sockets):
                while arrived := udp.receive():
                    self._received[rank] += len(arrived)
        elapsed, cpu = now - start, cpu_seconds_of(pid) - cpu
        into, out = len(self._sockets) * (self._sent - sent), sum(self._received) - received
        return Rate(
            packets_in=into / elapsed,
            packets_out=out / elapsed,
            cpu_per_packet=cpu / (into + out),
            busy=cpu / elapsed,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        for udp in self._sockets:
            udp.close()


def over_udp(*, workers: int, values: int, slots: int, runs: int, seconds: float) -> list[Rate]:
    """Rates of a switch process under load."""
    with SwitchProcess() as switch, Load(switch.address, workers=workers, values=values, slots=slots) as load:
        load.run(seconds / 2, switch.pid)
        return [load.run(seconds, switch.pid) for _ in range(runs)]


def in_memory(*, workers: int, values: int, slots: int, runs: int, seconds: float) -> list[float]:
    """Seconds that the slot logic takes for each packet that comes in."""
    members = tuple(("127.0.0.1", 1 + rank) for rank in range(workers))
    core = SwitchCore()
    core.add_job(JobSpec(number=0, name="load", slots=slots, values=values, workers=members))
    stream = Stream(job=0, values=values, slots=slots)

    def run() -> float:
        spent, packets, end = 0.0, 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            batch = stream.next()
            start = time.perf_counter()
            for member in members:
                answers = core.receive(batch, member, start)
            spent += time.perf_counter() - start
            packets += workers * len(batch)
            if sum(len(answer.batch) for answer in answers) != len(batch):
                raise RuntimeError("the slot logic did not answer every chunk")
        return spent / packets

    run()
    return [run() for _ in range(runs)]


def main() -> int:
    """Measures, prints, saves."""
    args = _arguments()
    content = frame("switch", {k: v for k, v in vars(args).items() if k not in ("out", "quick")})
    rows: list[dict[str, Any]] = []
    for workers in args.workers:
        for values in args.values:
            common = {"workers": workers, "values": values, "slots": args.slots}
            rates = over_udp(**common, runs=args.runs, seconds=args.seconds)
            alone = in_memory(**common, runs=args.runs, seconds=args.seconds / 4)
            rows.append({**common, "udp": [asdict(rate) for rate in rates], "slot_logic_seconds": alone})
    content["samples"] = rows
    out = console()
    out.print(_table(rows))
    out.print(f"Written: {save(args.out, 'switch', content)}", soft_wrap=True)
    return 0


def _table(rows: Sequence[dict[str, Any]]) -> Any:
    table = new_table(
        "The switch under load, medians; CPU time for each packet in or out, slot logic for each packet in",
        *("values", "workers", "k packets/s in", "out", "Gbit/s in", "cores busy", "CPU ns", "slot logic ns"),
    )
    for row in rows:
        rate = {key: median(one[key] for one in row["udp"]) for key in row["udp"][0]}
        table.add_row(
            str(row["values"]),
            str(row["workers"]),
            f"{rate['packets_in'] / 1e3:.0f}",
            f"{rate['packets_out'] / 1e3:.0f}",
            f"{rate['packets_in'] * row['values'] * 32 / 1e9:.1f}",
            f"{rate['busy']:.2f}",
            f"{rate['cpu_per_packet'] * 1e9:.0f}",
            f"{median(row['slot_logic_seconds']) * 1e9:.0f}",
        )
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, runs=5)
    parser.add_argument("--values", nargs="+", type=int, default=(64, 256, 1024), help="default: 64 256 1024")
    parser.add_argument("--workers", nargs="+", type=positive, default=(2, 8), help="default: 2 8")
    parser.add_argument("--slots", type=positive, default=512, help="of the pool (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run (default: %(default)s)")
    args = parser.parse_args()
    if args.quick:
        args.values, args.workers, args.seconds, args.runs = (256,), (2,), 0.2, min(args.runs, 3)
    return args


if __name__ == "__main__":
    sys.exit(main())
