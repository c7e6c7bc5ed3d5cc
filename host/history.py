"""What this rank has asked for, to explain it when ranks disagree."""

from collections import deque
from typing import Final

from host.worker import Tensor

_KEPT: Final = 4096  # collectives


class History:
    """The latest collectives of one rank, thread-safe."""

    def __init__(self) -> None:
        self._texts: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._count = 0

    def add(self, tensor: Tensor) -> None:
        """Remembers a tensor that was submitted."""
        self._texts.append((tensor.collective, tensor.describe()))
        self._count = tensor.collective + 1

    def explain(self, collective: int) -> str:
        """This rank's own account of a collective, for the other ranks' error messages."""
        for number, text in reversed(tuple(self._texts)):
            if number == collective:
                return text
        if collective >= self._count:
            return f"has not reached collective #{collective}; it has asked for {self._count} so far"
        return f"collective #{collective} is long done (it is at #{self._count})"
