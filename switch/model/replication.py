"""Multicast groups and clone sessions: where copies of a packet go."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from switch.model.errors import ExistsError, InvalidError, NotFoundError

Replica = tuple[int, int]  # (port, replication id)

MAX_GROUP: Final = 0xFFFF
MAX_SESSION: Final = 0x7FFF
MAX_PORT: Final = 511  # v1model's ports have nine bits
MAX_RID: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class CloneSession:
    """Where the clones of one session go: a port, a multicast group, replicas of its own, or several of these.

    Attributes:
        port: clones keep the replication id 0.
        group: number of a multicast group, which is looked up for every clone.
        replicas: of the session itself.
        truncate_bytes: clones are cut to this length; 0: not at all.
        class_of_service: kept for the control plane; there are no priorities of queues.
    """

    port: int | None = None
    group: int | None = None
    replicas: tuple[Replica, ...] = ()
    truncate_bytes: int = 0
    class_of_service: int = 0


class Replication:
    """Multicast groups and clone sessions by number. A packet goes to all replicas, also to its ingress port."""

    def __init__(self) -> None:
        self.groups: dict[int, list[Replica]] = {}
        self.clone_sessions: dict[int, CloneSession] = {}

    def insert_group(self, number: int, replicas: Iterable[Replica]) -> None:
        """Adds a group.

        Raises:
            InvalidError: a number is out of range, or a replica stands twice.
            ExistsError: there is one of that number.
        """
        if number in self.groups:
            raise ExistsError(f"multicast group {number} exists already")
        self.set_group(number, replicas)

    def modify_group(self, number: int, replicas: Iterable[Replica]) -> None:
        """Replaces what a group consists of.

        Raises:
            InvalidError: a number is out of range, or a replica stands twice.
            NotFoundError: there is none of that number.
        """
        self._known_group(number)
        self.set_group(number, replicas)

    def set_group(self, number: int, replicas: Iterable[Replica]) -> None:
        """Adds or replaces a group.

        Raises:
            InvalidError: a number is out of range, or a replica stands twice.
        """
        if not 1 <= number <= MAX_GROUP:
            raise InvalidError(f"multicast group {number} is not between 1 and {MAX_GROUP}")
        self.groups[number] = list(_checked(replicas, f"multicast group {number}"))

    def delete_group(self, number: int) -> None:
        """Removes a group.

        Raises:
            NotFoundError: there is none of that number.
        """
        self._known_group(number)
        del self.groups[number]

    def insert_session(self, number: int, session: CloneSession) -> None:
        """Adds a clone session.

        Raises:
            InvalidError: a number is out of range, or a replica stands twice.
            ExistsError: there is one of that number.
        """
        if number in self.clone_sessions:
            raise ExistsError(f"clone session {number} exists already")
        self.set_session(number, session)

    def modify_session(self, number: int, session: CloneSession) -> None:
        """Replaces a clone session.

        Raises:
            InvalidError: a number is out of range, or a replica stands twice.
            NotFoundError: there is none of that number.
        """
        self._known_session(number)
        self.set_session(number, session)

    def set_session(self, number: int, session: CloneSession) -> None:
        """Adds or replaces a clone session.

        Raises:
            InvalidError: a number is out of range, or a replica stands twice.
        """
        where = f"clone session {number}"
        if not 0 <= number <= MAX_SESSION:
            raise InvalidError(f"{where} is not between 0 and {MAX_SESSION}")
        if session.port is not None and not 0 <= session.port <= MAX_PORT:
            raise InvalidError(f"{where}: port {session.port} is not between 0 and {MAX_PORT}")
        if session.group is not None and not 0 <= session.group <= MAX_GROUP:
            raise InvalidError(f"{where}: multicast group {session.group} is not between 0 and {MAX_GROUP}")
        if session.truncate_bytes < 0:
            raise InvalidError(f"{where}: length {session.truncate_bytes} is negative")
        _checked(session.replicas, where)
        self.clone_sessions[number] = session

    def delete_session(self, number: int) -> None:
        """Removes a clone session.

        Raises:
            NotFoundError: there is none of that number.
        """
        self._known_session(number)
        del self.clone_sessions[number]

    def clones(self, number: int) -> list[Replica]:
        """Where clones of a session go, in BMv2's order: replicas and group, then the port. No session: nowhere."""
        session = self.clone_sessions.get(number)
        if session is None:
            return []
        copies = list(session.replicas)
        if session.group is not None:
            copies += self.groups.get(session.group, ())
        if session.port is not None:
            copies.append((session.port, 0))
        return copies

    def reset(self) -> None:
        """Forgets everything."""
        self.groups.clear()
        self.clone_sessions.clear()

    def _known_group(self, number: int) -> None:
        if number not in self.groups:
            raise NotFoundError(f"there is no multicast group {number}")

    def _known_session(self, number: int) -> None:
        if number not in self.clone_sessions:
            raise NotFoundError(f"there is no clone session {number}")


def _checked(replicas: Iterable[Replica], where: str) -> tuple[Replica, ...]:
    known: dict[Replica, None] = {}
    for port, rid in replicas:
        if not 0 <= port <= MAX_PORT:
            raise InvalidError(f"{where}: port {port} is not between 0 and {MAX_PORT}")
        if not 0 <= rid <= MAX_RID:
            raise InvalidError(f"{where}: replication id {rid} is not between 0 and {MAX_RID}")
        if (port, rid) in known:
            raise InvalidError(f"{where}: port {port} with replication id {rid} stands twice")
        known[port, rid] = None
    return tuple(known)
