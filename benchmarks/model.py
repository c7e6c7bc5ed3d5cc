"""Speed of the P4 program on the programmable switch, in memory and between veth pairs, beside BMv2 in the same run.

One process plays all workers; it keeps a window of chunks for each of them on the way. The part with veth pairs needs
root; BMv2 takes part where simple_switch_grpc is on PATH. Both are told of the job by P4Runtime.

    sudo python -m benchmarks.model
"""

import argparse
import os
import select
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from benchmarks.common import add_common_options, console, frame, new_table, positive, save
from benchmarks.p4_job import FrameStream, load_model
from benchmarks.p4_switches import RunningSwitch, bmv2_version, enter_namespace, running
from benchmarks.participant import cpu_seconds_of

_SOL_PACKET: Final = 263
_IGNORE_OUTGOING: Final = 23
_SILENCE_SECONDS: Final = 5.0
_BATCH: Final = 64  # chunks that are made ahead of time in memory


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Of one run. `cpu_per_packet` is the switch's, in seconds for each packet in with its share of the results."""

    packets_in: float  # per second
    packets_out: float  # per second
    cpu_per_packet: float


class Load:
    """All workers of the job, at the far ends of the veth pairs."""

    def __init__(self, *, workers: int, values: int, slots: int, window: int) -> None:
        self._streams = [FrameStream(rank, values=values, slots=slots) for rank in range(workers)]
        self._sockets = [_socket(f"h{rank}") for rank in range(workers)]
        self._size = len(self._streams[0].chunk(0))
        self._window = window
        self._sent = 0
        self._received = [0] * workers

    def run(self, seconds: float, pid: int) -> Rate:
        """Keeps the switch, process `pid`, busy for some seconds.

        Raises:
            RuntimeError: a result did not come.
        """
        cpu, start, sent, received = cpu_seconds_of(pid), time.perf_counter(), self._sent, sum(self._received)
        while (now := time.perf_counter()) < start + seconds:
            while self._sent - min(self._received) < self._window:
                for stream, each in zip(self._streams, self._sockets, strict=True):
                    each.send(stream.chunk(self._sent))
                self._sent += 1
            if not select.select(self._sockets, [], [], _SILENCE_SECONDS)[0]:
                raise RuntimeError(f"a result was lost: sent {self._sent} chunks, got {self._received} results")
            for rank, each in enumerate(self._sockets):
                self._received[rank] += self._drain(each)
        elapsed, cpu = now - start, cpu_seconds_of(pid) - cpu
        into, out = len(self._sockets) * (self._sent - sent), sum(self._received) - received
        return Rate(packets_in=into / elapsed, packets_out=out / elapsed, cpu_per_packet=cpu / into)

    def _drain(self, each: socket.socket) -> int:
        count = 0
        while True:
            try:
                got = each.recv(1 << 14)
            except BlockingIOError:
                return count
            if len(got) != self._size:
                raise RuntimeError(f"expected results of {self._size} bytes, got {len(got)}")
            count += 1

    def close(self) -> None:
        """Closes the sockets."""
        for each in self._sockets:
            each.close()


