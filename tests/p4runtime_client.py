"""A P4Runtime client for tests: one channel, one stream, everything that comes in a queue."""

import queue
from types import TracebackType
from typing import Any, Self

from google.rpc import status_pb2

from switch.p4runtime.messages import p4runtime_pb2 as pb
from switch.p4runtime.stubs import P4RuntimeStub, grpc
from tests.p4runtime_rig import DEVICE, bits, entity, updates

TIMEOUT = 20.0


class Client:
    """Opens a stream and asks to be primary, unless there is no election id to ask with."""

    def __init__(self, address: str, election_id: int | None = 1, *, device: int = DEVICE, role: str = "") -> None:
        self.device, self.role, self.election_id = device, role, election_id
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = P4RuntimeStub(self._channel)
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.stream = self.stub.StreamChannel(iter(self._out.get, None))
        self.arbitrate(election_id)

    def arbitrate(self, election_id: int | None) -> None:
        message = pb.StreamMessageRequest()
        message.arbitration.device_id = self.device
        if self.role:
            message.arbitration.role.name = self.role
        if election_id is not None:
            message.arbitration.election_id.CopyFrom(bits(election_id))
        self.send(message)

    def send(self, message: Any) -> None:
        self._out.put(message)

    def next(self, kind: str) -> Any:
        """The next message, which must be of that kind."""
        message = next(self.stream)
        assert message.WhichOneof("update") == kind, message
        return getattr(message, kind)

    def status(self) -> tuple[str, str]:
        """How the stream ends: code and text."""
        try:
            for _ in self.stream:
                pass
        except grpc.RpcError as error:
            return error.code().name, error.details() or ""
        return "OK", ""

    def half_close(self) -> None:
        self._out.put(None)

    def request(self, type_: Any, **fields: Any) -> Any:
        request = type_(device_id=self.device, role=self.role, **fields)
        if self.election_id is not None and "election_id" in type_.DESCRIPTOR.fields_by_name:
            request.election_id.CopyFrom(bits(self.election_id))
        return request

    def set_pipeline(self, config: Any, action: int = pb.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT) -> None:
        request = self.request(pb.SetForwardingPipelineConfigRequest, config=config, action=action)
        self.stub.SetForwardingPipelineConfig(request, timeout=TIMEOUT)

    def write(self, *pairs: tuple[int, Any]) -> None:
        self.stub.Write(self.request(pb.WriteRequest, updates=updates(*pairs)), timeout=TIMEOUT)

    def read(self, message: Any) -> list[Any]:
        request = self.request(pb.ReadRequest, entities=[entity(message)])
        found = []
        for response in self.stub.Read(request, timeout=TIMEOUT):
            found += [getattr(each, each.WhichOneof("entity")) for each in response.entities]
        return found

    def close(self) -> None:
        self._out.put(None)
        self.stream.cancel()
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def details_of(error: Any) -> list[Any]:
    """The p4.v1.Error messages of a failed call."""
    metadata = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    found = []
    for detail in status.details:
        each = pb.Error()
        assert detail.Unpack(each)
        found.append(each)
    return found
