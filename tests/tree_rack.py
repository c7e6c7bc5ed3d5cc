"""An in-memory tree: workers around leaves around a root, seeded faults on every link, and a clock of its own."""

from dataclasses import dataclass, field

from protocol.faults import FaultInjector, FaultRates
from protocol.packets import PacketBatch
from switch.slots import Aggregator
from tests.rack import Rack

ROOT_JOB = 9


@dataclass
class TreeRack(Rack):
    """Racks of `sizes` workers below one root; `up` and `down` are faults between workers and leaves.

    Args:
        sizes: workers of each leaf.
        uplink_up, uplink_down: faults between leaves and root.
    """

    sizes: tuple[int, ...] = (2, 2)
    uplink_up: FaultRates = field(default_factory=FaultRates)
    uplink_down: FaultRates = field(default_factory=FaultRates)

    def __post_init__(self) -> None:
        assert sum(self.sizes) == self.ranks
        super().__post_init__()  # its aggregator is not used
        common = {"slots": self.slots, "values": self.values}
        self.root = Aggregator(job=ROOT_JOB, ranks=len(self.sizes), **common)
        self.leaves = [Aggregator(job=7, ranks=size, parent_job=ROOT_JOB, **common) for size in self.sizes]
        for switch in (self.root, *self.leaves):
            switch.pool["newest"] = self.aggregator.pool["newest"]
        self.first = [sum(self.sizes[:leaf]) for leaf in range(len(self.sizes))]  # rank of each leaf
        self.leaf_of = [leaf for leaf, size in enumerate(self.sizes) for _ in range(size)]
        self.to_root = FaultInjector(self.uplink_up, seed=self.seed, stream=4)
        self.to_leaf = FaultInjector(self.uplink_down, seed=self.seed, stream=5)

    def waits(self) -> list[float]:
        """When packets that are held back between switches go on."""
        dues = (self.to_root.next_due(), self.to_leaf.next_due())
        return [due for due in dues if due is not None]

    def turn(self) -> bool:
        """As in a rack, and between the switches."""
        moved = super().turn()
        for leaf, batch in self.to_root.due(self.now):
            moved = True
            self._arrive_at_root(leaf, batch)
        for leaf, batch in self.to_leaf.due(self.now):
            moved = True
            self._arrive_at_leaf(leaf, batch, self.leaves[leaf].parent)
        return moved or bool(self.waits())

    def _arrive(self, rank: int, batch: PacketBatch) -> None:
        leaf = self.leaf_of[rank]
        self._arrive_at_leaf(leaf, batch, rank - self.first[leaf])

    def _arrive_at_leaf(self, leaf: int, batch: PacketBatch, sender: int) -> None:
        switch = self.leaves[leaf]
        for to, view in switch.receive(batch, sender):
            result = PacketBatch.of(view.data.copy(), view.segment)  # what it leads to may come back here
            if to == switch.parent:
                self._arrive_at_root(leaf, self.to_root.apply(result, self.now, flow=leaf))
                continue
            for local in range(switch.ranks) if to is None else (to,):
                rank = self.first[leaf] + local
                self._deliver(rank, self.downward.apply(result, self.now, flow=rank))

    def _arrive_at_root(self, leaf: int, batch: PacketBatch) -> None:
        for to, view in self.root.receive(batch, leaf):
            result = PacketBatch.of(view.data.copy(), view.segment)
            for receiver in range(self.root.ranks) if to is None else (to,):
                arriving = self.to_leaf.apply(result, self.now, flow=receiver)
                self._arrive_at_leaf(receiver, arriving, self.leaves[receiver].parent)
