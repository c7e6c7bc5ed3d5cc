"""The same requests to our server and to BMv2's: where one takes what the other refuses, it stands here."""

import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from switch.p4runtime.errors import Code
from switch.p4runtime.messages import p4runtime_pb2 as pb
from switch.p4runtime.pipeline import SwitchOptions
from switch.p4runtime.server import P4RuntimeSwitch
from switch.p4runtime.stubs import grpc
from tests.p4_rack import TargetProcess
from tests.p4runtime_client import Client, details_of
from tests.p4runtime_rig import CPU_PORT, DELETE, INSERT, MODIFY, Names, config_of, p4info_of
from tests.p4runtime_samples import BAD_EXACT, exact
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")

# What BMv2 takes though the specification has it refused. Its registers are the other way round, and not among these.
TAKEN_BY_BMV2 = {
    "exact: hdr.probe.key: the byte string is empty",
    "exact: the byte string is empty",
    "exact: is_const",
    "exact: colour are not counted",
    "exact: must not be negative",
    "a range of everything",
    "member 0",
    "group 0",
    "a group of a profile without selector",
    "a meter with excess burst",
    "a port above 511",
    "a translated number that does not fit",
}
REFUSED_BY_BMV2 = {"a modify without action", "all counters of an array", "a register"}


def requests(names: Names) -> Iterator[tuple[str, int, Any]]:
    """(label, type, message), each on its own but for what went well before it."""
    forward = names.action("forward", port=1)
    plain, choice = names.id("action_profiles", "plain"), names.id("action_profiles", "choice")

    def member(number: int, profile: int = plain, action: Any = forward) -> Any:
        return pb.ActionProfileMember(action_profile_id=profile, member_id=number, action=action)

    def group(number: int, *members: tuple[int, int], size: int = 0, profile: int = choice) -> Any:
        found = pb.ActionProfileGroup(action_profile_id=profile, group_id=number, max_size=size)
        for each, weight in members:
            found.members.add(member_id=each, weight=weight)
        return found

    def multicast(number: int, *replicas: Any) -> Any:
        return pb.MulticastGroupEntry(multicast_group_id=number, replicas=replicas)

    for damage, _, text in BAD_EXACT:
        entry = exact(names)
        damage(entry)
        yield f"exact: {text}", INSERT, entry
    for match, priority in (((0, 0), 1), ((3, 1), 1), ((1, 1), 0)):
        yield (
            f"ternary {match} {priority}",
            INSERT,
            names.entry("ternary_t", {"value": match}, forward, priority=priority),
        )
    for prefix in ((0, 0), (0, 49), (1, 8)):
        yield f"lpm {prefix}", INSERT, names.entry("lpm_t", {"dst": prefix}, forward)
    paced = names.action("paced", port=1)
    yield "an empty range", INSERT, names.entry("range_t", {"value": (3, 2), "key": 0}, paced, priority=1)
    yield "a range of everything", INSERT, names.entry("range_t", {"value": (0, 65535), "key": 0}, paced, priority=1)
    yield "a table without key", INSERT, names.entry("flood", {}, names.action("drop"))
    yield "an entry", INSERT, exact(names, 9)
    yield "the same entry", INSERT, exact(names, 9)
    yield "a modify without action", MODIFY, names.entry("exact_t", {"key": 9, "src": 10})
    yield "no entry to modify", MODIFY, exact(names, 5)
    yield "no entry to delete", DELETE, exact(names, 5)
    yield "a default action in an entry", INSERT, exact(names, 6, action=names.action("drop"))

    def default(table: str, action: Any, priority: int = 0) -> Any:
        return names.entry(table, action=action, priority=priority, is_default_action=True)

    yield "another action as default", MODIFY, default("exact_t", names.action("nothing"))
    yield "an inserted default", INSERT, default("exact_t", forward)
    yield "a default with priority", MODIFY, default("exact_t", forward, 1)
    yield "a constant default", MODIFY, default("ternary_t", names.action("drop"))
    yield "an entry of a constant table", INSERT, names.entry("const_t", {"value": (1, 1)}, forward, priority=1)
    yield "member 0", INSERT, member(0)
    yield "a member", INSERT, member(1)
    yield "the same member", INSERT, member(1)
    yield "no member to modify", MODIFY, member(7)
    yield "no member to delete", DELETE, member(7)
    yield "a member with another table's action", INSERT, member(3, action=paced)
    yield "an entry of no member", INSERT, names.entry("plain_t", {"key": 1}, member=9)
    yield "an action where a member is due", INSERT, names.entry("plain_t", {"key": 1}, forward)
    yield "an entry of a member", INSERT, names.entry("plain_t", {"key": 1}, member=1)
    yield "a member in use", DELETE, member(1)
    yield "a member of the selector", INSERT, member(1, choice)
    yield "group 0", INSERT, group(0)
    yield (
        "a group of no member",
        INSERT,
        group(11, (3, 1)),
    )  # BMv2 keeps what it has made of it, so each has a number of its own
    yield "a weight of 0", INSERT, group(12, (1, 0))
    yield "a member twice", INSERT, group(13, (1, 1), (1, 1))
    yield "a group beyond its size", INSERT, group(14, (1, 3), size=2)
    yield "a negative size", INSERT, group(15, size=-1)
    yield "a group of a profile without selector", INSERT, group(2, profile=plain)
    yield "a group", INSERT, group(1, (1, 1), size=2)
    yield "the same group", INSERT, group(1)
    yield "another size", MODIFY, group(1, (1, 1), size=3)
    yield "a member in a group", DELETE, member(1, choice)
    one_shot = names.entry("choice_t", {"key": 1})
    one_shot.action.action_profile_action_set.CopyFrom(names.action_set((forward, 1)))
    yield "a set of actions beside members", INSERT, one_shot
    counter, data = names.id("counters", "by_port"), pb.CounterData(packet_count=1)
    yield "a counter out of range", MODIFY, pb.CounterEntry(counter_id=counter, index=pb.Index(index=8), data=data)
    yield "a counter before the first", MODIFY, pb.CounterEntry(counter_id=counter, index=pb.Index(index=-1), data=data)
    yield "an inserted counter", INSERT, pb.CounterEntry(counter_id=counter, index=pb.Index(index=1), data=data)
    yield "all counters of an array", MODIFY, pb.CounterEntry(counter_id=counter, data=data)
    for label, index, rates in (
        ("rates in the wrong order", 1, pb.MeterConfig(cir=3, pir=1)),
        ("a meter with excess burst", 1, pb.MeterConfig(eburst=1)),
        ("a meter out of range", 9, pb.MeterConfig()),
    ):
        meter = pb.MeterEntry(meter_id=names.id("meters", "by_op"), index=pb.Index(index=index), config=rates)
        yield label, MODIFY, meter
    register = pb.RegisterEntry(register_id=names.id("registers", "last"), index=pb.Index(index=1))
    register.data.bitstring = b"\x01"
    yield "a register", MODIFY, register
    replica = pb.Replica(egress_port=1, instance=1)
    yield "multicast group 0", INSERT, multicast(0)
    yield "a multicast group beyond 16 bits", INSERT, multicast(1 << 16)
    yield "a replica twice", INSERT, multicast(4, replica, replica)
    yield "a replica without port", INSERT, multicast(6, pb.Replica())
    yield "a port above 511", INSERT, multicast(7, pb.Replica(egress_port=600))
    yield "no multicast group to delete", DELETE, multicast(99)
    yield "clone session 0", INSERT, pb.CloneSessionEntry()
    yield "no clone session to delete", DELETE, pb.CloneSessionEntry(session_id=9)
    digest = pb.DigestEntry(digest_id=names.id("digests", "learned_t"))
    yield "no digest to modify", MODIFY, digest
    yield "a digest", INSERT, digest
    yield "the same digest", INSERT, digest
    yield "an extern", INSERT, pb.ExternEntry()
    label = names.action("use_label", label=300)
    yield "a translated number that does not fit", INSERT, exact(names, 8, action=label)
    yield "translated text", INSERT, names.entry("label_t_", {"label": 1, "name": 2}, forward)


