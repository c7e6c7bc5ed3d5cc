"""A seeded fault injector for batches of packets: it loses, duplicates, reorders, delays and corrupts them.

Packets carry no checksum of their own. On a real link UDP's checksum protects them, and a damaged packet is a lost one.
Corruption injected here happens outside of that check and so stands for what slips past it: damage to the header is
caught by the receiver's checks and counted there (unless it makes the header of another chunk), damage to the exponents
or the values is not, and then the sum is wrong.
"""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import count, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.constants import MAX_DATAGRAM, MAX_SEGMENTS
from protocol.fault_kernels import (
    CORRUPTED,
    DUPLICATED,
    FLOW,
    HELD,
    KINDS,
    REORDERED,
    WAIT_STREAM,
    copy_going_on,
    derive,
    draw_fates,
    flip_bits,
    new_table,
    uniform,
)
from protocol.packets import PacketBatch, batches


@dataclass(frozen=True, kw_only=True)
class FaultRates:
    """How often packets of one direction meet each kind of fault.

    A packet that is lost meets no other. A duplicate goes on at once and unharmed, whatever happens to the packet
    itself. A packet that would be both delayed and reordered is delayed.

    Attributes:
        loss: share of packets, 0 to 1, that vanish.
        duplicate: share that arrive twice.
        reorder: share held back for a random time up to `reorder_seconds`, so that later ones overtake them.
        delay: share held back for `delay_seconds`.
        corrupt: share that arrive with one to three bits flipped; see the module's notes.
        delay_seconds: how long a delayed packet waits.
        reorder_seconds: the longest time that a reordered packet waits.

    Raises:
        ValueError: a rate outside 0 to 1, or a time that is negative or not finite.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    corrupt: float = 0.0
    delay_seconds: float = 0.005
    reorder_seconds: float = 0.001

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_seconds"):
                if not (math.isfinite(value) and value >= 0):
                    raise ValueError(f"{field.name} must be a finite number of seconds, not below 0, not {value}")
            elif not 0 <= value <= 1:
                raise ValueError(f"{field.name} must be a rate from 0 to 1, not {value}")

    @classmethod
    def parse(cls, text: str) -> "FaultRates":
        """Reads rates as they stand on a command line, such as "loss=0.01,duplicate=0.001"; "" means no faults.

        Raises:
            ValueError: an unknown, repeated or malformed item, or a value out of range.
        """
        known = [field.name for field in fields(cls)]
        rates: dict[str, float] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, equals, number = (part.strip() for part in item.partition("="))
            if not equals or name not in known:
                raise ValueError(f"a fault is written NAME=NUMBER with NAME one of {', '.join(known)}; got {item!r}")
            if name in rates:
                raise ValueError(f"{name} is given twice in {text!r}")
            try:
                rates[name] = float(number)
            except ValueError:
                raise ValueError(f"{name} must be a number, not {number!r}") from None
        return cls(**rates)

    @property
    def any(self) -> bool:
        """Whether any kind of fault can happen."""
        return any((self.loss, self.duplicate, self.reorder, self.delay, self.corrupt))

    @property
    def immediate(self) -> bool:
        """Whether no packet is ever held back or repeated."""
        return not any((self.duplicate, self.reorder, self.delay))


_NATIVE_PACKETS = 2 * MAX_SEGMENTS
_NATIVE_BYTES = 2 * MAX_DATAGRAM


@dataclass(frozen=True, slots=True)
class _Native:
    """What a FLOW record refers to, beside the injector's own."""

    record: npt.NDArray[Any]
    fates: npt.NDArray[np.uint8]
    keys: npt.NDArray[np.uint64]
    out: npt.NDArray[np.uint8]


@dataclass(slots=True)
class _Flow:
    key: np.uint64
    table: npt.NDArray[np.uint64]
    native: _Native | None = None


