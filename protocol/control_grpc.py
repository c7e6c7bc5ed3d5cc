"""gRPC and the stubs of the control service. Nothing else imports gRPC, for its fork handlers must stay off.

They cannot do their work while a stream is open, as ours always is, and say so on stderr at every fork. Nobody needs
them: `host.control_forks` keeps forked children away from gRPC. The variable is read when gRPC is first imported.
"""

import os

_VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"

_ours = _VARIABLE not in os.environ
if _ours:
    os.environ[_VARIABLE] = "0"
try:
    import grpc

    from protocol.control_pb2_grpc import ControlServicer, ControlStub, add_ControlServicer_to_server
finally:
    if _ours:
        del os.environ[_VARIABLE]

__all__ = ["ControlServicer", "ControlStub", "add_ControlServicer_to_server", "grpc"]
