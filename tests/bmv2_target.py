"""The P4 program on BMv2 as a target of the packet tests: simple_switch_grpc in a namespace of its own."""

import secrets
import shutil
import subprocess
import threading
from collections.abc import Iterable
from typing import Any

from switch.controller.client import P4RuntimeClient
from switch.controller.p4info import P4Info, multicast_group
from switch.controller.program import CPU_PORT, DROPS, EVENTS, FLOOD_GROUP
from switch.controller.program_files import find
from tests.p4_rack import TargetProcess, enter
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
from tests.veth_ports import VethPorts
from tests.veths import MISSING
from tests.waiting import wait_until

SECONDS = 10.0  # for a busy machine
QUIET = 0.3  # seconds in which something that is not to come would have come
MARKERS = {PROBE_PORT: "02:00:00:00:99:09", PORTS[0]: "02:00:00:00:99:01"}  # senders of end marks, by port


def why_not() -> str | None:
    """Why BMv2 cannot be tested here, or None."""
    for tool in ("simple_switch_grpc", "simple_switch_CLI"):
        if shutil.which(tool) is None:
            return f"{tool} is not on PATH"
    return MISSING or None


class Bmv2Target:
    """Starts BMv2; `reset` loads the program anew, which leaves nothing of what was."""

    name = "bmv2"

    def __init__(self, values: int) -> None:
        self.values = values
        json_file, p4info_file = find(values)
        self._program = json_file.read_bytes()
        self._p4info = P4Info(p4info_file.read_text(), name=p4info_file.name)
        self._packet_ins: list[bytes] = []
        self._learned: list[tuple[str, int]] = []
        self._tag = self._mark = 0
        self._loaded = False
        self._rows: list[TableRow] = []
        self._groups: list[int] = []
        self._members: set[int] = set()
        self._device = secrets.randbelow(2**24) + 1
        self._ports = VethPorts((*PORTS, PROBE_PORT))
        self._client: P4RuntimeClient | None = None
        self._process: TargetProcess | None = None
        self._cli: subprocess.Popen[str] | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        process = self._process = TargetProcess(self._command, enter(self._ports.namespace))
        try:
            wait_until((process.folder / "grpc").exists, "BMv2 does not listen", within=SECONDS)
        except AssertionError as error:
            error.add_note(f"it said:\n{process.kill()}")
            raise
        self._client = P4RuntimeClient(
            f"unix:{process.folder}/grpc",
            self._p4info,
            device_id=self._device,
            on_message=self._take,
            on_failure=lambda failure: None,
            timeout=SECONDS,
        )

    def _command(self, folder: str) -> list[str]:
        ports = [word for port in (*PORTS, PROBE_PORT) for word in ("-i", f"{port}@{self._ports.interface(port)}")]
        own = ["--device-id", str(self._device), "--notifications-addr", f"ipc://{folder}/notes"]
        there = ["--grpc-server-addr", f"unix:{folder}/grpc", "--cpu-port", str(CPU_PORT)]
        return ["simple_switch_grpc", "--no-p4", *ports, *own, "--", *there]

    @property
    def _connected(self) -> P4RuntimeClient:
        assert self._client is not None
        return self._client

    def close(self) -> None:
        """Ends the process and removes the namespace."""
        if self._client is not None:
            self._client.close()
        if self._cli is not None:
            self._cli.communicate()
        if self._process is not None:
            self._process.kill()
        self._ports.close()

    def _take(self, message: Any) -> None:
        kind = message.WhichOneof("update")
        if kind == "packet":
            fields = self._p4info.read_packet_in(message.packet)
            header = bytes([fields["reason"]]) + fields["ingress_port"].to_bytes(2, "big")
            self._packet_ins.append(header + fields["argument"].to_bytes(2, "big") + message.packet.payload)
        elif kind == "digest":
            self._connected.acknowledge(message.digest)
            for item in message.digest.data:
                mac, port = (member.bitstring for member in item.struct.members)
                self._learned.append((mac.rjust(6, b"\0").hex(":"), int.from_bytes(port, "big")))

    def reset(self) -> None:
        if not self._loaded:
            self._connected.set_pipeline(self._program)
            self._loaded = True
            flood = multicast_group(FLOOD_GROUP, [(port, 0) for port in (*PORTS, PROBE_PORT)])
            self._connected.insert([flood, self._p4info.digest("learned_t")])
        # Loading the program again would be a second for the largest; a pool is cleared when a job takes it.
        self._connected.delete([self._p4info.entry(row.table, row.key) for row in self._rows])
        self._connected.delete([multicast_group(group) for group in self._groups])
        counters = [self._p4info.counter("WiresumIngress.drops", index) for index in DROPS]
        counters += [
            self._p4info.counter("WiresumIngress.events", member << 4 | event)
            for member in self._members
            for event in EVENTS
        ]
        for entity in counters:
            entity.counter_entry.data.packet_count = 0
        self._connected.modify(counters)
        self._rows, self._groups, self._members = [], [], set()
        self._packet_ins.clear()
        self._insert(own_rows())
        self._insert(
            TableRow(
                "WiresumIngress.forwarding.senders",
                {"hdr.ethernet.src": number(mac), "standard_metadata.ingress_port": port},
                "WiresumIngress.forwarding.known",
                {},
            )
            for port, mac in MARKERS.items()
        )
        self._learned.clear()

    def _insert(self, rows: Iterable[TableRow]) -> None:
        new = list(rows)
        self._connected.insert([self._p4info.entry(row.table, row.key, row.action, row.arguments) for row in new])
        self._rows += new

    def add_job(self, job: Job) -> None:
        self._tag = self._tag % 60000 + 1
        assert self.packet_out(clear_packet(job, self._tag)) == []
        self._groups.append(job.group)
        self._members.update(members_of(job))
        expected = cleared_packet(self._tag)
        wait_until(lambda: expected in self._packet_ins, "the pool was not cleared", within=SECONDS)
        self._packet_ins.remove(expected)
        self._connected.insert([multicast_group(job.group, [(worker.port, worker.member) for worker in job.workers])])
        self._insert(job_rows(job))

    def send(self, port: int, packet: bytes) -> Frames:
        self._ports.send(port, packet)
        return self._until_marked()

    def _until_marked(self) -> Frames:
        """All that comes out until two frames that were sent behind it have come out of every port."""
        self._mark += 1
        marks = {}
        for port, mac in MARKERS.items():
            mark = b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) + b"\x88\xb6" + self._mark.to_bytes(46, "big")
            self._ports.send(port, mark)
            marks[port] = mark
        # BMv2 takes packets from all ports in order, and those of one port leave in order.
        expected = {(port, marks[PROBE_PORT]) for port in PORTS}
        expected |= {(port, marks[PORTS[0]]) for port in (*PORTS[1:], PROBE_PORT)}
        found = self._ports.receive_until(lambda frames: expected <= set(frames), SECONDS)
        return sorted(frame for frame in found if frame not in expected)

    def packet_out(self, packet: bytes) -> Frames:
        fields = {
            "command": packet[0],
            "argument": int.from_bytes(packet[1:3], "big"),
            "base": int.from_bytes(packet[3:5], "big"),
            "slots": int.from_bytes(packet[5:7], "big"),
        }
        before = self._ports.receive(0)
        assert before == []
        self._connected.send(packet[7:], fields)
        if packet[0] == 2:
            return []  # `add_job` waits for the answer
        # It goes another way than our marks: wait for as long as it may take.
        wanted = 1 if packet[0] == 0 else len(PORTS) + 1
        found = self._ports.receive_until(lambda frames: len(frames) >= wanted, SECONDS)
        return sorted(found + self._until_marked())

    def packet_ins(self) -> list[bytes]:
        self._settle(self._packet_ins)
        found, self._packet_ins = self._packet_ins, []
        return found

    def _settle(self, arriving: list[Any]) -> None:
        try:
            wait_until(lambda: bool(arriving), "nothing", within=QUIET)
        except AssertionError:
            return

    def learn(self, mac: str, port: int) -> None:
        for old in (*PORTS, PROBE_PORT):
            key = {"hdr.ethernet.src": number(mac), "standard_metadata.ingress_port": old}
            self._connected.delete([self._p4info.entry("WiresumIngress.forwarding.senders", key)])
        key = {"hdr.ethernet.src": number(mac), "standard_metadata.ingress_port": port}
        self._insert(
            [
                TableRow("WiresumIngress.forwarding.senders", key, "WiresumIngress.forwarding.known", {}),
                TableRow(
                    "WiresumIngress.forwarding.destinations",
                    {"hdr.ethernet.dst": number(mac)},
                    "WiresumIngress.forwarding.forward",
                    {"port": port},
                ),
            ]
        )

    def learned(self) -> list[tuple[str, int]]:
        self._settle(self._learned)
        found, self._learned = self._learned, []
        return found

    def registers(self, job: Job) -> Registers:
        end = job.base + job.slots
        names = {"newest": end, **dict.fromkeys(("seen", "count", "e0", "e1"), 2 * end)}
        names["final"] = 2 * end
        names |= {f"values.value_{i:02x}": 2 * end for i in range(self.values)}
        cells = self._read_registers(names)
        return registers_of(job, self.values, lambda name, count: cells[name][:count])

    def _read_registers(self, sizes: dict[str, int]) -> dict[str, list[int]]:
        """The first cells of registers, which BMv2 shows on its other control interface only."""
        if self._cli is None:
            self._cli = subprocess.Popen(
                [*enter(self._ports.namespace), "simple_switch_CLI"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._cli.stdin is not None
        assert self._cli.stdout is not None
        names = [f"WiresumIngress.slots.{name}" for name, count in sizes.items() for _ in range(count)]
        indexes = [index for count in sizes.values() for index in range(count)]
        # Written by a thread, since the answers would fill the pipe.
        text = "".join(f"register_read {name} {index}\n" for name, index in zip(names, indexes, strict=True))
        writer = threading.Thread(target=lambda: (self._cli.stdin.write(text), self._cli.stdin.flush()))  # type: ignore[union-attr]
        writer.start()
        cells: dict[str, list[int]] = {}
        for name, index in zip(names, indexes, strict=True):
            line = ""
            while f"{name}[{index}]=" not in line:
                line = self._cli.stdout.readline()
                assert line, "simple_switch_CLI has ended"
            cells.setdefault(name, []).append(int(line.rpartition("=")[2]))
        writer.join()
        return cells

    def counters(self, job: Job) -> dict[str, int]:
        counted: dict[str, int] = {}
        cells = [
            self._p4info.counter("WiresumIngress.events", member << 4 | event)
            for member in members_of(job)
            for event in EVENTS
        ]
        for entity in self._connected.read(cells):
            name = EVENTS[entity.counter_entry.index.index & 15]
            counted[name] = counted.get(name, 0) + entity.counter_entry.data.packet_count
        wanted = {(number(worker.ip), worker.udp) for worker in (*job.workers, job.parent) if worker is not None}
        for table in ("WiresumIngress.workers", "WiresumIngress.parents"):
            for entity in self._connected.read([self._p4info.direct_counters(table)]):
                entry = entity.direct_counter_entry
                if tuple(self._p4info.keys_of(entry.table_entry).values()) in wanted:
                    counted["received"] = counted.get("received", 0) + entry.data.packet_count
        return {name: value for name, value in counted.items() if value}

    def drops(self) -> dict[str, int]:
        found = {}
        for index, name in DROPS.items():
            (entity,) = self._connected.read([self._p4info.counter("WiresumIngress.drops", index)])
            if entity.counter_entry.data.packet_count:
                found[name] = entity.counter_entry.data.packet_count
        return found
