"""What experiments take on their command lines, and whether this machine has room for it."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from protocol.constants import MAX_RANKS
from wiresum.arguments import number, whole

HEADER_BYTES: Final = 14 + 20 + 8 + 10  # Ethernet, IPv4, UDP, wiresum: what a rate counts beside the values
WORKERS: Final = whole(2, MAX_RANKS, "number of workers")
RATE: Final = number(1, 100_000, "a rate in Mbit/s")
SECONDS: Final = number(0.001, 60, "a time in seconds")
LOSS: Final = number(0, 0.5, "a share of packets")
PACKET_VALUES: Final = (32, 64, 128, 256)  # those whose packets fit the links' frames
_BYTES_PER_ELEMENT: Final = 12  # what a worker reduces, what comes of it, and what is on its way


class Distinct(argparse.Action):
    """Keeps each value of an option once, in the order given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Called by argparse."""
        setattr(namespace, self.dest, list(dict.fromkeys(values or ())))


def line_rate(rate: float, values: int = 256) -> float:
    """Elements per second that a link of `rate` Mbit/s can carry each way in packets of `values`."""
    return rate * 1e6 / 8 / (HEADER_BYTES + 4 * values) * values


def elements_for(rate: float, seconds: float) -> int:
    """Elements that take about so long over links of `rate` Mbit/s; one packet at least."""
    return max(256, int(line_rate(rate) * seconds))


def check_memory(elements: int, workers: int) -> None:
    """Makes sure that the workers' arrays fit into memory.

    Raises:
        ValueError: they do not.
    """
    free, needed = _free_bytes(), elements * workers * _BYTES_PER_ELEMENT
    if needed > free:
        raise ValueError(
            f"{workers} workers that reduce {elements:,} elements need {needed / 1e9:,.1f} GB of memory, and "
            f"{free / 1e9:,.1f} GB are free: make the reduction shorter, or the links slower"
        )


def _free_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024
