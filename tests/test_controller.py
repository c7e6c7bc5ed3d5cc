"""The data plane on a P4Runtime target: what it writes, and that nothing is left of what failed."""

import ipaddress
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from protocol.errors import WiresumError
from protocol.packets import Address
from switch.controller.errors import ControllerError, ProgramError, TargetLostError, TargetUnreachableError
from switch.controller.p4switch import P4Switch
from switch.controller.program import EVENTS, event_index
from switch.dataplane import JobSpec, StalledSlot
from tests.fake_target import PROGRAM, FakeTarget, fake_target, name_of
from tests.waiting import wait_until

OWN_MAC = 0x02000A0000FE
WORKERS: tuple[Address, ...] = (("10.0.0.1", 4001), ("10.0.0.2", 4002), ("10.0.0.2", 4003))


@pytest.fixture
def target() -> Iterator[FakeTarget]:
    with fake_target() as made:
        made.hosts = {"10.0.0.1": (0x020000000001, 3), "10.0.0.2": (0x020000000002, 4)}
        yield made


def connect(target: FakeTarget, **options: Any) -> P4Switch:
    return P4Switch(target.address, PROGRAM, address="10.0.0.254", mac=OWN_MAC, ports=range(5), **options)


@pytest.fixture
def switch(target: FakeTarget) -> Iterator[P4Switch]:
    with closing(connect(target)) as made:
        yield made


def spec(number: int = 7, *, workers: tuple[Address, ...] = WORKERS, slots: int = 16) -> JobSpec:
    return JobSpec(number=number, name=f"job {number}", slots=slots, values=64, workers=workers)


def worker(address: Address) -> str:
    """Key of a worker's entry."""
    return f"workers {int(ipaddress.IPv4Address(address[0]))} {address[1]}"


def state(target: FakeTarget) -> set[str]:
    return set(target.entries)


def test_the_switch_is_given_the_program_its_address_and_ports(target: FakeTarget, switch: P4Switch) -> None:
    assert target.pipeline.p4_device_config == PROGRAM.device_config
    number = int(ipaddress.IPv4Address("10.0.0.254"))
    assert state(target) == {f"own_arp {number}", f"own_address {number}", "group 1", "digest"}
    assert target.params(f"own_arp {number}") == target.params(f"own_address {number}") == [OWN_MAC]
    assert target.replicas(1) == [(port, 0) for port in range(5)]
    assert switch.address == ("10.0.0.254", 48864)
    assert switch.total_slots == 2048 * 64 // 256
    assert switch.values_supported == (64,)
    assert switch.default_slots == 16


def test_a_job_is_installed_and_removed(target: FakeTarget, switch: P4Switch) -> None:
    before = state(target)
    switch.add_job(spec())
    assert target.clears == [(0, 16)]
    assert target.replicas(9) == [(3, 1), (4, 2), (4, 3)]
    for rank, address in enumerate(WORKERS):
        mac, port = target.hosts[address[0]]
        assert target.params(worker(address))[:8] == [rank + 1, 7, 1 << rank, 3, 0, 16, 9, port]
        assert target.params(f"members {rank + 1}")[:3] == [mac, int(ipaddress.IPv4Address(address[0])), address[1]]
    assert set(target.asked) == {"10.0.0.1", "10.0.0.2"}
    switch.remove_job(7)
    assert state(target) == before
    switch.remove_job(7)
    assert switch.stalled(7) == []
    assert switch.last_heard(7) == []


def test_pools_and_members_of_jobs_are_their_own(target: FakeTarget, switch: P4Switch) -> None:
    addresses: tuple[tuple[Address, ...], ...] = tuple((("10.0.0.1", 4000 + i),) for i in range(4))
    for number, slots in enumerate((16, 64, 16, 32)):
        switch.add_job(spec(number, workers=addresses[number], slots=slots))
    assert target.clears == [(0, 16), (64, 64), (16, 16), (32, 32)]
    assert [target.params(worker(one))[0] for (one,) in addresses] == [1, 2, 3, 4]
    switch.remove_job(1)
    switch.add_job(spec(5, workers=addresses[1], slots=64))
    assert target.clears[-1] == (64, 64)
    assert target.params(worker(addresses[1][0]))[0] == 5  # member 2 rests


def test_a_newer_job_takes_the_address_of_a_rank_that_left(target: FakeTarget, switch: P4Switch) -> None:
    switch.add_job(spec(7))
    target.received[worker(WORKERS[0])] = (100, 100 * 308)
    switch.add_job(spec(8, workers=WORKERS[:1]))
    assert target.params(worker(WORKERS[0]))[1] == 8
    received = {(c.job_number, c.rank): c.value for c in switch.statistics() if c.name == "received"}
    assert received == {(7, 0): 100, (7, 1): 0, (7, 2): 0, (8, 0): 0, (None, None): 100}
    switch.remove_job(7)
    assert target.names("workers") == [worker(WORKERS[0])]
    switch.remove_job(8)
    assert target.names("workers") == target.names("members") == []


