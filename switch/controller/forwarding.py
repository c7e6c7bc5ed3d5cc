"""Keeps the target's forwarding tables as its digests say."""

import logging
from typing import Any, Final

from protocol.errors import WiresumError
from switch.controller.client import P4RuntimeClient
from switch.controller.learning import Learner, Moved
from switch.controller.program import WiresumProgram

_SPARE: Final = 24  # entries of the tables that stay free, for changes that are under way
_log = logging.getLogger(__name__)


class Forwarding:
    """Makes the target send frames to where their receivers are.

    Args:
        client: the primary controller of the target.
        program: what it runs.
        mac: the switch's own MAC address.
    """

    def __init__(self, client: P4RuntimeClient, program: WiresumProgram, mac: int) -> None:
        self._client, self._program = client, program
        self._learner = Learner(program.hosts - _SPARE, mac)

    def learn(self, digests: Any) -> None:
        """Takes a list of digests, each of which says where a frame's sender is."""
        for item in digests.data:
            mac, port = (int.from_bytes(member.bitstring, "big") for member in item.struct.members)
            moved = self._learner.learn(mac, port)
            if moved is None:
                continue
            try:
                self._apply(moved)
            except WiresumError as error:
                self._learner.forget(mac)  # so that the next digest tries again
                if self._client.failure is None:
                    _log.warning("cannot forward to %s: %s", mac.to_bytes(6, "big").hex(":"), error)
        self._client.acknowledge(digests)

    def _apply(self, moved: Moved) -> None:
        destination, sender = self._program.destination, self._program.sender
        gone = []
        if moved.evicted is not None:
            gone += [destination(*moved.evicted), sender(*moved.evicted)]
        if moved.before is None:
            # A write that failed half-way may have left these.
            gone += [destination(moved.mac, moved.port), sender(moved.mac, moved.port)]
        else:
            gone += [destination(moved.mac, moved.before), sender(moved.mac, moved.before)]
        self._client.delete(gone)
        self._client.insert([destination(moved.mac, moved.port), sender(moved.mac, moved.port)])
