"""A wire with faults: hands frames on between two interfaces, and loses, delays, duplicates and reorders some.

    python -m wiresum.lab.wire IF1 IF2 --faults loss=0.01 --back loss=0.02,delay=1,delay_seconds=0.005 --seed 3

For what kernels without netem cannot do. It takes frames one by one, so it is good for some fifty thousand per second,
both directions together; the fates of the n-th frame of a direction depend on the seed alone.
"""

import argparse
import heapq
import json
import random
import select
import socket
import struct
import sys
import time
from itertools import count
from typing import Any, Final

from protocol.faults import FaultRates
from wiresum.serving import say, stop_signals

_ALL_PROTOCOLS: Final = 3
_SOL_PACKET, _STATISTICS, _IGNORE_OUTGOING = 263, 6, 23
_BUFFER_BYTES: Final = 8 << 20
_BATCH: Final = 64
_FRAME_BYTES: Final = 65536


class Fates:
    """Draws what happens to the frames of one direction, and keeps those that wait. Knows no clock and no socket."""

    def __init__(self, rates: FaultRates, seed: str) -> None:
        self._rates = rates
        self._random = random.Random(seed)
        self._held: list[tuple[float, int, bytes]] = []
        self._order = count()
        self.counters = dict.fromkeys(
            ("frames", "lost", "duplicated", "delayed", "reordered", "dropped", "overflowed"), 0
        )

    def take(self, frame: bytes, now: float) -> int:
        """How many copies of a frame go on at once; it keeps those that wait."""
        rates, counters = self._rates, self.counters
        # Always four draws, so that one rate does not change what the others do.
        loss, twice, delay, reorder = (self._random.random() for _ in range(4))
        counters["frames"] += 1
        if loss < rates.loss:
            counters["lost"] += 1
            return 0
        copies = 1
        if twice < rates.duplicate:
            counters["duplicated"] += 1
            copies = 2
        if delay < rates.delay:
            counters["delayed"] += 1
            wait = rates.delay_seconds
        elif reorder < rates.reorder:
            counters["reordered"] += 1
            wait = rates.reorder_seconds * self._random.random()
        else:
            return copies
        for _ in range(copies):  # of a frame that waits, both
            heapq.heappush(self._held, (now + wait, next(self._order), frame))
        return 0

    def due(self, now: float) -> list[bytes]:
        """The frames whose wait is over."""
        found = []
        while self._held and self._held[0][0] <= now:
            found.append(heapq.heappop(self._held)[2])
        return found

    def next_due(self) -> float | None:
        """When the next one goes on."""
        return self._held[0][0] if self._held else None


def _open(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    made.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    made.setsockopt(socket.SOL_SOCKET, 33, _BUFFER_BYTES)  # SO_RCVBUFFORCE
    made.bind((interface, 0))
    made.setblocking(False)
    return made


def _send(out: socket.socket, frame: bytes, fates: Fates) -> None:
    try:
        out.send(frame)
    except OSError:  # its queue is full, or it is down
        fates.counters["dropped"] += 1


def _carry(source: socket.socket, out: socket.socket, fates: Fates) -> None:
    now = time.monotonic()
    for _ in range(_BATCH):
        try:
            frame = source.recv(_FRAME_BYTES)
        except BlockingIOError:
            return
        for _ in range(fates.take(frame, now)):
            _send(out, frame, fates)


def main() -> int:
    """Serves until SIGINT or SIGTERM; then writes its counters as a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", metavar="IF1")
    parser.add_argument("other", metavar="IF2")
    parser.add_argument("--faults", default=FaultRates(), type=FaultRates.parse, help="from IF1 to IF2")
    parser.add_argument("--back", default=FaultRates(), type=FaultRates.parse, help="from IF2 to IF1")
    parser.add_argument("--seed", default="0")
    args = parser.parse_args()
    there, back = Fates(args.faults, f"{args.seed} there"), Fates(args.back, f"{args.seed} back")
    with stop_signals() as (stop, _), _open(args.one) as one, _open(args.other) as other:
        ways: dict[socket.socket, tuple[socket.socket, Fates]] = {one: (other, there), other: (one, back)}
        readers: list[Any] = [stop, one, other]
        say("wire ready")
        while True:
            times = [due for _, fates in ways.values() if (due := fates.next_due()) is not None]
            wait = max(0.0, min(times) - time.monotonic()) if times else None
            ready = select.select(readers, [], [], wait)[0]
            if stop in ready:
                break
            for source, (out, fates) in ways.items():
                if source in ready:
                    _carry(source, out, fates)
                for frame in fates.due(time.monotonic()):
                    _send(out, frame, fates)
        for source, (_, fates) in ways.items():
            # What came faster than it was taken: loss, too, and nobody else counts it.
            _, fates.counters["overflowed"] = struct.unpack("II", source.getsockopt(_SOL_PACKET, _STATISTICS, 8))
    say(json.dumps({"there": there.counters, "back": back.counters}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
