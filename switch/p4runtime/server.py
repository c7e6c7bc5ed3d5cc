"""A P4Runtime server: gRPC around the service, in front of a switch with its ports."""

import errno
import logging
import queue
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from google.rpc import status_pb2

from protocol.errors import WiresumError
from switch.model.errors import ModelError
from switch.model.interfaces import Port
from switch.model.ports import PortSwitch
from switch.p4runtime.errors import BatchError, Code, P4RuntimeError, as_p4runtime
from switch.p4runtime.messages import p4runtime_pb2
from switch.p4runtime.pipeline import SwitchOptions
from switch.p4runtime.service import P4RuntimeService
from switch.p4runtime.stubs import P4RuntimeServicer, add_P4RuntimeServicer_to_server, grpc

_log = logging.getLogger(__name__)

DEFAULT_ADDRESS: Final = "0.0.0.0:9559"
_MAX_STREAMS: Final = 512
_MAX_THREADS: Final = 2 * _MAX_STREAMS  # made as they are needed
_MAX_WAITING: Final = 8192  # messages for a client that does not read; what may be dropped is from then on
_MAX_DETAILS_BYTES: Final = 7000  # gRPC's clients refuse more than 8 KB of metadata
_STOP_GRACE: Final = 0.2  # seconds that open calls get to end by themselves
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 256 << 20),  # compiled programs can be large
    ("grpc.max_send_message_length", -1),
)
_STATUS: Final = {status.value[0]: status for status in grpc.StatusCode}


@dataclass(frozen=True, slots=True)
class Certificates:
    """For TLS, as PEM. `root` is what clients' certificates are checked against, if `client_auth`."""

    key: bytes
    chain: bytes
    root: bytes | None = None
    client_auth: bool = False


class P4RuntimeSwitch:
    """A programmable switch with ports and a P4Runtime server, serving from construction on; a context manager.

    Args:
        ports: by number; the switch closes them.
        address: "host:port" of the server, where port 0 takes a free one; or "unix:path".
        device_id: what controllers call the switch.
        options: CPU port, drop port and seed.
        certificates: for TLS; None: none.

    Attributes:
        address: with the port that was taken.
        service: what the calls mean; `load` and `run_program` set a pipeline without a controller.
        ports: the thread that moves packets.

    Raises:
        WiresumError: an address that cannot be bound.
    """

    def __init__(
        self,
        ports: Mapping[int, Port],
        *,
        address: str = DEFAULT_ADDRESS,
        device_id: int = 0,
        options: SwitchOptions | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        options = options or SwitchOptions()
        self._closed = False
        self._closing = threading.Event()
        receivers: dict[int, Callable[[bytes], None]] = {}
        if options.cpu_port is not None:
            receivers[options.cpu_port] = self._packet_in
        self.ports = PortSwitch(None, ports, receivers=receivers, after_burst=self._after_burst)
        self.service = P4RuntimeService(self.ports, device_id=device_id, options=options)
        self._servicer = _Servicer(self.service)
        self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="wiresum-p4runtime")
        self._server = grpc.server(self._pool, options=_OPTIONS)
        add_P4RuntimeServicer_to_server(self._servicer, self._server)
        try:
            self.address = self._bind(address, certificates)
            self._server.start()
        except BaseException:
            self._server.stop(None)
            self._pool.shutdown()
            self.ports.close()
            raise
        self._notifier = threading.Thread(target=self._notify, name="wiresum-p4runtime-notifier", daemon=True)
        self._notifier.start()

    @property
    def alive(self) -> bool:
        """Whether packets are still being moved."""
        return self.ports.alive

    def close(self) -> None:
        """Ends all streams and calls, and closes the ports; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self.service.notifier.wake()
        self._servicer.end_all()
        self._server.stop(_STOP_GRACE).wait()
        self._pool.shutdown()
        self._notifier.join()
        self.ports.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _bind(self, address: str, certificates: Certificates | None) -> str:
        host, _, port = address.rpartition(":")
        on_tcp = not address.startswith("unix:")
        if on_tcp:
            if not host or not port.isdecimal() or int(port) > 65535:
                raise WiresumError(f"expected HOST:PORT as address of the P4Runtime server, got {address!r}")
            _check_free(host.strip("[]"), int(port))
        try:
            if certificates is None:
                bound = self._server.add_insecure_port(address)
            else:
                credentials = grpc.ssl_server_credentials(
                    [(certificates.key, certificates.chain)],
                    root_certificates=certificates.root,
                    require_client_auth=certificates.client_auth,
                )
                bound = self._server.add_secure_port(address, credentials)
        except (RuntimeError, ValueError) as error:
            raise WiresumError(f"cannot serve P4Runtime at {address}: {error}") from None
        if not bound:
            raise WiresumError(f"cannot serve P4Runtime at {address}")
        return f"{host}:{bound}" if on_tcp else address

    def _packet_in(self, packet: bytes) -> None:
        self.service.notifier.packet_in(packet)

    def _after_burst(self) -> None:
        try:
            self.service.notifier.after_burst()
        except Exception:  # it would end the thread that moves packets
            _log.exception("digests were lost")

    def _notify(self) -> None:
        wait = 0.0
        while not self._closing.is_set():
            self.service.notifier.wait(wait)
            try:
                wait = self.service.notifier.tick()
            except ModelError:
                return  # the switch has stopped, which its owner sees by `alive`
            except Exception:
                _log.exception("messages to controllers were lost")
                wait = 0.1


class _Stream:
    """A StreamChannel: what waits to be sent. None ends it, an error ends it with a status."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.aborted: P4RuntimeError | None = None
        self._dropped = 0

    def send(self, message: Any, *, droppable: bool = False) -> None:
        if droppable and self.queue.qsize() >= _MAX_WAITING:
            self._dropped += 1
            if self._dropped == 1:
                _log.warning("a controller does not read: packets, digests and time-outs for it are dropped")
            return
        self.queue.put(message)

    def end(self, error: P4RuntimeError | None = None) -> None:
        self.queue.put(error)

    def abort(self, error: P4RuntimeError) -> None:
        """Ends it without what waits."""
        self.aborted = error
        self.queue.put(error)


