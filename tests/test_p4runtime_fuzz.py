"""Damaged requests: refused with a code, or carried out; never a fault of the server."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from switch.p4runtime.errors import BatchError, Code, P4RuntimeError
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import (
    DEVICE,
    INSERT,
    MODIFY,
    Controller,
    Rig,
    bits,
    config_of,
    entity,
    frame,
)
from tests.p4runtime_samples import everything_else, fill

# Built once: what is damaged is only ever one request, and whatever it did stays for the next.
RIG = Rig()
REQUESTS = fill(RIG)
WRITES = [
    pb.Update(type=type_, entity=entity(message)).SerializeToString() for type_, message in everything_else(RIG)
] + [
    pb.Update(type=type_, entity=entity(each)).SerializeToString()
    for each in RIG.read(*REQUESTS)
    for type_ in (INSERT, MODIFY)
]
READS = [entity(message).SerializeToString() for message in REQUESTS]
CONFIG = config_of().SerializeToString()


def damage(original: bytes, edits: list[tuple[int, int]]) -> bytes:
    data = bytearray(original)
    for place, value in edits:
        if value < 256:
            data[place % len(data)] = value
        elif value < 300:
            del data[place % len(data)]
        else:
            data.insert(place % len(data), value - 300)
        if not data:
            break
    return bytes(data)


def parsed(message: Any, data: bytes) -> Any:
    """The message, or None if it is none."""
    try:
        message.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError):
        return None
    return message


def codes_of(function: Callable[[], object]) -> set[Code]:
    """The codes of all errors."""
    try:
        function()
    except BatchError as error:
        return {each.code for each in error.errors if each is not None}
    except P4RuntimeError as error:
        return {error.code}
    return set()


EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 555)), max_size=4)


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(WRITES), EDITS), min_size=1, max_size=3), st.integers(0, 2))
def test_writes(parts: list[tuple[bytes, list[tuple[int, int]]]], atomicity: int) -> None:
    found = [parsed(pb.Update(), damage(original, edits)) for original, edits in parts]
    request = pb.WriteRequest(device_id=DEVICE, election_id=bits(1), atomicity=atomicity)
    request.updates.extend(update for update in found if update is not None)
    assert Code.INTERNAL not in codes_of(lambda: RIG.service.write(request))
    RIG.ask(0, frame(0, key=1))


@settings(max_examples=200)
@given(st.sampled_from(READS), EDITS)
def test_reads(original: bytes, edits: list[tuple[int, int]]) -> None:
    wanted = parsed(pb.Entity(), damage(original, edits))
    if wanted is None:
        return
    request = pb.ReadRequest(device_id=DEVICE, entities=[wanted])
    assert Code.INTERNAL not in codes_of(lambda: list(RIG.service.read(request)))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, len(CONFIG)), st.integers(0, 555)), min_size=1, max_size=3))
def test_pipelines(edits: list[tuple[int, int]]) -> None:
    config = parsed(pb.ForwardingPipelineConfig(), damage(CONFIG, edits))
    if config is None:
        return
    assert codes_of(lambda: RIG.set_pipeline(config, "VERIFY")) <= {Code.INVALID_ARGUMENT}


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_stream_messages(data: bytes) -> None:
    message = parsed(pb.StreamMessageRequest(), data)
    if message is None:
        return
    client = Controller()
    assert Code.INTERNAL not in codes_of(lambda: RIG.service.receive(client, message))
    RIG.service.disconnect(client)
    if message.WhichOneof("update") != "arbitration":
        RIG.service.receive(RIG.primary, message)
