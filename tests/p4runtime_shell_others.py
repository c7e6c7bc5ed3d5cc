"""Steps with p4runtime-shell on p4rt_all: action profiles, replication, packets, and what the switch tells."""

import tempfile
import time
from typing import Any

import p4runtime_sh.shell as sh

from tests.p4runtime_shell_tools import Steps, count, entry, exact, frame, nothing_out, out_of, send, value_of

step = Steps()


def member(profile: str, number: int, value: int) -> Any:
    found = sh.ActionProfileMember(f"MyIngress.{profile}")(member_id=number, action="MyIngress.mark")
    found.action["value"] = str(value)
    found.action["port"] = "1"
    return found


@step
def members() -> None:
    member("plain", 1, 100).insert()
    member("plain", 2, 200).insert()
    written = entry("plain_t", None, {"hdr.probe.key": "1"})(member_id=1)
    written.insert()
    send(frame(5, key=1))
    assert value_of(out_of(1)) == 100
    member("plain", 1, 101).modify()
    send(frame(5, key=1))
    assert value_of(out_of(1)) == 101
    written.member_id = 2
    written.modify()
    send(frame(5, key=1))
    assert value_of(out_of(1)) == 200
    (found,) = sh.TableEntry("MyIngress.plain_t").read()
    assert found.member_id == 2
    assert count(sh.ActionProfileMember("MyIngress.plain")) == 2
    written.delete()
    for number in (1, 2):
        member("plain", number, 0).delete()
    assert count(sh.ActionProfileMember("MyIngress.plain")) == 0


@step
def groups() -> None:
    for number in (1, 2):
        member("choice", number, number).insert()
    written = sh.ActionProfileGroup("MyIngress.choice")(group_id=5)
    written.add(1, weight=1).add(2, weight=2)
    written.insert()
    using = entry("choice_t", None, {"hdr.probe.key": "1"})(group_id=5)
    using.insert()
    seen = set()
    for value in range(0, 1 << 16, 0x1357):
        send(frame(6, key=1, value=value))
        seen.add(value_of(out_of(1)))
    assert seen == {1, 2}, seen
    (found,) = sh.ActionProfileGroup("MyIngress.choice").read()
    assert sorted((each.member_id, each.weight) for each in found.members) == [(1, 1), (2, 2)]
    written.clear()
    written.add(2)
    written.modify()
    for value in range(0, 1 << 16, 0x4321):
        send(frame(6, key=1, value=value))
        assert value_of(out_of(1)) == 2
    using.delete()
    written.delete()
    for number in (1, 2):
        member("choice", number, 0).delete()


@step
def one_shots() -> None:
    using = entry("choice_t", None, {"hdr.probe.key": "2"})
    one_shot = sh.Oneshot("MyIngress.choice_t")
    for value in (1, 2):
        action = sh.Action("MyIngress.mark")
        action["value"], action["port"] = str(value), "1"
        one_shot.add(action, weight=value)
    using.oneshot = one_shot
    using.insert()
    seen = set()
    for value in range(0, 1 << 16, 0x1357):
        send(frame(6, key=2, value=value))
        seen.add(value_of(out_of(1)))
    assert seen == {1, 2}, seen
    (found,) = sh.TableEntry("MyIngress.choice_t").read()
    assert [each.weight for each in found.oneshot.actions] == [1, 2]
    using.delete()


@step
def multicast_groups() -> None:
    group = sh.MulticastGroupEntry(4).add(1, 17).add(0, 18)
    group.insert()
    exact("multicast", group="4").insert()
    send(frame(key=1))
    assert (value_of(out_of(1)), value_of(out_of(0))) == (17, 18)
    (found,) = sh.MulticastGroupEntry(4).read()
    assert sorted((each.egress_port, each.instance) for each in found.replicas) == [(0, 18), (1, 17)]
    sh.MulticastGroupEntry(4).add(1, 19).modify()
    send(frame(key=1))
    assert value_of(out_of(1)) == 19
    assert count(sh.MulticastGroupEntry()) == 1
    sh.MulticastGroupEntry(4).delete()
    exact().delete()


@step
def clone_sessions() -> None:
    sh.CloneSessionEntry(7).add(1, 33).insert()
    exact("mirror", port="0").insert()
    send(frame(key=1))
    assert value_of(out_of(1)) == 33
    assert len(out_of(0)) == 60
    sh.CloneSessionEntry(7).delete()
    send(frame(key=1))
    nothing_out(1)
    exact().delete()


