"""Between the messages of the control service and the values that the switch works with."""

from collections.abc import Iterable
from typing import Any, NoReturn

from protocol import control_pb2 as pb
from protocol.control import PROTOCOL_VERSION, STATUS_BY_ERROR
from protocol.control_grpc import grpc
from protocol.errors import JoinRefusedError, WiresumError
from switch.admission import JoinWish, SlotBudget
from switch.dataplane import Counter
from switch.job_events import (
    Begin,
    Disagreement,
    Event,
    Explain,
    Goodbye,
    JobStatus,
    PeerLeft,
    PeerLost,
    Refused,
)
from switch.tree.stalls import RankSlot


def read_wish(request: pb.JoinRequest, peer: str) -> JoinWish:
    """The wish in a request; a worker that does not know its own address has the one that it called from.

    Args:
        request: of the worker, or of a leaf switch.
        peer: where gRPC says the call comes from.

    Raises:
        JoinRefusedError: another version of the protocol, or no IPv4 address.
    """
    if request.protocol_version != PROTOCOL_VERSION:
        raise JoinRefusedError(
            f"the switch speaks protocol version {PROTOCOL_VERSION}, the worker version {request.protocol_version}"
        )
    return JoinWish(
        job=request.job,
        rank=request.rank,
        world_size=request.world_size,
        address=(_host(request.udp_host, peer), request.udp_port),
        values=request.values,
        slots=request.slots,
        timeout=request.timeout,
        most_slots=request.most_slots,
        via=(_host(request.via_host, peer), request.via_port) if request.via_port else None,
        room=request.room,
    )


def _host(host: str, peer: str) -> str:
    if host not in ("", "0.0.0.0"):
        return host
    family, _, rest = peer.partition(":")
    if family != "ipv4":
        raise JoinRefusedError(f"the worker called from {peer}, and its packets must come from an IPv4 address")
    return rest.rpartition(":")[0]


def message(event: Event) -> pb.Event:
    """What a watch says."""
    match event:
        case Begin():
            return pb.Event(watching=pb.Watching())
        case Refused(text):
            return pb.Event(refused=pb.Refused(text=text))
        case PeerLost(rank, address, text):
            return pb.Event(peer_lost=pb.PeerLost(rank=rank, address=address, text=text))
        case PeerLeft(rank, address, text):
            return pb.Event(peer_left=pb.PeerLeft(rank=rank, address=address, text=text))
        case Disagreement(text):
            return pb.Event(disagreement=pb.Disagreement(text=text))
        case Explain(collective):
            return pb.Event(explain=pb.ExplainCollective(collective=collective))
        case Goodbye():
            return pb.Event(goodbye=pb.Goodbye())


def is_last(event: pb.Event) -> bool:
    """Whether a watch ends with this event."""
    return event.WhichOneof("event") not in ("watching", "explain")


def write_slots(slots: Iterable[RankSlot]) -> list[pb.StalledSlot]:
    """Stalled slots as messages."""
    return [pb.StalledSlot(slot=one.slot, chunk=one.chunk, seen=one.seen, missing=one.missing) for one in slots]


def read_slots(slots: Iterable[pb.StalledSlot]) -> list[RankSlot]:
    """Stalled slots from messages."""
    return [RankSlot(slot=one.slot, chunk=one.chunk, seen=tuple(one.seen), missing=tuple(one.missing)) for one in slots]


def statistics(jobs: Iterable[JobStatus], counters: Iterable[Counter], budget: SlotBudget) -> pb.StatisticsReply:
    """Jobs and counters."""
    return pb.StatisticsReply(
        jobs=[
            pb.Job(
                name=job.name,
                number=job.number,
                state=job.state,
                world_size=job.world_size,
                joined=job.joined,
                slots=job.slots,
                values=job.values,
            )
            for job in jobs
        ],
        counters=[
            pb.Counter(
                name=counter.name,
                job=counter.job,
                job_number=counter.job_number,
                rank=counter.rank,
                value=counter.value,
            )
            for counter in counters
        ],
        total_slots=budget.total,
        free_slots=budget.free,
    )


async def abort(context: Any, error: WiresumError) -> NoReturn:
    """Ends a call with an error."""
    await context.abort(grpc.StatusCode[STATUS_BY_ERROR.get(type(error), "ABORTED")], str(error))
    raise AssertionError("abort raises")
