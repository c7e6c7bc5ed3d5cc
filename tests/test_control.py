"""The control service and its client over loopback: joining, leaving, disagreement, diagnosis."""

import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import host.control
import switch.control_service
from host.control import ControlClient
from host.control_types import Membership
from protocol.errors import (
    ClosedError,
    DisagreementError,
    JoinRefusedError,
    JoinTimeoutError,
    PeerLostError,
    StallError,
    SwitchLostError,
)
from switch.control import ControlServer
from switch.dataplane import Counter, StalledSlot
from tests.control_rack import FakePlane, Rack, join_all, open_rack
from wiresum.cli import main


@pytest.fixture
def rack() -> Iterator[Rack]:
    with open_rack() as opened:
        yield opened


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"in vain for: {what}"
        time.sleep(0.002)


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Runs a call that waits; its result or error comes into the list."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


# Joining


def test_client_learns_what_the_switch_offers(rack: Rack) -> None:
    info = rack.worker(0).client.info
    assert (info.data_host, info.data_port) == ("127.0.0.1", 48864)
    assert (info.total_slots, info.free_slots, info.max_ranks) == (4096, 4096, 32)
    assert info.values_supported == (32, 64, 128, 256)


def test_data_address_of_a_switch_that_listens_everywhere_is_the_one_that_was_reached() -> None:
    with open_rack(FakePlane(("0.0.0.0", 7)), host="0.0.0.0") as rack:
        for name in ("127.0.0.1", "localhost"):
            client = ControlClient(f"{name}:{rack.switch.rpartition(':')[2]}")
            assert (client.info.data_host, client.info.data_port) == ("127.0.0.1", 7)
            client.close()


@pytest.mark.parametrize("ranks", [1, 2, 32])
def test_all_ranks_get_the_same_job(rack: Rack, ranks: int) -> None:
    workers = [rack.worker(rank) for rank in range(ranks)]
    memberships = join_all(workers)
    for rank, membership in enumerate(memberships):
        assert isinstance(membership, Membership)
        assert (membership.rank, membership.world_size, membership.slots) == (rank, ranks, 64)
        assert membership.job_number == 0
    assert [worker[0] for worker in rack.plane.jobs[0].workers] == ["127.0.0.1"] * ranks
    (job,) = rack.server.jobs()
    assert (job.state, job.joined) == ("running", tuple(range(ranks)))
    assert rack.worker(0).client.info.free_slots == 4096 - 64


def test_unknown_own_address_is_the_one_that_the_switch_sees(rack: Rack) -> None:
    rack.worker(0).client.join(job="x", rank=0, world_size=1, udp=("0.0.0.0", 4321), values=256, slots=1, timeout=5.0)
    assert rack.plane.jobs[0].workers == (("127.0.0.1", 4321),)


def test_two_jobs_have_their_own_numbers_and_end_by_themselves(rack: Rack) -> None:
    first, second = rack.joined(2, job="a"), rack.joined(3, job="b")
    assert {spec.name: len(spec.workers) for spec in rack.plane.jobs.values()} == {"a": 2, "b": 3}
    first[0].client.disagree(1, "a sum")
    assert isinstance(first[1].failure(), DisagreementError)
    assert second[0].client.stall().slots == ()
    assert second[0].failures.empty()


def test_rank_that_never_joins_is_named_to_all_others(rack: Rack) -> None:
    waiting = [in_thread(lambda rank=rank: rack.worker(rank).join(3, timeout=0.3)) for rank in (0, 2)]  # type: ignore[misc]
    for thread, outcome in waiting:
        thread.join()
        (error,) = outcome
        assert isinstance(error, JoinTimeoutError)
        assert "missing: rank 1" in str(error)
    assert rack.server.jobs() == []


