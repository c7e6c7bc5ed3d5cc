import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from protocol.errors import WiresumError
from switch.model.interfaces import PairPort
from switch.p4runtime.errors import Code
from switch.p4runtime.messages import p4runtime_pb2 as pb
from switch.p4runtime.pipeline import SwitchOptions
from switch.p4runtime.server import P4RuntimeSwitch
from switch.p4runtime.stubs import grpc
from tests.p4runtime_client import TIMEOUT, Client, details_of
from tests.p4runtime_rig import (
    CPU_PORT,
    DELETE,
    DEVICE,
    INSERT,
    MODIFY,
    Names,
    config_of,
    frame,
    json_of,
    p4info_of,
    value_of,
)

OPTIONS = SwitchOptions(cpu_port=CPU_PORT)


class Rack:
    """A switch with two ports whose far ends are in our hands."""

    def __init__(self) -> None:
        self.pairs = {number: PairPort() for number in (0, 1)}
        for pair in self.pairs.values():
            pair.peer.settimeout(TIMEOUT)
        self.switch = P4RuntimeSwitch(self.pairs, address="127.0.0.1:0", device_id=DEVICE, options=OPTIONS)
        self.names = Names(p4info_of())

    @property
    def address(self) -> str:
        return self.switch.address

    def send(self, port: int, packet: bytes) -> None:
        self.pairs[port].peer.send(packet)

    def receive(self, port: int) -> bytes:
        return self.pairs[port].peer.recv(1 << 16)


@pytest.fixture
def rack() -> Iterator[Rack]:
    made = Rack()
    with made.switch:
        yield made


@pytest.fixture
def loaded(rack: Rack) -> Rack:
    rack.switch.service.load(p4info_of(), json_of())
    return rack


@pytest.fixture
def client(loaded: Rack) -> Iterator[Client]:
    with Client(loaded.address) as made:
        assert made.next("arbitration").status.code == Code.OK
        yield made


def code_of(caught: Any) -> str:
    return str(caught.value.code().name)


# Streams


def test_a_controller_brings_a_program_and_packets_flow(rack: Rack) -> None:
    with Client(rack.address) as client:
        assert client.next("arbitration").election_id.low == 1
        client.set_pipeline(config_of(cookie=7))
        request = pb.GetForwardingPipelineConfigRequest(device_id=DEVICE)
        assert client.stub.GetForwardingPipelineConfig(request).config == config_of(cookie=7)
        client.write(
            (INSERT, rack.names.entry("exact_t", {"key": 1, "src": 0x0A}, rack.names.action("forward", port=1)))
        )
        rack.send(0, frame(0, key=1))
        assert rack.receive(1) == frame(0, key=1)


def test_primary_and_backups_are_told_who_is_who(rack: Rack) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(Client(rack.address, 5))
        assert first.next("arbitration").status.code == Code.OK
        second = stack.enter_context(Client(rack.address, 3))
        notice = second.next("arbitration")
        assert (notice.status.code, notice.election_id.low, notice.device_id) == (Code.ALREADY_EXISTS, 5, DEVICE)
        with Client(rack.address, 1 << 70) as third:
            assert third.next("arbitration").status.code == Code.OK
            for other in (first, second):
                notice = other.next("arbitration")
                assert (notice.status.code, notice.election_id.high) == (Code.ALREADY_EXISTS, 1 << 6)
        for other in (first, second):  # whose stream broke
            assert other.next("arbitration").status.code == Code.NOT_FOUND
        second.arbitrate(1 << 70)
        assert second.next("arbitration").status.code == Code.OK
        assert first.next("arbitration").status.code == Code.ALREADY_EXISTS


def test_streams_that_end_with_an_error(rack: Rack) -> None:
    with Client(rack.address, 5) as first:
        first.next("arbitration")
        with Client(rack.address, 5) as second:
            assert second.status() == (
                "INVALID_ARGUMENT",
                "election id 5 is in use by another controller of role ''",
            )
        with Client(rack.address, device=4) as other:
            assert other.status() == ("NOT_FOUND", "there is no device 4; this is device 3")
        first.device = 4
        first.arbitrate(5)
        assert first.status()[0] == "FAILED_PRECONDITION"


