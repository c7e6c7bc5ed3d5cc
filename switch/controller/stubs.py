"""gRPC and the messages of P4Runtime. They ship no types, so nothing is known of them statically.

gRPC comes by way of the control service's stubs, because its fork handlers must stay off wherever it is imported.
"""

from protocol.control_grpc import grpc

# isort: split
from google.protobuf import text_format
from google.rpc import status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2 as pb
from p4.v1.p4runtime_pb2_grpc import P4RuntimeStub

__all__ = ["P4RuntimeStub", "grpc", "p4info_pb2", "pb", "status_pb2", "text_format"]
