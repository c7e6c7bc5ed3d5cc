"""Exhaustive search through what can happen to racks and trees; see tests/tree_search.py.

Covered: racks of 1 to 4 workers, trees of two levels with 2 and 3 leaves or workers beside leaves, of three levels;
three to five generations, two with pools of two slots; packets with values, and every other chunk with exponents alone.
Workers' results are checked in full: exponents, values, job number.
"""

import numpy as np
import pytest

from protocol.packets import PacketBatch, decode
from switch.slots import Aggregator, Result
from tests.tree_search import Fault, Node, Search


def leaf(*ranks: int) -> Node:
    return Node(workers=ranks)


RACKS = [
    pytest.param(Node(workers=tuple(range(ranks))), generations, slots, id=f"{ranks} workers, {slots} slots")
    for ranks, generations, slots in ((1, 5, 1), (2, 5, 1), (3, 5, 1), (4, 4, 1), (2, 3, 2))
]
TREES = [
    pytest.param(Node(below=(leaf(0), leaf(1))), 5, 1, id="two leaves of one worker"),
    pytest.param(Node(below=(leaf(0, 1), leaf(2))), 4, 1, id="leaves of two and one"),
    pytest.param(Node(below=(leaf(0, 1), leaf(2, 3))), 3, 1, id="two leaves of two"),
    pytest.param(Node(below=(leaf(0), leaf(1), leaf(2))), 3, 1, id="three leaves of one worker"),
    pytest.param(Node((0,), (leaf(1, 2),)), 4, 1, id="a worker beside a leaf"),
    pytest.param(Node(below=(leaf(0, 1),)), 4, 1, id="a leaf alone"),
    pytest.param(Node(below=(Node((0,), (leaf(1),)), leaf(2))), 3, 1, id="three levels"),
    pytest.param(Node((0,), (leaf(1),)), 2, 2, id="a worker beside a leaf, two slots"),
]


@pytest.mark.parametrize(("root", "generations", "slots"), RACKS + TREES)
def test_no_wrong_sum_and_no_dead_end(root: Node, generations: int, slots: int) -> None:
    assert Search(root, slots=slots, generations=generations, alternate=True).run() > 10


class Broken(Aggregator):
    """Takes packets one by one, so that a rule can be left out."""

    def is_duplicate(self, tsi: int, rank: int) -> bool:
        slot, version = tsi % self.slots, tsi // self.slots % 2
        return bool(self.pool["newest"][slot] == tsi and self.pool["seen"][slot, version] >> rank & 1)


class AddsDuplicates(Broken):
    def receive(self, batch: PacketBatch, rank: int) -> list[Result]:
        tsi = decode(batch.data.tobytes()).tsi
        if rank != self.parent and self.is_duplicate(tsi, rank):
            self.pool["seen"][tsi % self.slots, tsi // self.slots % 2] &= ~np.uint32(1 << rank)
        return super().receive(batch, rank)


class AnswersNoDuplicates(Broken):
    def receive(self, batch: PacketBatch, rank: int) -> list[Result]:
        results = super().receive(batch, rank)
        return [result for result in results if result.rank in (None, self.parent)]


class SendsNoPartialAgain(Broken):
    def receive(self, batch: PacketBatch, rank: int) -> list[Result]:
        duplicate = self.is_duplicate(decode(batch.data.tobytes()).tsi, rank)
        results = super().receive(batch, rank)
        return [result for result in results if not (duplicate and result.rank == self.parent)]


class TakesResultsOfAnyGeneration(Broken):
    def receive(self, batch: PacketBatch, rank: int) -> list[Result]:
        if rank != self.parent:
            return super().receive(batch, rank)
        packet = batch.data.copy()
        newest = int(self.pool["newest"][decode(packet.tobytes()).slot])
        packet[2:6] = np.frombuffer(newest.to_bytes(4, "big"), np.uint8)
        packet[6] = packet[6] & 0x7F | (newest // self.slots % 2) << 7
        return super().receive(PacketBatch.of(packet, batch.segment), rank)


class TakesResultsOfIncompleteSlots(Broken):
    def receive(self, batch: PacketBatch, rank: int) -> list[Result]:
        if rank == self.parent:
            tsi = decode(batch.data.tobytes()).tsi
            self.pool["count"][tsi % self.slots, tsi // self.slots % 2] = self.ranks
        return super().receive(batch, rank)


class KeepsFinal(Broken):
    """A new generation is taken for final as soon as it begins, as the one before the last was."""

    def receive(self, batch: PacketBatch, rank: int) -> list[Result]:
        tsi = decode(batch.data.tobytes()).tsi
        slot, version = tsi % self.slots, tsi // self.slots % 2
        final, newest = int(self.pool["final"][slot, version]), int(self.pool["newest"][slot])
        results = super().receive(batch, rank)
        if newest != self.pool["newest"][slot] and final:
            self.pool["final"][slot, version] = 1
        return results


RACK, TREE = leaf(0, 1), Node(below=(leaf(0, 1), leaf(2)))


@pytest.mark.parametrize(
    ("broken", "root", "fault"),
    [
        (AddsDuplicates, RACK, "wrong sum"),
        (AddsDuplicates, TREE, "wrong sum"),
        (AnswersNoDuplicates, RACK, "dead end"),
        (AnswersNoDuplicates, TREE, "dead end"),
        (SendsNoPartialAgain, TREE, "dead end"),
        (TakesResultsOfAnyGeneration, TREE, "wrong sum"),
        (TakesResultsOfIncompleteSlots, TREE, "wrong sum"),
        (KeepsFinal, TREE, "wrong sum|dead end"),
    ],
)
def test_a_rule_that_is_left_out_is_missed(broken: type[Broken], root: Node, fault: str) -> None:
    with pytest.raises(Fault, match=fault):
        Search(root, generations=4, make=broken).run()
