"""Ports of a switch under test: veth pairs in a network namespace of their own, and sockets at their far ends.

Needs root and iproute2. Nothing of it outlives `close`, and nothing is seen outside of the namespace.
"""

import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from functools import partial

from tests.veths import ip, run_in

ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23


class VethPorts:
    """A namespace with `s<port>` for the switch to use, and the far ends in our hands."""

    def __init__(self, ports: Iterable[int]) -> None:
        self.namespace = f"wiresum-test-{os.getpid()}-{os.urandom(3).hex()}"
        self._sockets: dict[int, socket.socket] = {}
        ip("netns", "add", self.namespace)
        try:
            self.inside("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            self.inside("ip", "link", "set", "lo", "up")
            for port in ports:
                self.inside("ip", "link", "add", f"s{port}", "type", "veth", "peer", "name", f"h{port}")
                for name in (f"s{port}", f"h{port}"):
                    self.inside("ip", "link", "set", name, "mtu", "9000", "arp", "off", "up")
                self._sockets[port] = run_in(self.namespace, partial(_packet_socket, f"h{port}"))
        except BaseException:
            self.close()
            raise

    def interface(self, port: int) -> str:
        """The switch's end."""
        return f"s{port}"

    def inside(self, *command: str) -> str:
        """Runs a command in the namespace; returns what it says."""
        return ip("netns", "exec", self.namespace, *command)

    def send(self, port: int, frame: bytes) -> None:
        """Sends a frame into the switch."""
        self._sockets[port].send(frame)

    def receive(self, timeout: float) -> list[tuple[int, bytes]]:
        """What has come out, waiting for something to come for at most `timeout` seconds."""
        ready, _, _ = select.select(list(self._sockets.values()), [], [], timeout)
        found = []
        for port, endpoint in self._sockets.items():
            while endpoint in ready:
                try:
                    found.append((port, endpoint.recv(65536)))
                except BlockingIOError:
                    break
        return found

    def receive_until(
        self, enough: Callable[[list[tuple[int, bytes]]], bool], seconds: float
    ) -> list[tuple[int, bytes]]:
        """All that comes out until it is enough.

        Raises:
            TimeoutError: it was not; the text says how much came.
        """
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + seconds
        while not enough(found):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{len(found)} frames came out in {seconds:g} s, which is not all")
            found += self.receive(left)
        return found

    def close(self) -> None:
        """Removes everything; idempotent."""
        for endpoint in self._sockets.values():
            endpoint.close()
        self._sockets.clear()
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, timeout=20, check=False)


def _packet_socket(interface: str) -> socket.socket:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    made.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    made.bind((interface, 0))
    made.setblocking(False)
    return made