def test_a_worker_that_nobody_finds_is_named(
    target: FakeTarget, switch: P4Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switch.controller.requests._ARP_SECONDS", 0.5)
    del target.hosts["10.0.0.2"]
    before = state(target)
    with pytest.raises(ControllerError, match=r"rank 1 at 10\.0\.0\.2:4002, rank 2 at 10\.0\.0\.2:4003 do not answer"):
        switch.add_job(spec())
    assert state(target) == before
    assert target.clears == []
    assert target.asked.count("10.0.0.2") >= 2


def test_a_clear_that_is_lost_is_repeated(
    target: FakeTarget, switch: P4Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("switch.controller.requests._CLEAR_SECONDS", 0.1)
    target.lose_clears = 2
    switch.add_job(spec())
    assert target.clears == [(0, 16)] * 3
    switch.remove_job(7)
    target.lose_clears = 3
    before = state(target)
    with pytest.raises(ControllerError, match="has not cleared slots 0 to 15 in 3 attempts"):
        switch.add_job(spec())
    assert state(target) == before


@pytest.mark.parametrize("victim", ["group 9", "members 2", "workers 167772162 4003"])
def test_nothing_is_left_of_a_job_that_the_target_refuses(target: FakeTarget, switch: P4Switch, victim: str) -> None:
    before = state(target)
    names = {"group 9": "multicast group 9 with 3 replicas", "members 2": "meta.worker.member=2"}
    wanted = names.get(victim, r"table WiresumIngress\.workers, entry hdr\.ipv4\.src=10\.0\.0\.2 hdr\.udp\.src=4003")
    target.refuse = lambda update: (
        "RESOURCE_EXHAUSTED" if name_of(update.entity) == victim and update.type == 1 else None
    )
    with pytest.raises(ControllerError, match=rf"did not insert .*{wanted}: RESOURCE_EXHAUSTED \(so it is\)"):
        switch.add_job(spec())
    assert state(target) == before
    target.refuse = lambda _: None
    for number in range(3):  # the pool is free, too
        switch.add_job(spec(number, workers=(("10.0.0.1", 5000 + number),), slots=512))
    with pytest.raises(ControllerError, match="no 1024 slots in a row are free, only 512 of 2048"):
        switch.add_job(spec(9, slots=1024))


def test_counters_start_with_the_job(target: FakeTarget, switch: P4Switch) -> None:
    for event in EVENTS.values():
        target.counters["events", event_index(1, event)] = 1000
    switch.add_job(spec(workers=WORKERS[:2]))
    for rank in range(2):
        target.counters["events", event_index(rank + 1, "contributions")] = 1005 if rank == 0 else 6
    target.counters["events", event_index(1, "wrong_index")] = 1002
    target.counters["drops", 2] = 77
    target.received[worker(WORKERS[1])] = (10, 10 * (42 + 266))
    rows = {(c.name, c.rank): c.value for c in switch.statistics() if c.value}
    of_job = {("contributions", 0): 5, ("contributions", 1): 6, ("wrong_index", 0): 2}
    of_job |= {("received", 1): 10, ("bytes_in", 1): 2660}
    totals = {("contributions", None): 11, ("wrong_index", None): 2, ("received", None): 10, ("bytes_in", None): 2660}
    assert rows == of_job | totals | {("unknown_source", None): 77}
    switch.remove_job(7)
    assert {(c.name, c.rank): c.value for c in switch.statistics() if c.value} == totals | {
        ("unknown_source", None): 77
    }


def test_stalled_slots_are_read_from_the_registers(target: FakeTarget, switch: P4Switch) -> None:
    switch.add_job(spec(1, workers=(("10.0.0.1", 1),), slots=4))
    switch.add_job(spec(slots=4))
    assert target.clears[-1] == (4, 4)
    # Slot 0 waits for ranks 0 and 2 in chunk 4 (version 1); slot 1 is complete; slot 2 untouched; slot 3 in chunk 3.
    target.registers = {("newest", 4 + slot): chunk for slot, chunk in enumerate((4, 1, 2**32 - 2, 3))}
    target.registers |= {("seen", 8 + 1): 0b010, ("seen", 8 + 0): 0b111, ("seen", 8 + 2): 0b111, ("seen", 8 + 6): 0b110}
    assert switch.stalled(7) == [
        StalledSlot(slot=3, chunk=3, seen=(1, 2), missing=(0,)),
        StalledSlot(slot=0, chunk=4, seen=(1,), missing=(0, 2)),
    ]
    target.registers = {}
    assert len(switch.stalled(7)) == 2  # for a moment the answer is good
    wait_until(lambda: switch.stalled(7) == [], "the answer does not change")


def test_stalled_slots_come_from_counters_where_registers_cannot_be_read(target: FakeTarget, switch: P4Switch) -> None:
    target.registers = None
    switch.add_job(spec(slots=4))
    for member, contributions in ((1, 12), (2, 10), (3, 12)):
        target.counters["events", event_index(member, "contributions")] = contributions
    assert switch.stalled(7) == [
        StalledSlot(slot=2, chunk=10, seen=(0, 2), missing=(1,)),
        StalledSlot(slot=3, chunk=11, seen=(0, 2), missing=(1,)),
    ]


def test_who_was_heard(target: FakeTarget, switch: P4Switch) -> None:
    switch.add_job(spec())
    assert switch.last_heard(7) == [None, None, None]
    target.received[worker(WORKERS[1])] = (1, 308)
    heard = switch.last_heard(7)
    assert heard[0] is heard[2] is None
    assert heard[1] is not None
    assert 0 <= heard[1] < 1
    # And nobody need ask for it to be noticed.
    target.received[worker(WORKERS[0])] = (1, 308)
    wait_until(lambda: switch._jobs[7].heard[0], "rank 0 was not heard")


def test_frames_are_forwarded_to_where_their_receivers_were_seen(target: FakeTarget, switch: P4Switch) -> None:
    def learn(mac: int, port: int) -> None:
        target.say_learned(mac, port)
        assert target.acknowledged.wait(10)

    learn(0x020000000009, 2)
    assert target.params(f"destinations {0x020000000009}") == [2]
    assert target.names("senders") == [f"senders {0x020000000009} 2"]
    learn(0x020000000009, 2)
    learn(0x020000000009, 3)  # it has moved
    assert target.params(f"destinations {0x020000000009}") == [3]
    assert target.names("senders") == [f"senders {0x020000000009} 3"]
    learn(0xFFFFFFFFFFFF, 1)
    learn(OWN_MAC, 1)
    assert len(target.names("destinations")) == 1
    target.refuse = lambda update: "INTERNAL" if update.type == 1 else None
    learn(0x020000000008, 1)
    target.refuse = lambda _: None
    learn(0x020000000008, 1)  # the next frame tries again
    assert target.params(f"destinations {0x020000000008}") == [1]


def test_a_target_that_goes_away_is_noticed_at_once(target: FakeTarget) -> None:
    lost = threading.Event()
    with closing(connect(target, on_failure=lambda _: lost.set())) as switch:
        switch.add_job(spec())
        target.outbox.put(None)
        assert lost.wait(10)
        assert isinstance(switch.failure, TargetLostError)
        assert str(switch.failure) == f"the target at {target.address} is lost: it ended the connection"
        with pytest.raises(TargetLostError):
            switch.add_job(spec(8, workers=(("10.0.0.1", 9),)))
        switch.remove_job(7)


def test_a_target_that_falls_silent_is_given_up(target: FakeTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switch.controller.p4switch._POLL_SECONDS", 0.05)
    lost = threading.Event()
    with closing(connect(target, on_failure=lambda _: lost.set())) as switch:
        target.silent.set()
        assert lost.wait(10)
        assert str(switch.failure) == f"the target at {target.address} is lost: it does not answer any more"


def test_another_controller_takes_over(target: FakeTarget) -> None:
    from switch.p4runtime.messages import p4runtime_pb2 as pb

    lost = threading.Event()
    with closing(connect(target, on_failure=lambda _: lost.set())) as switch:
        news = pb.StreamMessageResponse()
        news.arbitration.election_id.low, news.arbitration.status.code = 9, 6
        target.outbox.put(news)
        assert lost.wait(10)
        assert "another controller, with election id 9, is its primary" in str(switch.failure)


def test_a_target_remembers_a_primary_that_has_gone(target: FakeTarget) -> None:
    target.verdict = 5
    with pytest.raises(TargetUnreachableError, match="it has had a primary with election id 1, and takes none with a"):
        connect(target)


def test_a_job_that_waits_for_arp_ends_with_the_target(target: FakeTarget, switch: P4Switch) -> None:
    target.hosts.clear()
    errors: list[WiresumError] = []

    def add() -> None:
        try:
            switch.add_job(spec())
        except WiresumError as error:
            errors.append(error)

    adding = threading.Thread(target=add)
    adding.start()
    wait_until(lambda: target.asked, "nobody was asked")
    target.outbox.put(None)
    adding.join(2)
    assert isinstance(errors[0], TargetLostError)


def test_what_an_earlier_controller_left_is_swept(target: FakeTarget) -> None:
    with closing(connect(target)) as first:
        first.add_job(spec())
        left = state(target)
    fresh = left - {name for name in left if name.startswith(("workers", "members", "group 9"))}
    with closing(connect(target, keep_pipeline=True)):
        assert state(target) == fresh
    target.pipeline.p4info.tables[0].size += 1
    with pytest.raises(ProgramError, match="does not run the program of"):
        connect(target, keep_pipeline=True)


def test_a_target_that_is_not_there() -> None:
    from switch.controller.client import P4RuntimeClient

    with pytest.raises(TargetUnreachableError, match=r"no P4Runtime server answers at 127\.0\.0\.1:1 within 0.2 s"):
        P4RuntimeClient("127.0.0.1:1", PROGRAM.info, on_message=lambda _: None, on_failure=lambda _: None, timeout=0.2)


@pytest.mark.parametrize("slots", [0, 2049])
def test_slots_that_the_program_does_not_have(target: FakeTarget, slots: int) -> None:
    with pytest.raises(ValueError, match=f"the P4 program has 2048 slots of 64 values, not {slots}"):
        connect(target, total_slots=slots)
