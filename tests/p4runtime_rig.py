"""The P4Runtime service without gRPC, threads and ports, and short ways to write its messages."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf import text_format

from switch.model.interfaces import Core
from switch.p4runtime.bytestrings import encode
from switch.p4runtime.errors import BatchError, Code, P4RuntimeError
from switch.p4runtime.messages import p4info_pb2
from switch.p4runtime.messages import p4runtime_pb2 as pb
from switch.p4runtime.pipeline import SwitchOptions
from switch.p4runtime.service import P4RuntimeService

T = TypeVar("T")

COMPILED = Path(__file__).resolve().parent / "p4"
CPU_PORT = 255
DEVICE = 3
INSERT, MODIFY, DELETE = pb.Update.INSERT, pb.Update.MODIFY, pb.Update.DELETE


@cache
def json_of(name: str = "p4rt_all") -> bytes:
    return (COMPILED / f"{name}.json").read_bytes()


@cache
def _serialized_p4info(name: str) -> bytes:
    parsed = text_format.Parse((COMPILED / f"{name}.p4info.txtpb").read_text(), p4info_pb2.P4Info())
    return parsed.SerializeToString()  # type: ignore[no-any-return]


def p4info_of(name: str = "p4rt_all") -> Any:
    return p4info_pb2.P4Info.FromString(_serialized_p4info(name))


def config_of(name: str = "p4rt_all", cookie: int | None = None) -> Any:
    config = pb.ForwardingPipelineConfig(p4info=p4info_of(name), p4_device_config=json_of(name))
    if cookie is not None:
        config.cookie.cookie = cookie
    return config


class Names:
    """P4Runtime's numbers by the last part of P4's names."""

    def __init__(self, p4info: Any) -> None:
        self.p4info = p4info
        self._ids: dict[tuple[str, str], int] = {}
        for kind, _ in p4info.ListFields():
            if kind.name in ("pkg_info", "type_info"):
                continue
            for each in getattr(p4info, kind.name):
                self._ids[kind.name, each.preamble.name.rpartition(".")[2]] = each.preamble.id
        self._fields = {
            (table.preamble.id, field.name.rpartition(".")[2]): field
            for table in p4info.tables
            for field in table.match_fields
        }
        self._params = {
            (action.preamble.id, param.name): param.id for action in p4info.actions for param in action.params
        }

    def id(self, kind: str, name: str) -> int:
        return self._ids[kind, name]

    def action(self, action: str, **params: int) -> Any:
        number = self.id("actions", action)
        message = pb.Action(action_id=number)
        for name, value in params.items():
            message.params.add(param_id=self._params[number, name], value=encode(value))
        return message

    def entry(
        self,
        table: str,
        match: Mapping[str, Any] | None = None,
        action: Any = None,
        *,
        member: int = 0,
        group: int = 0,
        **more: Any,
    ) -> Any:
        """A TableEntry; a match is a number, or a pair for lpm, ternary and range."""
        number = self.id("tables", table)
        message = pb.TableEntry(table_id=number, **more)
        for name, value in (match or {}).items():
            field = self._fields[number, name]
            added = message.match.add(field_id=field.id)
            kind = p4info_pb2.MatchField.MatchType.Name(field.match_type)
            if kind == "EXACT":
                added.exact.value = encode(value)
            elif kind == "OPTIONAL":
                added.optional.value = encode(value)
            elif kind == "LPM":
                added.lpm.value, added.lpm.prefix_len = encode(value[0]), value[1]
            elif kind == "TERNARY":
                added.ternary.value, added.ternary.mask = encode(value[0]), encode(value[1])
            else:
                added.range.low, added.range.high = encode(value[0]), encode(value[1])
        if action is not None:
            message.action.action.CopyFrom(action)
        if member:
            message.action.action_profile_member_id = member
        if group:
            message.action.action_profile_group_id = group
        return message

    def action_set(self, *actions: tuple[Any, int]) -> Any:
        message = pb.ActionProfileActionSet()
        for action, weight in actions:
            message.action_profile_actions.add(action=action, weight=weight)
        return message


def entity(message: Any) -> Any:
    """An Entity around a message, by the message's type."""
    if isinstance(message, pb.MulticastGroupEntry):
        message = pb.PacketReplicationEngineEntry(multicast_group_entry=message)
    elif isinstance(message, pb.CloneSessionEntry):
        message = pb.PacketReplicationEngineEntry(clone_session_entry=message)
    found = pb.Entity()
    for field in pb.Entity.DESCRIPTOR.fields:
        if field.message_type.name == type(message).__name__:
            getattr(found, field.name).CopyFrom(message)
            return found
    raise TypeError(f"{type(message).__name__} is no entity")


def updates(*pairs: tuple[int, Any]) -> list[Any]:
    return [pb.Update(type=type_, entity=entity(message)) for type_, message in pairs]


def bits(election_id: int) -> Any:
    return pb.Uint128(high=election_id >> 64, low=election_id & (1 << 64) - 1)


def arbitration(election_id: int | None = 1, *, role: str = "", device: int = DEVICE) -> Any:
    message = pb.StreamMessageRequest()
    message.arbitration.device_id = device
    if role:
        message.arbitration.role.name = role
    if election_id is not None:
        message.arbitration.election_id.CopyFrom(bits(election_id))
    return message


