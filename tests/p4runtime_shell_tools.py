"""What the steps with p4runtime-shell have in common: packets of p4rt_all, the ports they go through, entries.

Packets go through the interfaces h0 and h1, whose other ends are the switch's ports 0 and 1.
"""

import select
import socket
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import p4runtime_sh.shell as sh

SECONDS = 10.0
QUIET = 0.3


class Steps(list[Callable[[], None]]):
    """Functions in the order in which they stand; a decorator."""

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        self.append(function)
        return function


def frame(op: int = 0, key: int = 0, value: int = 0, *, src: int = 0x0A, dst: int = 0x0B, kind: int = 0x88B5) -> bytes:
    ethernet = dst.to_bytes(6, "big") + src.to_bytes(6, "big") + kind.to_bytes(2, "big")
    return (ethernet + bytes((op, key)) + value.to_bytes(2, "big")).ljust(60, b"\0")


class Port:
    def __init__(self, name: str) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(263, 23, 1)  # not what we send ourselves
        self.socket.bind((name, 0))

    def receive(self, seconds: float = SECONDS) -> bytes | None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.socket], [], [], left)[0]:
                data = self.socket.recv(2048)
                if data[6:11] == bytes(5):  # one of our own senders
                    return data
        return None


@cache
def port(number: int) -> Port:
    return Port(f"h{number}")


def send(packet: bytes, number: int = 0) -> None:
    for each in (port(0), port(1)):
        while each.receive(0.001):
            pass
    port(number).socket.send(packet)


def out_of(number: int) -> bytes:
    packet = port(number).receive()
    assert packet is not None, f"nothing came out of port {number}"
    return packet


def value_of(packet: bytes) -> int:
    return int.from_bytes(packet[16:18], "big")


def nothing_out(number: int) -> None:
    assert port(number).receive(QUIET) is None, f"a packet came out of port {number}"


def entry(table: str, action: str | None, match: dict[str, str], **params: str) -> Any:
    found = sh.TableEntry(f"MyIngress.{table}")
    if action is not None:
        found.action = sh.Action(f"MyIngress.{action}")
    for name, value in match.items():
        found.match[name] = value
    for name, value in params.items():
        found.action[name] = value
    return found


def exact(action: str | None = "forward", key: int = 1, **params: str) -> Any:
    match = {"hdr.probe.key": str(key), "src": "00:00:00:00:00:0a"}
    if action == "forward":
        params = params or {"port": "1"}
    return entry("exact_t", action, match, **params)


def count(entries: Any) -> int:
    return sum(1 for _ in entries.read())
