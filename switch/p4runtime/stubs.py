"""gRPC and the stubs of P4Runtime. Nothing else in this package imports gRPC; see `protocol.control_grpc` for why."""

from typing import Any

import switch.p4runtime.messages  # noqa: F401  (the stubs need what it may have to repair)
from protocol.control_grpc import grpc

# isort: split
from p4.v1 import p4runtime_pb2_grpc as _stubs

__all__ = ["P4RuntimeServicer", "P4RuntimeStub", "add_P4RuntimeServicer_to_server", "grpc"]

P4RuntimeServicer: Any = _stubs.P4RuntimeServicer
P4RuntimeStub: Any = _stubs.P4RuntimeStub
add_P4RuntimeServicer_to_server: Any = _stubs.add_P4RuntimeServicer_to_server  # noqa: N816
