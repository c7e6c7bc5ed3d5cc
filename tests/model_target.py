"""The P4 program on our model of a programmable switch, in memory, as a target of the packet tests."""

from pathlib import Path

from switch.controller.program import CPU_PORT, DROPS, EVENTS, FLOOD_GROUP
from switch.model.core import ModelSwitch
from switch.model.matching import Exact
from tests.packet_targets import (
    PORTS,
    PROBE_PORT,
    Frames,
    Job,
    Registers,
    TableRow,
    clear_packet,
    cleared_packet,
    job_rows,
    members_of,
    number,
    own_rows,
    registers_of,
)

COMPILED = Path(__file__).resolve().parent.parent / "p4" / "compiled"


class ModelTarget:
    """Loads the program once; `reset` makes it as new."""

    name = "model"

    def __init__(self, values: int) -> None:
        self.values = values
        self.switch = ModelSwitch.load(COMPILED / f"wiresum_{values}.json", cpu_port=CPU_PORT)
        self._packet_ins: list[bytes] = []
        self._tag = 0
        self.reset()

    def reset(self) -> None:
        self.switch.state.reset()
        self.switch.take_digests()
        self._packet_ins.clear()
        for row in own_rows():
            self._insert(row)
        self.switch.state.replication.set_group(FLOOD_GROUP, [(port, 0) for port in (*PORTS, PROBE_PORT)])

    def _insert(self, row: TableRow) -> None:
        table = self.switch.state.tables[row.table]
        (action,) = (action for action in table.actions if action.name == row.action)
        matches = tuple(Exact(row.key[field.name]) for field in table.keys)
        table.insert(matches, row.action, tuple(row.arguments[name] for name, _ in action.parameters))

    def add_job(self, job: Job) -> None:
        self._tag += 1
        assert self.packet_out(clear_packet(job, self._tag)) == []
        assert self._packet_ins.pop() == cleared_packet(self._tag)
        self.switch.state.replication.set_group(job.group, [(worker.port, worker.member) for worker in job.workers])
        for row in job_rows(job):
            self._insert(row)

    def send(self, port: int, packet: bytes) -> Frames:
        frames: Frames = []
        for out, data in self.switch.receive(port, packet, 0.0):
            if out == CPU_PORT:
                self._packet_ins.append(data)
            else:
                frames.append((out, data))
        return sorted(frames)

    def packet_out(self, packet: bytes) -> Frames:
        return self.send(CPU_PORT, packet)

    def packet_ins(self) -> list[bytes]:
        found, self._packet_ins = self._packet_ins, []
        return found

    def learn(self, mac: str, port: int) -> None:
        senders = self.switch.state.tables["WiresumIngress.forwarding.senders"]
        for entry in list(senders.entries()):
            if entry.matches[0] == Exact(number(mac)):
                senders.delete(entry.matches, entry.priority)
        for table in ("senders", "destinations"):
            key = {"hdr.ethernet.src": number(mac), "standard_metadata.ingress_port": port}
            row = TableRow(f"WiresumIngress.forwarding.{table}", key, "WiresumIngress.forwarding.known", {})
            if table == "destinations":
                row = TableRow(
                    row.table, {"hdr.ethernet.dst": number(mac)}, "WiresumIngress.forwarding.forward", {"port": port}
                )
            self._insert(row)

    def learned(self) -> list[tuple[str, int]]:
        found = []
        for digest in self.switch.take_digests():
            mac, port = digest.values
            found.append((mac.to_bytes(6, "big").hex(":"), port))
        return found

    def registers(self, job: Job) -> Registers:
        return registers_of(job, self.values, lambda name, count: self.switch.state.registers[name].cells[:count])

    def counters(self, job: Job) -> dict[str, int]:
        counted: dict[str, int] = {}
        events = self.switch.state.counters["WiresumIngress.events"].packets
        for member in members_of(job):
            for event, name in EVENTS.items():
                counted[name] = counted.get(name, 0) + events[member << 4 | event]
        keys = {(number(worker.ip), worker.udp) for worker in (*job.workers, job.parent) if worker is not None}
        tables = self.switch.state.tables
        for entry in (*tables["WiresumIngress.workers"].entries(), *tables["WiresumIngress.parents"].entries()):
            ip, port = entry.matches
            if isinstance(ip, Exact) and isinstance(port, Exact) and (ip.value, port.value) in keys:
                counted["received"] = counted.get("received", 0) + entry.packets
        return {name: value for name, value in counted.items() if value}

    def drops(self) -> dict[str, int]:
        packets = self.switch.state.counters["WiresumIngress.drops"].packets
        return {name: packets[index] for index, name in DROPS.items() if packets[index]}
