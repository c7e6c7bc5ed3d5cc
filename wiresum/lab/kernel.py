"""What this machine has of what a network needs, found out by trying it in a namespace of its own."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from wiresum.lab.programs import LabError

MININET_VERSION: Final = "2.3.0.dev6"
_PACKAGES: Final = {
    "mnexec": "mininet",
    "ip": "iproute2",
    "tc": "iproute2",
    "ethtool": "ethtool",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "tcpdump": "tcpdump",
    "nft": "nftables",
}


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """What the kernel, with the tools that are here, can do to packets."""

    htb: bool
    netem: bool
    nftables: bool  # with hooks at interfaces, both ways


@cache
def kernel() -> Kernel:
    """Probes once."""
    queue = ("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:")
    ruleset = (
        "add table netdev probe; add chain netdev probe c { type filter hook ingress device lo priority 0; };"
        "add rule netdev probe c numgen random mod 1000 < 1 drop;"
        "add chain netdev probe e { type filter hook egress device lo priority 0; };"
        "add rule netdev probe e meta l4proto tcp meta priority set 1:3"
    )
    return Kernel(
        htb=_works(*queue, "htb", "default", "1"),
        netem=_works(*queue, "netem", "delay", "1ms"),
        nftables=_works("nft", ruleset),
    )


def _works(*command: str) -> bool:
    try:
        return not subprocess.run(["unshare", "--net", *command], capture_output=True, timeout=20).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def check_machine(*, bmv2: bool = False, tools: tuple[str, ...] = ()) -> None:
    """Makes sure that networks can be built here.

    Args:
        bmv2: whether BMv2 is needed.
        tools: further programs that are needed, such as tcpdump.

    Raises:
        LabError: something is missing; the text says how to get it.
    """
    if os.geteuid():
        raise LabError(f"this needs root, for network namespaces: sudo {_own_name()} mininet ...")
    wanted = [
        tool
        for tool in ("mnexec", "ip", "tc", "ethtool", "setpriv", "unshare", "nsenter", *tools)
        if not shutil.which(tool)
    ]
    if wanted:
        packages = " ".join(sorted({_PACKAGES.get(tool, tool) for tool in wanted}))
        raise LabError(f"this needs {', '.join(wanted)}: apt-get install {packages}")
    if not _works("ip", "link", "set", "lo", "up"):
        raise LabError("root may not make network namespaces here, as in a container without that privilege")
    # Not find_spec("mininet"): a folder of that name in the working directory would do.
    try:
        found = find_spec("mininet.net")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise LabError(
            f"this needs Mininet's Python package, and that of apt is there for /usr/bin/python3 alone: "
            f"{sys.executable} -m pip install mininet=={MININET_VERSION}"
        )
    if bmv2 and not shutil.which("simple_switch_grpc"):
        raise LabError(
            "this needs BMv2's simple_switch_grpc on PATH. No package has it; it is built from "
            "https://github.com/p4lang/behavioral-model. The same P4 program runs on the switch of kind 'model'"
        )


def _own_name() -> str:
    """How to call this command under sudo, whose PATH leaves out virtual environments."""
    beside = Path(sys.executable).with_name("wiresum")
    return str(beside) if beside.exists() else f"{sys.executable} -m wiresum"
