"""The collectives that the switch does not serve: each goes to the group's inner Gloo group, as its policy says."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
import torch.distributed as dist

from host.pytorch.fallback import Fallback

_Method: TypeAlias = Callable[..., Any]

_REASON: Final = "the switch serves all_reduce only"

# Methods of ProcessGroup by the name that a user knows them by. Torch renamed some; both names are served.
_REDUCTIONS: Final = {
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
}
_NECESSARY: Final = {  # DDP sets itself up with these
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "allgather_coalesced": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
}
_MOVES: Final = {
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
}
_POINT_TO_POINT: Final = {"send": "send", "recv": "recv", "recv_anysource": "recv"}
_UNTOLD: Final = (
    "barrier",
    "monitored_barrier",
    "_end_coalescing",
    "_get_backend",
    "_get_sequence_number_for_group",
    "_set_sequence_number_for_group",
    "_start_coalescing",
    "set_timeout",
)


class GlooCollectives(dist.ProcessGroup):
    """A process group all of whose collectives but all_reduce are those of the group in `_gloo`.

    What reduces is told by every rank, what only moves data by the group's rank 0, send and recv by the rank that calls
    them, and barriers by none.
    """

    _gloo: dist.ProcessGroup
    _fallback: Fallback

    @property
    def _device_types(self) -> list[torch.device]:
        return self._gloo._device_types


def _passed_on(method: str, kind: str | None, *, necessary: bool = False, by_rank_0: bool = False) -> _Method:
    def call(self: GlooCollectives, *args: Any, **kwargs: Any) -> Any:
        if kind is not None:
            self._fallback.passes(f"{kind}: {_REASON}", necessary=necessary, tell=not by_rank_0 or self.rank() == 0)
        return getattr(self._gloo, method)(*args, **kwargs)

    call.__name__ = method
    call.__doc__ = getattr(dist.ProcessGroup, method).__doc__
    return call


def _pass_on(methods: dict[str, str], **how: bool) -> None:
    for method, kind in methods.items():
        if hasattr(dist.ProcessGroup, method):
            setattr(GlooCollectives, method, _passed_on(method, kind, **how))


_pass_on(_REDUCTIONS)
_pass_on(_NECESSARY, necessary=True, by_rank_0=True)
_pass_on(_MOVES, by_rank_0=True)
_pass_on(_POINT_TO_POINT)
for _method in _UNTOLD:
    setattr(GlooCollectives, _method, _passed_on(_method, None))