def test_a_stream_ends_well_when_the_client_has_said_all(rack: Rack) -> None:
    with Client(rack.address) as client:
        client.next("arbitration")
        client.half_close()
        assert client.status() == ("OK", "")


def test_roles(client: Client, loaded: Rack) -> None:
    entry = loaded.names.entry("lpm_t", {}, loaded.names.action("forward", port=1))
    with Client(loaded.address, 1, role="routes") as other:
        notice = other.next("arbitration")
        assert (notice.status.code, notice.role.name) == (Code.OK, "routes")
        other.write((INSERT, entry))
        client.write((DELETE, entry))
    with pytest.raises(grpc.RpcError) as caught:
        client.stub.Write(pb.WriteRequest(device_id=DEVICE, role="unknown"), timeout=TIMEOUT)
    assert code_of(caught) == "NOT_FOUND"


def test_many_streams_leave_room_for_calls(loaded: Rack) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(loaded.address, number)) for number in range(1, 41)]
        for client in clients:
            client.next("arbitration")
        assert len(clients[0].read(pb.TableEntry(is_default_action=True))) == len(loaded.names.p4info.tables)


# Calls


def test_each_update_of_a_failed_write_has_its_error(client: Client, loaded: Rack) -> None:
    good = loaded.names.entry("lpm_t", {}, loaded.names.action("forward", port=1))
    with pytest.raises(grpc.RpcError) as caught:
        client.write((INSERT, good), (INSERT, good), (INSERT, pb.ExternEntry()))
    assert code_of(caught) == "UNKNOWN"
    errors = details_of(caught.value)
    assert [each.canonical_code for each in errors] == [Code.OK, Code.ALREADY_EXISTS, Code.UNIMPLEMENTED]
    assert [each.message for each in errors][::2] == ["", "extern_entry is not supported"]
    assert client.read(good) == [good]


def test_errors_of_large_batches_still_arrive(client: Client, loaded: Rack) -> None:
    missing = loaded.names.entry("lpm_t", {"dst": (1 << 40, 8)})
    with pytest.raises(grpc.RpcError) as caught:
        client.write(*[(DELETE, missing)] * 120)
    assert [each.canonical_code for each in details_of(caught.value)] == [Code.NOT_FOUND] * 120


def test_reads_come_in_several_messages_and_their_errors_at_the_end(client: Client, loaded: Rack) -> None:
    names = loaded.names
    entries = [names.entry("lpm_t", {"dst": (i << 40, 8)}, names.action("forward", port=i)) for i in range(64)]
    for start in (0, 32):
        client.write(*((INSERT, each) for each in entries[start : start + 32]))
    assert client.read(names.entry("lpm_t")) == entries
    request = pb.ReadRequest(device_id=DEVICE)
    request.entities.add().table_entry.table_id = names.id("tables", "lpm_t")
    request.entities.add()
    responses = client.stub.Read(request, timeout=TIMEOUT)
    assert sum(len(next(responses).entities) for _ in range(1)) > 0
    with pytest.raises(grpc.RpcError) as caught:
        list(responses)
    assert [each.canonical_code for each in details_of(caught.value)] == [Code.OK, Code.INVALID_ARGUMENT]


def test_calls_that_are_refused(rack: Rack) -> None:
    with Client(rack.address) as client:
        client.next("arbitration")
        calls: list[tuple[Any, str]] = [
            (lambda: client.read(pb.TableEntry()), "FAILED_PRECONDITION"),
            (lambda: client.write(), "FAILED_PRECONDITION"),
            (lambda: client.set_pipeline(config_of(), 0), "INVALID_ARGUMENT"),
            (lambda: client.stub.Write(pb.WriteRequest(device_id=DEVICE)), "PERMISSION_DENIED"),
            (lambda: list(client.stub.Read(pb.ReadRequest(device_id=9))), "NOT_FOUND"),
            (lambda: client.stub.GetForwardingPipelineConfig(pb.GetForwardingPipelineConfigRequest()), "NOT_FOUND"),
        ]
        for call, code in calls:
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert code_of(caught) == code


