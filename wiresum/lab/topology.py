"""Topologies as data: hosts, switches in a tree, and the links between them, each direction with its own properties."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from protocol.constants import MAX_RANKS

if TYPE_CHECKING:
    from protocol.faults import FaultRates

FULL_FRAME_BYTES: Final = 1514
_MAX_HOSTS: Final = 250
_MAX_DEPTH: Final = 6


@dataclass(frozen=True, kw_only=True)
class Direction:
    """One direction of a link.

    Attributes:
        rate: Mbit/s, Ethernet headers included; None leaves it as fast as the machine is.
        delay: seconds that every packet takes.
        queue: full frames that wait at the sender before frames are dropped.
        loss: share of packets, from 0 to below 1, at which nothing would pass.
        duplicate, reorder: shares of packets, 0 to 1.

    Raises:
        ValueError: a value is out of range.
    """

    rate: float | None = None
    delay: float = 0.0
    queue: int = 1000
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    def __post_init__(self) -> None:
        if self.rate is not None and not (math.isfinite(self.rate) and 0.01 <= self.rate <= 100_000):
            raise ValueError(f"a rate must be from 0.01 to 100000 Mbit/s, not {self.rate:g}")
        if not (math.isfinite(self.delay) and 0 <= self.delay <= 10):
            raise ValueError(f"a delay must be from 0 to 10 seconds, not {self.delay:g}")
        if not 1 <= self.queue <= 1_000_000:
            raise ValueError(f"a queue must hold from 1 to 1000000 frames, not {self.queue}")
        if not 0 <= self.loss < 1:
            raise ValueError(f"loss must be a share from 0 to below 1, not {self.loss:g}")
        for name in ("duplicate", "reorder"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {getattr(self, name):g}")

    @property
    def faulty(self) -> bool:
        """Whether packets meet anything but rate and queue."""
        return any((self.delay, self.loss, self.duplicate, self.reorder))

    def fault_rates(self) -> "FaultRates":
        """The same for our own injector; a reordered packet overtakes by part of the delay, as with netem."""
        from protocol.faults import FaultRates  # loads the kernels, which the command line has no use for

        if not self.delay:
            return FaultRates(loss=self.loss, duplicate=self.duplicate, reorder=self.reorder)
        return FaultRates(
            loss=self.loss,
            duplicate=self.duplicate,
            reorder=1.0 if self.reorder else 0.0,
            reorder_seconds=self.delay,
            delay=1.0 - self.reorder,
            delay_seconds=self.delay,
        )


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """A host, which is one worker: its rank is its place in the topology."""

    name: str
    address: str


@dataclass(frozen=True, kw_only=True)
class SwitchSpec:
    """A switch; `parent` is the name of the one above, None at the root."""

    name: str
    address: str
    parent: str | None = None


@dataclass(frozen=True, kw_only=True)
class LinkSpec:
    """A link from a host or switch to the switch above it; `up` is what goes there, `down` what comes back."""

    child: str
    parent: str
    up: Direction = field(default_factory=Direction)
    down: Direction = field(default_factory=Direction)


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Hosts and switches in a tree.

    Raises:
        ValueError: names are used twice or too long, links do not make a tree, or there are too many hosts.
    """

    name: str
    hosts: tuple[HostSpec, ...]
    switches: tuple[SwitchSpec, ...]
    links: tuple[LinkSpec, ...]

    def __post_init__(self) -> None:
        nodes = [host.name for host in self.hosts] + [switch.name for switch in self.switches]
        if not self.hosts or len(self.hosts) > _MAX_HOSTS:
            raise ValueError(f"a topology has from 1 to {_MAX_HOSTS} hosts, not {len(self.hosts)}")
        if len(set(nodes)) != len(nodes):
            raise ValueError("names of hosts and switches must differ")
        for name in nodes:
            if not re.fullmatch(r"[a-z][a-z0-9]{0,8}", name):  # interfaces are NAME-ethN, of at most 15 characters
                raise ValueError(f"a name is up to nine small letters and digits, not {name!r}")
        roots = [switch.name for switch in self.switches if switch.parent is None]
        if len(roots) != 1:
            raise ValueError(f"a tree has one root, not {len(roots)}")
        links = {link.child: link.parent for link in self.links}
        if len(links) != len(self.links) or set(links) != set(nodes) - set(roots):
            raise ValueError("every host and every switch but the root has one link to a switch above it")
        for switch in self.switches:
            if links.get(switch.name) != switch.parent:
                raise ValueError(f"{switch.name} has no link to its parent {switch.parent}")
            ports = sum(1 for parent in links.values() if parent == switch.name)
            if not 1 <= ports <= MAX_RANKS:
                raise ValueError(f"{switch.name} has {ports} links down, which must be from 1 to {MAX_RANKS}")
        for host in self.hosts:
            name, steps = host.name, 0
            while name in links and steps <= len(links):
                name, steps = links[name], steps + 1
            if name != roots[0]:
                raise ValueError(f"{host.name} is not connected to the root")

    @property
    def root(self) -> SwitchSpec:
        """The switch without a parent."""
        return next(switch for switch in self.switches if switch.parent is None)

    def link_of(self, child: str) -> LinkSpec:
        """The link from a host or switch to the switch above it."""
        return next(link for link in self.links if link.child == child)

    def hosts_of(self, switch: str) -> tuple[HostSpec, ...]:
        """The hosts directly at a switch."""
        return tuple(host for host in self.hosts if self.link_of(host.name).parent == switch)

    def links_into(self, switch: str) -> tuple[LinkSpec, ...]:
        """The links from below to a switch."""
        return tuple(link for link in self.links if link.parent == switch)

    def top_down(self) -> Iterator[SwitchSpec]:
        """The switches, each after its parent."""
        waiting = [self.root]
        while waiting:
            switch = waiting.pop(0)
            yield switch
            waiting += [below for below in self.switches if below.parent == switch.name]


