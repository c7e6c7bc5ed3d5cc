"""In-network aggregation that anyone can run: the public names.

`Communicator` sums numpy arrays through a wiresum switch and needs no torch. The names for PyTorch (`BackendOptions`,
`DDPState`, `ddp_hook`, `register`) load it when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from host.communicator import Communicator
from host.handle import Handle
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
from protocol.faults import FaultRates

if TYPE_CHECKING:
    from host.pytorch.hook import DDPState, ddp_hook
    from host.pytorch.options import BackendOptions
    from host.pytorch.registration import register

__all__ = [
    "BackendOptions",
    "ClosedError",
    "Communicator",
    "DDPState",
    "DisagreementError",
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

_NEED_TORCH = {
    "BackendOptions": "host.pytorch.options",
    "DDPState": "host.pytorch.hook",
    "ddp_hook": "host.pytorch.hook",
    "register": "host.pytorch.registration",
}


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return getattr(import_module(_NEED_TORCH[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
