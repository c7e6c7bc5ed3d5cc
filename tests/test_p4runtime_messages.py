import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switch.p4runtime import bytestrings
from switch.p4runtime.errors import Code, P4RuntimeError
from switch.p4runtime.messages import p4data_pb2, p4types_pb2
from switch.p4runtime.messages import p4runtime_pb2 as pb
from switch.p4runtime.p4data import DataCodec
from switch.p4runtime.packets import PacketCodec
from switch.p4runtime.pipeline import unwrapped
from switch.p4runtime.schema import FieldInfo

ROOT = Path(__file__).resolve().parent.parent


# Byte strings: the specification's examples, and all numbers


@pytest.mark.parametrize(
    ("width", "data", "value", "canonical"),
    [
        (8, b"\x63", 99, True),
        (16, b"\x00\x63", 99, False),
        (16, b"\x63", 99, True),
        (16, b"\x30\x64", 12388, True),
        (16, b"\x00\x30\x64", 12388, False),
        (12, b"\x00\x00\x63", 99, False),
        (12, b"\x00", 0, True),
    ],
)
def test_unsigned_examples(width: int, data: bytes, value: int, canonical: bool) -> None:
    assert bytestrings.decode(data, width, "x") == value
    assert (bytestrings.encode(value) == data) is canonical


@pytest.mark.parametrize(
    ("width", "data", "value", "canonical"),
    [
        (8, b"\x63", 99, True),
        (8, b"\x9d", -99, True),
        (8, b"\xff\x9d", -99, False),
        (12, b"\xfd\x1d", -739, True),
        (16, b"\x00\x00", 0, False),
        (16, b"\x00", 0, True),
    ],
)
def test_signed_examples(width: int, data: bytes, value: int, canonical: bool) -> None:
    assert bytestrings.decode_signed(data, width, "x") == value
    assert (bytestrings.encode_signed(value) == data) is canonical


@pytest.mark.parametrize(
    ("width", "data"),
    [
        (8, b"\x01\x63"),
        (8, b""),
        (16, b"\x01\x00\x63"),
        (12, b"\x10\x63"),
        (12, b"\x01\x00\x63"),
        (12, b"\x00\x40\x63"),
    ],
)
def test_unsigned_examples_that_are_out_of_range(width: int, data: bytes) -> None:
    with pytest.raises(P4RuntimeError) as caught:
        bytestrings.decode(data, width, "field x")
    assert caught.value.code is Code.OUT_OF_RANGE
    assert caught.value.message.startswith("field x: ")


@pytest.mark.parametrize(("width", "data"), [(8, b"\x00\x9d"), (12, b"\x8d\x1d"), (16, b"")])
def test_signed_examples_that_are_out_of_range(width: int, data: bytes) -> None:
    with pytest.raises(P4RuntimeError) as caught:
        bytestrings.decode_signed(data, width, "x")
    assert caught.value.code is Code.OUT_OF_RANGE


@given(st.integers(1, 300).flatmap(lambda width: st.tuples(st.just(width), st.integers(0, (1 << width) - 1))))
def test_every_number_comes_back(pair: tuple[int, int]) -> None:
    width, value = pair
    data = bytestrings.encode(value)
    assert bytestrings.decode(data, width, "x") == value
    assert len(data) == 1 or data[0] != 0
    signed = value - (1 << width >> 1)
    data = bytestrings.encode_signed(signed)
    assert bytestrings.decode_signed(data, width, "x") == signed
    if len(data) > 1:  # one byte less would be another number
        assert int.from_bytes(data[1:], "big", signed=True) != signed


# Values of any type


def test_values_of_nested_types() -> None:
    spec = p4types_pb2.P4DataTypeSpec()
    info = p4types_pb2.P4TypeInfo()
    spec.struct.name = "outer"
    bit, signed, flag, enum, new, pair = (info.structs["outer"].members.add().type_spec for _ in range(6))
    bit.bitstring.bit.bitwidth = 9
    signed.bitstring.int.bitwidth = 4
    flag.bool.SetInParent()
    enum.serializable_enum.name = "kind"
    info.serializable_enums["kind"].underlying_type.bitwidth = 8
    new.new_type.name = "port"
    info.new_types["port"].original_type.bitstring.bit.bitwidth = 16
    for _ in range(2):
        pair.tuple.members.add().bitstring.bit.bitwidth = 3
    codec = DataCodec(spec, info, "x")
    assert codec.widths == (9, 4, 1, 8, 16, 3, 3)
    values = (511, 15, 1, 7, 0, 1, 2)
    data = codec.encode(values)
    assert data.struct.members[1].bitstring == b"\xff"
    assert data.struct.members[3].enum_value == b"\x07"
    assert codec.decode(data) == values
    with pytest.raises(P4RuntimeError, match="expected 6 members, got 0"):
        codec.decode(p4data_pb2.P4Data(struct=p4data_pb2.P4StructLike()))


