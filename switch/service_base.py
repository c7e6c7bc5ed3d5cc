"""What the control service of a root and that of a leaf have in common."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from protocol import control_pb2 as pb
from protocol.control_grpc import ControlServicer
from switch.dataplane import DataPlane
from switch.job_events import JobStatus
from switch.tree.children import Children

DRAIN_INTERVAL: Final = 0.1  # seconds between looks at jobs that some of their ranks have left
Plane = TypeVar("Plane", bound=DataPlane)
_T = TypeVar("_T")


class ServiceBase(ControlServicer, Generic[Plane]):
    """Calls of the data plane, and the leaf switches below. Lives in one event loop.

    Attributes:
        status: the jobs as displays show them; may be read from other threads.
    """

    def __init__(self, plane: Plane) -> None:
        self.status: list[JobStatus] = []
        self._plane = plane
        # One thread, so that what is asked of the data plane first is done first.
        self._plane_calls = ThreadPoolExecutor(1, thread_name_prefix="wiresum-control-plane")
        self._children = Children(self._leaves_changed)

    def _leaves_changed(self) -> None:
        """A leaf switch has come or gone."""
        raise NotImplementedError

    async def _ask(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._plane_calls, call)

    async def Attach(self, request: pb.AttachRequest, context: Any) -> AsyncIterator[pb.SwitchEvent]:  # noqa: N802
        """See control.proto."""
        async for event in self._children.attach(request):
            yield event

    async def AnswerStall(self, request: pb.StallAnswer, context: Any) -> pb.StallAnswerReply:  # noqa: N802
        """See control.proto."""
        self._children.answer(request)
        return pb.StallAnswerReply()
