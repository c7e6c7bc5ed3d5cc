"""Which host is behind which port: what digests tell, as changes of the forwarding tables."""

from dataclasses import dataclass
from typing import Final

_GROUP_BIT: Final = 1 << 40  # of a MAC address: multicast, which nobody sends from


@dataclass(frozen=True)
class Moved:
    """A host was seen.

    Attributes:
        port: where it is now.
        before: where it was, None if it was not known.
        evicted: MAC address and port of a host that must make room for it.
    """

    mac: int
    port: int
    before: int | None
    evicted: tuple[int, int] | None


class Learner:
    """Remembers hosts.

    Args:
        capacity: how many; the one that was learned first makes room for more.
        own: MAC address of the switch, behind no port.
    """

    def __init__(self, capacity: int, own: int) -> None:
        self._capacity, self._own = capacity, own
        self._ports: dict[int, int] = {}

    def learn(self, mac: int, port: int) -> Moved | None:
        """A frame from `mac` came in at `port`; None if that is nothing new."""
        before = self._ports.pop(mac, None)
        if not mac or mac & _GROUP_BIT or mac == self._own:
            return None
        evicted = None
        if before is None and len(self._ports) >= self._capacity:
            oldest = next(iter(self._ports))
            evicted = oldest, self._ports.pop(oldest)
        self._ports[mac] = port
        return None if before == port else Moved(mac, port, before, evicted)

    def forget(self, mac: int) -> None:
        """A host is not in the tables after all."""
        self._ports.pop(mac, None)
