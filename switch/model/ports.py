"""The programmable switch at work: one thread that moves frames between ports and the switch's core."""

import logging
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Final, Self, TypeVar

from switch.model.errors import ModelError
from switch.model.interfaces import Core, Port
from switch.packet_thread import PacketThread

T = TypeVar("T")

_log = logging.getLogger(__name__)

_BURST: Final = 32  # frames from one port before the others have their turn


class PortSwitch:
    """A switch that serves ports from a thread of its own, which alone touches the core.

    Args:
        switch: the core, or None: frames are dropped until `replace` gives one.
        ports: by number; the switch closes them.
        receivers: called on the thread with each frame that leaves by a port of that number that no port serves, as
            the CPU port.
        after_burst: called on the thread after packets were processed, for instance to collect digests.
    """

    def __init__(
        self,
        switch: Core | None,
        ports: Mapping[int, Port],
        *,
        receivers: Mapping[int, Callable[[bytes], None]] | None = None,
        after_burst: Callable[[], None] | None = None,
    ) -> None:
        self._switch = switch
        self._ports = dict(ports)
        self._receivers = dict(receivers or {})
        self._after_burst = after_burst
        self._start = time.monotonic()
        self._no_port = self._no_program = self._failed = 0
        self._thread = PacketThread("wiresum-p4switch", self._serve, self._finish, what="the switch", error=ModelError)
        self._epoll = select.epoll()
        self._epoll.register(self._thread.wake, select.EPOLLIN)
        self._by_fd: dict[int, tuple[int, Port]] = {}
        for number, port in self._ports.items():
            self._by_fd[port.fileno()] = number, port
            self._epoll.register(port.fileno(), select.EPOLLIN)
        self._thread.start()

    @property
    def now(self) -> float:
        """Seconds since the switch started, as the core counts them."""
        return time.monotonic() - self._start

    @property
    def alive(self) -> bool:
        """Whether the thread moves frames."""
        return self._thread.alive

    @property
    def failure(self) -> BaseException | None:
        """What ended the thread, unless it was closed."""
        return self._thread.failure

    def call(self, function: Callable[[], T]) -> T:
        """Runs `function` between two packets, on the thread that touches the core, and returns what it returns.

        What it raises is raised here. From the thread itself it runs at once.

        Raises:
            ModelError: the thread has ended, or does not answer.
        """
        return self._thread.call(function)

    def replace(self, switch: Core | None) -> None:
        """Lets another core, as of another program, go on with the same ports."""

        def swap() -> None:
            self._switch = switch

        self.call(swap)

    def inject(self, port: int, packet: bytes) -> None:
        """Has the core process a packet as if it had come in by that port; packet out and its egress are in this."""
        self.call(lambda: self._process(port, packet))

    def transmit(self, port: int, packet: bytes) -> None:
        """Sends a packet out of a port, past the program."""
        self.call(lambda: self._send(port, packet))

    def statistics(self) -> dict[str, int]:
        """Counters of each port, as `port3_packets_in`, and of the switch.

        `no_port`: packets to ports that are not there; `no_program`: that came before there was a core;
        `failed`: that the core, or a function given at the start, gave up.
        """
        return self.call(self._statistics)

    def close(self) -> None:
        """Stops the thread and closes the ports; idempotent."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        processed = False
        for fd, events in self._epoll.poll():
            if fd == self._thread.wake:
                self._thread.run_calls()
                processed = True  # a call may have injected packets
                continue
            number, port = self._by_fd[fd]
            if events & select.EPOLLHUP:  # the other end has gone for good
                self._epoll.unregister(fd)
            elif events & select.EPOLLERR:
                port.clear_error()
            left = _BURST
            while left > 0 and (frames := port.receive()):
                processed = True
                left -= len(frames)
                for frame in frames:
                    self._process(number, frame)
        if processed and self._after_burst is not None:
            self._guarded(self._after_burst)

    def _finish(self) -> None:
        self._epoll.close()
        for port in self._ports.values():
            port.close()

    def _guarded(self, function: Callable[[], object]) -> None:
        """Calls what is not ours: one failure must not stop the switch."""
        try:
            function()
        except Exception:
            self._failed += 1
            _log.exception("what was to be told of packets failed")

    def _process(self, number: int, frame: bytes) -> None:
        switch = self._switch
        if switch is None:
            self._no_program += 1
            return
        try:
            out = switch.receive(number, frame, time.monotonic() - self._start)
        except Exception:  # one packet must not stop the switch
            self._failed += 1
            if self._failed == 1:
                _log.exception("a packet of %d bytes on port %d was dropped: the switch failed", len(frame), number)
            return
        for destination, packet in out:
            self._send(destination, packet)

    def _send(self, number: int, packet: bytes) -> None:
        port = self._ports.get(number)
        if port is not None:
            port.send(packet)
        elif number in self._receivers:
            receiver = self._receivers[number]
            self._guarded(lambda: receiver(packet))
        else:
            self._no_port += 1

    def _statistics(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for number, port in self._ports.items():
            port.update()
            found |= {f"port{number}_{name}": value for name, value in asdict(port.counters).items()}
        return found | {"no_port": self._no_port, "no_program": self._no_program, "failed": self._failed}
