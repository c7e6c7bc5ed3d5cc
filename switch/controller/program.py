"""The wiresum P4 program as the control plane sees it: its tables, counters and registers. See p4/ for the program."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from protocol.constants import DATA_PORT, VALUES_PER_PACKET, SlotEvent
from protocol.packets import Address
from switch.controller.errors import ProgramError
from switch.controller.p4info import P4Info, decode, multicast_group
from switch.dataplane import Uplink

CPU_PORT: Final = 510
FLOOD_GROUP: Final = 1
FIRST_JOB_GROUP: Final = 2  # of job number 0
DROPS: Final = {1: "no_service", 2: "unknown_source", 3: "bad_checksum", 4: "no_header"}  # by Drop of constants.p4
EVENTS: Final = {int(event): event.counter for event in SlotEvent if event}  # by Event of constants.p4
_EVENT_BITS: Final = 4

_OWN_TABLES: Final = {"WiresumIngress.own_arp": "hdr.arp.target", "WiresumIngress.own_address": "hdr.ipv4.dst"}
_WORKERS: Final = "WiresumIngress.workers"
_PARENTS: Final = "WiresumIngress.parents"
_MEMBERS: Final = "WiresumEgress.members"
_DESTINATIONS: Final = "WiresumIngress.forwarding.destinations"
_SENDERS: Final = "WiresumIngress.forwarding.senders"
_EVENT_COUNTER: Final = "WiresumIngress.events"
_DROP_COUNTER: Final = "WiresumIngress.drops"
_NEWEST: Final = "WiresumIngress.slots.newest"
_SEEN: Final = "WiresumIngress.slots.seen"
_FINAL: Final = "WiresumIngress.slots.final"
_VALUE: Final = re.compile(r"WiresumIngress\.slots\.values\.value_\w+")
_DIGEST: Final = "learned_t"


class Command(IntEnum):
    """Of a packet-out."""

    SEND = 0
    FLOOD = 1
    CLEAR = 2


class Reason(IntEnum):
    """Of a packet-in."""

    ARP_REPLY = 0
    CLEARED = 1


class WiresumProgram:
    """The program, compiled for one number of values per packet.

    Args:
        info: its p4info.
        device_config: what the target is to load, BMv2's JSON.

    Attributes:
        slots: that the pools of all jobs share.
        values: per packet.
        members: ranks of all jobs that fit.
        hosts: that the forwarding tables hold.

    Raises:
        ProgramError: it is not the wiresum program.
    """

    def __init__(self, info: P4Info, device_config: bytes) -> None:
        self.info, self.device_config = info, device_config
        try:
            self.slots = int(info.find("registers", _NEWEST).size)
            self.members = int(info.find("tables", _MEMBERS).size) - 1  # member 0 is nobody
            self.hosts = min(int(info.find("tables", table).size) for table in (_DESTINATIONS, _SENDERS))
            for table in (*_OWN_TABLES, _WORKERS, _PARENTS):
                info.find("tables", table)
            for counter in (_EVENT_COUNTER, _DROP_COUNTER):
                info.find("counters", counter)
            for register in (_SEEN, _FINAL):
                info.find("registers", register)
            info.find("digests", _DIGEST)
        except ProgramError as error:
            raise ProgramError(f"{error}: it is not of the wiresum P4 program") from None
        self.values = sum(1 for name in info.names("registers") if _VALUE.fullmatch(name))
        if self.values not in VALUES_PER_PACKET:
            raise ProgramError(f"{info.name} has {self.values} values per packet, and not one of {VALUES_PER_PACKET}")

    @classmethod
    def load(cls, json: Path, p4info: Path) -> "WiresumProgram":
        """Reads the compiled program.

        Raises:
            ProgramError: a file that cannot be read, or holds something else.
        """
        try:
            device_config, text = json.read_bytes(), p4info.read_text()
        except OSError as error:
            raise ProgramError(f"cannot read {error.filename}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ProgramError(f"{p4info} is not a p4info in text form") from None
        return cls(P4Info(text, name=str(p4info)), device_config)

    # The switch as a whole

    def own_address(self, address: str, mac: int) -> list[Any]:
        """What makes the switch answer for its address."""
        number = int(ipaddress.IPv4Address(address))
        return [
            self.info.entry(table, {field: number}, "WiresumIngress.own", {"mac": mac})
            for table, field in _OWN_TABLES.items()
        ]

    def flood_group(self, ports: Iterable[int]) -> Any:
        """Where a frame for everybody goes."""
        return multicast_group(FLOOD_GROUP, ((port, 0) for port in ports))

    def digest(self) -> Any:
        """The digest that says where senders are."""
        return self.info.digest(_DIGEST)

    def all_entries(self) -> list[Any]:
        """Names all entries of all tables that the controller fills."""
        tables = (*_OWN_TABLES, _WORKERS, _PARENTS, _MEMBERS, _DESTINATIONS, _SENDERS)
        return [self.info.entry(table, {}) for table in tables]

    # Forwarding

    def destination(self, mac: int, port: int) -> Any:
        """Frames for `mac` go out of that port."""
        forward = "WiresumIngress.forwarding.forward"
        return self.info.entry(_DESTINATIONS, {"hdr.ethernet.dst": mac}, forward, {"port": port})

    def sender(self, mac: int, port: int) -> Any:
        """Frames from `mac` at that port are no news."""
        keys = {"hdr.ethernet.src": mac, "standard_metadata.ingress_port": port}
        return self.info.entry(_SENDERS, keys, "WiresumIngress.forwarding.known")

    # Jobs

    def worker(
        self,
        address: Address,
        *,
        member: int,
        job: int,
        rank: int,
        ranks: int,
        base: int,
        slots: int,
        port: int,
        up: tuple[int, int] | None = None,
    ) -> Any:
        """Packets from that address are those of a rank of a job; in a leaf, `up` is member and port of the parent."""
        up_member, up_port = up or (0, 0)
        host, source = address
        keys = {"hdr.ipv4.src": int(ipaddress.IPv4Address(host)), "hdr.udp.src": source}
        params = {
            "member": member,
            "job": job,
            "rank_bit": 1 << rank,
            "ranks": ranks,
            "base": base,
            "pool_size": slots,
            "group": FIRST_JOB_GROUP + job,
            "port": port,
            "is_leaf": int(up is not None),
            "up": up_member,
            "up_port": up_port,
        }
        return self.info.entry(_WORKERS, keys, "WiresumIngress.worker", params)

    def parent(self, uplink: Uplink, *, member: int, local: int, ranks: int, base: int, slots: int) -> Any:
        """Packets from the parent of a leaf are results of a job, which is number `local` here."""
        host, _ = uplink.parent
        keys = {"hdr.ipv4.src": int(ipaddress.IPv4Address(host)), "hdr.udp.dst": uplink.address[1]}
        params = {
            "member": member,
            "job": uplink.job,
            "ranks": ranks,
            "base": base,
            "pool_size": slots,
            "group": FIRST_JOB_GROUP + local,
        }
        return self.info.entry(_PARENTS, keys, "WiresumIngress.parent", params)

    def member(self, member: int, address: Address, mac: int, *, job: int, own_port: int = DATA_PORT) -> Any:
        """Results for that member go there, from `own_port` of the switch and under that job number."""
        host, port = address
        ip = int(ipaddress.IPv4Address(host))
        params = {"mac": mac, "ip": ip, "port": port, "own_port": own_port, "job": job}
        return self.info.entry(_MEMBERS, {"meta.worker.member": member}, "WiresumEgress.address", params)

    def job_group(self, job: int, replicas: Iterable[tuple[int, int]]) -> Any:
        """The (port, member) pairs that a job's results go to."""
        return multicast_group(FIRST_JOB_GROUP + job, replicas)

    # Reading

    def received(self) -> Any:
        """Names the counters of all workers."""
        return self.info.direct_counters(_WORKERS)

    def read_received(self, entity: Any) -> tuple[Address, int, int]:
        """Whose packets, how many, and their bytes with all headers."""
        entry = entity.direct_counter_entry
        keys = self.info.keys_of(entry.table_entry)
        address = str(ipaddress.IPv4Address(keys["hdr.ipv4.src"])), keys["hdr.udp.src"]
        return address, int(entry.data.packet_count), int(entry.data.byte_count)

    def events(self, members: Iterable[int], names: Sequence[str] = tuple(EVENTS.values())) -> list[Any]:
        """Names the counters of these members and events."""
        return [self.info.counter(_EVENT_COUNTER, event_index(member, name)) for member in members for name in names]

    def drops(self) -> list[Any]:
        """Names the counters of drops."""
        return [self.info.counter(_DROP_COUNTER, index) for index in DROPS]

    def registers(self, base: int, slots: int) -> list[Any]:
        """Names `newest` of each slot of a pool and `seen` and `final` of each cell."""
        cells = range(2 * base, 2 * (base + slots))
        return [
            *(self.info.register(_NEWEST, slot) for slot in range(base, base + slots)),
            *(self.info.register(name, cell) for name in (_SEEN, _FINAL) for cell in cells),
        ]

    def read_pool(self, entities: Iterable[Any], base: int, slots: int) -> tuple[list[int], list[int], list[int]]:
        """What these registers hold: `newest` by slot, `seen` and `final` by cell, all counted within the pool."""
        newest, seen, final = [0] * slots, [0] * (2 * slots), [0] * (2 * slots)
        places = {_NEWEST: (newest, base), _SEEN: (seen, 2 * base), _FINAL: (final, 2 * base)}
        by_id = {self.info.find("registers", name).preamble.id: place for name, place in places.items()}
        for entity in entities:
            cell = entity.register_entry
            values, first = by_id[cell.register_id]
            values[cell.index.index - first] = decode(cell.data.bitstring)
        return newest, seen, final


def event_index(member: int, name: str) -> int:
    """Where the counter of an event of a member stands."""
    return member << _EVENT_BITS | SlotEvent[name.upper()]


def read_counters(entities: Iterable[Any]) -> dict[int, int]:
    """The packets of each cell of a counter."""
    return {int(entity.counter_entry.index.index): int(entity.counter_entry.data.packet_count) for entity in entities}