def test_types_that_cannot_be_carried_are_refused_when_they_are_used() -> None:
    spec = p4types_pb2.P4DataTypeSpec()
    spec.header.name = "h"
    codec = DataCodec(spec, p4types_pb2.P4TypeInfo(), "digest d")
    assert codec.widths is None
    with pytest.raises(P4RuntimeError, match="digest d: values of type header are not supported"):
        codec.encode((1,))
    with pytest.raises(P4RuntimeError) as caught:
        codec.check_supported()
    assert caught.value.code is Code.UNIMPLEMENTED


@pytest.mark.parametrize("recursive", [True, False])
def test_types_that_are_not_there_or_contain_themselves(recursive: bool) -> None:
    spec, info = p4types_pb2.P4DataTypeSpec(), p4types_pb2.P4TypeInfo()
    spec.struct.name = "s"
    if recursive:
        info.structs["s"].members.add().type_spec.struct.name = "s"
    with pytest.raises(P4RuntimeError, match="contains itself" if recursive else "type s is not described"):
        DataCodec(spec, info, "x")


# Packets


@given(st.lists(st.integers(1, 40), max_size=6), st.binary(max_size=20), st.randoms())
def test_metadata_are_packed_bit_by_bit(widths: list[int], payload: bytes, random: Any) -> None:
    fields = tuple(FieldInfo(number, f"f{number}", width) for number, width in enumerate(widths, 1))
    codec = PacketCodec(fields, fields)
    message = pb.PacketOut(payload=payload)
    bits = ""
    for field in fields:
        value = random.getrandbits(field.width)
        bits += f"{value:0{field.width}b}"
        message.metadata.add(metadata_id=field.number, value=bytestrings.encode(value))
    packet = codec.decode_out(message)
    size = (len(bits) + 7) // 8
    assert packet == int(bits.ljust(size * 8, "0") or "0", 2).to_bytes(size, "big") + payload
    back = codec.encode_in(packet)
    assert back is not None
    assert (back.payload, list(back.metadata)) == (payload, list(message.metadata))
    if size:
        assert codec.encode_in(packet[: size - 1]) is None


def test_metadata_that_nobody_knows() -> None:
    with pytest.raises(P4RuntimeError, match="no metadata with id 4"):
        PacketCodec(None, None).decode_out(pb.PacketOut(metadata=[pb.PacketMetadata(metadata_id=4)]))


# Device configurations, as p4.tmp.P4DeviceConfig would be serialized


def test_programs_are_unwrapped() -> None:
    program = b' {"program": "x"}'
    assert unwrapped(program) == program
    size = len(program)
    for wrapped in (b"\x1a%c" % size + program, b"\x08\x01\x12\x04\x0a\x02ab\x1a%c" % size + program):
        assert unwrapped(wrapped) == program
    for empty in (b"", b"  \n", b"\x08\x01"):
        assert unwrapped(empty) == b""


@given(st.binary())
def test_no_device_configuration_breaks_it(data: bytes) -> None:
    with suppress(P4RuntimeError):
        assert unwrapped(data) in data


# What p4runtime's wheels contain cannot be imported with protobuf above 3.20


def test_messages_are_rebuilt_where_they_cannot_be_imported() -> None:
    script = """
import importlib, sys
real = importlib.import_module
def refuse(name, *rest):
    if name.startswith("p4.") and name.endswith("_pb2"):
        raise TypeError("Descriptors cannot be created directly.")
    return real(name, *rest)
importlib.import_module = refuse
from switch.p4runtime.messages import p4runtime_pb2, p4info_pb2
from switch.p4runtime.stubs import P4RuntimeStub
assert sys.modules["p4.v1.p4runtime_pb2"] is p4runtime_pb2
entry = p4runtime_pb2.TableEntry(table_id=3, match=[p4runtime_pb2.FieldMatch(field_id=1)])
assert p4runtime_pb2.TableEntry.FromString(entry.SerializeToString()) == entry
assert p4runtime_pb2.Update.INSERT == 1 and p4info_pb2.MatchField.LPM == 3
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env={**os.environ}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