def test_capabilities_need_no_stream(rack: Rack) -> None:
    with Client(rack.address) as client:
        assert client.stub.Capabilities(pb.CapabilitiesRequest()).p4runtime_api_version.startswith("1.4")


# What the switch sends of its own accord


def test_packets_go_in_and_out(client: Client, loaded: Rack) -> None:
    names = loaded.names
    out = pb.StreamMessageRequest(packet=pb.PacketOut(payload=frame(value=9)))
    out.packet.metadata.add(metadata_id=1, value=b"\x01")
    out.packet.metadata.add(metadata_id=2, value=b"\x00")
    client.send(out)
    assert value_of(loaded.receive(1)) == 9
    client.write((INSERT, names.entry("exact_t", {"key": 1, "src": 0x0A}, names.action("to_controller"))))
    for value in range(20):
        loaded.send(1, frame(0, key=1, value=value))
    packets = [client.next("packet") for _ in range(20)]
    assert [value_of(packet.payload) for packet in packets] == list(range(20))
    assert packets[0].metadata[0].value == b"\x01"
    out.packet.ClearField("metadata")
    client.send(out)
    assert client.next("error").canonical_code == Code.INVALID_ARGUMENT


def test_digests_and_idle_entries_come_in_time(client: Client, loaded: Rack) -> None:
    names = loaded.names
    config = pb.DigestEntry.Config(max_timeout_ns=50_000_000, max_list_size=10, ack_timeout_ns=10**10)
    client.write(
        (INSERT, names.entry("exact_t", {"key": 1, "src": 0x0A}, names.action("learn", port=1))),
        (INSERT, pb.DigestEntry(digest_id=names.id("digests", "learned_t"), config=config)),
    )
    loaded.send(0, frame(0, key=1))
    digest = client.next("digest")
    assert digest.data[0].struct.members[0].bitstring == b"\x0a"
    client.send(
        pb.StreamMessageRequest(digest_ack=pb.DigestListAck(digest_id=digest.digest_id, list_id=digest.list_id))
    )
    idle = names.entry("lpm_t", {}, names.action("forward", port=1), idle_timeout_ns=100_000_000)
    client.write((INSERT, idle))
    for _ in range(2):
        notice = client.next("idle_timeout_notification")
        assert [each.table_id for each in notice.table_entry] == [idle.table_id]
    client.write((DELETE, idle))


def test_writes_and_packets_at_the_same_time(client: Client, loaded: Rack) -> None:
    names = loaded.names
    entry = names.entry("exact_t", {"key": 1, "src": 0x0A}, names.action("forward", port=1))
    client.write((INSERT, entry))
    stop = threading.Event()
    sent = 0

    def traffic() -> None:
        nonlocal sent
        while not stop.is_set():
            loaded.send(0, frame(0, key=1))
            loaded.receive(1)
            sent += 1

    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        for port in range(100):
            client.write(
                (MODIFY, entry), (INSERT, names.entry("lpm_t", {"dst": (port << 40, 8)}, names.action("drop")))
            )
            client.write((DELETE, names.entry("lpm_t", {"dst": (port << 40, 8)})))
    finally:
        stop.set()
        thread.join()
    (found,) = client.read(pb.DirectCounterEntry(table_entry=names.entry("exact_t", {"key": 1, "src": 0x0A})))
    assert found.data.packet_count == sent > 0


# Beginning and end


def test_it_ends_soon_though_streams_are_open() -> None:
    rack = Rack()
    with rack.switch, Client(rack.address) as client:
        client.next("arbitration")
        started = time.monotonic()
        rack.switch.close()
        assert time.monotonic() - started < 1
        assert client.status()[0] in ("UNAVAILABLE", "CANCELLED")
    assert not rack.switch.alive


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:70000", "127.0.0.1:x", ":1"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(WiresumError, match="expected HOST:PORT"):
        P4RuntimeSwitch({}, address=address)


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WiresumError, match=f"cannot serve P4Runtime at 127.0.0.1:{port}: the address is in use"):
            P4RuntimeSwitch({}, address=f"127.0.0.1:{port}")