def rack(hosts: int, *, up: Direction | None = None, down: Direction | None = None) -> Topology:
    """Hosts h1, h2, ... around one switch s1."""
    return _build(f"rack{hosts}", (hosts,), (), up, down, None, None)


def tree(
    racks: Sequence[int],
    *,
    up: Direction | None = None,
    down: Direction | None = None,
    trunk_up: Direction | None = None,
    trunk_down: Direction | None = None,
) -> Topology:
    """Racks of the given numbers of hosts under one root; the trunks' directions default to those of the hosts."""
    name = "tree" + "x".join(map(str, racks))
    return _build(name, tuple(racks), (len(racks),), up, down, trunk_up, trunk_down)


def deep_tree(
    fan_outs: Sequence[int],
    *,
    up: Direction | None = None,
    down: Direction | None = None,
    trunk_up: Direction | None = None,
    trunk_down: Direction | None = None,
) -> Topology:
    """A tree of any depth: `fan_outs` from the root down; the last is the number of hosts at each lowest switch."""
    if not 1 <= len(fan_outs) <= _MAX_DEPTH or any(count < 1 for count in fan_outs):
        raise ValueError(f"fan-outs are 1 to {_MAX_DEPTH} numbers above 0, not {list(fan_outs)}")
    racks = math.prod(fan_outs[:-1])
    name = "deep" + "x".join(map(str, fan_outs))
    return _build(name, (fan_outs[-1],) * racks, tuple(fan_outs[:-1]), up, down, trunk_up, trunk_down)


def parse_tree(text: str) -> tuple[int, ...]:
    """Fan-outs such as "2x4" or, for racks of unequal size, hosts of each such as "3,1".

    Raises:
        ValueError: it is neither.
    """
    if re.fullmatch(r"[1-9]\d{0,2}(x[1-9]\d{0,2})+", text):
        return tuple(int(part) for part in text.split("x"))
    raise ValueError(f"a tree is given by its fan-outs, such as 2x4, or its racks, such as 3,1; not {text!r}")


def from_text(text: str, **directions: Direction | None) -> Topology:
    """The tree that a command line asks for: "2x4", "2x2x4", or "3,1".

    Raises:
        ValueError: it does not say a tree.
    """
    if re.fullmatch(r"[1-9]\d{0,2}(,[1-9]\d{0,2})+", text):
        return tree([int(part) for part in text.split(",")], **directions)
    return deep_tree(parse_tree(text), **directions)


def _build(
    name: str,
    racks: tuple[int, ...],
    fan_outs: tuple[int, ...],
    up: Direction | None,
    down: Direction | None,
    trunk_up: Direction | None,
    trunk_down: Direction | None,
) -> Topology:
    up = up or Direction()
    down = down or up
    trunk_down = trunk_down or trunk_up or down
    trunk_up = trunk_up or up
    if min(racks, default=0) < 1:
        raise ValueError(f"every rack has at least one host; not {list(racks)}")
    if sum(racks) > _MAX_HOSTS:
        raise ValueError(f"a tree has up to {_MAX_HOSTS} hosts, not {sum(racks)}")
    if math.prod(fan_outs) > _MAX_HOSTS:
        raise ValueError(f"a tree has up to {_MAX_HOSTS} racks, not {math.prod(fan_outs)}")
    switches, links = [SwitchSpec(name="s1", address=_switch_address(1))], []
    level = ["s1"]
    for fan_out in fan_outs:
        below = []
        for parent in level:
            for _ in range(fan_out):
                number = len(switches) + 1
                below.append(f"s{number}")
                switches.append(SwitchSpec(name=below[-1], address=_switch_address(number), parent=parent))
                links.append(LinkSpec(child=below[-1], parent=parent, up=trunk_up, down=trunk_down))
        level = below
    hosts: list[HostSpec] = []
    for switch, count in zip(level, racks, strict=True):
        for _ in range(count):
            number = len(hosts) + 1
            hosts.append(HostSpec(name=f"h{number}", address=f"10.0.0.{number}"))
            links.append(LinkSpec(child=hosts[-1].name, parent=switch, up=up, down=down))
    return Topology(name=name, hosts=tuple(hosts), switches=tuple(switches), links=tuple(links))


def _switch_address(number: int) -> str:
    return f"10.254.{number}.1"
