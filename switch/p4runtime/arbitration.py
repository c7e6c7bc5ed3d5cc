"""Which controller may write: arbitration by election id, for each role (specification, section 5).

A state machine without sockets. Clients are whatever hashable objects the caller uses for its streams.
"""

from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from switch.p4runtime.errors import Code, P4RuntimeError, invalid

MAX_CLIENTS: Final = 256  # of one role; each holds a thread


C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Notice(Generic[C]):
    """What a client is to be told.

    Attributes:
        election_id: the highest that was ever seen; None: none was.
        code: OK: it is the primary; ALREADY_EXISTS: another one is; NOT_FOUND: none is.
    """

    client: C
    role: str
    election_id: int | None
    code: Code


@dataclass(slots=True)
class _Role(Generic[C]):
    highest: int | None = None
    clients: dict[C, int | None] = field(default_factory=dict)

    @property
    def primary(self) -> C | None:
        if self.highest is not None:
            for client, election_id in self.clients.items():
                if election_id == self.highest:
                    return client
        return None


class Arbitration(Generic[C]):
    """The clients of one device. A role is known from the first client that asks for it on; "" is the default."""

    def __init__(self, device_id: int, *, max_clients: int = MAX_CLIENTS) -> None:
        self.device_id = device_id
        self._max_clients = max_clients
        self._roles: dict[str, _Role[C]] = {"": _Role()}
        self._role_of: dict[C, str] = {}

    def update(
        self, client: C, device_id: int, role: str, election_id: int | None, *, has_config: bool = False
    ) -> list[Notice[C]]:
        """A client's MasterArbitrationUpdate; returns whom to tell what, in order.

        Raises:
            P4RuntimeError: the client's stream is to end with this.
        """
        known = self._role_of.get(client)
        if known is None:
            if device_id != self.device_id:
                raise P4RuntimeError(Code.NOT_FOUND, f"there is no device {device_id}; this is device {self.device_id}")
        elif device_id != self.device_id:
            raise P4RuntimeError(
                Code.FAILED_PRECONDITION, f"the stream is for device {self.device_id}, not {device_id}"
            )
        elif role != known:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, f"the stream is for role {known!r}, not {role!r}")
        if has_config:
            raise invalid(f"role {role!r}: this server knows no role configurations; every role may do everything")
        state: _Role[C] = self._roles.get(role) or _Role()
        for other, taken in state.clients.items():
            if other != client and election_id is not None and taken == election_id:
                raise invalid(f"election id {election_id} is in use by another controller of role {role!r}")
        if known is None and len(state.clients) >= self._max_clients:
            raise P4RuntimeError(Code.RESOURCE_EXHAUSTED, f"role {role!r} has {self._max_clients} streams already")
        self._roles[role] = state
        before = state.primary
        state.clients[client] = election_id
        self._role_of[client] = role
        if election_id is not None and (state.highest is None or election_id >= state.highest):
            state.highest = election_id
            others = [self._notice(role, other) for other in state.clients if other != client]
            return [*others, self._notice(role, client)]
        if before == client:
            return [self._notice(role, each) for each in state.clients]
        return [self._notice(role, client)]

    def disconnect(self, client: C) -> list[Notice[C]]:
        """A client's stream has ended; returns whom to tell what."""
        role = self._role_of.pop(client, None)
        if role is None:
            return []
        state = self._roles[role]
        was_primary = state.primary == client
        del state.clients[client]
        return [self._notice(role, each) for each in state.clients] if was_primary else []

    def role_of(self, client: C) -> str | None:
        """A client's role; None before its first update."""
        return self._role_of.get(client)

    def is_primary(self, client: C) -> bool:
        """Whether a client is the primary of its role."""
        role = self._role_of.get(client)
        return role is not None and self._roles[role].primary == client

    def primaries(self) -> list[C]:
        """The primaries of all roles."""
        return [primary for state in self._roles.values() if (primary := state.primary) is not None]

    def check_writer(self, device_id: int, role: str, election_id: int | None) -> None:
        """Refuses writes of anybody but the primary.

        Raises:
            P4RuntimeError: NOT_FOUND, there is no such device or role; PERMISSION_DENIED.
        """
        self.check_device(device_id)
        state = self._roles.get(role)
        if state is None:
            raise P4RuntimeError(Code.NOT_FOUND, f"there is no role {role!r}")
        if state.primary is None:
            raise P4RuntimeError(
                Code.PERMISSION_DENIED, f"role {role!r} has no primary; open a stream and win it first"
            )
        if election_id != state.highest:
            raise P4RuntimeError(
                Code.PERMISSION_DENIED,
                f"election id {election_id} is not the primary's of role {role!r}, {state.highest}",
            )

    def check_device(self, device_id: int) -> None:
        """Refuses requests for other devices.

        Raises:
            P4RuntimeError: NOT_FOUND.
        """
        if device_id != self.device_id:
            raise P4RuntimeError(Code.NOT_FOUND, f"there is no device {device_id}; this is device {self.device_id}")

    def _notice(self, role: str, client: C) -> Notice[C]:
        primary = self._roles[role].primary
        code = Code.NOT_FOUND if primary is None else Code.OK if primary == client else Code.ALREADY_EXISTS
        return Notice(client, role, self._roles[role].highest, code)
