"""P4Data, the form in which registers and digests carry values of any P4 type, to and from plain numbers."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from switch.p4runtime import bytestrings
from switch.p4runtime.errors import invalid, unimplemented
from switch.p4runtime.messages import p4data_pb2

_Encode = Callable[[Iterator[int], Any], None]
_Decode = Callable[[Any, list[int]], None]


class DataCodec:
    """The codec for one type.

    Values are flat: the bits of all leaves as unsigned numbers, in the order of the declaration, as the program has
    them. Enumerations without values, and what a header or a union consists of, are refused.

    Attributes:
        widths: bits of each leaf; None if a leaf has none in p4info.

    Raises:
        P4RuntimeError: the type is not in p4info.
    """

    def __init__(self, spec: Any, type_info: Any, where: str) -> None:
        self._type_info, self._where = type_info, where
        self._widths: list[int] = []
        self._refusal: str | None = None
        self._encode, self._decode = self._codec(spec, ())
        self.widths: tuple[int, ...] | None = tuple(self._widths) if all(self._widths) else None

    def check_supported(self) -> None:
        """Refuses a type with a part that cannot be carried.

        Raises:
            P4RuntimeError: UNIMPLEMENTED.
        """
        if self._refusal is not None:
            raise unimplemented(self._refusal)

    def encode(self, values: Sequence[int]) -> Any:
        """A P4Data message of values.

        Raises:
            P4RuntimeError: UNIMPLEMENTED; the type has a part that cannot be carried.
        """
        data = p4data_pb2.P4Data()
        self._encode(iter(values), data)
        return data

    def decode(self, data: Any) -> tuple[int, ...]:
        """The values of a message.

        Raises:
            P4RuntimeError: it is not of this type, or a value does not fit.
        """
        values: list[int] = []
        self._decode(data, values)
        return tuple(values)

    def _codec(self, spec: Any, outer: tuple[str, ...]) -> tuple[_Encode, _Decode]:
        kind = spec.WhichOneof("type_spec")
        if kind == "bitstring":
            return self._bitstring(spec.bitstring)
        if kind == "bool":
            return self._bool()
        if kind == "tuple":
            return self._members("tuple", [self._codec(member, outer) for member in spec.tuple.members])
        if kind == "struct":
            name = spec.struct.name
            if name in outer:
                raise invalid(f"{self._where}: type {name} contains itself")
            found = self._named(self._type_info.structs, name)
            members = [self._codec(member.type_spec, (*outer, name)) for member in found.members]
            return self._members("struct", members)
        if kind == "serializable_enum":
            found = self._named(self._type_info.serializable_enums, spec.serializable_enum.name)
            return self._leaf("enum_value", found.underlying_type.bitwidth)
        if kind == "new_type":
            name = spec.new_type.name
            found = self._named(self._type_info.new_types, name)
            if name in outer:
                raise invalid(f"{self._where}: type {name} contains itself")
            if found.WhichOneof("representation") == "original_type":
                return self._codec(found.original_type, (*outer, name))
            if found.translated_type.WhichOneof("sdn_type") == "sdn_bitwidth":
                return self._leaf("bitstring", found.translated_type.sdn_bitwidth)
            return self._refused(f"type {name} is translated from text (sdn_string)")
        return self._refused(f"values of type {kind} are not supported")

    def _named(self, found: Any, name: str) -> Any:
        if name not in found:
            raise invalid(f"{self._where}: type {name} is not described")
        return found[name]

    def _bitstring(self, spec: Any) -> tuple[_Encode, _Decode]:
        kind = spec.WhichOneof("type_spec")
        if kind == "bit":
            return self._leaf("bitstring", spec.bit.bitwidth)
        if kind == "int":
            return self._signed(spec.int.bitwidth)
        return self._refused("values of type varbit are not supported")

    def _leaf(self, member: str, width: int) -> tuple[_Encode, _Decode]:
        self._widths.append(width)

        def encode(values: Iterator[int], data: Any) -> None:
            setattr(data, member, bytestrings.encode(next(values)))

        def decode(data: Any, values: list[int]) -> None:
            self._expect(data, member)
            values.append(bytestrings.decode(getattr(data, member), width, self._where))

        return encode, decode

    def _signed(self, width: int) -> tuple[_Encode, _Decode]:
        self._widths.append(width)
        modulus = 1 << width

        def encode(values: Iterator[int], data: Any) -> None:
            value = next(values) % modulus
            data.bitstring = bytestrings.encode_signed(value - modulus if value * 2 >= modulus else value)

        def decode(data: Any, values: list[int]) -> None:
            self._expect(data, "bitstring")
            values.append(bytestrings.decode_signed(data.bitstring, width, self._where) % modulus)

        return encode, decode

    def _bool(self) -> tuple[_Encode, _Decode]:
        self._widths.append(1)

        def encode(values: Iterator[int], data: Any) -> None:
            data.bool = bool(next(values))

        def decode(data: Any, values: list[int]) -> None:
            self._expect(data, "bool")
            values.append(int(data.bool))

        return encode, decode

    def _members(self, member: str, codecs: list[tuple[_Encode, _Decode]]) -> tuple[_Encode, _Decode]:
        def encode(values: Iterator[int], data: Any) -> None:
            container = getattr(data, member)
            container.SetInParent()
            for encode_member, _ in codecs:
                encode_member(values, container.members.add())

        def decode(data: Any, values: list[int]) -> None:
            self._expect(data, member)
            given = getattr(data, member).members
            if len(given) != len(codecs):
                raise invalid(f"{self._where}: expected {len(codecs)} members, got {len(given)}")
            for (_, decode_member), each in zip(codecs, given, strict=True):
                decode_member(each, values)

        return encode, decode

    def _refused(self, why: str) -> tuple[_Encode, _Decode]:
        """For types that may stand in p4info, but whose values nobody can be given."""
        self._widths.append(0)
        refusal = self._refusal = f"{self._where}: {why}"

        def refuse(*_: Any) -> None:
            raise unimplemented(refusal)

        return refuse, refuse

    def _expect(self, data: Any, member: str) -> None:
        given = data.WhichOneof("data")
        if given != member:
            raise invalid(f"{self._where}: expected {member}, got {given or 'nothing'}")
