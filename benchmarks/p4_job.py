"""A job of the P4 program for benchmarks: its table entries, and the frames that its workers send."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from protocol.constants import DATA_PORT, VERSION_BIT
from protocol.packets import make_packet
from switch.model.core import ModelSwitch
from switch.model.matching import Exact
from switch.model.offloads import internet_checksum

COMPILED: Final = Path(__file__).resolve().parent.parent / "p4" / "compiled"
CPU_PORT: Final = 510
JOB: Final = 1
GROUP: Final = 2  # multicast group; 1 is the program's own
_SWITCH_IP: Final = 0x0A000064  # 10.0.0.100
_SWITCH_MAC: Final = 0x0200000000FE
_UDP_PORT: Final = 40000
_UDP_CHECKSUM: Final = 40  # where it stands in a frame
_TSI: Final = 44


def worker_ip(rank: int) -> int:
    """The address of a worker."""
    return 0x0A000001 + rank


def worker_mac(rank: int) -> int:
    """The hardware address of a worker."""
    return 0x020000000001 + rank


@dataclass(frozen=True)
class Row:
    """An entry of a table with exact keys; everything is by name."""

    table: str
    key: dict[str, int]
    action: str
    args: dict[str, int]


def rows(workers: int, slots: int) -> Iterator[Row]:
    """All entries of the job. The worker of rank r is at port r, and member r + 1."""
    own = "WiresumIngress.own"
    yield Row("WiresumIngress.own_address", {"hdr.ipv4.dst": _SWITCH_IP}, own, {"mac": _SWITCH_MAC})
    for rank in range(workers):
        yield Row(
            "WiresumIngress.workers",
            {"hdr.ipv4.src": worker_ip(rank), "hdr.udp.src": _UDP_PORT},
            "WiresumIngress.worker",
            {
                "member": rank + 1,
                "job": JOB,
                "rank_bit": 1 << rank,
                "ranks": workers,
                "base": 0,
                "pool_size": slots,
                "group": GROUP,
                "port": rank,
                "is_leaf": 0,
                "up": 0,
                "up_port": 0,
            },
        )
        yield Row(
            "WiresumEgress.members",
            {"meta.worker.member": rank + 1},
            "WiresumEgress.address",
            {"mac": worker_mac(rank), "ip": worker_ip(rank), "port": _UDP_PORT, "own_port": DATA_PORT, "job": JOB},
        )


def replicas(workers: int) -> list[tuple[int, int]]:
    """(port, replication id) of the job's multicast group."""
    return [(rank, rank + 1) for rank in range(workers)]


def load_model(values: int, workers: int, slots: int) -> ModelSwitch:
    """The model with the job in it."""
    switch = ModelSwitch.load(COMPILED / f"wiresum_{values}.json", cpu_port=CPU_PORT)
    state = switch.state
    for row in rows(workers, slots):
        table = state.tables[row.table]
        (action,) = (action for action in table.actions if action.name == row.action)
        table.insert(
            [Exact(row.key[key.name]) for key in table.keys],
            row.action,
            [row.args[name] for name, _ in action.parameters],
        )
    state.replication.set_group(GROUP, replicas(workers))
    newest = state.registers["WiresumIngress.slots.newest"]
    for slot in range(slots):  # as the program's own command to clear a pool leaves it
        newest.write(slot, (slot - slots) % 2**32)
    return switch


class FrameStream:
    """The endless stream of one worker's chunks, as frames; each overwrites the one before."""

    def __init__(self, rank: int, *, values: int, slots: int) -> None:
        numbers = np.random.default_rng(1 + rank).integers(-(2**28), 2**28, values)
        payload = make_packet(tsi=0, slots=slots, values=numbers, per_packet=values, job=JOB).encode()
        size = 8 + len(payload)
        pseudo = struct.pack("!IIHH", worker_ip(rank), _SWITCH_IP, 17, size)
        udp = struct.pack("!HHHH", _UDP_PORT, DATA_PORT, size, 0)
        ip = struct.pack("!BBHHHBBHII", 0x45, 0, 20 + size, 0, 0x4000, 64, 17, 0, worker_ip(rank), _SWITCH_IP)
        ip = ip[:10] + internet_checksum(ip).to_bytes(2, "big") + ip[12:]
        ethernet = _SWITCH_MAC.to_bytes(6, "big") + worker_mac(rank).to_bytes(6, "big") + b"\x08\x00"
        self._frame = bytearray(ethernet + ip + udp + payload)
        self._rest = 0xFFFF - internet_checksum(pseudo + udp + payload)  # of what does not change; chunk 0 is all zero
        self._slots = slots

    def chunk(self, tsi: int) -> bytearray:
        """The frame of a chunk."""
        place = tsi % self._slots | (VERSION_BIT if tsi // self._slots % 2 else 0)
        tsi %= 2**32
        checksum = 0xFFFF - (self._rest + (tsi >> 16) + (tsi & 0xFFFF) + place) % 0xFFFF
        struct.pack_into("!IH", self._frame, _TSI, tsi, place)
        struct.pack_into("!H", self._frame, _UDP_CHECKSUM, checksum)
        return self._frame
