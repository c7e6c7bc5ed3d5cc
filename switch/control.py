"""Serves the control service: gRPC, in a thread with an event loop of its own."""

import asyncio
import errno
import socket
import threading
from concurrent.futures import Future
from typing import Final

from protocol.constants import MAX_RANKS
from protocol.control import CHANNEL_OPTIONS, format_address
from protocol.control_grpc import add_ControlServicer_to_server, grpc
from protocol.packets import Address
from switch.control_service import ControlService
from switch.dataplane import DataPlane, LeafPlane
from switch.job_events import JobStatus
from switch.tree.relay import RelayService

_STOP_GRACE: Final = 0.5  # seconds that open calls get to end by themselves
_CONTROL_OPTIONS: Final = (
    # gRPC's default lets a second switch on the same port quietly take half of the workers.
    ("grpc.so_reuseport", 0),
    *CHANNEL_OPTIONS,
)


class ControlServer:
    """The control service of one switch.

    Args:
        plane: what the service drives.
        host: local address to listen at; "0.0.0.0" for all.
        port: TCP port; 0 takes a free one.
        max_ranks: the largest world size that it admits, as long as no leaf switch is attached.
    """

    def __init__(self, plane: DataPlane, *, host: str, port: int, max_ranks: int = MAX_RANKS):
        self._service: ControlService | RelayService = ControlService(plane, max_ranks=max_ranks)
        self._wanted = (host, port)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @classmethod
    def for_leaf(cls, plane: LeafPlane, *, host: str, port: int, parent: str) -> "ControlServer":
        """The control service of a leaf switch.

        Args:
            plane, host, port: as for any.
            parent: control address of the switch above, "host:port" or "host" for port 50099.

        Raises:
            ValueError: a malformed address.
        """
        server = cls(plane, host=host, port=port)
        server._service = RelayService(plane, parent)
        return server

    def start(self) -> Address:
        """Begins to serve.

        Returns:
            the address that it listens at.

        Raises:
            OSError: it cannot listen there; the text names the address.
            SwitchUnreachableError, JoinRefusedError: a leaf's parent does not answer, or is of another version.
        """
        if self._thread is not None:
            raise RuntimeError("this control server was started before; make a new one")
        _check_free(self._wanted)
        started: Future[Address] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="wiresum-control", daemon=True
        )
        self._thread.start()
        return started.result()

    def stop(self) -> None:
        """Says goodbye to all workers and ends the service, within about a second; once more, it does nothing."""
        thread, loop, stopping = self._thread, self._loop, self._stopping
        if thread is None or loop is None or stopping is None:
            return
        if not loop.is_closed():
            loop.call_soon_threadsafe(stopping.set)
        thread.join()

    def jobs(self) -> list[JobStatus]:
        """All jobs at this moment, the oldest first; from any thread."""
        return self._service.status

    async def _serve(self, started: "Future[Address]") -> None:
        host, _ = self._wanted
        try:
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            server = grpc.aio.server(options=_CONTROL_OPTIONS)
            add_ControlServicer_to_server(self._service, server)
            port = server.add_insecure_port(format_address(self._wanted))
            if not port:
                raise OSError(errno.EADDRINUSE, f"cannot serve control at {format_address(self._wanted)}")
            await self._service.start((host, port))
            await server.start()
        except Exception as error:
            started.set_exception(error)
            return
        started.set_result((host, port))
        await self._stopping.wait()
        self._service.shutdown()
        await server.stop(_STOP_GRACE)
        await self._service.close()


def _check_free(address: Address) -> None:
    """Raises a clear OSError, where gRPC would write to stderr and say little."""
    host, port = address
    try:
        family, kind, number, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, number) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            probe.listen(1)
    except OSError as error:
        reason = f"cannot serve control at {format_address(address)}: {error.strerror}"
        raise OSError(error.errno, reason) from None
