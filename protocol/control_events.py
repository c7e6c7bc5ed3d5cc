"""What the events of a job mean for the rank that reads them."""

from protocol import control_pb2 as pb
from protocol.errors import DisagreementError, JoinRefusedError, PeerLostError, SwitchLostError, WiresumError


def error_of(event: pb.Event) -> WiresumError | None:
    """The error that an event with a reason of its own ends the job with, or None."""
    match event.WhichOneof("event"):
        case "peer_lost":
            return PeerLostError(event.peer_lost.text)
        case "peer_left":
            return PeerLostError(event.peer_left.text)
        case "disagreement":
            return DisagreementError(event.disagreement.text)
        case "refused":
            return JoinRefusedError(event.refused.text)
        case "switch_lost":
            return SwitchLostError(event.switch_lost.text)
    return None
