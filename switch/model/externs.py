"""Registers, counters and meters: arrays that a program and the control plane share."""

from dataclasses import dataclass
from typing import Final

from switch.model.errors import InvalidError
from switch.model.matching import fits

GREEN: Final = 0
YELLOW: Final = 1
RED: Final = 2


def _check_index(kind: str, name: str, index: int, size: int) -> None:
    if not 0 <= index < size:
        raise InvalidError(f"{kind} {name}: index {index} is not between 0 and {size - 1}")


class Register:
    """An array of numbers.

    Attributes:
        cells: the numbers; signed ones as they are, not as their bits. Compiled programs use it directly.
    """

    def __init__(self, name: str, *, width: int, size: int, signed: bool = False) -> None:
        self.name, self.width, self.signed = name, width, signed
        self.cells: list[int] = [0] * size

    def __len__(self) -> int:
        return len(self.cells)

    def read(self, index: int) -> int:
        """One cell.

        Raises:
            InvalidError: there is no such index.
        """
        _check_index("register", self.name, index, len(self.cells))
        return self.cells[index]

    def write(self, index: int, value: int) -> None:
        """Sets one cell.

        Raises:
            InvalidError: there is no such index, or the value does not fit.
        """
        _check_index("register", self.name, index, len(self.cells))
        half = 1 << self.width >> 1
        if not (-half <= value < half if self.signed else fits(value, self.width)):
            sort = "signed" if self.signed else "unsigned"
            raise InvalidError(f"register {self.name}: value {value:#x} does not fit {self.width} bits, {sort}")
        self.cells[index] = value

    def reset(self) -> None:
        """Sets all cells to 0; the list stays the same object."""
        self.cells[:] = [0] * len(self.cells)


class Counter:
    """An array of pairs of counters.

    Attributes:
        kind: "packets", "bytes" or "both"; what the program asked for. Both are counted always, as BMv2 does.
    """

    def __init__(self, name: str, *, size: int, kind: str = "both") -> None:
        self.name, self.kind = name, kind
        self.packets: list[int] = [0] * size
        self.bytes: list[int] = [0] * size

    def __len__(self) -> int:
        return len(self.packets)

    def read(self, index: int) -> tuple[int, int]:
        """(packets, bytes).

        Raises:
            InvalidError: there is no such index.
        """
        _check_index("counter", self.name, index, len(self))
        return self.packets[index], self.bytes[index]

    def write(self, index: int, packets: int, size: int) -> None:
        """Sets packets and bytes of one index.

        Raises:
            InvalidError: there is no such index, or a value is negative or longer than 64 bits.
        """
        _check_index("counter", self.name, index, len(self))
        for value in (packets, size):
            if not fits(value, 64):
                raise InvalidError(f"counter {self.name}: {value} does not fit 64 bits, unsigned")
        self.packets[index], self.bytes[index] = packets, size

    def reset(self) -> None:
        """Sets everything to 0; the lists stay the same objects."""
        self.packets[:] = self.bytes[:] = [0] * len(self)


@dataclass(frozen=True, slots=True)
class MeterRates:
    """Committed and peak rate per second, and the bursts beside them; bytes or packets."""

    cir: float
    cburst: int
    pir: float
    pburst: int


class MeterCell:
    """One two-rate three-colour meter, colour-blind (RFC 2698).

    Arithmetic is BMv2's: whole tokens, microseconds. A cell without rates is green for every packet.
    """

    __slots__ = ("_filled", "_tokens", "by_packets", "rates")

    def __init__(self, *, by_packets: bool) -> None:
        self.by_packets = by_packets
        self.rates: MeterRates | None = None
        self._tokens = [0, 0]  # peak, committed
        self._filled = [0, 0]  # tokens since time 0 that have been given out or lost to a full bucket

    def set_rates(self, rates: MeterRates | None, *, name: str) -> None:
        """Sets the rates and fills both buckets; None: back to no rates.

        Raises:
            InvalidError: a rate or burst is negative, or the committed rate is above the peak rate.
        """
        if rates is not None:
            if min(rates.cir, rates.cburst, rates.pir, rates.pburst) < 0:
                raise InvalidError(f"meter {name}: rates and bursts must not be negative, got {rates}")
            if rates.cir > rates.pir:
                raise InvalidError(f"meter {name}: committed rate {rates.cir} is above peak rate {rates.pir}")
            self._tokens, self._filled = [rates.pburst, rates.cburst], [0, 0]
        self.rates = rates

    def execute(self, now: float, size: int) -> int:
        """Takes a packet of `size` bytes at `now` seconds and returns its colour: 0 green, 1 yellow, 2 red."""
        rates = self.rates
        if rates is None:
            return GREEN
        microseconds, wanted = int(now * 1e6), 1 if self.by_packets else size
        for i, rate, burst, colour in ((0, rates.pir, rates.pburst, RED), (1, rates.cir, rates.cburst, YELLOW)):
            ever = int(microseconds * (rate / 1e6))
            self._tokens[i] = min(self._tokens[i] + max(0, ever - self._filled[i]), burst)
            self._filled[i] = max(ever, self._filled[i])
            if self._tokens[i] < wanted:
                return colour
            self._tokens[i] -= wanted
        return GREEN


class Meter:
    """An array of meters; `kind` is "packets" or "bytes"."""

    def __init__(self, name: str, *, size: int, kind: str) -> None:
        self.name, self.kind = name, kind
        self.cells = [MeterCell(by_packets=kind == "packets") for _ in range(size)]

    def __len__(self) -> int:
        return len(self.cells)

    def execute(self, index: int, now: float, size: int) -> int:
        """The colour of a packet of `size` bytes at `now` seconds; the index must exist."""
        return self.cells[index].execute(now, size)

    def rates(self, index: int) -> MeterRates | None:
        """Rates of one index.

        Raises:
            InvalidError: there is no such index.
        """
        _check_index("meter", self.name, index, len(self))
        return self.cells[index].rates

    def set_rates(self, index: int, rates: MeterRates | None) -> None:
        """Sets the rates of one index.

        Raises:
            InvalidError: there is no such index, or see `MeterCell.set_rates`.
        """
        _check_index("meter", self.name, index, len(self))
        self.cells[index].set_rates(rates, name=f"{self.name}[{index}]")

    def reset(self) -> None:
        """Takes the rates of all cells away."""
        for cell in self.cells:
            cell.set_rates(None, name=self.name)
