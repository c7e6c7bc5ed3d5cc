"""A P4Runtime client: one target, one connection, no global state, and no reason to end the process.

It becomes the primary controller of its target when it is made and is of no use any more once it is not: then
`failure` says what happened.
"""

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from google.rpc import status_pb2

from protocol.errors import WiresumError
from switch.controller.errors import (
    TargetLostError,
    TargetUnreachableError,
    UnsupportedByTargetError,
    WriteError,
)
from switch.controller.p4info import P4Info
from switch.p4runtime.messages import p4runtime_pb2 as pb
from switch.p4runtime.stubs import P4RuntimeStub, grpc

CALL_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 10.0  # the target may be starting
PIPELINE_SECONDS: Final = 30.0  # a large program takes its time to load
_MAX_MESSAGE: Final = 64 << 20  # bytes; a wildcard read of a large table exceeds gRPC's default of 4 MiB
_CODES: Final = {code.value[0]: code.name for code in grpc.StatusCode}
_SHOWN: Final = 3  # refused updates that a message lists
_log = logging.getLogger(__name__)


class P4RuntimeClient:
    """The primary controller of one target. Thread-safe.

    Args:
        target: "host:port" of its P4Runtime server.
        p4info: of the program that it runs or shall run, for messages.
        device_id: the number that the target was started with.
        election_id: the controller with the highest one is primary.
        on_message: called from a thread of this client with each packet-in, digest list and stream error that arrives;
            must not block.
        on_failure: called from that thread, once, when the target is lost.
        timeout: seconds for the target to answer.

    Raises:
        TargetUnreachableError: no P4Runtime server answers, or it refuses this controller.
    """

    def __init__(
        self,
        target: str,
        p4info: P4Info,
        *,
        device_id: int = 0,
        election_id: int = 1,
        on_message: Callable[[Any], None],
        on_failure: Callable[[WiresumError], None],
        timeout: float = CONNECT_SECONDS,
    ) -> None:
        self.target, self.failure = target, None
        self._p4info, self._device_id, self._election_id = p4info, device_id, pb.Uint128(low=election_id)
        self._on_message, self._on_failure = on_message, on_failure
        self._closed = False
        self._lock = threading.Lock()
        self._primary: Future[None] = Future()
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        options = (("grpc.max_receive_message_length", _MAX_MESSAGE), ("grpc.enable_retries", 0))
        self._channel = grpc.insecure_channel(target, options=options)
        try:
            try:
                grpc.channel_ready_future(self._channel).result(timeout)
            except grpc.FutureTimeoutError:
                raise TargetUnreachableError(f"no P4Runtime server answers at {target} within {timeout:g} s") from None
            self._stub: Any = P4RuntimeStub(self._channel)
            self._stream: Any = self._stub.StreamChannel(iter(self._requests.get, None))
            self._reader = threading.Thread(target=self._read_stream, name="wiresum-p4runtime", daemon=True)
            self._reader.start()
            self._arbitrate(timeout)
        except BaseException:
            self.close()
            raise

    failure: WiresumError | None  # what ended the connection, if it was not `close`

    def set_pipeline(self, device_config: bytes) -> None:
        """Loads the program; all that was in the target's tables and registers is gone.

        Raises:
            ControllerError: the target refuses it.
        """
        request = pb.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=self._election_id,
            action=pb.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=pb.ForwardingPipelineConfig(p4info=self._p4info.message, p4_device_config=device_config),
        )
        self._call(self._stub.SetForwardingPipelineConfig, request, "load the P4 program", PIPELINE_SECONDS)

    def pipeline(self) -> Any:
        """The p4info of the program that the target runs; empty if there is none.

        Raises:
            ControllerError: the target does not say.
        """
        request = pb.GetForwardingPipelineConfigRequest(
            device_id=self._device_id, response_type=pb.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
        )
        return self._call(self._stub.GetForwardingPipelineConfig, request, "say which program it runs").config.p4info

    def insert(self, entities: Sequence[Any]) -> None:
        """Inserts entities.

        Raises:
            WriteError: the target refused some; the others are in.
            ControllerError: it cannot be reached.
        """
        self._write([pb.Update(type=pb.Update.INSERT, entity=entity) for entity in entities])

    def modify(self, entities: Sequence[Any]) -> None:
        """Modifies entities; errors as `insert`."""
        self._write([pb.Update(type=pb.Update.MODIFY, entity=entity) for entity in entities])

    def delete(self, entities: Sequence[Any]) -> None:
        """Deletes entities; those that are not there are no error. Errors as `insert`."""
        try:
            self._write([pb.Update(type=pb.Update.DELETE, entity=entity) for entity in entities])
        except WriteError as error:
            if not error.refused or set(error.refused.values()) != {"NOT_FOUND"}:
                raise

    def read(self, entities: Sequence[Any]) -> list[Any]:
        """Reads entities, all that match if some of their fields are left open.

        Raises:
            UnsupportedByTargetError: the target cannot read these.
            ControllerError: it cannot be reached, or there is no such entity.
        """
        request = pb.ReadRequest(device_id=self._device_id, entities=entities)
        what = f"read {self._p4info.describe(entities[0])}"
        try:
            return [
                entity for response in self._stub.Read(request, timeout=CALL_SECONDS) for entity in response.entities
            ]
        except grpc.RpcError as error:
            raise self._translated(error, what) from None
        except ValueError as error:  # how grpc says that the channel is closed
            raise self._lost(str(error)) from None

    def send(self, payload: bytes, fields: dict[str, int]) -> None:
        """Sends a packet-out."""
        self._requests.put(pb.StreamMessageRequest(packet=self._p4info.packet_out(payload, fields)))

    def acknowledge(self, digests: Any) -> None:
        """Says that a list of digests was dealt with."""
        ack = pb.DigestListAck(digest_id=digests.digest_id, list_id=digests.list_id)
        self._requests.put(pb.StreamMessageRequest(digest_ack=ack))

    def give_up(self, reason: str) -> None:
        """Declares the target lost."""
        self._fail(reason)
        self._stream.cancel()

    def close(self) -> None:
        """Ends the connection; idempotent."""
        with self._lock:
            self._closed = True
        self._requests.put(None)
        self._channel.close()
        reader = getattr(self, "_reader", None)
        if reader is not None and reader is not threading.current_thread():
            reader.join()

    def _arbitrate(self, timeout: float) -> None:
        request = pb.StreamMessageRequest()
        request.arbitration.device_id = self._device_id
        request.arbitration.election_id.CopyFrom(self._election_id)
        self._requests.put(request)
        try:
            self._primary.result(timeout)
        except TimeoutError:
            raise TargetUnreachableError(
                f"the target at {self.target} has not made this controller its primary within {timeout:g} s"
            ) from None

    def _read_stream(self) -> None:
        try:
            for message in self._stream:
                if message.WhichOneof("update") == "arbitration":
                    self._judge(message.arbitration)
                else:
                    self._on_message(message)
            self._fail("it ended the connection")
        except grpc.RpcError as error:
            hint = "" if self._primary.done() else f"; this controller asked with election id {self._election_id.low}"
            self._fail(f"{error.code().name}: {error.details() or 'it says no more'}{hint}")
        except Exception as error:  # a fault of ours or of the target's; without the stream nothing goes on
            _log.exception("the stream of the target at %s was given up", self.target)
            self._fail(f"a message of its could not be dealt with: {error!r}")
        finally:
            self._requests.put(None)  # or gRPC's thread would wait for another request

    def _judge(self, arbitration: Any) -> None:
        """Whether this controller is the primary now."""
        if arbitration.status.code == 0:
            if not self._primary.done():
                self._primary.set_result(None)
            return
        other = arbitration.election_id.high << 64 | arbitration.election_id.low
        if arbitration.status.code == grpc.StatusCode.NOT_FOUND.value[0]:
            self._fail(f"it has had a primary with election id {other}, and takes none with a lower one")
        else:
            self._fail(f"another controller, with election id {other}, is its primary")
        self._stream.cancel()

    def _fail(self, reason: str) -> None:
        with self._lock:
            if self._closed or self.failure is not None:
                return
            started = self._primary.done()
            kind = TargetLostError if started else TargetUnreachableError
            verb = "is lost" if started else "cannot be used"
            self.failure = kind(f"the target at {self.target} {verb}: {reason}")
        if not started:
            self._primary.set_exception(self.failure)
        else:
            self._on_failure(self.failure)

    def _write(self, updates: list[Any]) -> None:
        if not updates:
            return
        request = pb.WriteRequest(device_id=self._device_id, election_id=self._election_id, updates=updates)
        try:
            self._stub.Write(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            verb = pb.Update.Type.Name(updates[0].type).lower()
            if error.code() is grpc.StatusCode.UNKNOWN:  # as P4Runtime has it: the details say it for each update
                raise self._refused(updates, verb, error) from None
            raise self._translated(error, f"{verb} {self._p4info.describe(updates[0].entity)}") from None
        except ValueError as error:  # how grpc says that the channel is closed
            raise self._lost(str(error)) from None

    def _refused(self, updates: list[Any], verb: str, error: Any) -> WriteError:
        refused = {
            position: (_CODES.get(detail.canonical_code, str(detail.canonical_code)), detail.message)
            for position, detail in enumerate(_details(error))
            if detail.canonical_code
        }
        lines = [
            f"{self._p4info.describe(updates[position].entity)}: {code}{f' ({text})' if text else ''}"
            for position, (code, text) in list(refused.items())[:_SHOWN]
            if position < len(updates)
        ]
        more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        what = "; ".join(lines) + more if lines else error.details() or "it says no more"
        message = f"the target at {self.target} did not {verb} {what}"
        return WriteError(message, {position: code for position, (code, _) in refused.items()})

    def _call(self, method: Any, request: Any, what: str, timeout: float = CALL_SECONDS) -> Any:
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            raise self._translated(error, what) from None
        except ValueError as error:  # how grpc says that the channel is closed
            raise self._lost(str(error)) from None

    def _translated(self, error: Any, what: str) -> WiresumError:
        code, details = error.code(), error.details() or "it says no more"
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return UnsupportedByTargetError(f"the target at {self.target} cannot {what}: {details}")
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            return self._lost(details)
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return TargetLostError(f"the target at {self.target} did not answer in time when it was to {what}")
        # What BMv2 says, without a number, when it was started with another one.
        hint = f"; was it started with --device-id {self._device_id}?" if "assign device" in details else ""
        return WriteError(f"the target at {self.target} did not {what}: {code.name}: {details}{hint}", {})

    def _lost(self, details: str) -> WiresumError:
        return self.failure or TargetLostError(f"the target at {self.target} is lost: {details}")


def _details(error: Any) -> list[Any]:
    """The p4.v1.Error of each update, from the trailing metadata."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            found = []
            for wrapped in status_pb2.Status.FromString(value).details:
                detail = pb.Error()
                wrapped.Unpack(detail)
                found.append(detail)
            return found
    return []