class _Servicer(P4RuntimeServicer):  # type: ignore[misc]
    def __init__(self, service: P4RuntimeService) -> None:
        self._service = service
        self._streams: set[_Stream] = set()
        self._lock = threading.Lock()

    def end_all(self) -> None:
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.abort(P4RuntimeError(Code.UNAVAILABLE, "the switch is shutting down"))

    def Capabilities(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _answer(self._service.capabilities, request, context)

    def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _answer(self._service.set_pipeline, request, context)

    def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _answer(self._service.get_pipeline, request, context)

    def Write(self, request: Any, context: Any) -> Any:  # noqa: N802
        return _answer(self._service.write, request, context)

    def Read(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        try:
            yield from self._service.read(request)
        except Exception as error:
            _abort(context, error)

    def StreamChannel(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        stream = _Stream()
        with self._lock:
            if len(self._streams) >= _MAX_STREAMS:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"there are {_MAX_STREAMS} streams already")
            self._streams.add(stream)
        context.add_callback(stream.end)
        receiver = threading.Thread(
            target=self._receive, args=(stream, requests), name="wiresum-p4runtime-stream", daemon=True
        )
        receiver.start()
        try:
            while (message := stream.queue.get()) is not None:
                error = stream.aborted or message
                if isinstance(error, P4RuntimeError):
                    _abort(context, error)
                yield message
        finally:
            with self._lock:
                self._streams.discard(stream)
            self._service.disconnect(stream)

    def _receive(self, stream: _Stream, requests: Iterator[Any]) -> None:
        try:
            for message in requests:
                self._service.receive(stream, message)
        except P4RuntimeError as error:
            self._service.disconnect(stream)  # at once, so that nothing more is sent
            stream.end(error)
        except grpc.RpcError:
            pass  # the client has gone
        except Exception as error:
            # gRPC raises a bare Exception when the stream was cancelled.
            if type(error) is not Exception:
                _log.exception("a message of a controller was lost")
        finally:
            stream.end()


def _answer(function: Callable[[Any], Any], request: Any, context: Any) -> Any:
    try:
        return function(request)
    except Exception as error:
        _abort(context, error)


def _abort(context: Any, error: Exception) -> NoReturn:
    known = as_p4runtime(error)
    if known.code is Code.INTERNAL:
        _log.error("a call of a controller failed", exc_info=error)
    if isinstance(known, BatchError):
        context.set_trailing_metadata((("grpc-status-details-bin", _details(known)),))
    context.abort(_STATUS[int(known.code)], known.message)
    raise AssertionError("unreachable")


def _details(error: BatchError) -> bytes:
    """A google.rpc.Status with an Error for each part; texts are left out where they would be too long for gRPC."""
    for with_texts in (True, False):
        status = status_pb2.Status(code=int(error.code), message=error.message)
        for each in error.errors:
            detail = p4runtime_pb2.Error(canonical_code=int(Code.OK if each is None else each.code))
            if each is not None and with_texts:
                detail.message = each.message
            status.details.add().Pack(detail)
        serialized: bytes = status.SerializeToString()
        if len(serialized) <= _MAX_DETAILS_BYTES:
            break
    return serialized


def _check_free(host: str, port: int) -> None:
    """Raises a clear error, where gRPC would write to stderr and say little."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            probe.listen(1)
    except OSError as error:
        reason = error.strerror if error.errno != errno.EADDRINUSE else "the address is in use"
        raise WiresumError(f"cannot serve P4Runtime at {host}:{port}: {reason}") from None
