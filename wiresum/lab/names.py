"""How programs on hosts find each other's names: files that are mounted over the machine's, in each host alone."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from wiresum.lab.programs import run_in
from wiresum.lab.topology import Topology

_HOSTS: Final = Path("/etc/hosts")
_SWITCH: Final = Path("/etc/nsswitch.conf")


def mount_names(topology: Topology, pids: Iterable[int], folder: Path) -> None:
    """Lets hosts call each other and the switches by name; the mounts end with the hosts.

    No name server can be reached from a host. Asking one would take seconds, or fail "for now" where a file would say
    that there is no such name, of which torch warns at each connection.

    Args:
        topology: has names and addresses.
        pids: of the hosts, each of which has mounts of its own.
        folder: for the files, which must stay as long as the hosts do.
    """
    mounts = {}
    if _HOSTS.exists():
        nodes = [(host.address, host.name) for host in topology.hosts]
        nodes += [(switch.address, switch.name) for switch in topology.switches]
        lines = [_HOSTS.read_text().rstrip("\n"), *(f"{address}\t{name}" for address, name in nodes)]
        mounts[_HOSTS] = "\n".join(lines) + "\n"
    if _SWITCH.exists():
        mounts[_SWITCH] = re.sub(r"(?m)^\s*hosts:.*$", "hosts: files", _SWITCH.read_text())
    for path, text in mounts.items():
        (folder / path.name).write_text(text)
    for pid in pids:
        for path in mounts:
            run_in(pid, "mount", "--bind", str(folder / path.name), str(path))
