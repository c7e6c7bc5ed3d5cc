"""Network namespaces joined by veth pairs, for tests that need real interfaces; they need root."""

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

_CLONE_NEWNET: Final = 0x40000000
MISSING: Final = "" if os.geteuid() == 0 and Path("/usr/sbin/ip").exists() else "needs root and iproute2"


def ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Veths:
    """A namespace for the switch with `port0`, `port1`, ..., and one for each host with `eth0`."""

    switch: str
    hosts: tuple[str, ...]

    def run_in(self, namespace: str, function: Callable[[], T]) -> T:
        """Runs a function in a namespace; sockets that it opens stay there."""
        return run_in(namespace, function)

    def mac(self, host: int) -> bytes:
        return bytes((2, 0, 0, 0, 0, host + 1))

    def address(self, host: int) -> str:
        return f"10.9.8.{host + 1}"


def run_in(namespace: str, function: Callable[[], T]) -> T:
    """Runs a function in a namespace; sockets that it opens stay there."""

    def enter() -> T:
        with open(f"/run/netns/{namespace}") as file:
            _setns(file.fileno())
        return function()

    with ThreadPoolExecutor(1) as pool:  # a namespace belongs to a thread; this one ends here
        return pool.submit(enter).result()


def _setns(fd: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(fd, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def veths(count: int) -> Iterator[Veths]:
    """So many hosts in one subnet that know each other's MAC addresses; offloads are as the kernel has them."""
    prefix = f"wst{os.getpid()}"
    made = Veths(f"{prefix}s", tuple(f"{prefix}h{i}" for i in range(count)))
    names = [made.switch, *made.hosts]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            quiet = "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", *quiet], check=True, capture_output=True)
        for i, host in enumerate(made.hosts):
            ip("-n", made.switch, "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("-n", host, "link", "set", "eth0", "address", made.mac(i).hex(":"), "up")
            ip("-n", made.switch, "link", "set", f"port{i}", "up")
            ip("-n", host, "address", "add", f"{made.address(i)}/24", "dev", "eth0")
            for j in range(count):
                if j != i:
                    ip("-n", host, "neigh", "add", made.address(j), "lladdr", made.mac(j).hex(":"), "dev", "eth0")
        yield made
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
