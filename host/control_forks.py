"""What becomes of a control connection when its process forks, as data loaders do.

gRPC does not work in a forked child, and need not. But the child holds a copy of the connection's socket: were the
parent killed, the connection would live on in the child, and the switch would hear of the death only seconds later.
So a child lets go of it first of all.
"""

import os
import socket
import stat
from typing import Any, Final, Protocol
from weakref import WeakSet

from protocol.packets import Address


class Connection(Protocol):
    """Something that holds a gRPC channel."""

    address: Address

    def in_child(self) -> object:
        """Notes that this is a forked child; returns what must never be destroyed there."""
        ...


_connections: Final[WeakSet[Any]] = WeakSet()
_kept: Final[list[object]] = []  # destroying a channel in a child would wait for threads that exist in the parent only


def let_go_in_children(connection: Connection) -> None:
    """From now on, children of this process close their copies of the connection's sockets as they begin."""
    _connections.add(connection)


def _after_fork() -> None:
    addresses = set()
    for connection in list(_connections):
        _kept.append(connection.in_child())
        addresses.add(connection.address)
    _connections.clear()
    if not addresses:
        return
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for name in os.listdir("/proc/self/fd"):
        if _peer(int(name)) in addresses:
            # gRPC believes that the number is its own, so it must not come to mean another file.
            os.dup2(nothing, int(name), inheritable=False)
    os.close(nothing)


def _peer(number: int) -> Address | None:
    """The address that a file descriptor is connected to; None if it is not a connected TCP socket."""
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return None
        with socket.socket(fileno=os.dup(number)) as connected:
            if connected.type != socket.SOCK_STREAM or connected.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            host, port = connected.getpeername()[:2]
    except OSError:
        return None
    return host.removeprefix("::ffff:"), port


os.register_at_fork(after_in_child=_after_fork)