class DirectDevice:
    """The switch around a core, with no thread: everything happens at once, at the time that the test says."""

    def __init__(self) -> None:
        self.now = 10.0
        self.core: Core | None = None
        self.sent: list[tuple[int, bytes]] = []
        self.to_controller: Callable[[bytes], None] = lambda _: None
        self.after_burst: Callable[[], None] = lambda: None

    def call(self, function: Callable[[], T]) -> T:
        return function()

    def replace(self, switch: Core | None) -> None:
        self.core = switch

    def inject(self, port: int, packet: bytes) -> None:
        assert self.core is not None
        for out, data in self.core.receive(port, packet, self.now):
            if out == CPU_PORT:
                self.to_controller(data)
            else:
                self.sent.append((out, data))
        self.after_burst()

    def ask(self, port: int, packet: bytes) -> list[tuple[int, bytes]]:
        """What leaves for a packet."""
        self.sent.clear()
        self.inject(port, packet)
        return list(self.sent)


class Controller:
    """A client's stream, as the service sees it."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.ended: P4RuntimeError | None = None

    def send(self, message: Any, *, droppable: bool = False) -> None:
        self.messages.append(message)

    def end(self, error: P4RuntimeError) -> None:
        self.ended = error

    def take(self, kind: str) -> list[Any]:
        """The messages of a kind that came since the last call; there must be no others."""
        found, self.messages = self.messages, []
        assert all(message.HasField(kind) for message in found), found
        return [getattr(message, kind) for message in found]


class Rig:
    """A service with a primary and a committed pipeline."""

    def __init__(self, name: str | None = "p4rt_all") -> None:
        self.device = DirectDevice()
        options = SwitchOptions(cpu_port=CPU_PORT)
        self.service = P4RuntimeService(self.device, device_id=DEVICE, options=options)
        self.device.to_controller = self.service.notifier.packet_in
        self.device.after_burst = self.service.notifier.after_burst
        self.primary = Controller()
        self.service.receive(self.primary, arbitration(1))
        self.primary.take("arbitration")
        self.names = Names(p4info_of(name or "p4rt_all"))
        if name is not None:
            self.set_pipeline(config_of(name))

    def set_pipeline(self, config: Any, action: str = "VERIFY_AND_COMMIT") -> None:
        request = pb.SetForwardingPipelineConfigRequest(device_id=DEVICE, election_id=bits(1))
        request.action = pb.SetForwardingPipelineConfigRequest.Action.Value(action)
        if config is not None:
            request.config.CopyFrom(config)
        self.service.set_pipeline(request)

    def get_pipeline(self, response: str = "ALL") -> Any:
        types = pb.GetForwardingPipelineConfigRequest
        return self.service.get_pipeline(types(device_id=DEVICE, response_type=types.ResponseType.Value(response)))

    def write(self, *pairs: tuple[int, Any], atomicity: str = "CONTINUE_ON_ERROR") -> None:
        request = pb.WriteRequest(device_id=DEVICE, election_id=bits(1), updates=updates(*pairs))
        request.atomicity = pb.WriteRequest.Atomicity.Value(atomicity)
        self.service.write(request)

    def insert(self, *messages: Any) -> None:
        self.write(*((INSERT, message) for message in messages))

    def modify(self, *messages: Any) -> None:
        self.write(*((MODIFY, message) for message in messages))

    def delete(self, *messages: Any) -> None:
        self.write(*((DELETE, message) for message in messages))

    def refused(self, type_: int, message: Any) -> tuple[Code, str]:
        """The code and text of the one update's error."""
        try:
            self.write((type_, message))
        except BatchError as error:
            (only,) = error.errors
            assert only is not None
            return only.code, only.message
        raise AssertionError("it was not refused")

    def read(self, *messages: Any) -> list[Any]:
        """The entities, without their wrapping."""
        request = pb.ReadRequest(device_id=DEVICE, entities=[entity(message) for message in messages])
        found = []
        for response in self.service.read(request):
            for each in response.entities:
                message = getattr(each, each.WhichOneof("entity"))
                if isinstance(message, pb.PacketReplicationEngineEntry):
                    message = getattr(message, message.WhichOneof("type"))
                found.append(message)
        return found

    def read_refused(self, message: Any) -> tuple[Code, str]:
        try:
            self.read(message)
        except BatchError as error:
            (only,) = error.errors
            assert only is not None
            return only.code, only.message
        raise AssertionError("it was not refused")

    def ask(self, port: int, packet: bytes) -> list[tuple[int, bytes]]:
        return self.device.ask(port, packet)

    def later(self, seconds: float) -> None:
        """Lets time go by, and the service see it."""
        self.device.now += seconds
        self.service.notifier.tick()


def frame(
    op: int = 0, key: int = 0, value: int = 0, *, src: int = 0x0A, dst: int = 0x0B, ether_type: int = 0x88B5
) -> bytes:
    """A packet of p4rt_all."""
    ethernet = dst.to_bytes(6, "big") + src.to_bytes(6, "big") + ether_type.to_bytes(2, "big")
    return ethernet + bytes((op, key)) + value.to_bytes(2, "big")


def ports(sent: Iterable[tuple[int, bytes]]) -> list[int]:
    return sorted(port for port, _ in sent)


def value_of(packet: bytes) -> int:
    return int.from_bytes(packet[16:18], "big")
