"""gRPC without its fork handlers; everything here imports it as `from protocol.quiet_grpc import grpc`.

The handlers cannot do their work while a stream is open, as ours always is, and say so on stderr at every fork. Nobody
needs them: `host.control_forks` keeps forked children away from gRPC. The variable is read when gRPC is first imported.
"""

import os

_VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"

if _VARIABLE in os.environ:
    import grpc
else:
    os.environ[_VARIABLE] = "0"
    try:
        import grpc
    finally:
        del os.environ[_VARIABLE]

__all__ = ["grpc"]
