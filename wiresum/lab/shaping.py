"""Rate, queue and faults on interfaces, by tc and nftables, and their counters. Every command's result is checked."""

import json
import math
import re
from pathlib import Path
from typing import Final

from wiresum.lab.kernel import Kernel
from wiresum.lab.programs import LabError, run_in
from wiresum.lab.topology import FULL_FRAME_BYTES, Direction

_OFFLOADS: Final = ("tx", "off", "rx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off")
_SMALL_FRAME_BYTES: Final = 200
_BURST_BYTES: Final = 15_000
_DRAWS: Final = 1_000_000_000
_UNLIMITED: Final = 100_000.0  # Mbit/s


def offloads_off(pid: int, interface: str) -> None:
    """Makes every frame one packet with its checksum filled in."""
    run_in(pid, "ethtool", "-K", interface, *_OFFLOADS)


def shape(
    pid: int, interface: str, direction: Direction, kernel: Kernel, *, netem: bool = False, segment_tcp: bool = False
) -> None:
    """Sets rate and queue, and with `netem` the faults, of what leaves through an interface.

    Args:
        pid: a process in the interface's namespace.
        interface: its name.
        direction: what to set.
        kernel: what can be set here.
        netem: whether netem makes the faults.
        segment_tcp: sends TCP's segments one by one, so that `lose` at the other end loses single ones.

    Raises:
        LabError: the kernel lacks something, or a command failed.
    """
    shaped = direction.rate is not None
    faulty = netem and direction.faulty
    if not (shaped or faulty or segment_tcp):
        return
    if (shaped or segment_tcp) and not kernel.htb:
        raise LabError("this kernel has no HTB (CONFIG_NET_SCH_HTB), so links can have no rate: leave it out")

    def tc(what: str, parent: str, *words: str) -> None:
        place = ("root",) if parent == "root" else ("parent", parent)
        run_in(pid, "tc", what, "add", "dev", interface, *place, *words)

    # In bytes, since a segmented frame of 64 KB counts as one packet.
    queue = ("limit", str(direction.queue * FULL_FRAME_BYTES))
    if not (shaped or segment_tcp):
        tc("qdisc", "root", "handle", "10:", "netem", *_netem(direction))
        return
    rate = direction.rate or _UNLIMITED
    tc("qdisc", "root", "handle", "1:", "htb", "default", "2")
    tc("class", "1:", "classid", "1:1", "htb", *_htb(rate, rate))
    leaf = rate / 2 if segment_tcp else rate
    tc("class", "1:1", "classid", "1:2", "htb", *_htb(leaf, rate))
    if faulty:
        tc("qdisc", "1:2", "handle", "10:", "netem", *_netem(direction))
    else:
        tc("qdisc", "1:2", "handle", "10:", "bfifo", *queue)
    if segment_tcp:
        # A token bucket takes apart what is larger than its burst; this one is otherwise never in the way.
        tc("class", "1:1", "classid", "1:3", "htb", *_htb(leaf, rate))
        tc("qdisc", "1:3", "handle", "11:", "tbf", "rate", "1000gbit", "burst", "1600", *queue)
        _nft(
            pid,
            f"add table netdev {_table(interface)}_tcp",
            f"add chain netdev {_table(interface)}_tcp out "
            f'{{ type filter hook egress device "{interface}" priority 0; }}',
            f"add rule netdev {_table(interface)}_tcp out meta l4proto tcp meta priority set 1:3",
        )


def _htb(rate: float, ceiling: float) -> list[str]:
    burst = str(max(_BURST_BYTES, round(ceiling * 125)))  # at least 1 ms: timers are not finer
    limits = ["rate", f"{round(rate * 1000)}kbit", "ceil", f"{round(ceiling * 1000)}kbit"]
    return [*limits, "burst", burst, "cburst", burst, "quantum", "60000"]


def _table(interface: str) -> str:
    return f"wiresum_{interface.replace('-', '_')}"


def _nft(pid: int, *rules: str) -> None:
    run_in(pid, "nft", "; ".join(rules))


def _netem(direction: Direction) -> list[str]:
    # What is on its way counts, too.
    under_way = direction.delay * (direction.rate or 1000) * 1e6 / 8 / _SMALL_FRAME_BYTES
    words = ["limit", str(direction.queue + math.ceil(under_way))]
    if direction.delay or direction.reorder:
        # netem reorders by sending some at once while others wait, so something must wait.
        words += ["delay", f"{(direction.delay or 0.001) * 1e6:.0f}us"]
    for name, share in (("loss", direction.loss), ("duplicate", direction.duplicate), ("reorder", direction.reorder)):
        if share:
            words += [name, f"{share * 100:.9f}%"]
    return words


def lose(pid: int, interface: str, share: float, *, spare_udp_port: int | None = None) -> None:
    """Loses a share of the frames that come in through an interface, by nftables.

    Packet sockets on that interface see them nevertheless.

    Args:
        pid: a process in the interface's namespace.
        interface: its name.
        share: from 0 to below 1.
        spare_udp_port: packets from and to this port all pass.
    """
    table = _table(interface)
    rules = [
        f"add table netdev {table}",
        f'add chain netdev {table} loss {{ type filter hook ingress device "{interface}" priority 0; }}',
    ]
    if spare_udp_port is not None:
        rules += [f"add rule netdev {table} loss udp {side} {spare_udp_port} accept" for side in ("dport", "sport")]
    # A small share is not none, and nftables takes no comparison that is always true.
    below = min(max(1, round(share * _DRAWS)), _DRAWS - 1)
    _nft(pid, *rules, f"add rule netdev {table} loss numgen random mod {_DRAWS} < {below} counter drop")


def lost_frames(place: int | Path, interface: str) -> int:
    """How many frames `lose` has lost at an interface."""
    words = run_in(place, "nft", "list", "table", "netdev", _table(interface)).split()
    return int(words[words.index("packets") + 1]) if "packets" in words else 0


def sent(place: Path, interface: str) -> dict[str, int]:
    """What has left through an interface, and what has not."""
    (shown,) = json.loads(run_in(place, "ip", "-j", "-s", "link", "show", "dev", interface))
    found = {key: int(shown["stats64"]["tx"][key]) for key in ("bytes", "packets", "dropped")}
    return found | dropped(run_in(place, "tc", "-s", "qdisc", "show", "dev", interface))


def dropped(shown: str) -> dict[str, int]:
    """What queues have dropped, from what `tc -s qdisc` shows; with netem, also what that has lost.

    In netem's one counter, what it drops because it is full is among what it loses on purpose.
    """
    counted = re.findall(r"^qdisc (\S+) .*?dropped (\d+)", shown, re.MULTILINE | re.DOTALL)
    lost = [int(number) for kind, number in counted if kind == "netem"]
    # HTB also counts what is dropped below it: by a queue, or by netem on purpose.
    drops = max((int(number) for kind, number in counted if kind != "netem"), default=0)
    found = {"queue_dropped": max(0, drops - sum(lost))}
    return found | {"lost": sum(lost)} if lost else found
