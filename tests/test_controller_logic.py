"""What the controller reckons with, without a target: pools, numbers, diagnosis, learning, ARP, names, replies."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import WiresumError
from switch.controller import program_files
from switch.controller.diagnosis import open_slots, open_slots_by_count
from switch.controller.errors import ControllerError, ProgramError, TargetLostError
from switch.controller.frames import arp_request, read_arp_reply
from switch.controller.learning import Learner, Moved
from switch.controller.p4info import P4Info, decode, encode
from switch.controller.pools import Numbers, PoolSpace
from switch.controller.program import WiresumProgram
from switch.controller.program_files import find
from switch.controller.replies import Replies
from switch.dataplane import StalledSlot
from tests.waiting import wait_until


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=40), st.integers(1, 200))
def test_pools_never_overlap_and_all_come_back(steps: list[tuple[bool, int]], total: int) -> None:
    space = PoolSpace(total)
    taken: dict[int, int] = {}
    for add, number in steps:
        if not add and taken:
            base = sorted(taken)[number % len(taken)]
            space.give_back(base)
            del taken[base]
            continue
        slots = 2**number
        used = {slot for base, size in taken.items() for slot in range(base, base + size)}
        fits = any(used.isdisjoint(range(base, base + slots)) for base in range(0, total - slots + 1, slots))
        if not fits:
            with pytest.raises(ControllerError, match=f"no {slots} slots in a row are free, only {total - len(used)} "):
                space.take(slots)
            continue
        base = space.take(slots)
        assert base % slots == 0
        assert base + slots <= total
        assert used.isdisjoint(range(base, base + slots))
        taken[base] = slots


def test_numbers_rest_before_they_are_used_again() -> None:
    numbers = Numbers(1, 5, "ranks")
    assert numbers.take(2) == (1, 2)
    numbers.give_back((1, 2))
    assert numbers.take(3) == (3, 4, 5)
    assert numbers.take(1) == (1,)
    with pytest.raises(ControllerError, match="2 more ranks are too many: 4 of 5 are in use"):
        numbers.take(2)
    assert numbers.take(1) == (2,)


@given(st.data(), st.integers(0, 3), st.integers(2, 5))
def test_counters_tell_the_same_as_registers_when_nothing_is_lost(data: st.DataObject, power: int, ranks: int) -> None:
    """Every rank has sent its chunks in order, up to a window ahead of the last complete one."""
    slots = 2**power
    complete = data.draw(st.integers(0, 3 * slots))
    sent = [complete + data.draw(st.integers(0, slots)) for _ in range(ranks)]
    sent[0] = complete
    newest = [(slot - slots) % 2**32 for slot in range(slots)]
    seen = [0] * (2 * slots)
    for chunk in range(max(sent)):
        newest[chunk % slots] = chunk
        seen[chunk % slots << 1 | chunk // slots & 1] = sum(1 << r for r in range(ranks) if sent[r] > chunk)
    by_registers = open_slots(newest, seen, [0] * len(seen), ranks)
    assert open_slots_by_count(sent, slots) == by_registers
    assert all(0 in slot.missing for slot in by_registers)


def test_a_slot_of_a_leaf_waits_for_the_parent_until_it_is_final() -> None:
    newest, seen = [0, 1], [3, 0, 3, 0]
    waiting = [StalledSlot(slot=1, chunk=1, seen=(0, 1), missing=())]
    assert open_slots(newest, seen, [1, 0, 0, 0], 2, leaf=True) == waiting
    assert open_slots(newest, seen, [1, 0, 0, 0], 2) == []


def test_a_rank_that_contributed_less_is_missing_whatever_was_lost() -> None:
    assert open_slots_by_count([7, 7], 4) == []
    assert open_slots_by_count([5, 7, 5], 4)[0] == StalledSlot(slot=1, chunk=5, seen=(1,), missing=(0, 2))
    assert len(open_slots_by_count([0, 100], 4)) == 4  # not more than there are
    (beyond,) = open_slots_by_count([2**32, 2**32 + 1], 4)
    assert (beyond.slot, beyond.chunk) == (0, 0)


def test_hosts_are_learned_move_and_make_room() -> None:
    learner = Learner(2, own=0x02AA)
    assert learner.learn(1, 5) == Moved(1, 5, None, None)
    assert learner.learn(1, 5) is None
    assert learner.learn(2, 5) == Moved(2, 5, None, None)
    assert learner.learn(1, 6) == Moved(1, 6, 5, None)
    assert learner.learn(3, 7) == Moved(3, 7, None, (2, 5))
    assert [learner.learn(mac, 1) for mac in (0, 0x02AA, 0x0100_5E00_0001, 0xFFFF_FFFF_FFFF)] == [None] * 4
    learner.forget(3)
    assert learner.learn(3, 7) == Moved(3, 7, None, None)


def test_arp_is_asked_and_answers_are_read() -> None:
    request = arp_request(mac=0x02000A0000FE, address="10.0.0.254", asked="10.0.0.7")
    assert request.hex() == (
        "ffffffffffff" "02000a0000fe" "0806" "0001" "0800" "06" "04" "0001"
        "02000a0000fe" "0a0000fe" "000000000000" "0a000007" + "00" * 18
    )  # fmt: skip
    assert read_arp_reply(request) is None
    reply = bytearray(request[:42])
    reply[21] = 2
    reply[22:28] = bytes.fromhex("0242ac110002")
    reply[28:32] = bytes((10, 0, 0, 7))
    assert read_arp_reply(bytes(reply)) == ("10.0.0.7", 0x0242AC110002)
    for damaged in (b"", bytes(reply[:41]), bytes(reply[:12]) + b"\x08\x00" + bytes(reply[14:])):
        assert read_arp_reply(damaged) is None


@given(st.integers(1, 64), st.data())
def test_numbers_travel_as_canonical_byte_strings(bits: int, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, 2**bits - 1))
    coded = encode(value, bits, "field")
    assert decode(coded) == decode(b"\0" + coded) == value
    assert coded == b"\0" or coded[0]
    with pytest.raises(ProgramError, match=f"field has {bits} bits, which do not hold {2**bits}"):
        encode(2**bits, bits, "field")


@pytest.mark.parametrize("values", [32, 64, 256])
def test_the_compiled_program_is_found_and_understood(values: int) -> None:
    program = WiresumProgram.load(*find(values))
    assert (program.values, program.slots, program.members, program.hosts) == (values, 2048, 1023, 1024)


def test_a_program_that_is_not_there_is_an_error_with_places_and_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ProgramError, match=r"no P4 program for 128 values .*compiled or .*wiresum/p4.*for 32, 64, 256"):
        find(128)
    monkeypatch.setattr(program_files, "__file__", str(tmp_path / "a" / "b" / "c.py"))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    with pytest.raises(ProgramError, match="there is none at all"):
        find(64)
    place = tmp_path / "share" / "wiresum" / "p4"
    place.mkdir(parents=True)
    wanted = place / "wiresum_64.json", place / "wiresum_64.p4info.txtpb"
    for file in wanted:
        file.touch()
    assert find(64) == wanted


def test_files_of_another_program_are_refused(tmp_path: Path) -> None:
    json, p4info = find(64)
    other = tmp_path / "other.txtpb"
    with pytest.raises(ProgramError, match=r"cannot read .*other\.txtpb: No such file"):
        WiresumProgram.load(json, other)
    for text, message in (
        ("tables {", "is not a p4info in text form"),
        ("", "has no WiresumIngress.slots.newest among its registers: it is not of the wiresum P4 program"),
        (p4info.read_text().replace("slots.values.", "sums."), "has 0 values per packet"),
    ):
        other.write_text(text)
        with pytest.raises(ProgramError, match=message):
            WiresumProgram.load(json, other)
    other.write_bytes(b"\xff\xfe")
    with pytest.raises(ProgramError, match="is not a p4info in text form"):
        WiresumProgram.load(json, other)


def test_entities_are_described_by_their_names() -> None:
    _, path = find(64)
    info = P4Info(path.read_text(), name="p4info")
    entry = info.entry(
        "WiresumIngress.forwarding.senders", {"hdr.ethernet.src": 0x0242AC110002, "standard_metadata.ingress_port": 3}
    )
    assert info.describe(entry) == (
        "table WiresumIngress.forwarding.senders, "
        "entry hdr.ethernet.src=02:42:ac:11:00:02 standard_metadata.ingress_port=3"
    )
    assert info.describe(info.entry("WiresumIngress.workers", {})) == "table WiresumIngress.workers, all entries"
    assert info.describe(info.register("WiresumIngress.slots.seen", 3)) == "register WiresumIngress.slots.seen"
    assert info.describe(info.digest("learned_t")) == "digest learned_t"


def test_replies_reach_those_who_wait() -> None:
    replies = Replies()
    asked: list[str] = []

    def ask(key: str) -> None:
        asked.append(key)
        if key == "a" or (key == "b" and asked.count(key) == 3):
            replies.post(key, key.upper())

    replies.post("b", "too early")
    assert replies.ask(["a", "b"], ask, every=0.01, within=10) == {"a": "A", "b": "B"}
    assert asked == ["a", "b", "b", "b"]
    assert replies.ask(["a", "c"], ask, every=0.01, within=0.03) == {"a": "A"}
    replies.post("c", "too late")


def test_who_waits_for_replies_is_told_that_none_will_come() -> None:
    replies = Replies()
    asked: list[str] = []
    raised: list[WiresumError] = []

    def wait() -> None:
        try:
            replies.ask(["a"], asked.append, every=60, within=60)
        except WiresumError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: asked, "nobody was asked")
    replies.fail(TargetLostError("gone"))
    waiting.join(10)
    assert not waiting.is_alive()
    assert str(raised[0]) == "gone"
    with pytest.raises(TargetLostError):
        replies.ask(["a"], asked.append, every=1, within=1)