class FaultInjector:
    """Faults for the packets of one direction; the caller passes batches through and collects those held back.

    A packet's fate is a function of the seed, the stream, the flow, its header and how often that header came before in
    this flow: the same packets meet the same faults, however they are timed or batched, and a packet that is sent again
    gets a fresh draw. (Only the latest header of each slot, version and type is remembered. So that no packet is lost
    for ever, a flow must be the packets between the switch and one worker.)

    Not thread-safe.

    Args:
        rates: how often each fault happens.
        seed: any integer.
        stream: tells directions with the same seed apart; results repeat the headers of what they answer, and would
            otherwise meet the same faults.
    """

    def __init__(self, rates: FaultRates, *, seed: int, stream: int = 0) -> None:
        self.rates = rates
        self._key = _derive(_unsigned(seed), stream)
        # In the order of the kernels' bits.
        self._rates = np.array([rates.loss, rates.duplicate, rates.corrupt, rates.delay, rates.reorder])
        self._active = rates.any
        self._flows: dict[int, _Flow] = {}
        self._offered = np.zeros(1, np.int64)
        self._tally = np.zeros(KINDS, np.int64)
        self._fates = np.zeros(0, np.uint8)
        self._keys = np.zeros(0, np.uint64)
        self._held: list[tuple[float, int, int, bytes]] = []  # a heap of (time, order, flow, packet)
        self._order = count()

    @property
    def counters(self) -> dict[str, int]:
        """Packets lost, duplicated, corrupted, delayed, reordered, and passed: offered and not lost, now or later."""
        lost, duplicated, corrupted, delayed, reordered = self._tally.tolist()
        return {
            "lost": lost,
            "duplicated": duplicated,
            "reordered": reordered,
            "delayed": delayed,
            "corrupted": corrupted,
            "passed": int(self._offered[0]) - lost,
        }

    def apply(self, batch: PacketBatch, now: float, *, flow: int = 0) -> PacketBatch:
        """Passes a batch through the faults.

        Args:
            batch: stays as it is.
            now: the time, in seconds of any clock.
            flow: which sender's, or receiver's, packets these are.

        Returns:
            What goes on at once: the batch itself if nothing happened to it, otherwise a copy; perhaps empty. The
            duplicate of a last packet that is shorter than the others does not fit in, and is due at once instead.
        """
        packets = len(batch)
        self._offered[0] += packets
        if not self._active or not packets:
            return batch
        state = self._flow(flow)
        if packets > self._fates.size:
            self._fates = np.zeros(packets, np.uint8)
            self._keys = np.zeros(packets, np.uint64)
        data, segment, fates, keys = batch.data, batch.segment, self._fates, self._keys
        if not draw_fates(data, segment, state.key, self._rates, state.table, fates, keys, self._tally):
            return batch
        for i in np.flatnonzero(fates[:packets] & HELD):
            self._hold(batch, int(i), now, flow)
        last = packets - 1
        if data.size % segment and fates[last] & DUPLICATED and not fates[last] & HELD:
            self._push(now, flow, data[last * segment :].tobytes())
            fates[last] ^= DUPLICATED
        out = np.empty(2 * data.size if self.rates.duplicate else data.size, np.uint8)
        used = copy_going_on(data, segment, fates, keys, out)
        return PacketBatch.of(out[:used], segment)

    def _flow(self, flow: int) -> _Flow:
        state = self._flows.get(flow)
        if state is None:
            state = self._flows[flow] = _Flow(_derive(self._key, flow), new_table())
        return state

    def record(self, flow: int) -> int:
        """The address of a FLOW record, with which compiled code passes batches of up to 128 packets through itself.

        It is good until `forget`. Use it only if `FaultRates.immediate`.
        """
        state = self._flow(flow)
        if state.native is None:
            state.native = _Native(
                record=np.zeros(1, FLOW),
                fates=np.zeros(_NATIVE_PACKETS, np.uint8),
                keys=np.zeros(_NATIVE_PACKETS, np.uint64),
                out=np.zeros(_NATIVE_BYTES, np.uint8),
            )
            native = state.native
            native.record[0] = (
                state.key,
                state.table.ctypes.data,
                self._rates.ctypes.data,
                native.fates.ctypes.data,
                native.keys.ctypes.data,
                self._tally.ctypes.data,
                self._offered.ctypes.data,
                native.out.ctypes.data,
                _NATIVE_PACKETS,
            )
        return int(state.native.record.ctypes.data)

    def due(self, now: float) -> list[tuple[int, PacketBatch]]:
        """The packets whose wait is over, with their flows, each once, in the order of their times within a flow."""
        ripe = list(self._ripe(now))
        ripe.sort(key=itemgetter(0))
        return [
            (flow, batch)
            for flow, packets in groupby(ripe, key=itemgetter(0))
            for batch in batches(packet for _, packet in packets)
        ]

    def forget(self, flow: int) -> None:
        """Drops what is remembered of a flow that has ended, and its packets that are held back."""
        self._flows.pop(flow, None)
        self._held = [held for held in self._held if held[2] != flow]
        heapq.heapify(self._held)

    def next_due(self) -> float | None:
        """The time at which the next held packet goes on, or None if none is held."""
        return self._held[0][0] if self._held else None

    def _ripe(self, now: float) -> Iterator[tuple[int, bytes]]:
        while self._held and self._held[0][0] <= now:
            _, _, flow, packet = heapq.heappop(self._held)
            yield flow, packet

    def _hold(self, batch: PacketBatch, i: int, now: float, flow: int) -> None:
        packet = batch.data[i * batch.segment : (i + 1) * batch.segment].copy()
        if self._fates[i] & CORRUPTED:
            flip_bits(packet, self._keys[i])
        wait = self.rates.delay_seconds
        if self._fates[i] & REORDERED:
            wait = self.rates.reorder_seconds * uniform(self._keys[i], np.uint64(WAIT_STREAM))
        self._push(now + wait, flow, packet.tobytes())

    def _push(self, time: float, flow: int, packet: bytes) -> None:
        heapq.heappush(self._held, (time, next(self._order), flow, packet))


def _unsigned(number: int) -> np.uint64:
    return np.uint64(number % 2**64)


def _derive(key: np.uint64, number: int) -> np.uint64:
    return np.uint64(derive(key, _unsigned(number)))  # a compiled function gives Python a plain integer
