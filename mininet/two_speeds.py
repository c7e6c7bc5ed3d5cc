"""A Mininet script like any other, with a wiresum switch in it: a worker on a slow link holds up one on a fast link.

sudo .venv/bin/python mininet/two_speeds.py [software|model|bmv2]
"""

import argparse
import sys

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet

from wiresum.lab.measure_worker import Task
from wiresum.lab.nodes import SWITCHES, WorkerHost, own_environment

ELEMENTS = 100_000


def main() -> None:
    """Builds the network, reduces once, and takes it away again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", nargs="?", choices=SWITCHES, default="software", help="of switch (default: software)")
    kind = parser.parse_args().kind
    setLogLevel("info")
    net = Mininet(controller=None, switch=SWITCHES[kind], host=WorkerHost)
    switch = net.addSwitch("s1")
    for name, rate in (("h1", 100), ("h2", 10)):
        net.addLink(net.addHost(name), switch, cls=TCLink, bw=rate)
    try:
        net.start()
        net.pingAll()
        command = Task(backend="wiresum", elements=ELEMENTS, repeats=3).command()
        workers = [
            host.launch(
                host.name,
                command,
                environment={
                    **own_environment(),
                    "RANK": str(rank),
                    "WORLD_SIZE": str(len(net.hosts)),
                    "WIRESUM_SWITCH": switch.control,
                },
            )
            for rank, host in enumerate(net.hosts)
        ]
        for worker in workers:
            sys.stdout.write(f"{worker.name} {worker.await_line('MEASURED .*', 120).group()}\n")
    finally:
        net.stop()


if __name__ == "__main__":
    main()
