"""What both ends of the control service agree on besides its messages."""

import math
from collections.abc import Iterator
from typing import Final

from protocol.constants import CONTROL_PORT
from protocol.errors import JoinRefusedError, JoinTimeoutError, PeerLostError, SwitchLostError, WiresumError
from protocol.packets import Address

PROTOCOL_VERSION: Final = 1  # both ends must have the same; raise it when PROTOCOL.md or control.proto changes meaning

# Names of the gRPC status as which the switch's errors travel; the details of the status are the text.
STATUS_BY_ERROR: Final[dict[type[WiresumError], str]] = {
    JoinRefusedError: "FAILED_PRECONDITION",
    JoinTimeoutError: "DEADLINE_EXCEEDED",
    PeerLostError: "ABORTED",
    SwitchLostError: "UNAVAILABLE",
}
SHUTTING_DOWN: Final = "is shutting down"  # details of an UNAVAILABLE that the switch itself sent
ABOVE: Final = "the switch above it"  # with this begin the details of an UNAVAILABLE that a leaf switch sent

# A killed process closes its connection, which the other end sees at once. Only a host that vanishes needs pings: it
# counts as lost PING_INTERVAL + PING_TIMEOUT seconds later at most. A process that was merely stopped, by a signal or a
# debugger, must get away with it for five seconds, so the second of them is well above that.
PING_INTERVAL: Final = 2.0
PING_TIMEOUT: Final = 8.0

_FIRST_PATIENCE: Final = 3.0
# TCP repeats a lost SYN after a second, takes that second for the round trip, and waits for three of them whenever it
# loses a packet later. So a connection that took as long for its first answer is replaced, too.
_SOON: Final = 0.9

CHANNEL_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", round(PING_INTERVAL * 1000)),
    ("grpc.keepalive_timeout_ms", round(PING_TIMEOUT * 1000)),
    ("grpc.http2.ping_timeout_ms", round(PING_TIMEOUT * 1000)),  # a minute otherwise, and it is this one that counts
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # By default a peer that pings this often is cut off.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", round(PING_INTERVAL * 500)),
)


def connection_patience(seconds: float) -> Iterator[tuple[float, float]]:
    """How long to wait for the first answer on one fresh connection after the other, within so many seconds in all.

    And in how many seconds it must come for the connection to be kept: on the last, whenever it comes.

    TCP waits for seconds before it repeats the first data of a connection whose opening lost a packet (RFC 6298,
    section 5.7). Where that gets lost as well, a fresh connection is faster.
    """
    patience = _FIRST_PATIENCE
    while seconds >= 2 * patience:
        yield patience, _SOON
        seconds -= patience
        patience *= 2
    yield seconds, math.inf


def format_address(address: Address) -> str:
    """`host:port`, with the brackets that an IPv6 address needs."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> Address:
    """Reads `host`, `host:port` or `[IPv6 address]:port`; without a port it is 50099.

    Raises:
        ValueError: the text is none of these, or the port is not from 1 to 65535.
    """
    host, bracket, rest = text.strip().rpartition("]")
    if bracket:
        host, colon, port = host.removeprefix("["), rest[:1], rest[1:]
        well_formed = text.strip().startswith("[") and colon in ("", ":")
    else:
        host, colon, port = rest.partition(":")
        well_formed = ":" not in port and "[" not in host
    number = int(port) if port.isascii() and port.isdigit() else 0
    if not colon and not port:
        number = CONTROL_PORT
    if not host or not well_formed or any(c.isspace() or c == "/" for c in host) or not 0 < number < 65536:
        raise ValueError(f"the switch's address must be HOST or HOST:PORT, with a port from 1 to 65535, not {text!r}")
    return host, number
