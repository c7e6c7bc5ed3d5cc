"""wiresum's racks and trees, and its switches, for Mininet's own command line.

sudo .venv/bin/mn --custom mininet/topologies.py --topo rack,4 --switch software --controller none
sudo .venv/bin/mn --custom mininet/topologies.py --topo tree,2,3 --switch software --controller none

At the prompt, `py s1.control` is what WIRESUM_SWITCH has to be for the hosts at s1.
"""

from typing import Any

from mininet.topo import Topo

from wiresum.lab import topology
from wiresum.lab.nodes import SWITCHES, WorkerHost


def _add(topo: Any, made: topology.Topology) -> None:
    for host in made.hosts:
        topo.addHost(host.name, ip=f"{host.address}/8", cls=WorkerHost)
    for switch in made.top_down():
        above = {other.name: other.address for other in made.switches}.get(switch.parent or "")
        topo.addSwitch(switch.name, address=switch.address, above=above)
    for link in made.links:
        topo.addLink(link.child, link.parent)


class Rack(Topo):  # type: ignore[misc]
    """`hosts` hosts around one switch."""

    def build(self, hosts: int = 4) -> None:
        """Called by Mininet with what follows the topology's name."""
        _add(self, topology.rack(hosts))


class Tree(Topo):  # type: ignore[misc]
    """A tree by its fan-outs from the root down; the last is the number of hosts at each lowest switch."""

    def build(self, *fan_outs: int) -> None:
        """Called by Mininet with what follows the topology's name."""
        _add(self, topology.deep_tree(fan_outs or (2, 2)))


topos = {"rack": Rack, "tree": Tree}
switches = dict(SWITCHES)
