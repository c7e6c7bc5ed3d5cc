"""The packet as a scapy layer, to craft, dissect and show packets by hand; needs the extra `scapy`.

from protocol.scapy_layer import Wiresum
from scapy.all import rdpcap, sniff
rdpcap("run.pcap")[0][Wiresum].show()
sniff(filter="udp port 48864", prn=lambda packet: packet.summary())
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

from protocol.constants import DATA_PORT, MSG_EXPONENTS, MSG_VALUES, PREFIX_BYTES, VALUES_PER_PACKET, packet_bytes


class Wiresum(Packet):
    """A wiresum packet, from msg_type to the values; what follows is padding, or another packet.

    Captured where segmentation offload is on, one datagram shows several packets of a job back to back: they are layers
    on top of each other, `packet[Wiresum:2]` is the second.

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
        """Keeps what is a whole packet of the same job as the next layer."""
        if len(s) >= PREFIX_BYTES and s[1] == self.job:
            msg_type, values = s[0] >> 4, dict(enumerate(VALUES_PER_PACKET)).get(s[0] & 7)
            if values is not None and (
                msg_type == MSG_EXPONENTS or (msg_type == MSG_VALUES and len(s) >= packet_bytes(values))
            ):
                return s, b""
        return b"", s

    def mysummary(self) -> str:
        """What stands in a line of `summary()`."""
        return self.sprintf("Wiresum %msg_type% job=%job% chunk=%tsi% slot=%slot%")

    def answers(self, other: Any) -> bool:
        """Whether this can be the result for the contribution `other`, as scapy's sr() asks."""
        echoed = ("msg_type", "size", "job", "tsi", "version", "slot")
        return isinstance(other, Wiresum) and all(getattr(self, name) == getattr(other, name) for name in echoed)


bind_layers(UDP, Wiresum, dport=DATA_PORT)
bind_layers(UDP, Wiresum, sport=DATA_PORT)
bind_layers(Wiresum, Wiresum)
