"""A leaf switch's connection to the control service of its parent. Lives in the event loop of the leaf's own."""

import asyncio
import os
import socket
import time
from typing import Any, Final, NoReturn

from protocol import control_pb2 as pb
from protocol.control import (
    ABOVE,
    CHANNEL_OPTIONS,
    PROTOCOL_VERSION,
    SHUTTING_DOWN,
    connection_patience,
    format_address,
    parse_address,
)
from protocol.control_grpc import ControlStub, grpc
from protocol.errors import JoinRefusedError, SwitchLostError, SwitchUnreachableError, WiresumError
from protocol.packets import Address
from switch.admission import JoinWish

CALL_SECONDS: Final = 15.0  # for the parent to answer a call that waits for no other rank; links may lose packets
_OPEN_SECONDS: Final = 15.0  # and for each step of connecting
_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", int(_OPEN_SECONDS * 1000)),  # despite its name: how long a connection may take
    ("grpc.max_reconnect_backoff_ms", 1000),
    *CHANNEL_OPTIONS,
)


class Parent:
    """The parent's control service.

    Args:
        address: "host:port", or "host" for port 50099.

    Attributes:
        name: the address, for messages.
        stub: the calls.

    Raises:
        ValueError: a malformed address.
    """

    def __init__(self, address: str) -> None:
        self._host, self._port = parse_address(address)
        self.name = format_address((self._host, self._port))
        self._ip = ""
        self._channel: Any = None
        self.stub: Any = None  # the generated stubs of grpc.aio have no types that the package itself knows

    async def open(self, own: Address) -> None:
        """Connects.

        Args:
            own: where this switch serves control itself.

        Raises:
            SwitchUnreachableError: no control service answers there, or it is this switch's own.
            JoinRefusedError: it speaks another version of the protocol.
        """
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                _, writer = await asyncio.open_connection(self._host, self._port)
            self._ip = writer.get_extra_info("peername")[0]
            writer.close()
        except TimeoutError:
            raise self._unreachable(f"no answer within {_OPEN_SECONDS:g} s") from None
        except OSError as error:
            # asyncio's own text of a refusal repeats the address; a name that is not found has a number below zero.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise self._unreachable(reason.lower()) from None
        if self._port == own[1] and (own[0] == self._ip or (own[0] == "0.0.0.0" and _is_local(self._ip))):
            raise SwitchUnreachableError(
                f"a switch cannot be its own parent: {self.name} is the control address of this one; "
                f"give that of another switch"
            )
        details = ""
        for patience, soon in connection_patience(_OPEN_SECONDS):
            await self.close()
            self._connect()
            began = time.monotonic()
            try:
                await self._describe(patience)
                if time.monotonic() - began < soon:
                    return
            except grpc.aio.AioRpcError as error:
                details = error.details() or error.code().name
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
                details = f"no answer within {_OPEN_SECONDS:g} s"
        reason = "it lost" if details.startswith(ABOVE) else "no control service answers there:"
        raise self._unreachable(f"{reason} {details}")

    def _connect(self) -> None:
        family = "ipv6" if ":" in self._ip else "ipv4"
        target = f"{family}:{format_address((self._ip, self._port))}"
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self.stub = ControlStub(self._channel)

    async def describe(self) -> pb.DescribeReply:
        """What the parent has to offer, with the host that packets must be sent to.

        Raises:
            SwitchLostError: it does not answer.
            JoinRefusedError: it speaks another version of the protocol.
        """
        try:
            return await self._describe(CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise self.lost(error) from None

    async def _describe(self, seconds: float) -> pb.DescribeReply:
        reply: pb.DescribeReply = await self.stub.Describe(pb.DescribeRequest(), timeout=seconds)
        if reply.protocol_version != PROTOCOL_VERSION:
            raise JoinRefusedError(
                f"the parent switch at {self.name} speaks protocol version {reply.protocol_version}, and this switch "
                f"version {PROTOCOL_VERSION}: install the same version of wiresum on both"
            )
        if reply.data_host in ("", "0.0.0.0"):
            reply.data_host = self._ip
        return reply

    async def call(self, method: Any, request: Any) -> Any:
        """Makes a call that waits for no other rank.

        Raises:
            SwitchLostError: the parent does not answer.
            WiresumError: what it says is wrong.
        """
        try:
            return await method(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise self.lost(error) from None
            raise WiresumError(error.details() or "") from None

    def lost(self, error: Any) -> SwitchLostError:
        """What a worker is told when a call fails because the parent is gone; it names the switches on the way."""
        details = error.details() or error.code().name
        if details.startswith(ABOVE):
            return SwitchLostError(f"{ABOVE}, at {self.name}, which lost {details}")
        what = SHUTTING_DOWN if details == SHUTTING_DOWN else f"which went away: {details}"
        return SwitchLostError(f"{ABOVE}, at {self.name}, {what}")

    async def pass_on(self, error: Any, context: Any) -> NoReturn:
        """Ends a call of a worker's as the parent ended the one that was made for it."""
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(self.lost(error)))
        details = error.details() or ""
        if error.code() is grpc.StatusCode.FAILED_PRECONDITION and "switch at" not in details:
            details = f"the parent switch at {self.name}: {details}"
        await context.abort(error.code(), details)
        raise AssertionError("abort raises")

    async def close(self) -> None:
        """Breaks off all calls."""
        if self._channel is not None:
            await self._channel.close()

    def _unreachable(self, reason: str) -> SwitchUnreachableError:
        return SwitchUnreachableError(
            f"cannot reach the parent switch's control service at {self.name}: {reason}; "
            f"start the parent first, and give its control address"
        )


def _is_local(host: str) -> bool:
    """Whether it is an address of this machine."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


def upward(wish: JoinWish, *, via: Address, most_slots: int, room: int) -> pb.JoinRequest:
    """The request with which a leaf switch joins its parent for one of its ranks.

    Args:
        wish: the rank's.
        via: where the leaf sends from.
        most_slots: the largest pool that suits the leaf, where the parent chooses.
        room: the largest that it has room for.
    """
    return pb.JoinRequest(
        protocol_version=PROTOCOL_VERSION,
        job=wish.job,
        rank=wish.rank,
        world_size=wish.world_size,
        udp_host=wish.address[0],
        udp_port=wish.address[1],
        values=wish.values,
        slots=wish.slots,
        timeout=wish.timeout,
        most_slots=min(most_slots, wish.most_slots or most_slots),
        via_host=via[0],
        via_port=via[1],
        room=min(room, wish.room or room),
    )
