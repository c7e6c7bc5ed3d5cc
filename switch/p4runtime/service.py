"""The P4Runtime service of one switch: what its calls mean, without gRPC.

Two locks. `_writing` makes reads and writes of the state follow each other, and arbitration wait for writes that have
begun. `_lock` is held for moments, for who is connected and which pipeline runs. What a pipeline consists of belongs to
the thread that moves packets; everything reaches it by `Device.call`.
"""

import logging
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from switch.model.core import ModelSwitch
from switch.model.errors import ProgramError
from switch.model.program import Program
from switch.p4runtime.arbitration import Arbitration, Notice
from switch.p4runtime.errors import BatchError, Code, P4RuntimeError, as_p4runtime, invalid, unimplemented
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.notifier import Client, Device, Notifier
from switch.p4runtime.pipeline import Pipeline, SwitchOptions

_log = logging.getLogger(__name__)

API_VERSION: Final = "1.4.1"
_AT_ONCE: Final = 16  # updates or entities between which packets have their turn

_Config = p4runtime_pb2.SetForwardingPipelineConfigRequest
_Write = p4runtime_pb2.WriteRequest


class P4RuntimeService:
    """One device.

    Args:
        device: the switch around the core.
        device_id: the number that clients call it by.
        options: for the switches that pipelines make.
    """

    def __init__(self, device: Device, *, device_id: int = 0, options: SwitchOptions | None = None) -> None:
        self.options = options or SwitchOptions()
        self._device = device
        self._arbitration: Arbitration[Client] = Arbitration(device_id)
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._active: Pipeline | None = None
        self._saved: Pipeline | None = None
        self._switch: ModelSwitch | None = None
        self._json: bytes | None = None
        self.notifier = Notifier(device, self._primaries)

    # Starting

    def run_program(self, json: bytes) -> None:
        """Runs a program for which no p4info is known yet: it forwards, and P4Runtime waits for a pipeline.

        Raises:
            ProgramError: it is not a program.
        """
        switch = self.options.switch(Program.load(json))
        self._json = json
        self._device.replace(switch)
        self.notifier.set_switch(switch)

    def load(self, p4info: Any, json: bytes) -> None:
        """Commits a pipeline from the command line; it has no cookie.

        Raises:
            ProgramError: it is not a program, or does not fit p4info.
        """
        config = p4runtime_pb2.ForwardingPipelineConfig(p4info=p4info, p4_device_config=json)
        try:
            self._commit(self._verified(config))
        except P4RuntimeError as error:
            raise ProgramError(error.message.removeprefix("p4_device_config: ")) from None

    # Calls

    def capabilities(self, request: Any) -> Any:
        """Capabilities."""
        if "device_id" in request.DESCRIPTOR.fields_by_name and request.device_id:  # since 1.5
            self._arbitration.check_device(request.device_id)
        return p4runtime_pb2.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def set_pipeline(self, request: Any) -> Any:
        """SetForwardingPipelineConfig.

        Raises:
            P4RuntimeError: with the status of the call.
        """
        with self._writing:
            self._check_writer(request)
            action, has_config = request.action, request.HasField("config")
            if action == _Config.COMMIT:
                if has_config:
                    raise invalid("COMMIT takes no configuration: it commits the saved one")
                if self._saved is None:
                    raise P4RuntimeError(Code.NOT_FOUND, "there is no saved configuration to commit")
                self._commit(self._saved)
            elif action in (
                _Config.VERIFY,
                _Config.VERIFY_AND_SAVE,
                _Config.VERIFY_AND_COMMIT,
                _Config.RECONCILE_AND_COMMIT,
            ):
                if not has_config:
                    raise invalid(f"{_Config.Action.Name(action)} needs a configuration")
                pipeline = self._verified(request.config)
                if action == _Config.VERIFY_AND_SAVE:
                    with self._lock:
                        self._saved = pipeline
                elif action == _Config.VERIFY_AND_COMMIT:
                    self._commit(pipeline)
                elif action == _Config.RECONCILE_AND_COMMIT:
                    self._reconcile(pipeline)
            else:
                raise invalid("the action is not given: expected VERIFY or another")
        return p4runtime_pb2.SetForwardingPipelineConfigResponse()

    def get_pipeline(self, request: Any) -> Any:
        """GetForwardingPipelineConfig.

        Raises:
            P4RuntimeError: with the status of the call.
        """
        self._arbitration.check_device(request.device_id)
        response = p4runtime_pb2.GetForwardingPipelineConfigResponse()
        pipeline = self._pipeline()
        if pipeline is None:
            return response
        types = p4runtime_pb2.GetForwardingPipelineConfigRequest
        config, wanted = pipeline.config, request.response_type
        if wanted not in types.ResponseType.values():
            raise invalid(f"response type {wanted} is not known")
        response.config.SetInParent()
        if wanted in (types.ALL, types.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(config.p4info)
        if wanted in (types.ALL, types.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = config.p4_device_config
        if config.HasField("cookie"):
            response.config.cookie.CopyFrom(config.cookie)
        return response

    def write(self, request: Any) -> Any:
        """Write.

        Raises:
            P4RuntimeError: with the status of the call; BatchError: updates failed.
        """
        with self._writing:
            self._check_writer(request)
            pipeline = self._required_pipeline()
            updates, call = list(request.updates), self._device.call
            errors: list[P4RuntimeError | None] = []
            if request.atomicity == _Write.CONTINUE_ON_ERROR:
                for i in range(0, len(updates), _AT_ONCE):
                    some = updates[i : i + _AT_ONCE]
                    errors += call(lambda some=some: pipeline.entities.write_each(some))  # type: ignore[misc]
            elif request.atomicity in (_Write.ROLLBACK_ON_ERROR, _Write.DATAPLANE_ATOMIC):
                errors = call(lambda: pipeline.entities.write_all(updates))
            else:
                raise invalid(f"atomicity {request.atomicity} is not known")
        self.notifier.wake()  # for idle time-outs
        _log_internal(errors)
        if any(errors):
            raise BatchError(errors, "updates")
        return p4runtime_pb2.WriteResponse()

    def read(self, request: Any) -> Iterator[Any]:
        """Read: the responses, then the status.

        Raises:
            P4RuntimeError: with the status of the call; BatchError: parts of the request failed.
        """
        self._arbitration.check_device(request.device_id)
        responses: list[Any] = []
        errors: list[P4RuntimeError | None] = []
        with self._writing:
            pipeline = self._required_pipeline()
            for wanted in request.entities:
                try:
                    entities = pipeline.entities.read(wanted)
                    while some := self._device.call(lambda entities=entities: list(islice(entities, _AT_ONCE))):  # type: ignore[misc]
                        responses.append(p4runtime_pb2.ReadResponse(entities=some))
                except Exception as error:
                    errors.append(as_p4runtime(error))
                else:
                    errors.append(None)
        yield from responses
        _log_internal(errors)
        if any(errors):
            raise BatchError(errors, "entities")

    # Streams

    def receive(self, client: Client, message: Any) -> None:
        """A StreamMessageRequest of a client.

        Raises:
            P4RuntimeError: the client's stream is to end with it.
        """
        kind = message.WhichOneof("update")
        if kind == "arbitration":
            self._arbitrate(client, message.arbitration)
            return
        try:
            with self._lock:
                if not self._arbitration.is_primary(client):
                    raise P4RuntimeError(Code.PERMISSION_DENIED, "only the primary may send this")
                pipeline = self._active
            if kind == "packet":
                self._packet_out(pipeline, message.packet)
            elif kind == "digest_ack":
                self._digest_ack(pipeline, message.digest_ack)
            else:
                raise unimplemented(f"stream messages of type {kind or 'none'} are not supported")
        except Exception as error:
            client.send(_stream_error(as_p4runtime(error), kind, message), droppable=True)

    def disconnect(self, client: Client) -> None:
        """A client's stream has ended; idempotent."""
        with self._writing, self._lock:
            self._notify(self._arbitration.disconnect(client))

    # Details

    def _primaries(self) -> list[Client]:
        with self._lock:
            return self._arbitration.primaries()

    def _check_writer(self, request: Any) -> None:
        election_id = _election_id(request)
        with self._lock:
            self._arbitration.check_writer(request.device_id, request.role, election_id)

    def _pipeline(self) -> Pipeline | None:
        """The one that reads and writes refer to."""
        with self._lock:
            return self._saved or self._active

    def _required_pipeline(self) -> Pipeline:
        pipeline = self._pipeline()
        if pipeline is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "no forwarding pipeline has been set")
        return pipeline

    def _verified(self, config: Any) -> Pipeline:
        running = self._active.json if self._active is not None else self._json
        return Pipeline(config, self.options, lambda: self._device.now, running)

    def _commit(self, pipeline: Pipeline) -> None:
        def swap() -> None:
            self._device.replace(pipeline.switch)
            self.notifier.set_pipeline(pipeline)
            with self._lock:
                self._active, self._saved = pipeline, None

        self._device.call(swap)

    def _reconcile(self, pipeline: Pipeline) -> None:
        def swap() -> None:
            if self._active is not None:
                pipeline.adopt(self._active)
            self._commit(pipeline)

        self._device.call(swap)

    def _arbitrate(self, client: Client, message: Any) -> None:
        with self._writing, self._lock:
            notices = self._arbitration.update(
                client,
                message.device_id,
                message.role.name,
                _election_id(message),
                has_config=message.role.HasField("config"),
            )
            self._notify(notices)

    def _notify(self, notices: list[Notice[Client]]) -> None:
        for notice in notices:
            response = p4runtime_pb2.StreamMessageResponse()
            message = response.arbitration
            message.device_id = self._arbitration.device_id
            if notice.role:
                message.role.name = notice.role
            if notice.election_id is not None:
                message.election_id.high = notice.election_id >> 64
                message.election_id.low = notice.election_id & (1 << 64) - 1
            message.status.code = notice.code
            message.status.message = _STATUS_TEXT[notice.code]
            notice.client.send(response)

    def _packet_out(self, pipeline: Pipeline | None, packet: Any) -> None:
        if pipeline is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "no forwarding pipeline has been set")
        if self.options.cpu_port is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "the switch was started without a CPU port")
        self._device.inject(self.options.cpu_port, pipeline.packets.decode_out(packet))

    def _digest_ack(self, pipeline: Pipeline | None, ack: Any) -> None:
        if pipeline is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "no forwarding pipeline has been set")
        self._device.call(lambda: pipeline.entities.digests.acknowledge(ack.digest_id, ack.list_id))


_STATUS_TEXT: Final = {
    Code.OK: "you are the primary",
    Code.ALREADY_EXISTS: "another controller is the primary",
    Code.NOT_FOUND: "there is no primary",
}


def _election_id(message: Any) -> int | None:
    return message.election_id.high << 64 | message.election_id.low if message.HasField("election_id") else None


def _stream_error(error: P4RuntimeError, kind: str | None, message: Any) -> Any:
    response = p4runtime_pb2.StreamMessageResponse()
    found = response.error
    found.canonical_code, found.message = error.code, error.message
    if kind == "packet":
        found.packet_out.packet_out.CopyFrom(message.packet)
    elif kind == "digest_ack":
        found.digest_list_ack.digest_list_ack.CopyFrom(message.digest_ack)
    else:
        found.other.SetInParent()
        if kind == "other":
            found.other.other.CopyFrom(message.other)
    return response


def _log_internal(errors: list[P4RuntimeError | None]) -> None:
    for error in errors:
        if error is not None and error.code is Code.INTERNAL:
            _log.error("a fault of this switch: %s", error.message)
