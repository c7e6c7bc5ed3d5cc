"""All that can happen to a rack or a tree of switches when packets are lost, repeated and reordered without limit.

The switches are the project's own slot logic; only workers are models here, of the one rule that they have one chunk
outstanding in each slot. The network is the set of all packets ever sent on each link: any of them may arrive at any
time, any number of times, or never. So a worker's timer needs no model: a packet that is sent again is in the set.

At any moment, all packets on their way may be lost at once. Then workers' timers are all that there is: of what they
have sent only the outstanding chunks arrive from then on. From every such state, too, all must be able to finish, or it
is a dead end.

A state is the registers of every switch, the progress of every worker, and the packets that switches have sent. What
one packet does to one switch is computed once, by the real thing, and looked up from then on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from protocol.packets import Packet, batches, decode, make_packet
from switch.slots import Aggregator

VALUES = 32

Outcome: TypeAlias = tuple[int, tuple[tuple[int, bytes], ...]]  # registers afterwards, packets with where they go
Progress: TypeAlias = tuple[tuple[int, ...], ...]  # of each worker, by slot: its outstanding chunk
# Registers by switch; packets with the switch that sent them and the member that they go to; whether old ones are lost.
State: TypeAlias = tuple[Progress, tuple[int, ...], frozenset[tuple[int, int, int]], bool]


class Fault(AssertionError):
    """A wrong sum, or a state from which the workers cannot all come to their end."""


@dataclass(frozen=True)
class Node:
    """One switch of a tree: the workers at it by rank, and the switches below, which come after them."""

    workers: tuple[int, ...] = ()
    below: tuple["Node", ...] = ()

    def all_nodes(self) -> Iterator["Node"]:
        yield self
        for node in self.below:
            yield from node.all_nodes()

    def all_workers(self) -> tuple[int, ...]:
        return self.workers + tuple(rank for node in self.below for rank in node.all_workers())


@dataclass
class Search:
    """A breadth-first search.

    Args:
        root: the tree; a rack is a root alone.
        slots: of the pool.
        generations: chunks of each slot.
        make: of aggregators, so that a test can leave a rule out.
        alternate: whether every other chunk has exponents alone.

    Attributes:
        states: how many there are.
    """

    root: Node
    slots: int = 1
    generations: int = 3
    make: Callable[..., Aggregator] = Aggregator
    alternate: bool = False
    states: int = 0
    _packets: list[bytes] = field(default_factory=list)
    _packet_ids: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = list(self.root.all_nodes())
        self.ranks = sorted(self.root.all_workers())
        index = {id(node): i for i, node in enumerate(self.nodes)}
        self.parent: list[tuple[int, int] | None] = [None] * len(self.nodes)  # node, and number there
        for i, node in enumerate(self.nodes):
            for j, below in enumerate(node.below):
                self.parent[index[id(below)]] = i, len(node.workers) + j
        self.home = {rank: (i, number) for i, node in enumerate(self.nodes) for number, rank in enumerate(node.workers)}
        # Links by number: upward and downward one for each member of each switch.
        self.switches = [
            self.make(
                job=10 + i,
                ranks=len(node.workers) + len(node.below),
                slots=self.slots,
                values=VALUES,
                parent_job=None if (up := self.parent[i]) is None else 10 + up[0],
            )
            for i, node in enumerate(self.nodes)
        ]
        self._registers: list[list[tuple[Any, Any]]] = [[] for _ in self.nodes]
        self._register_ids: list[dict[bytes, int]] = [{} for _ in self.nodes]
        self._outcomes: dict[tuple[int, int, int, int], Outcome] = {}
        self._children = [[index[id(below)] for below in node.below] for node in self.nodes]
        self._contributions = [
            [self._id(self._contribution(rank, chunk).encode()) for chunk in range(self.slots * self.generations)]
            for rank in self.ranks
        ]
        self._taken: dict[tuple[int, int], int] = {}  # by worker and packet: its chunk, once it has been checked
        self._wanted = [self._result(chunk) for chunk in range(self.slots * self.generations)]

    # What is sent

    def _contribution(self, rank: int, chunk: int) -> Packet:
        """Values from which it can be seen whose they are and how often they were added."""
        alone = self.alternate and chunk // self.slots % 2 == 1
        values = None if alone else np.full(VALUES, (16**rank) * (1 + chunk))
        return make_packet(
            tsi=chunk, slots=self.slots, values=values, per_packet=VALUES, job=10 + self.home[rank][0],
            e0=(3 * rank + 5 * chunk) % 7, e1=chunk % 127,
        )  # fmt: skip

    def _result(self, chunk: int) -> tuple[int, int, bytes]:
        parts = [self._contribution(rank, chunk) for rank in self.ranks]
        total = sum(part.values.astype(np.int64) for part in parts)
        return max(part.e0 for part in parts), max(part.e1 for part in parts), np.asarray(total).tobytes()

    def _id(self, packet: bytes) -> int:
        number = self._packet_ids.setdefault(packet, len(self._packets))
        if number == len(self._packets):
            self._packets.append(packet)
        return number

    # One packet at one switch

    def _save(self, node: int) -> int:
        switch = self.switches[node]
        key = switch.pool.tobytes() + switch.registers[:, :, 0].tobytes()  # all values of a packet are the same
        number = self._register_ids[node].setdefault(key, len(self._registers[node]))
        if number == len(self._registers[node]):
            self._registers[node].append((switch.pool.copy(), switch.registers.copy()))
        return number

    def _arrive(self, node: int, registers: int, member: int, packet: int) -> Outcome:
        key = node, registers, member, packet
        outcome = self._outcomes.get(key)
        if outcome is None:
            switch = self.switches[node]
            switch.pool[:], switch.registers[:] = self._registers[node][registers]
            sent = []
            for batch in batches([self._packets[packet]]):
                for to, results in switch.receive(batch, member):
                    sent += [(-1 if to is None else to, result) for result in results]
            outcome = self._outcomes[key] = self._save(node), tuple(sent)
        return outcome

    # The search

    def run(self) -> int:
        """Visits all states.

        Returns:
            how many there are.

        Raises:
            Fault: a wrong sum, or a dead end.
        """
        start: State = (
            tuple(tuple(range(self.slots)) for _ in self.ranks),
            tuple(self._save(node) for node in range(len(self.nodes))),
            frozenset(),
            False,
        )
        numbers: dict[State, int] = {start: 0}
        queue = [start]
        before: list[list[int]] = [[]]  # by state, those that lead to it
        ends: list[int] = []
        for state in queue:  # which grows
            here = numbers[state]
            if all(chunk >= self.slots * self.generations for worker in state[0] for chunk in worker):
                ends.append(here)
            for after in self._successors(state):
                there = numbers.get(after)
                if there is None:
                    there = numbers[after] = len(queue)
                    queue.append(after)
                    before.append([])
                before[there].append(here)
        self.states = len(queue)
        good = set(ends)
        frontier = list(ends)
        while frontier:
            for earlier in before[frontier.pop()]:
                if earlier not in good:
                    good.add(earlier)
                    frontier.append(earlier)
        if len(good) < len(queue):
            dead = next(state for state, number in numbers.items() if number not in good)
            raise Fault(f"dead end: workers wait for chunks {dead[0]}")
        return self.states

    def _successors(self, state: State) -> Iterator[State]:
        """The states after each packet that can arrive, as far as it changes anything."""
        progress, registers, network, lost = state
        yield progress, registers, frozenset(), True
        last = self.slots * self.generations
        arrivals: set[tuple[int, int, int]] = set()  # switch, member, packet
        for position, rank in enumerate(self.ranks):
            node, member = self.home[rank]
            for slot, outstanding in enumerate(progress[position]):
                for chunk in range(outstanding if lost else slot, min(outstanding + 1, last), self.slots):
                    arrivals.add((node, member, self._contributions[position][chunk]))
        for node, member, packet in network:
            if member < 0:  # upward: from this node to its parent
                up = self.parent[node]
                assert up is not None
                arrivals.add((up[0], up[1], packet))
                continue
            here = self.nodes[node]
            if member >= len(here.workers):
                child = self._children[node][member - len(here.workers)]
                arrivals.add((child, self.switches[child].parent, packet))
                continue
            moved = self._deliver(progress, self.ranks.index(here.workers[member]), packet)
            if moved is not None:
                yield moved, registers, network, lost
        for node, member, packet in arrivals:
            after, sent = self._arrive(node, registers[node], member, packet)
            links = set()
            for to, result in sent:
                number = self._id(result)
                everybody = range(self.switches[node].ranks)
                if to == self.switches[node].parent:
                    links.add((node, -1, number))
                else:
                    links.update((node, receiver, number) for receiver in (everybody if to < 0 else (to,)))
            if after != registers[node] or not links <= network:
                yield progress, (*registers[:node], after, *registers[node + 1 :]), network | links, lost

    def _deliver(self, progress: Progress, position: int, number: int) -> Progress | None:
        """The workers' progress when a result arrives at one of them; None: it is an old one."""
        tsi = self._taken.get((position, number))
        if tsi is None:
            packet = decode(self._packets[number])
            found = packet.e0, packet.e1, packet.values.astype(np.int64).tobytes()
            tsi = packet.tsi
            if found != self._wanted[tsi] or packet.job != 10 + self.home[self.ranks[position]][0]:
                raise Fault(f"wrong sum: rank {self.ranks[position]} gets {packet}")
            self._taken[position, number] = tsi
        mine, slot = progress[position], tsi % self.slots
        if mine[slot] != tsi:
            return None
        moved = (*mine[:slot], tsi + self.slots, *mine[slot + 1 :])
        return (*progress[:position], moved, *progress[position + 1 :])
