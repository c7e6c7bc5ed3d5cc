"""In-network aggregation that anyone can run: the public names.

`Communicator` sums numpy arrays through a wiresum switch and needs no torch. The names for PyTorch (`BackendOptions`,
`DDPState`, `ddp_hook`, `register`) load it when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from protocol.errors import (
    ClosedError,
    DisagreementError,
    JoinRefusedError,
    JoinTimeoutError,
    PeerLostError,
    StallError,
    SwitchLostError,
    SwitchUnreachableError,
    WiresumError,
)

if TYPE_CHECKING:
    from host.communicator import Communicator
    from host.handle import Handle
    from host.pytorch.fallback import FallbackForbiddenError, FallbackWarning
    from host.pytorch.hook import DDPState, ddp_hook
    from host.pytorch.options import BackendOptions
    from host.pytorch.registration import register
    from protocol.faults import FaultRates

__all__ = [
    "BackendOptions",
    "ClosedError",
    "Communicator",
    "DDPState",
    "DisagreementError",
    "FallbackForbiddenError",
    "FallbackWarning",
    "FaultRates",
    "Handle",
    "JoinRefusedError",
    "JoinTimeoutError",
    "PeerLostError",
    "StallError",
    "SwitchLostError",
    "SwitchUnreachableError",
    "WiresumError",
    "ddp_hook",
    "register",
]

# What takes time to load, numba or torch, is loaded when it is used: the command line and torch's backend need little.
_LAZY = {
    "BackendOptions": "host.pytorch.options",
    "Communicator": "host.communicator",
    "DDPState": "host.pytorch.hook",
    "FallbackForbiddenError": "host.pytorch.fallback",
    "FallbackWarning": "host.pytorch.fallback",
    "FaultRates": "protocol.faults",
    "Handle": "host.handle",
    "ddp_hook": "host.pytorch.hook",
    "register": "host.pytorch.registration",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
