"""Several updates in one request: each for itself, or all or none."""

from typing import Any

import pytest

from switch.p4runtime.errors import BatchError, Code
from switch.p4runtime.messages import p4runtime_pb2 as pb
from tests.p4runtime_rig import DELETE, DEVICE, INSERT, MODIFY, Rig, bits, frame, ports
from tests.p4runtime_samples import code_of, entry, everything_else, fill


@pytest.fixture
def rig() -> Rig:
    return Rig()


# Batches


def test_every_update_has_its_error(rig: Rig) -> None:
    with pytest.raises(BatchError, match="2 of 4 updates failed") as caught:
        rig.write((INSERT, entry(rig, 1)), (INSERT, entry(rig, 1)), (INSERT, entry(rig, 2)), (DELETE, entry(rig, 9)))
    assert [error and error.code for error in caught.value.errors] == [None, Code.ALREADY_EXISTS, None, Code.NOT_FOUND]
    assert caught.value.code is Code.UNKNOWN
    assert len(rig.read(rig.names.entry("exact_t"))) == 2


def test_large_batches_are_carried_out_in_pieces(rig: Rig) -> None:
    entries = [rig.names.entry("lpm_t", {"dst": (i << 40, 16)}, rig.names.action("forward", port=i)) for i in range(64)]
    rig.insert(*entries)
    rig.write(*((MODIFY, each) for each in entries * 4))
    assert rig.read(rig.names.entry("lpm_t")) == entries


def test_updates_without_type_or_entity(rig: Rig) -> None:
    assert rig.refused(0, entry(rig, 1))[0] is Code.INVALID_ARGUMENT
    request = pb.WriteRequest(device_id=DEVICE, election_id=bits(1), updates=[pb.Update(type=INSERT)])
    with pytest.raises(BatchError) as caught:
        rig.service.write(request)
    assert caught.value.errors[0] is not None
    assert caught.value.errors[0].message == "the entity is empty"
    with pytest.raises(BatchError):
        list(rig.service.read(pb.ReadRequest(device_id=DEVICE, entities=[pb.Entity()])))


def test_an_unknown_atomicity(rig: Rig) -> None:
    request = pb.WriteRequest(device_id=DEVICE, election_id=bits(1), atomicity=9)
    assert code_of(lambda: rig.service.write(request)) is Code.INVALID_ARGUMENT


@pytest.mark.parametrize("atomicity", ["ROLLBACK_ON_ERROR", "DATAPLANE_ATOMIC"])
def test_a_batch_that_fails_changes_nothing(rig: Rig, atomicity: str) -> None:
    requests = fill(rig)
    before = rig.read(*requests)
    batch = everything_else(rig)
    with pytest.raises(BatchError) as caught:
        rig.write(*batch, (INSERT, pb.ExternEntry()), (INSERT, entry(rig, 3)), atomicity=atomicity)
    codes = [error and error.code for error in caught.value.errors]
    assert codes == [Code.ABORTED] * len(batch) + [Code.UNIMPLEMENTED, Code.ABORTED]
    assert in_any_order(rig.read(*requests)) == in_any_order(before)
    assert ports(rig.ask(0, frame(5, key=1))) == [4]
    rig.write(*batch, atomicity=atomicity)
    assert in_any_order(rig.read(*requests)) != in_any_order(before)


def test_groups_are_rolled_back_too(rig: Rig) -> None:
    profile = rig.names.id("action_profiles", "choice")
    for number in (1, 2):
        rig.insert(
            pb.ActionProfileMember(
                action_profile_id=profile, member_id=number, action=rig.names.action("forward", port=number)
            )
        )

    def group(number: int, *members: int) -> Any:
        found = pb.ActionProfileGroup(action_profile_id=profile, group_id=number, max_size=4)
        for each in members:
            found.members.add(member_id=each, weight=1, watch_port=b"\x01")
        return found

    rig.insert(group(1, 1), group(2, 2, 1), rig.names.entry("choice_t", {"key": 1}, group=1))
    before = rig.read(pb.ActionProfileGroup(), rig.names.entry("choice_t"))
    with pytest.raises(BatchError):
        rig.write(
            (MODIFY, group(1, 2)),
            (DELETE, group(2)),
            (INSERT, group(3, 1)),
            (MODIFY, rig.names.entry("choice_t", {"key": 1}, group=3)),
            (DELETE, rig.names.entry("choice_t", {"key": 1})),
            (INSERT, pb.ExternEntry()),
            atomicity="ROLLBACK_ON_ERROR",
        )
    assert in_any_order(rig.read(pb.ActionProfileGroup(), rig.names.entry("choice_t"))) == in_any_order(before)
    assert ports(rig.ask(0, frame(6, key=1))) == [1]


def in_any_order(messages: list[Any]) -> list[bytes]:
    return sorted(message.SerializeToString(deterministic=True) for message in messages)