def _socket(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    made.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    made.bind((interface, 3))
    made.setblocking(False)
    return made


def over_veth(
    switch: AbstractContextManager[RunningSwitch], *, runs: int, seconds: float, **load: int
) -> tuple[str, list[Rate]]:
    """Rates of a switch process under load."""
    with switch as process, ExitStack() as stack:
        workers = Load(**load)
        stack.callback(workers.close)
        workers.run(seconds / 2, process.pid)
        return process.name, [workers.run(seconds, process.pid) for _ in range(runs)]


def in_memory(*, workers: int, values: int, slots: int, runs: int, seconds: float) -> list[float]:
    """Seconds that the model takes for each packet that comes in, its share of the results included.

    Raises:
        RuntimeError: a chunk was not answered.
    """
    switch = load_model(values, workers, slots)
    streams = [FrameStream(rank, values=values, slots=slots) for rank in range(workers)]
    first = 0

    def run() -> float:
        nonlocal first
        spent, chunks, end = 0.0, 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            frames = [
                (rank, bytes(stream.chunk(first + i))) for i in range(_BATCH) for rank, stream in enumerate(streams)
            ]
            out = 0
            start = time.perf_counter()
            for rank, packet in frames:
                out += len(switch.receive(rank, packet, start))
            spent += time.perf_counter() - start
            if out != workers * _BATCH:
                raise RuntimeError(f"expected {workers * _BATCH} results, got {out}")
            first += _BATCH
            chunks += _BATCH
        return spent / (workers * chunks)

    run()
    return [run() for _ in range(runs)]


def main() -> int:
    """Measures, prints, saves."""
    args = _arguments()
    content = frame("model", {k: v for k, v in vars(args).items() if k not in ("out", "quick", "bmv2_build")})
    content["versions"]["bmv2"] = version = bmv2_version(args.bmv2)
    content["versions"]["bmv2_build"] = args.bmv2_build
    root = os.geteuid() == 0
    if root:
        enter_namespace(args.workers)
    switches = {"model": [sys.executable, "-m", "wiresum", "p4switch"]}
    if version is not None:
        switches["bmv2"] = [args.bmv2]
    rows: list[dict[str, Any]] = []
    for values in args.values:
        common = {"workers": args.workers, "values": values, "slots": args.slots}
        row: dict[str, Any] = {**common, "memory_seconds": in_memory(**common, runs=args.runs, seconds=args.seconds)}
        if root:
            rates = [
                over_veth(
                    running(name, command, **common),
                    **common,
                    window=args.window,
                    runs=args.runs,
                    seconds=args.seconds,
                )
                for name, command in switches.items()
            ]
            row["veth"] = {name: [asdict(rate) for rate in found] for name, found in rates}
        rows.append(row)
    content["samples"] = rows
    out = console()
    out.print(_table(rows))
    for note in [] if root else ["Not root: no veth pairs."]:
        out.print(note)
    if version is None:
        out.print(f"{args.bmv2} is not to be found: nothing to compare with.")
    out.print(f"Written: {save(args.out, 'model', content)}", soft_wrap=True)
    return 0


def _table(rows: Sequence[dict[str, Any]]) -> Any:
    table = new_table(
        "The P4 program, medians; CPU time for each packet in, and the ratio of packets in and out to BMv2's",
        *("values", "switch", "k packets/s in", "out", "Mbit/s of values in", "CPU us", "ratio"),
    )
    for row in rows:
        bits = row["values"] * 32
        rate = 1 / median(row["memory_seconds"])
        table.add_row(
            str(row["values"]),
            "model, in memory",
            f"{rate / 1e3:.1f}",
            f"{rate / 1e3:.1f}",
            f"{rate * bits / 1e6:.0f}",
            f"{1e6 / rate:.0f}",
        )
        found = {
            name: {key: median(one[key] for one in rates) for key in rates[0]}
            for name, rates in row.get("veth", {}).items()
        }
        totals = {name: rate["packets_in"] + rate["packets_out"] for name, rate in found.items()}
        for name, each in found.items():
            table.add_row(
                str(row["values"]),
                name,
                f"{each['packets_in'] / 1e3:.1f}",
                f"{each['packets_out'] / 1e3:.1f}",
                f"{each['packets_in'] * bits / 1e6:.0f}",
                f"{each['cpu_per_packet'] * 1e6:.0f}",
                f"{totals[name] / totals['bmv2']:.2f}" if "bmv2" in totals else "",
            )
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_common_options(parser, runs=5)
    sizes = (32, 64, 256)
    parser.add_argument("--values", nargs="+", type=int, choices=sizes, default=sizes, help="default: 32 64 256")
    parser.add_argument("--workers", type=positive, default=2, help="default: %(default)s")
    parser.add_argument("--slots", type=positive, default=64, help="of the pool (default: %(default)s)")
    parser.add_argument(
        "--window",
        type=positive,
        default=32,
        help="chunks on the way; BMv2 drops when there are many (default: %(default)s)",
    )
    parser.add_argument("--bmv2", default="simple_switch_grpc", help="its name or path (default: %(default)s)")
    parser.add_argument("--bmv2-build", metavar="TEXT", help="how it was built, to be saved with the results")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run (default: %(default)s)")
    args = parser.parse_args()
    if args.quick:
        args.values, args.seconds, args.runs = (64,), 0.3, min(args.runs, 2)
    if args.window > args.slots:
        parser.error(f"--window {args.window} is larger than --slots {args.slots}")
    return args


if __name__ == "__main__":
    sys.exit(main())
