"""The packet as a scapy layer, to craft, dissect and show packets by hand; needs the extra `scapy`.

from protocol.scapy_layer import Wiresum
from scapy.all import IP, UDP, sniff
sniff(filter="udp port 48864", prn=lambda packet: packet[Wiresum].show())
"""

from typing import Any

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    ConditionalField,
    FieldListField,
    IntField,
    SignedByteField,
    SignedIntField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_layers

from protocol.constants import DATA_PORT, MSG_EXPONENTS, MSG_VALUES, VALUES_PER_PACKET


class Wiresum(Packet):
    """A wiresum packet, from msg_type to the values; what follows is padding.

    `pool_index` is shown as its three parts: version, zero and slot. An exponents-only packet has no values. A packet
    that is built takes the values as they are given: their number is not made to fit `size`.
    """

    name = "Wiresum"
    fields_desc = [  # noqa: RUF012  # declared so by scapy
        BitEnumField("msg_type", MSG_VALUES, 4, {MSG_VALUES: "values", MSG_EXPONENTS: "exponents"}),
        BitField("reserved", 0, 1),
        BitEnumField("size", 3, 3, dict(enumerate(f"{values} values" for values in VALUES_PER_PACKET))),
        ByteField("job", 0),
        IntField("tsi", 0),
        BitField("version", 0, 1),
        BitField("zero", 0, 1),
        BitField("slot", 0, 14),
        SignedByteField("e0", 0),
        SignedByteField("e1", 0),
        ConditionalField(
            FieldListField(
                "values",
                None,
                SignedIntField("value", 0),
                # Size 7 stands for nothing.
                count_from=lambda packet: dict(enumerate(VALUES_PER_PACKET)).get(packet.size, 0),
                max_count=VALUES_PER_PACKET[-1],
            ),
            lambda packet: packet.msg_type != MSG_EXPONENTS,
        ),
    ]

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Nothing is layered on top."""
        return b"", s

    def answers(self, other: Any) -> bool:
        """Whether this can be the result for the contribution `other`, as scapy's sr() asks."""
        echoed = ("msg_type", "size", "job", "tsi", "version", "slot")
        return isinstance(other, Wiresum) and all(getattr(self, name) == getattr(other, name) for name in echoed)


bind_layers(UDP, Wiresum, dport=DATA_PORT)
bind_layers(UDP, Wiresum, sport=DATA_PORT)
