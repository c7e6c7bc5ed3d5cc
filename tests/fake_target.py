"""A P4Runtime server that keeps what is written, answers packet-outs as the wiresum program does, and moves nothing."""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final

from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2

from switch.controller.program import WiresumProgram
from switch.controller.program_files import find
from switch.p4runtime.messages import p4runtime_pb2 as pb
from switch.p4runtime.stubs import P4RuntimeServicer, add_P4RuntimeServicer_to_server, grpc

PROGRAM: Final = WiresumProgram.load(*find(64))
_INFO: Final = PROGRAM.info
_TABLES: Final = {table.preamble.id: table.preamble.name.rpartition(".")[2] for table in _INFO.message.tables}
_REGISTERS: Final = {r.preamble.id: r.preamble.name.rpartition(".")[2] for r in _INFO.message.registers}


class FakeTarget(P4RuntimeServicer):  # type: ignore[misc]
    """What a test may set and look at.

    Attributes:
        entries: what is written, by a key that names it.
        hosts: MAC address and port of each host that answers ARP.
        counters: packets of cells of the counters "events" and "drops", by name and index.
        received: packets and bytes by the worker's key in `entries`.
        registers: cells by name and index; None: they cannot be read.
        refuse: given an update, a status code's name to refuse it, or None.
        clears: (base, slots) of all that were asked for.
        lose_clears: so many of them are not answered.
        verdict: status code that a controller is greeted with.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self.hosts: dict[str, tuple[int, int]] = {}
        self.counters: dict[tuple[str, int], int] = {}
        self.received: dict[str, tuple[int, int]] = {}
        self.registers: dict[tuple[str, int], int] | None = {}
        self.refuse: Callable[[Any], str | None] = lambda _: None
        self.clears: list[tuple[int, int]] = []
        self.lose_clears = 0
        self.verdict = 0
        self.asked: list[str] = []
        self.pipeline: Any = None
        self.acknowledged = threading.Event()
        self.silent = threading.Event()  # set: reads are not answered
        self.outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.address = ""

    def names(self, table: str) -> list[str]:
        """Keys of a table's entries, or of the multicast groups ("group")."""
        return sorted(name for name in self.entries if name.startswith(table + " "))

    def params(self, name: str) -> list[int]:
        """The parameters of an entry's action."""
        return [int.from_bytes(p.value, "big") for p in self.entries[name].table_entry.action.action.params]

    def replicas(self, group: int) -> list[tuple[int, int]]:
        entry = self.entries[f"group {group}"].packet_replication_engine_entry.multicast_group_entry
        return [(replica.egress_port, replica.instance) for replica in entry.replicas]

    def say_learned(self, mac: int, port: int) -> None:
        digests = pb.DigestList(digest_id=_INFO.find("digests", "learned_t").preamble.id, list_id=1)
        members = digests.data.add().struct.members
        members.add().bitstring = mac.to_bytes(6, "big")
        members.add().bitstring = port.to_bytes(2, "big")
        self.acknowledged.clear()
        self.outbox.put(pb.StreamMessageResponse(digest=digests))

    # The service

    def StreamChannel(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        first = next(requests).arbitration
        answer = pb.StreamMessageResponse()
        answer.arbitration.CopyFrom(first)
        answer.arbitration.status.code = self.verdict
        outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.outbox = outbox
        outbox.put(answer)
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()
        context.add_callback(lambda: outbox.put(None))
        yield from iter(outbox.get, None)

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.pipeline = request.config
        self.entries.clear()
        return pb.SetForwardingPipelineConfigResponse()

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return pb.GetForwardingPipelineConfigResponse(config=self.pipeline)

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802
        codes = [self._write(update) for update in request.updates]
        if any(codes):
            status = status_pb2.Status(code=code_pb2.UNKNOWN, message="some failed")
            for code in codes:
                error = pb.Error(canonical_code=code_pb2.Code.Value(code or "OK"), message="so it is" if code else "")
                packed = any_pb2.Any()
                packed.Pack(error)
                status.details.append(packed)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.UNKNOWN, "some failed")
        return pb.WriteResponse()

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        if self.silent.is_set():
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "as if it took too long")
        response = pb.ReadResponse()
        for entity in request.entities:
            kind = entity.WhichOneof("entity")
            if kind == "register_entry" and self.registers is None:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "Register reads are not supported yet")
            response.entities.extend(getattr(self, f"_read_{kind}")(entity))
        yield response

    # Its parts

    def _read(self, requests: Any) -> None:
        with suppress(grpc.RpcError):  # the client has gone
            for request in requests:
                if request.WhichOneof("update") == "packet":
                    self._take_packet(request.packet)
                else:
                    self.acknowledged.set()

    def _take_packet(self, packet: Any) -> None:
        command, argument, base, slots = (int.from_bytes(field.value, "big") for field in packet.metadata)
        if command == 2:
            self.clears.append((base, slots))
            if self.lose_clears:
                self.lose_clears -= 1
                return
            self._packet_in(reason=1, port=0, argument=argument, payload=b"")
            return
        frame = packet.payload
        asked = ".".join(map(str, frame[38:42]))
        self.asked.append(asked)
        if asked in self.hosts:
            mac, port = self.hosts[asked]
            own = mac.to_bytes(6, "big")
            reply = frame[6:12] + own + frame[12:20] + b"\0\2" + own + frame[38:42] + frame[22:32]
            self._packet_in(reason=0, port=port, argument=0, payload=reply)

    def _packet_in(self, *, reason: int, port: int, argument: int, payload: bytes) -> None:
        packet = pb.PacketIn(payload=payload)
        for number, value in enumerate((reason, port, argument), 1):
            packet.metadata.add(metadata_id=number, value=value.to_bytes(2, "big").lstrip(b"\0") or b"\0")
        self.outbox.put(pb.StreamMessageResponse(packet=packet))

    def _write(self, update: Any) -> str | None:
        if refused := self.refuse(update):
            return refused
        name = name_of(update.entity)
        if update.type == pb.Update.INSERT:
            if name in self.entries:
                return "ALREADY_EXISTS"
        elif name not in self.entries:
            return "NOT_FOUND"
        if update.type == pb.Update.DELETE:
            del self.entries[name]
            self.received.pop(name, None)
        else:
            self.entries[name] = update.entity
        return None

    def _read_table_entry(self, entity: Any) -> list[Any]:
        table = _TABLES[entity.table_entry.table_id]
        return [self.entries[name] for name in self.names(table)]

    def _read_packet_replication_engine_entry(self, entity: Any) -> list[Any]:
        return [self.entries[name] for name in self.names("group")]

    def _read_direct_counter_entry(self, entity: Any) -> list[Any]:
        found = []
        for name in self.names("workers"):
            read = pb.Entity()
            read.direct_counter_entry.table_entry.CopyFrom(self.entries[name].table_entry)
            data = read.direct_counter_entry.data
            data.packet_count, data.byte_count = self.received.get(name, (0, 0))
            found.append(read)
        return found

    def _read_counter_entry(self, entity: Any) -> list[Any]:
        events = _INFO.find("counters", "WiresumIngress.events").preamble.id
        name = "events" if entity.counter_entry.counter_id == events else "drops"
        read = pb.Entity()
        read.CopyFrom(entity)
        index = entity.counter_entry.index.index
        read.counter_entry.data.packet_count = self.counters.get((name, index), 0)
        return [read]

    def _read_register_entry(self, entity: Any) -> list[Any]:
        assert self.registers is not None
        read = pb.Entity()
        read.CopyFrom(entity)
        cell = _REGISTERS[entity.register_entry.register_id], entity.register_entry.index.index
        read.register_entry.data.bitstring = self.registers.get(cell, 0).to_bytes(4, "big")
        return [read]


def name_of(entity: Any) -> str:
    """A key by which a test can find an entity: "workers 10.0.0.1 4711" as decimal numbers, "group 2", "digest"."""
    kind = entity.WhichOneof("entity")
    if kind == "table_entry":
        keys = (str(int.from_bytes(match.exact.value, "big")) for match in entity.table_entry.match)
        return f"{_TABLES[entity.table_entry.table_id]} {' '.join(keys)}"
    if kind == "digest_entry":
        return "digest"
    return f"group {entity.packet_replication_engine_entry.multicast_group_entry.multicast_group_id}"


@contextmanager
def fake_target() -> Iterator[FakeTarget]:
    """A fake target that listens on a free port."""
    target = FakeTarget()
    pool = ThreadPoolExecutor(8)
    server = grpc.server(pool, options=(("grpc.so_reuseport", 0),))
    add_P4RuntimeServicer_to_server(target, server)
    target.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield target
    finally:
        target.outbox.put(None)
        server.stop(0).wait()
        pool.shutdown()
