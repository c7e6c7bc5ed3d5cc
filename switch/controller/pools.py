"""What jobs take of a target's: pools of slots and numbers. Without sockets, threads or clocks."""

from switch.controller.errors import ControllerError


class PoolSpace:
    """Pools of a power of two of slots, side by side in one register array.

    Args:
        total: slots of the array.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._taken: dict[int, int] = {}  # first slot: slots

    def take(self, slots: int) -> int:
        """The first slot of a new pool. It is a multiple of its size, so that gaps stay usable.

        Raises:
            ControllerError: there is no gap of that size; the text says what there is.
        """
        base = 0
        for start, size in sorted(self._taken.items()):
            if base + slots <= start:
                break
            base = -(-(start + size) // slots) * slots
        if base + slots > self.total:
            free = self.total - sum(self._taken.values())
            raise ControllerError(f"no {slots} slots in a row are free, only {free} of {self.total} here and there")
        self._taken[base] = slots
        return base

    def give_back(self, base: int) -> None:
        """Takes a pool back."""
        del self._taken[base]


class Numbers:
    """Numbers for things that come and go. One that was given back rests as long as others are free.

    Args:
        first: the smallest.
        count: how many there are.
        what: they number, for messages.
    """

    def __init__(self, first: int, count: int, what: str) -> None:
        self._first, self._count, self._what = first, count, what
        self._taken: set[int] = set()
        self._next = 0

    def take(self, wanted: int) -> tuple[int, ...]:
        """So many numbers.

        Raises:
            ControllerError: there are not enough.
        """
        if wanted > self._count - len(self._taken):
            raise ControllerError(
                f"{wanted} more {self._what} are too many: {len(self._taken)} of {self._count} are in use"
            )
        found: list[int] = []
        while len(found) < wanted:
            number = self._first + self._next
            self._next = (self._next + 1) % self._count
            if number not in self._taken:
                self._taken.add(number)
                found.append(number)
        return tuple(found)

    def give_back(self, numbers: tuple[int, ...]) -> None:
        """Takes numbers back."""
        self._taken.difference_update(numbers)
