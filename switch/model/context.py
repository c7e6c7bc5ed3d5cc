"""What generated code works with besides the state that the control plane writes."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import Any

from switch.model.trace import Trace

_log = logging.getLogger(__name__)

MAX_DIGESTS = 1 << 16  # that wait for the control plane


class Fault(Exception):
    """An assert or assume of the program that does not hold. BMv2 ends; here the packet does."""


@dataclass(frozen=True, slots=True)
class Digest:
    """A message to the control plane.

    Attributes:
        name: of the digest's type, as in p4info.
        list_id: BMv2's number for it.
        receiver: as the program gave it.
        values: the fields, in order.
    """

    name: str
    list_id: int
    receiver: int
    values: tuple[int, ...]


@dataclass
class SwitchCounters:
    """What a switch counts of its own accord.

    Attributes:
        received: packets.
        sent: packets, copies included.
        parser_errors: packets whose parsing failed; they go on to ingress, as the architecture says.
        dropped: passes that ended at ingress or egress by the program's will.
        faults: passes that ended by an assert, a division by zero, a stack index out of range or an endless loop.
        bad_indexes: accesses to registers, counters and meters out of range; nothing happens then.
        lost_digests: digests that came while too many waited.
    """

    received: int = 0
    sent: int = 0
    parser_errors: int = 0
    dropped: int = 0
    faults: int = 0
    bad_indexes: int = 0
    lost_digests: int = 0


class Context:
    """What generated code calls, and where it leaves what is not the packet's own way."""

    __slots__ = (
        "again",
        "bad_indexes",
        "clones",
        "digests",
        "egress_clones",
        "lost_digests",
        "parser_errors",
        "port",
        "random",
        "trace",
    )

    def __init__(self, seed: int) -> None:
        self.parser_errors = self.bad_indexes = self.lost_digests = self.port = 0
        self.clones: list[tuple[bytes, int, int, tuple[int, ...] | None]] = []
        self.egress_clones: list[tuple[int, tuple[Any, ...]]] = []
        self.again: list[tuple[bytes, int, tuple[int, ...] | None, int]] = []
        self.digests: list[Digest] = []
        self.random = random.Random(seed).randint
        self.trace: Trace | None = None

    def note_index(self, kind: str, name: str, index: int) -> None:
        """Counts an access out of range."""
        self.bad_indexes += 1
        _log.debug("%s %s has no index %d", kind, name, index)
        if self.trace is not None:
            self.trace.note(f"{kind} {name} has no index {index}")

    def log(self, text: str, values: tuple[int, ...]) -> None:
        """Writes what log_msg says."""
        for value in values:
            text = text.replace("{}", str(int(value)), 1)
        _log.info("%s", text)
        if self.trace is not None:
            self.trace.note(text)

    def digest(self, name: str, list_id: int, receiver: int, values: tuple[int, ...]) -> None:
        """Keeps a digest for `ModelSwitch.take_digests`."""
        if len(self.digests) < MAX_DIGESTS:
            self.digests.append(Digest(name, list_id, int(receiver), values))
        else:
            self.lost_digests += 1
        if self.trace is not None:
            self.trace.note(f"digest {name}{values}")
