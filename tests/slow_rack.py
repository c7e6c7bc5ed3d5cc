"""An in-memory rack whose links have a rate: queues grow in front of them, and round trips with the queues."""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from host.worker import Tensor
from protocol.constants import DType, Op
from protocol.packets import PacketBatch, batches
from tests.rack import Rack

HEADER_BYTES = 42  # Ethernet, IPv4, UDP


class Link:
    """One direction of a link of `rate` bit/s, with a queue that loses nothing but the share `loss`."""

    def __init__(self, rate: float, loss: float, random: np.random.Generator) -> None:
        self._rate, self._loss, self._random = rate, loss, random
        self._free = 0.0
        self._queue: deque[tuple[float, bytes]] = deque()

    def send(self, batch: PacketBatch, now: float) -> None:
        """Queues packets, which come out together as segmentation offload has it; what gets lost has taken its time."""
        packets = list(batch)
        self._free = max(self._free, now) + sum(len(packet) + HEADER_BYTES for packet in packets) * 8 / self._rate
        for packet in packets:
            if self._random.random() >= self._loss:
                self._queue.append((self._free, packet))

    def arrived(self, now: float) -> list[bytes]:
        """Takes what has come out by `now`."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            found.append(self._queue.popleft()[1])
        return found

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self._queue


class SlowRack(Rack):
    """Workers behind links of `rate` bit/s, each of which gets the processor only now and then."""

    def connect(self, rate: float, *, loss: float = 0.0, away: float = 0.0) -> "SlowRack":
        """Sets the links.

        Args:
            rate: bit/s each way.
            loss: share of packets that each link loses each way.
            away: the longest that a worker is without a processor at a time, seconds.
        """
        self._random = np.random.default_rng(self.seed)
        self._up = [Link(rate, loss, self._random) for _ in range(self.ranks)]
        self._down = [Link(rate, loss, self._random) for _ in range(self.ranks)]
        self._away = away
        self._back = [0.0] * self.ranks
        return self

    def run_from(self, starts: Sequence[float], *, limit: float = 600.0) -> None:
        """Moves packets until every worker is done; worker r looks at nothing before now + starts[r]."""
        self._back = [self.now + start for start in starts]
        while any(worker.busy for worker in self.workers) or not all(link.idle for link in self._up + self._down):
            self._turn()
            assert self.now < limit, "the rack did not come to an end"

    def run_loops(self, tensors: int, blocks: int, *, skew: float, think: float, limit: float = 600.0) -> None:
        """Every rank sums tensors of int32 on its own, one after the other; ends with the last rank.

        Args:
            skew: the first is begun within as many seconds.
            think: from the end of one to the start of the next, seconds on average.
        """
        starts: list[float | None] = list(self._random.uniform(0, skew, self.ranks))
        left = [tensors] * self.ranks
        ones = np.ones(blocks * self.values, np.int32)

        def begin(rank: int) -> None:
            worker, start = self.workers[rank], starts[rank]
            if worker.busy or not left[rank]:
                return
            if start is None:
                starts[rank] = self.now + self._random.exponential(think)
            elif self.now >= start:
                worker.submit(Tensor(source=ones, target=np.empty_like(ones), dtype=DType.INT32, op=Op.SUM))
                starts[rank] = None
                left[rank] -= 1

        while any(left) or any(worker.busy for worker in self.workers):
            self._turn(begin)
            assert self.now < limit, "the rack did not come to an end"

    def _turn(self, begin: Callable[[int], None] = lambda rank: None) -> None:
        for rank, worker in enumerate(self.workers):
            if self.now < self._back[rank]:
                continue
            for batch in batches(self._down[rank].arrived(self.now)):
                self._deliver(rank, batch)
            begin(rank)
            worker.handle_timer(self.now)
            while (packets := worker.packets(self.now)) is not None:
                self._up[rank].send(packets, self.now)
            if self._away:
                self._back[rank] = self.now + self._random.uniform(0, self._away)
        self.now += self.step
        for rank in self._random.permutation(self.ranks):
            for batch in batches(self._up[rank].arrived(self.now)):
                for to, results in self.aggregator.receive(batch, int(rank)):
                    for receiver in range(self.ranks) if to is None else (to,):
                        self._down[receiver].send(results, self.now)

    def again(self) -> float:
        """Share of packets that were sent again."""
        counts = [worker.statistics() for worker in self.workers]
        return sum(c["retransmissions"] for c in counts) / sum(c["packets_sent"] for c in counts)
