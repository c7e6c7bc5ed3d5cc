"""What a job waits for, from what can be read of the target. Without sockets, threads or clocks."""

from collections.abc import Sequence
from typing import Final

from switch.dataplane import StalledSlot

_WRAP: Final = 1 << 32  # chunk numbers have 32 bits


def open_slots(
    newest: Sequence[int], seen: Sequence[int], final: Sequence[int], ranks: int, *, leaf: bool = False
) -> list[StalledSlot]:
    """Slots that wait for some rank, from the registers of the job's pool; those waited for longest first.

    A slot of a leaf that misses no rank waits for the parent's result.

    Args:
        newest: of each slot.
        seen, final: by cell, which is twice the slot plus the version.
        ranks: of the job.
    """
    slots, everyone = len(newest), (1 << ranks) - 1
    found = []
    for slot, chunk in enumerate(newest):
        cell = slot << 1 | chunk // slots & 1
        bits = seen[cell]
        if bits and (bits != everyone or (leaf and not final[cell])):
            found.append(_slot(slot, chunk, [bool(bits >> rank & 1) for rank in range(ranks)]))
    return sorted(found, key=lambda stalled: stalled.chunk)


def open_slots_by_count(contributions: Sequence[int], slots: int) -> list[StalledSlot]:
    """The same from how many chunks each rank has contributed to since the job began.

    Chunks are numbered from 0 and a chunk counts once for each rank. So a rank with fewer than another certainly
    lacks a chunk that the other has; and unless packets are under way or lost, it is the next one in order.

    Args:
        contributions: by rank.
        slots: of the job's pool.
    """
    first, end = min(contributions), max(contributions)
    return [
        _slot(chunk % slots, chunk % _WRAP, [count > chunk for count in contributions])
        for chunk in range(first, min(end, first + slots))
    ]


def _slot(slot: int, chunk: int, has: list[bool]) -> StalledSlot:
    return StalledSlot(
        slot=slot,
        chunk=chunk,
        seen=tuple(rank for rank, there in enumerate(has) if there),
        missing=tuple(rank for rank, there in enumerate(has) if not there),
    )
