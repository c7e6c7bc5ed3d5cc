"""Rate, queue and faults on interfaces, by tc and nftables. Every command's result is checked."""

from typing import Final

from wiresum.lab.kernel import Kernel
from wiresum.lab.programs import LabError, run_in
from wiresum.lab.topology import FULL_FRAME_BYTES, Direction

_OFFLOADS: Final = ("tx", "off", "rx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off")
_BURST_BYTES: Final = 15_000
_PER_MILLION: Final = 1_000_000


def offloads_off(pid: int, interface: str) -> None:
    """Makes every frame one packet with its checksum filled in."""
    run_in(pid, "ethtool", "-K", interface, *_OFFLOADS)


def shape(pid: int, interface: str, direction: Direction, kernel: Kernel, *, netem: bool = False) -> None:
    """Sets rate and queue, and with `netem` the faults, of what leaves through an interface.

    Args:
        pid: a process in the interface's namespace.
        interface: its name.
        direction: what to set.
        kernel: what can be set here.
        netem: whether netem makes the faults.

    Raises:
        LabError: the kernel lacks something, or a command failed.
    """

    def tc(*words: str) -> None:
        run_in(pid, "tc", *words)

    device = ("dev", interface)
    parent: tuple[str, ...] = ("root",)
    if direction.rate is not None:
        if not kernel.htb:
            raise LabError("this kernel has no HTB (CONFIG_NET_SCH_HTB), so links can have no rate: leave it out")
        kilobits = f"{round(direction.rate * 1000)}kbit"
        burst = max(_BURST_BYTES, round(direction.rate * 125))  # at least 1 ms: timers are not finer
        tc("qdisc", "add", *device, "root", "handle", "1:", "htb", "default", "1")
        tc("class", "add", *device, "parent", "1:", "classid", "1:1", "htb", "rate", kilobits, "burst", str(burst),
           "cburst", str(burst), "quantum", "60000")  # fmt: skip
        parent = ("parent", "1:1")
    if netem and direction.faulty:
        tc("qdisc", "add", *device, *parent, "handle", "10:", "netem", *_netem(direction))
    elif direction.rate is not None:
        # In bytes, since a segmented frame of 64 KB counts as one packet.
        tc("qdisc", "add", *device, *parent, "handle", "10:", "bfifo", "limit", str(direction.queue * FULL_FRAME_BYTES))


def _netem(direction: Direction) -> list[str]:
    words = ["limit", str(direction.queue)]
    if direction.delay or direction.reorder:
        # netem reorders by sending some at once while others wait, so something must wait.
        words += ["delay", f"{(direction.delay or 0.001) * 1e6:.0f}us"]
    for name, share in (("loss", direction.loss), ("duplicate", direction.duplicate), ("reorder", direction.reorder)):
        if share:
            words += [name, f"{share * 100:.6f}%"]
    return words


def lose(pid: int, interface: str, share: float, *, spare_udp_port: int | None = None) -> None:
    """Loses a share of the frames that come in through an interface, by nftables.

    Packet sockets on that interface see them nevertheless.

    Args:
        pid: a process in the interface's namespace.
        interface: its name.
        share: 0 to 1.
        spare_udp_port: packets from and to this port all pass.
    """
    table = f"wiresum_{interface.replace('-', '_')}"
    rules = [
        f"add table netdev {table}",
        f'add chain netdev {table} loss {{ type filter hook ingress device "{interface}" priority 0; }}',
    ]
    if spare_udp_port is not None:
        rules += [f"add rule netdev {table} loss udp {side} {spare_udp_port} accept" for side in ("dport", "sport")]
    rules.append(
        f"add rule netdev {table} loss numgen random mod {_PER_MILLION} < {round(share * _PER_MILLION)} counter drop"
    )
    run_in(pid, "nft", ";".join(rules))


def lost_frames(pid: int, interface: str) -> int:
    """How many frames `lose` has lost at an interface."""
    table = f"wiresum_{interface.replace('-', '_')}"
    words = run_in(pid, "nft", "list", "table", "netdev", table).split()
    return int(words[words.index("packets") + 1]) if "packets" in words else 0
