"""The leaf switches that are attached to a switch. Lives in the event loop of the control service."""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from typing import Final

from protocol import control_pb2 as pb
from protocol.constants import MAX_RANKS, MAX_WORLD
from switch.control_messages import read_slots
from switch.tree.stalls import Account

ACCOUNT_SECONDS: Final = 1.0  # for a leaf to say why a job does not move on, and for those below it a part of that
_log = logging.getLogger(__name__)


class _Query:
    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.accounts: list[Account] = []
        self.done = asyncio.Event()


class Children:
    """Leaf switches by the streams that they keep open, one each.

    Args:
        on_change: called when `max_ranks` may have changed.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._attached: dict[int, tuple[pb.AttachRequest, asyncio.Queue[pb.SwitchEvent | None]]] = {}
        self._queries: dict[int, _Query] = {}

    @property
    def max_ranks(self) -> int:
        """How many ranks can be below this switch."""
        below = sum(request.max_ranks for request, _ in self._attached.values())
        return min(MAX_WORLD, max(0, MAX_RANKS - len(self._attached)) + below)

    async def attach(self, request: pb.AttachRequest) -> AsyncGenerator[pb.SwitchEvent, None]:
        """The stream for a leaf switch, which is known as long as it lasts."""
        events: asyncio.Queue[pb.SwitchEvent | None] = asyncio.Queue()
        before = self._attached.get(request.run)
        self._attached[request.run] = request, events
        if before is not None:
            before[1].put_nowait(None)
        _log.info("leaf switch %s attached, for up to %d workers", request.name, request.max_ranks)
        self._on_change()
        try:
            yield pb.SwitchEvent(attached=pb.Attached())
            while (event := await events.get()) is not None:
                yield event
        finally:
            if self._attached.get(request.run) == (request, events):
                del self._attached[request.run]
                _log.info("leaf switch %s is gone", request.name)
                self._on_change()

    def release(self) -> None:
        """Ends all streams."""
        for _, events in self._attached.values():
            events.put_nowait(None)

    async def accounts(self, job_number: int, seconds: float = ACCOUNT_SECONDS) -> list[Account]:
        """What the leaf switches say about a job, of those that answer in time."""
        if not self._attached:
            return []
        number = secrets.randbits(63)
        query = self._queries[number] = _Query(len(self._attached))
        for _, events in self._attached.values():
            events.put_nowait(pb.SwitchEvent(stall=pb.StallQuery(query=number, job_number=job_number)))
        try:
            async with asyncio.timeout(seconds):
                await query.done.wait()
        except TimeoutError:
            pass
        finally:
            del self._queries[number]
        return query.accounts

    def answer(self, answer: pb.StallAnswer) -> None:
        """A leaf's answer."""
        query = self._queries.get(answer.query)
        if query is None:
            return
        heard = {state.rank: state.last_heard if state.HasField("last_heard") else None for state in answer.heard}
        query.accounts.append(Account(slots=read_slots(answer.slots), heard=heard))
        if len(query.accounts) >= query.expected:
            query.done.set()
