"""Why a job of a tree of switches does not move on: what each switch knows, put together. Without sockets or clocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from switch.dataplane import StalledSlot


@dataclass(frozen=True, kw_only=True)
class RankSlot:
    """A slot that waits, as a switch and those below it see it.

    Attributes:
        slot, chunk: see `StalledSlot`.
        seen: ranks below this switch whose packet has arrived at some switch.
        missing: ranks below this switch of which none has. If there are none, the slot waits for the parent.
    """

    slot: int
    chunk: int
    seen: tuple[int, ...]
    missing: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Account:
    """What a leaf switch says of its ranks: their waiting slots, and by rank seconds since the last packet."""

    slots: Sequence[RankSlot]
    heard: dict[int, float | None]


def combine(
    own: Sequence[StalledSlot], below: Sequence[tuple[int, ...]], accounts: Sequence[Account]
) -> list[RankSlot]:
    """What a switch and those below it know of a job's waiting slots; those waited for longest first.

    Args:
        own: of this switch, with numbers of what sends to it.
        below: ranks by these numbers.
        accounts: of leaf switches below.
    """
    here = {(slot.chunk, slot.slot): slot for slot in own}
    told: dict[tuple[int, int], dict[int, RankSlot]] = {key: {} for key in here}
    child_of = {rank: child for child, ranks in enumerate(below) for rank in ranks}
    for account in accounts:
        for slot in account.slots:
            key = (slot.chunk, slot.slot)
            child = child_of.get((*slot.seen, *slot.missing)[0]) if slot.seen or slot.missing else None
            # One that misses no rank of its own, where this switch waits for nothing, has an answer on its way.
            if child is not None and (slot.missing or key in here):
                told.setdefault(key, {})[child] = slot
    found = []
    for (chunk, slot_number), by_child in sorted(told.items()):
        mine = here.get((chunk, slot_number))
        seen: list[int] = []
        missing: list[int] = []
        for child, ranks in enumerate(below):
            if mine is not None and child in mine.seen:
                seen += ranks
            elif child in by_child:
                seen += by_child[child].seen
                missing += by_child[child].missing
            else:
                missing += ranks
        found.append(RankSlot(slot=slot_number, chunk=chunk, seen=tuple(sorted(seen)), missing=tuple(sorted(missing))))
    return found


def heard_by_rank(
    own: Sequence[float | None], below: Sequence[tuple[int, ...]], accounts: Sequence[Account]
) -> dict[int, float | None]:
    """Seconds since each rank was heard; of a rank below a leaf that says nothing, since that leaf was."""
    heard = {rank: last for last, ranks in zip(own, below, strict=False) for rank in ranks}
    for account in accounts:
        heard |= {rank: last for rank, last in account.heard.items() if rank in heard}
    return heard
