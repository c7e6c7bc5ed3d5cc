from typing import Any

import pytest

from switch.p4runtime.arbitration import Arbitration, Notice
from switch.p4runtime.errors import Code, P4RuntimeError

DEVICE = 3
OK, OTHER, NONE = Code.OK, Code.ALREADY_EXISTS, Code.NOT_FOUND


@pytest.fixture
def clients() -> Arbitration[str]:
    return Arbitration(DEVICE, max_clients=4)


def told(notices: list[Notice[str]]) -> list[tuple[str, int | None, Code]]:
    return [(notice.client, notice.election_id, notice.code) for notice in notices]


def join(clients: Arbitration[str], client: str, election_id: int | None, role: str = "") -> Any:
    return told(clients.update(client, DEVICE, role, election_id))


def test_the_highest_election_id_is_primary(clients: Arbitration[str]) -> None:
    assert join(clients, "a", 5) == [("a", 5, OK)]
    assert join(clients, "b", 3) == [("b", 5, OTHER)]
    assert clients.is_primary("a")
    assert join(clients, "c", 1 << 100) == [("a", 1 << 100, OTHER), ("b", 1 << 100, OTHER), ("c", 1 << 100, OK)]
    assert clients.primaries() == ["c"]


def test_nobody_is_primary_until_somebody_reaches_the_highest_id_again(clients: Arbitration[str]) -> None:
    join(clients, "a", 5)
    join(clients, "b", 3)
    assert told(clients.disconnect("a")) == [("b", 5, NONE)]
    assert clients.primaries() == []
    assert join(clients, "b", 4) == [("b", 5, NONE)]
    assert join(clients, "b", 5) == [("b", 5, OK)]
    assert told(clients.disconnect("x")) == []


def test_a_backup_that_leaves_is_nobodys_concern(clients: Arbitration[str]) -> None:
    join(clients, "a", 5)
    join(clients, "b", 3)
    assert clients.disconnect("b") == []
    assert clients.is_primary("a")


def test_a_primary_can_step_down(clients: Arbitration[str]) -> None:
    join(clients, "a", 5)
    join(clients, "b", 3)
    assert join(clients, "a", 2) == [("a", 5, NONE), ("b", 5, NONE)]


def test_a_primary_that_says_the_same_again_stays(clients: Arbitration[str]) -> None:
    join(clients, "a", 5)
    join(clients, "b", 3)
    assert join(clients, "a", 5) == [("b", 5, OTHER), ("a", 5, OK)]
    assert join(clients, "a", 6) == [("b", 6, OTHER), ("a", 6, OK)]


def test_without_an_election_id_nobody_becomes_primary(clients: Arbitration[str]) -> None:
    assert join(clients, "a", None) == [("a", None, NONE)]
    assert join(clients, "b", None) == [("b", None, NONE)]  # it is no id that could be taken twice
    assert join(clients, "c", 0) == [("a", 0, OTHER), ("b", 0, OTHER), ("c", 0, OK)]


def test_roles_have_primaries_of_their_own(clients: Arbitration[str]) -> None:
    assert join(clients, "a", 5) == [("a", 5, OK)]
    assert join(clients, "b", 5, "digests") == [("b", 5, OK)]
    assert clients.primaries() == ["a", "b"]
    clients.check_writer(DEVICE, "", 5)
    clients.check_writer(DEVICE, "digests", 5)
    assert clients.role_of("b") == "digests"


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (("new", 4, "", 9), Code.NOT_FOUND),
        (("new", DEVICE, "", 5), Code.INVALID_ARGUMENT),
        (("b", DEVICE, "", 5), Code.INVALID_ARGUMENT),
        (("a", 4, "", 5), Code.FAILED_PRECONDITION),
        (("a", DEVICE, "other", 5), Code.FAILED_PRECONDITION),
    ],
)
def test_what_ends_a_stream(clients: Arbitration[str], call: tuple[str, int, str, int], code: Code) -> None:
    join(clients, "a", 5)
    join(clients, "b", 3)
    with pytest.raises(P4RuntimeError) as caught:
        clients.update(*call)
    assert caught.value.code is code
    assert clients.is_primary("a")


def test_role_configurations_are_not_known(clients: Arbitration[str]) -> None:
    with pytest.raises(P4RuntimeError, match="no role configurations") as caught:
        clients.update("a", DEVICE, "x", 1, has_config=True)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_there_is_an_end_to_streams(clients: Arbitration[str]) -> None:
    for number in range(4):
        join(clients, f"client{number}", number)
    with pytest.raises(P4RuntimeError) as caught:
        join(clients, "one more", 9)
    assert caught.value.code is Code.RESOURCE_EXHAUSTED
    join(clients, "other role", 1, "other")


@pytest.mark.parametrize(
    ("device", "role", "election_id", "code"),
    [
        (4, "", 5, Code.NOT_FOUND),
        (DEVICE, "unknown", 5, Code.NOT_FOUND),
        (DEVICE, "", 4, Code.PERMISSION_DENIED),
        (DEVICE, "", 6, Code.PERMISSION_DENIED),
        (DEVICE, "", None, Code.PERMISSION_DENIED),
        (DEVICE, "empty", 7, Code.PERMISSION_DENIED),
    ],
)
def test_only_the_primary_writes(
    clients: Arbitration[str], device: int, role: str, election_id: int | None, code: Code
) -> None:
    join(clients, "a", 5)
    join(clients, "b", 4)
    join(clients, "c", 7, "empty")
    clients.disconnect("c")
    with pytest.raises(P4RuntimeError) as caught:
        clients.check_writer(device, role, election_id)
    assert caught.value.code is code
    clients.check_writer(DEVICE, "", 5)