def test_second_process_with_a_rank_is_refused_and_the_first_goes_on(rack: Rack) -> None:
    thread, outcome = in_thread(lambda: rack.worker(0).join(2, port=3001))
    wait_until(lambda: len(rack.server.jobs()) == 1, "the first to join")
    with pytest.raises(JoinRefusedError, match=r"rank 0 of job 'train' is taken by 127\.0\.0\.1:3001"):
        rack.worker(0).join(2, port=3002)
    rack.worker(1).join(2)
    thread.join()
    assert isinstance(outcome[0], Membership)


def test_data_plane_that_refuses_a_job_refuses_its_ranks(rack: Rack) -> None:
    rack.plane.refusal = StallError("table full")
    for error in join_all([rack.worker(0), rack.worker(1)]):
        assert isinstance(error, JoinRefusedError)
        assert "could not set up job 'train': table full" in str(error)
    rack.plane.refusal = None
    rack.joined(2)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rank": -1}, "rank must be from 0 to 2147483647, not -1"),
        ({"world_size": 2**31}, "world size must be .*, not 2147483648"),
        ({"slots": -5}, "slots must be .*, not -5"),
        ({"timeout": 0}, "positive number of seconds, not 0"),
    ],
)
def test_impossible_arguments_are_refused_before_any_call(rack: Rack, changes: dict[str, int], text: str) -> None:
    arguments = {"rank": 0, "world_size": 1, "values": 256, "slots": 64, "timeout": 1.0, **changes}
    with pytest.raises(ValueError, match=text):
        rack.worker(0).client.join(job="x", udp=("127.0.0.1", 1), **arguments)  # type: ignore[arg-type]