def answers(address: str, device: int, names: Names) -> dict[str, Code]:
    found: dict[str, Code] = {}
    with Client(address, device=device) as client:
        client.next("arbitration")
        client.set_pipeline(config_of())
        for label, type_, message in requests(names):
            try:
                client.write((type_, message))
            except grpc.RpcError as error:
                (only,) = details_of(error)
                found[label] = Code(only.canonical_code)
            else:
                found[label] = Code.OK
                if label.startswith("exact: "):
                    client.write(*((DELETE, entry) for entry in client.read(names.entry("exact_t"))))
    return found


def test_both_take_and_refuse_the_same(tmp_path: Path) -> None:
    device, names = secrets.randbelow(1 << 24) + 1, Names(p4info_of())
    with P4RuntimeSwitch(
        {}, address=f"unix:{tmp_path}/model", device_id=device, options=SwitchOptions(cpu_port=CPU_PORT)
    ) as switch:
        ours = answers(switch.address, device, names)
    address = f"unix:{tmp_path}/bmv2"
    options = ("--no-p4", "--device-id", str(device), "--", "--grpc-server-addr", address, "--cpu-port", str(CPU_PORT))
    process = TargetProcess(lambda _: ("simple_switch_grpc", *options))
    try:
        wait_until((tmp_path / "bmv2").exists, "BMv2 does not serve")
        theirs = answers(address, device, names)
    finally:
        process.kill()
    assert ours.keys() == theirs.keys()
    only_theirs = {label for label, code in theirs.items() if code is Code.OK is not ours[label]}
    only_ours = {label for label, code in ours.items() if code is Code.OK is not theirs[label]}
    assert (only_theirs, only_ours) == (TAKEN_BY_BMV2, REFUSED_BY_BMV2)
    assert sum(code is Code.OK for code in ours.values()) > 5
    # BMv2 has few codes of its own; where it names one, it is mostly the same.
    specific = [label for label, code in theirs.items() if code not in (Code.OK, Code.UNKNOWN, Code.UNIMPLEMENTED)]
    same = [label for label in specific if ours[label] is theirs[label]]
    assert len(same) > 0.85 * len(specific), {
        label: (ours[label], theirs[label]) for label in set(specific) - set(same)
    }
