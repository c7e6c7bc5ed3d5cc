"""Packets to and from the controller: the metadata are a header in front of the packet at the CPU port."""

from typing import Any

from switch.p4runtime import bytestrings
from switch.p4runtime.errors import invalid
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.schema import FieldInfo


class PacketCodec:
    """Both directions, for what p4info says of packet_in and packet_out; None: no metadata.

    Fields stand side by side in the order of p4info, and zeros fill up the last byte, as BMv2 has it.
    """

    def __init__(self, packet_in: tuple[FieldInfo, ...] | None, packet_out: tuple[FieldInfo, ...] | None) -> None:
        self._in, self._out = packet_in or (), packet_out or ()
        self._in_bits = sum(field.width for field in self._in)
        self._out_bits = sum(field.width for field in self._out)

    def decode_out(self, message: Any) -> bytes:
        """The packet that the program gets for a PacketOut message.

        Raises:
            P4RuntimeError: metadata are missing, unknown, given twice, or do not fit.
        """
        given: dict[int, bytes] = {}
        for metadata in message.metadata:
            if metadata.metadata_id in given:
                raise invalid(f"packet_out: metadata {metadata.metadata_id} stand twice")
            given[metadata.metadata_id] = metadata.value
        header = 0
        for field in self._out:
            where = f"packet_out: {field.name}"
            field.check_number(where)
            if field.number not in given:
                raise invalid(f"{where} (id {field.number}) is missing")
            header = header << field.width | bytestrings.decode(given.pop(field.number), field.width, where)
        if given:
            raise invalid(f"packet_out: there are no metadata with id {next(iter(given))}")
        size = (self._out_bits + 7) // 8
        return (header << size * 8 - self._out_bits).to_bytes(size, "big") + bytes(message.payload)

    def encode_in(self, packet: bytes) -> Any | None:
        """The PacketIn message for what left by the CPU port; None if it is shorter than the metadata."""
        size = (self._in_bits + 7) // 8
        if len(packet) < size:
            return None
        header = int.from_bytes(packet[:size], "big") >> size * 8 - self._in_bits
        message = p4runtime_pb2.PacketIn(payload=packet[size:])
        left = self._in_bits
        for field in self._in:
            left -= field.width
            value = header >> left & (1 << field.width) - 1
            message.metadata.add(metadata_id=field.number, value=bytestrings.encode(value))
        return message
