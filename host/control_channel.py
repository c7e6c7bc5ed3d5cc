"""A connection to a switch's control service whose failures are errors of wiresum, never of gRPC."""

import os
import socket
import time
from typing import Final, TypeVar

from host.control_forks import let_go_in_children
from host.control_types import SwitchInfo
from protocol import control_pb2 as pb
from protocol.control import (
    ABOVE,
    CHANNEL_OPTIONS,
    PROTOCOL_VERSION,
    SHUTTING_DOWN,
    STATUS_BY_ERROR,
    connection_patience,
    format_address,
    parse_address,
)
from protocol.control_grpc import ControlStub, grpc
from protocol.errors import ClosedError, JoinRefusedError, SwitchLostError, SwitchUnreachableError, WiresumError
from protocol.packets import Address

CALL_TIMEOUT: Final = 15.0  # seconds for the switch to answer a call that waits for no other worker; links may be lossy
_ERROR_BY_STATUS: Final = {grpc.StatusCode[name]: error for error, name in STATUS_BY_ERROR.items()}
_CLIENT_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    # Otherwise a client inherits the connection of an older one in this process, and its backoff after a failure.
    ("grpc.use_local_subchannel_pool", 1),
    *CHANNEL_OPTIONS,
)
_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


class ControlChannel:
    """A connection that was seen to work, thread-safe. Arguments and errors are those of `ControlClient`.

    Attributes:
        name: the switch's address as the user gave it, for messages.
        address: IP address and port.
        stub: the calls; make them through `call`.
        info: what the switch has to offer.
    """

    def __init__(self, switch: str, timeout: float):
        host, port = parse_address(switch)
        self.name = format_address((host, port))
        self.address = self._probe(host, port, timeout)
        self._process = os.getpid()
        self._closed = False
        self._open()
        let_go_in_children(self)
        try:
            self.info = self._read(self._describe(timeout), host)
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        family = "ipv6" if ":" in self.address[0] else "ipv4"
        self._channel = grpc.insecure_channel(f"{family}:{format_address(self.address)}", options=_CLIENT_OPTIONS)
        self.stub = ControlStub(self._channel)

    def _probe(self, host: str, port: int, timeout: float) -> Address:
        """The IP address and port that accept a connection.

        gRPC would retry behind the caller's back, and say less about what is wrong.
        """
        try:
            with socket.create_connection((host, port), timeout=timeout) as connection:
                address = connection.getpeername()
                return address[0], address[1]
        except TimeoutError:
            reason = f"no answer within {timeout:g} s"
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be encoded for the name service
            reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise SwitchUnreachableError(f"cannot reach the switch's control service at {self.name}: {reason}")

    def _describe(self, timeout: float) -> pb.DescribeReply:
        """The switch's first answer. A connection that does not bring it soon is replaced by a fresh one."""
        details = ""
        for patience, soon in connection_patience(timeout):
            began = time.monotonic()
            answer = self.stub.Describe.future(pb.DescribeRequest(), timeout=patience)
            try:
                # gRPC's own deadline never passes in a child that was forked while its parent used gRPC.
                reply = answer.result(patience + 1)
                if time.monotonic() - began < soon:
                    return reply
            except grpc.FutureTimeoutError:
                raise SwitchUnreachableError(
                    f"cannot reach the switch's control service at {self.name}: gRPC is dead in this process. If it "
                    "was forked from one that was connected to a switch, start it in another way, such as "
                    "multiprocessing's 'spawn', or fork before connecting"
                ) from None
            except grpc.RpcError as error:
                status, details = _status(error)
                if status is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
                details = f"no answer within {timeout:g} s"
            self._channel.close()
            self._open()
        raise SwitchUnreachableError(
            f"{self.name} accepts connections, but does not answer as a switch's control service: {details}"
        )

    def _read(self, reply: pb.DescribeReply, host: str) -> SwitchInfo:
        if reply.protocol_version != PROTOCOL_VERSION:
            raise JoinRefusedError(
                f"the switch at {self.name} speaks protocol version {reply.protocol_version}, and this worker version "
                f"{PROTOCOL_VERSION}: install the same version of wiresum on both"
            )
        data_host = reply.data_host
        if data_host in ("", "0.0.0.0"):
            # It listens at all its addresses: packets go to the one that was good for this connection.
            data_host = self.address[0] if ":" not in self.address[0] else _ipv4(host)
        return SwitchInfo.from_reply(reply, data_host)

    @property
    def usable(self) -> bool:
        """Whether it is open, and was made in this process rather than in one that this was forked from."""
        return not self._closed and os.getpid() == self._process

    def check_usable(self) -> None:
        """Raises ClosedError if it is not usable."""
        if os.getpid() != self._process:
            raise ClosedError("a connection to a switch cannot be used in a forked child; make a new one there")
        if self._closed:
            raise ClosedError(f"the connection to the switch at {self.name} is closed")

    def close(self) -> None:
        """Breaks off all calls."""
        if self.usable:
            self._closed = True
            self._channel.close()

    def in_child(self) -> object:
        """See `host.control_forks`."""
        return self._channel, self.stub

    def call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[_Request, _Reply]",
        request: _Request,
        timeout: float | None = CALL_TIMEOUT,
    ) -> _Reply:
        """Makes a call.

        Args:
            method: of `stub`.
            request: its message.
            timeout: seconds to wait for the answer; None: the switch keeps the deadline, and if the switch is gone,
                keepalive pings find out.

        Raises:
            WiresumError: of the class that fits.
        """
        self.check_usable()
        try:
            return method(request, timeout=timeout)
        except grpc.RpcError as error:
            if timeout is not None and _status(error)[0] is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise WiresumError(f"the switch at {self.name} did not answer within {timeout:g} s") from None
            raise self.translated(error) from None
        except ValueError as error:  # how grpc says that another thread closed the channel
            raise ClosedError(f"the connection to the switch at {self.name} is closed") from error

    def translated(self, error: grpc.RpcError) -> WiresumError:
        """What a failed call means for the user."""
        status, details = _status(error)
        if self._closed:
            return ClosedError(f"the connection to the switch at {self.name} was closed")
        if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
            if details.startswith(ABOVE):
                return SwitchLostError(f"the switch at {self.name} lost {details}")
            what = SHUTTING_DOWN if details == SHUTTING_DOWN else f"went away: {details}"
            return SwitchLostError(f"the switch at {self.name} {what}")
        if status in _ERROR_BY_STATUS:
            return _ERROR_BY_STATUS[status](details)
        if status is grpc.StatusCode.NOT_FOUND:
            return WiresumError(f"the switch at {self.name} does not know this worker any more: {details}")
        return WiresumError(f"the switch at {self.name} answered {status.name}: {details}")


def _status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """Code and text of a failed call."""
    return error.code(), error.details() or ""


def _ipv4(host: str) -> str:
    """The IPv4 address of a host that was reached by IPv6."""
    try:
        return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)[0][4][0])
    except OSError as error:
        raise SwitchUnreachableError(f"{host} has no IPv4 address to send packets to: {error.strerror}") from None
