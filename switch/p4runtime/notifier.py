"""What the switch tells controllers of its own accord: packets, digests and idle entries."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from switch.model.core import ModelSwitch
from switch.model.interfaces import Core
from switch.p4runtime.errors import P4RuntimeError
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.pipeline import Pipeline

T = TypeVar("T")
_log = logging.getLogger(__name__)

_IDLE_SCAN_SECONDS: Final = 0.05
_IDLE_SCAN_SHARE: Final = 20  # packets have so many times as much time as looks for idle entries
_MAX_WAITING: Final = 4096  # packets and digests for controllers; more are dropped


class Device(Protocol):
    """The switch around the core; `switch.model.ports.PortSwitch` is one."""

    @property
    def now(self) -> float:
        """Seconds since the switch started."""

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function between two packets."""

    def replace(self, switch: Core | None) -> None:
        """Lets another core go on."""

    def inject(self, port: int, packet: bytes) -> None:
        """Has the core process a packet that came to a port."""


class Client(Protocol):
    """A stream of a controller."""

    def send(self, message: Any, *, droppable: bool = False) -> None:
        """Sends a StreamMessageResponse; from any thread, without waiting."""

    def end(self, error: P4RuntimeError) -> None:
        """Ends the stream with a status."""


class Notifier:
    """Collects messages on the thread that moves packets and sends them from another, which calls `tick`.

    Args:
        device: the switch.
        primaries: the streams that are told.

    Attributes:
        pipeline: the one that runs; set it on the thread that moves packets.
        dropped: packets and digests that were too many, or packets too short for their metadata.
    """

    def __init__(self, device: Device, primaries: Callable[[], list[Client]]) -> None:
        self.pipeline: Pipeline | None = None
        self.dropped = 0
        self._device, self._primaries = device, primaries
        self._switch: ModelSwitch | None = None
        self._next_digest: float | None = None
        self._next_scan = 0.0  # for idle entries
        self._waiting: deque[Any] = deque()  # packets (bytes) and DigestList messages
        self._wake = threading.Event()

    def set_pipeline(self, pipeline: Pipeline) -> None:
        """Another program runs from now on; on the thread that moves packets."""
        self._switch, self.pipeline, self._next_digest = pipeline.switch, pipeline, None

    def set_switch(self, switch: ModelSwitch) -> None:
        """A program runs of which controllers know nothing yet: there is nothing to tell."""
        self._switch = switch

    def packet_in(self, packet: bytes) -> None:
        """A packet left by the CPU port; called on the thread that moves packets."""
        self._add(packet)

    def after_burst(self) -> None:
        """Packets were processed; called on the thread that moves them. Takes their digests."""
        pipeline, switch = self.pipeline, self._switch
        found = switch.take_digests() if switch is not None else []
        if not found or pipeline is None:
            return
        now = self._device.now
        for digest in found:
            for message in pipeline.entities.digests.add(digest.name, digest.values, now):
                self._add(message)
        self._next_digest = pipeline.entities.digests.next_due()
        self._wake.set()

    def wait(self, seconds: float) -> None:
        """Waits until `tick` has something to do, at most so long."""
        self._wake.wait(seconds)
        self._wake.clear()

    def wake(self) -> None:
        """Ends `wait`."""
        self._wake.set()

    def tick(self) -> float:
        """Sends the primaries what waits for them; returns the seconds until it is to be called again.

        Raises:
            ModelError: the switch has stopped.
        """
        pipeline, primaries, messages = self.pipeline, self._primaries(), []
        if pipeline is not None and self._is_due(pipeline):
            messages = self._device.call(lambda: self._timers(pipeline))
        while self._waiting:
            item = self._waiting.popleft()
            if isinstance(item, bytes):
                if pipeline is None:
                    self._drop("a packet for controllers came before the program's p4info")
                    continue
                packet = pipeline.packets.encode_in(item)
                if packet is None:
                    self._drop("a packet for controllers is shorter than the metadata in front of it")
                    continue
                messages.append(p4runtime_pb2.StreamMessageResponse(packet=packet))
            else:
                item.timestamp = time.time_ns()
                messages.append(p4runtime_pb2.StreamMessageResponse(digest=item))
        for message in messages:
            for client in primaries:
                client.send(message, droppable=True)
        next_digest = self._next_digest
        left = 1.0 if next_digest is None else next_digest - self._device.now
        if pipeline is not None and pipeline.entities.tables.has_timeouts:
            left = min(left, self._next_scan - self._device.now)
        return min(max(left, 0.001), 1.0)

    def _is_due(self, pipeline: Pipeline) -> bool:
        now, next_digest = self._device.now, self._next_digest
        if pipeline.entities.tables.has_timeouts and now >= self._next_scan:
            return True
        return next_digest is not None and now >= next_digest

    def _timers(self, pipeline: Pipeline) -> list[Any]:
        """Digests that have waited, and idle entries; on the thread that moves packets."""
        digests, started = pipeline.entities.digests, self._device.now
        for message in digests.due(started):
            self._add(message)
        self._next_digest = digests.next_due()
        expired = pipeline.entities.tables.expired()
        took = self._device.now - started
        self._next_scan = started + max(_IDLE_SCAN_SECONDS, took * _IDLE_SCAN_SHARE)
        if not expired:
            return []
        notification = p4runtime_pb2.IdleTimeoutNotification(table_entry=expired, timestamp=time.time_ns())
        return [p4runtime_pb2.StreamMessageResponse(idle_timeout_notification=notification)]

    def _add(self, item: Any) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self._drop("there are more packets and digests for controllers than can be sent")
            return
        self._waiting.append(item)
        self._wake.set()

    def _drop(self, why: str) -> None:
        self.dropped += 1
        if self.dropped == 1:
            _log.warning("%s: dropped", why)