def test_other_version_of_the_protocol_is_refused_with_both_numbers(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = rack.worker(0)
    with monkeypatch.context() as patch:
        patch.setattr(host.control, "PROTOCOL_VERSION", 7)
        with pytest.raises(JoinRefusedError, match="switch speaks protocol version 1, the worker version 7"):
            worker.join(1)
    monkeypatch.setattr(switch.control_service, "PROTOCOL_VERSION", 8)
    with pytest.raises(JoinRefusedError, match="speaks protocol version 8, and this worker version 1"):
        rack.worker(0)


# Leaving


def test_clean_end_is_told_to_nobody_and_frees_everything(rack: Rack) -> None:
    workers = rack.joined(3)
    for worker in workers:
        worker.client.close()
        worker.client.close()
    assert rack.server.jobs() == []
    assert rack.worker(0).client.info.free_slots == 4096
    wait_until(lambda: rack.plane.jobs == {}, "removal from the data plane")
    assert all(worker.failures.empty() for worker in workers)


def test_rank_that_left_ends_the_job_once_another_waits_for_it(rack: Rack) -> None:
    workers = rack.joined(3)
    workers[2].client.leave()
    assert [job.joined for job in rack.server.jobs()] == [(0, 1)]
    assert workers[0].client.stall().ranks[2].left
    assert rack.plane.jobs
    rack.plane.stalled_slots = [StalledSlot(slot=1, chunk=65, seen=(0, 1), missing=(2,))]
    for worker in workers[:2]:
        failure = worker.failure()
        assert isinstance(failure, PeerLostError)
        assert str(failure).startswith("rank 2 (127.0.0.1:")
        assert "left job 'train' while other ranks wait for it" in str(failure)
    assert workers[2].failures.empty()


def test_same_name_again_at_once_in_the_same_process(rack: Rack) -> None:
    for round_ in range(5):
        workers = rack.joined(2)
        assert rack.plane.jobs[round_].name == "train"
        for worker in workers:
            worker.client.close()


def test_closed_client_says_so(rack: Rack) -> None:
    (worker,) = rack.joined(1)
    with pytest.raises(RuntimeError, match="joined job 'train' before"):
        worker.join(1)
    with pytest.raises(RuntimeError, match="once"):
        worker.client.watch(on_failure=worker.failures.put, explain=str)
    worker.client.leave()
    with pytest.raises(ClosedError, match="has left job 'train'"):
        worker.client.stall()
    worker.client.close()
    with pytest.raises(ClosedError, match="is closed"):
        worker.client.stall()
    with pytest.raises(RuntimeError, match="has not joined"):
        rack.worker(0).client.stall()


def test_close_ends_a_join_that_waits(rack: Rack) -> None:
    worker = rack.worker(0)
    thread, outcome = in_thread(lambda: worker.join(2))
    wait_until(lambda: len(rack.server.jobs()) == 1, "the join")
    worker.client.close()
    thread.join()
    assert isinstance(outcome[0], ClosedError)
    wait_until(lambda: rack.server.jobs() == [], "the switch to notice")


def test_close_at_the_very_moment_of_a_join(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    client = ControlClient(rack.switch)
    start = threading.Thread.start

    def close_first(thread: threading.Thread) -> None:
        if thread.name == "wiresum-watch":
            client.close()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", close_first)
    client.join(job="train", rank=0, world_size=1, udp=("127.0.0.1", 20000), values=256, slots=64, timeout=5.0)
    with pytest.raises(ClosedError):
        client.stall()
    wait_until(lambda: rack.server.jobs() == [], "the switch to notice")


# Disagreement and diagnosis


def test_disagreement_shows_what_each_rank_asked_for(rack: Rack) -> None:
    workers = [rack.worker(rank, account=f"sum of {1000 + rank // 2} float32") for rank in range(4)]
    join_all(workers)
    workers[3].client.disagree(12, "#12: sum of 1001 float32")
    for worker in workers:
        failure = worker.failure()
        assert isinstance(failure, DisagreementError)
        assert str(failure) == (
            "ranks of job 'train' disagree about collective #12:\n"
            "  ranks 0, 1: #12: sum of 1000 float32\n"
            "  ranks 2, 3: #12: sum of 1001 float32"
        )
    rack.joined(4)


def test_rank_that_cannot_give_an_account_holds_nobody_up(rack: Rack) -> None:
    workers = [rack.worker(rank) for rank in range(2)]

    def join(rank: int) -> None:
        client = workers[rank].client
        client.join(job="x", rank=rank, world_size=2, udp=("127.0.0.1", 5 + rank), values=256, slots=1, timeout=20.0)
        client.watch(on_failure=workers[rank].failures.put, explain=lambda collective: ("one", "two")[collective])

    threads = [in_thread(lambda rank=rank: join(rank))[0] for rank in range(2)]  # type: ignore[misc]
    for thread in threads:
        thread.join()
    workers[0].client.disagree(3, "a sum")
    assert "rank 1: could not say what it asked for: IndexError('tuple index out of range')" in str(
        workers[1].failure()
    )


def test_what_happens_between_join_and_watch_is_not_lost(rack: Rack) -> None:
    first, second = rack.worker(0), rack.worker(1)
    waiting = in_thread(lambda: first.join(2))[0]
    second.client.join(job="train", rank=1, world_size=2, udp=("127.0.0.1", 5), values=256, slots=64, timeout=20.0)
    waiting.join()
    first.client.disagree(0, "a sum")
    second.client.watch(on_failure=second.failures.put, explain=lambda _: "nothing")
    assert "rank 1: nothing" in str(second.failure())


def test_stall_report_names_the_ranks_that_the_switch_waits_for(rack: Rack) -> None:
    worker = rack.joined(3)[0]
    rack.plane.heard = [0.25, 12.0, None]
    assert worker.client.stall().describe() == (
        "the switch waits for no rank in any slot of job 'train': rank 0 sent its last packet 0.2 s ago; "
        "rank 1 sent its last packet 12.0 s ago; rank 2 never sent a packet"
    )
    rack.plane.stalled_slots = [
        StalledSlot(slot=slot, chunk=64 + slot, seen=(0,) if slot else (0, 2), missing=(1, 2) if slot else (1,))
        for slot in range(5)
    ]
    report = worker.client.stall()
    assert report.missing == (1, 2)
    addresses = [f"127.0.0.1:{port}" for _, port in rack.plane.jobs[0].workers]
    assert report.describe() == (
        f"the switch waits for rank 1 ({addresses[1]}, sent its last packet 12.0 s ago); "
        f"rank 2 ({addresses[2]}, never sent a packet). slot 0 (chunk 64) has ranks 0, 2 and lacks rank 1, "
        "slot 1 (chunk 65) has rank 0 and lacks ranks 1, 2, slot 2 (chunk 66) has rank 0 and lacks ranks 1, 2, "
        "and 2 more slots"
    )


# The switch ends


def test_goodbye_reaches_workers_and_those_who_wait() -> None:
    with open_rack() as rack:
        workers = rack.joined(2)
        thread, outcome = in_thread(lambda: rack.worker(0).join(2, job="other"))
        wait_until(lambda: len(rack.server.jobs()) == 2, "the second job")
        began = time.monotonic()
        rack.server.stop()
        assert time.monotonic() - began < 2
        thread.join()
        assert isinstance(outcome[0], SwitchLostError)
        for failure in (*(worker.failure() for worker in workers), outcome[0]):
            assert isinstance(failure, SwitchLostError)
            assert str(failure) == f"the switch at {rack.switch} is shutting down"
        assert rack.plane.jobs == {}
        rack.server.stop()


def test_what_ended_the_job_is_what_later_calls_raise(rack: Rack) -> None:
    workers = rack.joined(2)
    workers[0].client.disagree(0, "a sum")
    failure = workers[1].failures.get(timeout=20)
    for call in (workers[1].client.stall, lambda: workers[1].client.disagree(0, "again")):
        with pytest.raises(DisagreementError) as raised:
            call()
        assert raised.value is failure


def test_port_in_use_is_refused_with_its_address(rack: Rack) -> None:
    port = int(rack.switch.rpartition(":")[2])
    with pytest.raises(OSError, match=f"cannot serve control at {rack.switch}: Address already in use"):
        ControlServer(FakePlane(), host="127.0.0.1", port=port).start()


def test_server_that_was_never_started_can_be_stopped() -> None:
    ControlServer(FakePlane(), host="127.0.0.1", port=0).stop()


# wiresum stats


def test_stats_command_shows_jobs_and_counters(rack: Rack, capsys: pytest.CaptureFixture[str]) -> None:
    rack.joined(2)
    rack.plane.counters = [
        Counter(name="received", job="train", job_number=0, rank=rank, value=1234567 * rank) for rank in range(2)
    ]
    rack.plane.counters.append(Counter(name="unknown_source", job=None, job_number=None, rank=None, value=17))
    rack.plane.counters.append(Counter(name="stale", job=None, job_number=None, rank=None, value=0))
    assert main(["stats", rack.switch]) == 0
    shown = capsys.readouterr().out
    for text in ("64 of 4,096 slots", "train", "2 of 2", "rank 1", "1,234,567", "unknown_source", "17"):
        assert text in shown
    assert "stale" not in shown


def test_stats_command_prints_json(rack: Rack, capsys: pytest.CaptureFixture[str]) -> None:
    rack.joined(2)
    rack.plane.counters = [Counter(name="stale", job=None, job_number=None, rank=None, value=0)]
    assert main(["stats", "--json", rack.switch]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counters"] == [{"name": "stale", "job": None, "job_number": None, "rank": None, "value": 0}]
    assert report["jobs"][0]["joined"] == [0, 1]
    assert (report["total_slots"], report["free_slots"]) == (4096, 4032)


def test_stats_command_fails_clearly(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WIRESUM_SWITCH", raising=False)
    assert main(["stats"]) != 0
    assert "HOST:PORT" in capsys.readouterr().err