@step
def clones_are_cut_to_a_length() -> None:
    session = sh.CloneSessionEntry(9).add(1, 34)
    session.packet_length_bytes = 20
    session.insert()
    sh.CloneSessionEntry(9).delete()


@step
def clone_sessions_are_changed() -> None:
    sh.CloneSessionEntry(7).add(1, 33).insert()
    sh.CloneSessionEntry(7).add(1, 34).modify()
    exact("mirror", port="0").insert()
    send(frame(key=1))
    assert value_of(out_of(1)) == 34
    sh.CloneSessionEntry(7).delete()
    exact().delete()


@step
def clone_sessions_are_read() -> None:
    sh.CloneSessionEntry(8).add(1, 33).insert()
    try:
        (found,) = sh.CloneSessionEntry(8).read()
        assert [(each.egress_port, each.instance) for each in found.replicas] == [(1, 33)]
    finally:
        sh.CloneSessionEntry(8).delete()


@step
def packets_out_and_in() -> None:
    packets = sh.PacketIn()
    sh.PacketOut(frame(value=77), egress_port="1").send()
    assert value_of(out_of(1)) == 77
    exact("to_controller").insert()
    send(frame(key=1, value=3), number=1)
    (found,) = packets.sniff(timeout=1)
    assert found.packet.payload == frame(key=1, value=3)
    assert [each.value for each in found.packet.metadata] == [b"\x01", b"\x05", b"\x00"]
    exact().delete()


@step
def digests() -> None:
    lists = sh.DigestList()
    digest = sh.DigestEntry("learned_t")
    digest.max_timeout_ns, digest.max_list_size, digest.ack_timeout_ns = 10**8, 10, 10**9
    digest.insert()
    exact("learn", port="1").insert()
    send(frame(key=1))
    found = list(lists.sniff(timeout=1))
    assert found, "no digest came"
    members_ = found[0].digest.data[0].struct.members
    assert [each.bitstring for each in members_] == [b"\x0a", b"\x00"]
    exact().delete()
    digest.delete()


@step
def digest_configurations_are_read() -> None:
    digest = sh.DigestEntry("learned_t")
    digest.max_list_size = 10
    digest.insert()
    try:
        (found,) = sh.DigestEntry("learned_t").read()
        assert found._entry is not None
    finally:
        digest.delete()


@step
def idle_timeouts() -> None:
    notices = sh.IdleTimeoutNotification()
    written = entry("lpm_t", "forward", {"hdr.ethernet.dst": "0x0a0000000000/8"}, port="1")
    written.idle_timeout_ns = 10**9
    written.insert()
    found = list(notices.sniff(timeout=3))
    assert found, "no notification came"
    assert found[0].idle_timeout_notification.table_entry[0].table_id == written.id
    (again,) = entry("lpm_t", None, {"hdr.ethernet.dst": "0x0a0000000000/8"}).read()
    assert again.idle_timeout_ns == 10**9, again.idle_timeout_ns
    written.delete()


@step
def time_since_last_hit() -> None:
    written = entry("lpm_t", "forward", {"hdr.ethernet.dst": "0x0a0000000000/8"}, port="1")
    written.idle_timeout_ns = 10**10
    written.insert()
    time.sleep(0.5)
    asked = entry("lpm_t", None, {"hdr.ethernet.dst": "0x0a0000000000/8"})
    asked.time_since_last_hit  # noqa: B018
    (found,) = asked.read()
    assert found.time_since_last_hit.elapsed_ns >= 4 * 10**8, found.time_since_last_hit.elapsed_ns
    written.delete()


def from_text(text: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txtpb") as file:
        file.write(text)
        file.flush()
        sh.Write(file.name)


@step
def registers() -> None:
    """The shell has no objects for registers, but writes them from a file."""
    number = next(each.preamble.id for each in sh.context.p4info.registers if each.preamble.alias == "last")
    update = "updates { type: MODIFY entity { register_entry { register_id: %d index { index: 2 } %s } } }"
    from_text(update % (number, r'data { bitstring: "\x55" }'))
    send(frame(9, key=2))
    assert value_of(out_of(0)) == 0x55


@step
def value_sets() -> None:
    number = next(each.preamble.id for each in sh.context.p4info.value_sets)
    update = "updates { type: MODIFY entity { value_set_entry { value_set_id: %d %s } } }"
    from_text(update % (number, r'members { match { field_id: 1 exact { value: "\x99\x99" } } }'))
    send(frame(kind=0x9999))
    assert out_of(1)[14] == 0xAA
