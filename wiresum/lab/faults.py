"""Which mechanism makes the faults of a network, and what it leaves out. Nothing is left out in silence."""

from dataclasses import dataclass
from typing import Final

from wiresum.lab.kernel import Kernel
from wiresum.lab.programs import LabError
from wiresum.lab.topology import Direction, Topology

MECHANISMS: Final = ("auto", "netem", "injector", "wire")


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """How faults come about.

    Attributes:
        mechanism: "none"; "netem", in the kernel, on every link and for all traffic; "injector", ours within the
            software switch, for wiresum's packets; "wire", a program of ours between the two ends of each link.
        ordinary_loss: whether nftables loses ordinary traffic beside the injector.
        what: a sentence for people.
        missing: sentences on what was asked for and does not happen.
    """

    mechanism: str
    ordinary_loss: bool = False
    what: str
    missing: tuple[str, ...] = ()


def plan_faults(topology: Topology, kind: str, kernel: Kernel, mechanism: str = "auto") -> FaultPlan:
    """Chooses; "auto" takes netem where the kernel has it, otherwise our own for that kind of switch.

    Raises:
        LabError: the mechanism that was asked for cannot do it here.
    """
    directions = [direction for link in topology.links for direction in (link.up, link.down)]
    if not any(direction.faulty for direction in directions):
        return FaultPlan(mechanism="none", what="no faults were asked for")
    if mechanism == "auto":
        own = "injector" if kind == "software" and _injectable(topology) else "wire"
        mechanism = "netem" if kernel.netem else own
    if mechanism == "netem":
        if not kernel.netem:
            raise LabError("this kernel has no netem (CONFIG_NET_SCH_NETEM): leave the mechanism to 'auto'")
        return FaultPlan(mechanism="netem", what="the kernel's netem, on every link with faults, for all traffic")
    if mechanism == "wire":
        return FaultPlan(mechanism="wire", what="wiresum's seeded wire, on every link with faults, for all traffic")
    return _injector(topology, kind, kernel, directions)


def _injector(topology: Topology, kind: str, kernel: Kernel, directions: list[Direction]) -> FaultPlan:
    if kind != "software":
        raise LabError(
            f"the fault injector is part of the software switch; for kind {kind!r} take the mechanism 'wire'"
        )
    if not _injectable(topology):
        raise LabError(
            "the software switch's injector treats all that is below a switch alike, but for what leaf switches do "
            "themselves; for faults that differ from host to host take the mechanism 'wire'"
        )
    what = "the software switches' seeded injector, for wiresum's packets"
    missing = []
    loss = any(direction.loss for direction in directions)
    ordinary_loss = loss and kernel.nftables and kernel.htb
    if ordinary_loss:
        what += "; nftables (random, not seeded) loses ordinary traffic at the same rate"
    elif loss:
        missing.append(f"ordinary traffic (ping, TCP) is not lost: {_what_is_missing(kernel)}")
    others = [name for name in ("delay", "duplicate", "reorder") if any(getattr(d, name) for d in directions)]
    if others:
        missing.append(
            f"ordinary traffic (ping, TCP) meets no {', '.join(others)}: "
            + (
                "the mechanism 'netem' would do it"
                if kernel.netem
                else "this kernel has no netem (the mechanism 'wire' would do it, up to some fifty thousand packets "
                "per second at a link)"
            )
        )
    return FaultPlan(mechanism="injector", ordinary_loss=ordinary_loss, what=what, missing=tuple(missing))


def _what_is_missing(kernel: Kernel) -> str:
    if not kernel.nftables:
        return "nft or the kernel's numgen is missing"
    return "this kernel has no HTB (CONFIG_NET_SCH_HTB), which takes TCP's segments apart for it"


def _injectable(topology: Topology) -> bool:
    """Whether all hosts of each switch have the same faults, and no leaf switch shares these with them.

    A leaf switch makes the faults of its link up itself.
    """
    for switch in topology.switches:
        links = [topology.link_of(host.name) for host in topology.hosts_of(switch.name)]
        if len({(link.up.fault_rates(), link.down.fault_rates()) for link in links}) > 1:
            return False
        if any(link.up.faulty or link.down.faulty for link in links) and len(topology.links_into(switch.name)) > len(
            links
        ):
            return False
    return True
