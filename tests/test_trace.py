"""What `wiresum trace` tells of runs of which everything is known."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from protocol.constants import DATA_PORT
from protocol.errors import WiresumError
from protocol.faults import FaultRates
from protocol.packets import Packet, decode, make_packet
from tests.trace_captures import CapturedRack, Seen, pcap, pcapng, save, worker
from wiresum.trace.analysis import analyse
from wiresum.trace.report import JobReport, RankReport, Report

SLOTS = 4


def report(folder: Path, *captures: bytes | list[Seen], **options: int | float) -> Report:
    """Of captures given as files' contents or as what was seen."""
    paths = []
    for number, capture in enumerate(captures):
        contents = pcap(capture) if isinstance(capture, list) else capture
        paths.append(save(folder, f"{number}.pcap", contents))
    return analyse(paths, port=DATA_PORT, **options).report  # type: ignore[arg-type]


def only(found: Report) -> JobReport:
    [job] = found.jobs
    return job


def ranks(job: JobReport) -> dict[str, RankReport]:
    return {rank.address: rank for rank in job.ranks}


def contribution(tsi: int, rank: int, **changes: int) -> bytes:
    values = np.arange(32) * (rank + 1) - 7 * tsi
    packet = make_packet(tsi=tsi, slots=SLOTS, values=values, per_packet=32, job=3, e0=rank, e1=4)
    return replace(packet, **changes).encode()  # type: ignore[arg-type]


def result(tsi: int, world: int, **changes: int) -> bytes:
    packets = [decode(contribution(tsi, rank)) for rank in range(world)]
    values = np.stack([packet.values for packet in packets]).sum(axis=0, dtype=np.int32)
    return replace(packets[-1], values=values, **changes).encode()


def round_of(tsi: int, at: float, *, world: int = 3, lag: float = 0.0001, order: tuple[int, ...] = ()) -> list[Seen]:
    """A round in which ranks contribute one after the other; the result goes out 10 us after the last."""
    order = order or tuple(range(world))
    seen = [Seen(at + lag * place, rank, contribution(tsi, rank)) for place, rank in enumerate(order)]
    return seen + [Seen(seen[-1].at + 0.00001, rank, result(tsi, world), result=True) for rank in range(world)]


def rounds(count: int, **options: int) -> list[Seen]:
    return [seen for tsi in range(count) for seen in round_of(tsi, 0.001 * tsi, **options)]  # type: ignore[arg-type]


class TestSound:
    def test_run_without_trouble(self, tmp_path: Path) -> None:
        found = report(tmp_path, rounds(12))
        job = only(found)
        assert (job.switch, job.job, job.slots, job.slots_known, job.values) == ("10.0.0.254", 3, SLOTS, True, 32)
        assert (job.rounds, job.finished, job.all_ranks_seen) == (12, 12, True)
        assert job.sums == {"checked": 12, "right": 12}
        assert job.bytes_of_values == 12 * 128
        assert not job.stalls
        assert not job.problems
        assert not job.notes
        assert not found.notes
        for number in range(3):
            rank = ranks(job)[worker(number)]
            assert (rank.contributions, rank.results, rank.results_again) == (12, 12, 0)
            assert not any(rank.again.values())
            assert rank.round_trip == {"p50": (trip := 210.0 - 100 * number), "p90": trip, "p99": trip, "max": trip}
        last = ranks(job)[worker(2)]
        assert last.last == 12
        assert last.lag == {"p50": 100.0, "p90": 100.0, "p99": 100.0, "max": 100.0}
        assert job.answer == {"p50": 10.0, "p90": 10.0, "p99": 10.0, "max": 10.0}
        assert [slot.slot for slot in job.slots_seen] == [0, 1, 2, 3]
        assert {(slot.rounds, slot.contributions, slot.results) for slot in job.slots_seen} == {(3, 9, 9)}

    def test_job_of_one(self, tmp_path: Path) -> None:
        job = only(report(tmp_path, rounds(6, world=1)))
        assert job.all_ranks_seen is True
        assert job.sums == {"checked": 6, "right": 6}

    def test_chunk_numbers_wrap(self, tmp_path: Path) -> None:
        seen = [s for n in range(8) for s in round_of((2**32 - 4 + n) % 2**32, 0.001 * n)]
        job = only(report(tmp_path, seen))
        assert (job.rounds, job.finished, job.slots) == (8, 8, SLOTS)
        assert not job.problems

    def test_pool_that_is_not_filled_is_a_guess(self, tmp_path: Path) -> None:
        job = only(report(tmp_path, rounds(3)))
        assert (job.slots, job.slots_known) == (4, False)

    def test_jobs_side_by_side_and_one_after_the_other(self, tmp_path: Path) -> None:
        first = rounds(8, world=2)
        beside = [replace(s, rank=s.rank + 4, payload=s.payload[:1] + b"\x09" + s.payload[2:]) for s in first]
        after = [replace(s, rank=s.rank + 8, at=s.at + 1) for s in first]
        found = report(tmp_path, sorted(first + beside + after, key=lambda s: s.at))
        assert [(job.job, job.rounds, [rank.address for rank in job.ranks]) for job in found.jobs] == [
            (3, 8, [worker(0), worker(1)]),
            (9, 8, [worker(4), worker(5)]),
            (3, 8, [worker(8), worker(9)]),
        ]
        assert all(job.sums == {"checked": 8, "right": 8} for job in found.jobs)
        assert [job.job for job in report(tmp_path, first + beside, job=9).jobs] == [9]
        with pytest.raises(WiresumError, match=r"no packets of a job 5; jobs in them: 3, 9"):
            report(tmp_path, first + beside, job=5)


class TestSentAgain:
    def test_while_others_are_missing(self, tmp_path: Path) -> None:
        seen = rounds(4)
        seen[1:1] = [Seen(0.00005, 0, contribution(0, 0))]
        job = only(report(tmp_path, seen))
        assert ranks(job)[worker(0)].again == {"waiting": 1, "unanswered": 0, "answered": 0}
        assert {(r.lost_contributions, r.lost_results) for r in job.ranks} == {(0, 0)}
        # Which of the two was answered cannot be told, so it is no round trip.
        assert ranks(job)[worker(0)].round_trip == {"p50": 210.0, "p90": 210.0, "p99": 210.0, "max": 210.0}

    def test_because_a_contribution_was_lost(self, tmp_path: Path) -> None:
        """Captured where it was sent: all have contributed, yet the result comes only when one does so again."""
        late = [replace(s, at=s.at + 0.01) for s in round_of(8, 0.02) if s.result]
        seen = rounds(8) + [s for s in round_of(8, 0.02) if not s.result]
        seen += [Seen(0.0295, 1, contribution(8, 1)), *late]
        job = only(report(tmp_path, seen))
        assert ranks(job)[worker(1)].again == {"waiting": 0, "unanswered": 1, "answered": 0}
        assert [r.lost_contributions for r in job.ranks] == [0, 1, 0]
        [stall] = job.stalls
        assert stall.lost == {worker(1): 1}
        assert stall.cause == f"contribution of {worker(1)} lost or late (1)"
        assert not stall.late

    def test_because_a_result_was_lost(self, tmp_path: Path) -> None:
        """Rank 2 has to ask again, and so holds up the next round of the slot."""
        seen = rounds(5)[:-6]
        seen += [Seen(0.02, 2, contribution(0, 2)), Seen(0.02001, 2, result(0, 3), result=True)]
        four = round_of(4, 0.004)
        seen += [*four[:2], *(replace(s, at=s.at + 0.017) for s in four[2:])]
        job = only(report(tmp_path, sorted(seen, key=lambda s: s.at)))
        rank = ranks(job)[worker(2)]
        assert rank.again == {"waiting": 0, "unanswered": 0, "answered": 1}
        assert (rank.lost_results, rank.results_again) == (1, 1)
        [stall] = job.stalls
        assert (stall.late, stall.repairing) == ({worker(2): 1}, {worker(2): 1})
        assert stall.slots == [0]
        assert stall.cause == f"{worker(2)} missing, its result was lost or late (1)"


class TestStalls:
    def test_straggler_is_named(self, tmp_path: Path) -> None:
        seen = rounds(8)
        for tsi in range(8, 12):  # all slots stand still for the same 50 ms
            ranks_in, rest = (part := round_of(tsi, 0.009, order=(0, 2, 1)))[:2], part[2:]
            seen += ranks_in + [replace(s, at=s.at + 0.05) for s in rest]
        job = only(report(tmp_path, sorted(seen, key=lambda s: s.at)))
        [stall] = job.stalls
        assert stall.late == {worker(1): 4}
        assert (stall.rounds, stall.slots, stall.unfinished) == (4, [0, 1, 2, 3], 0)
        assert stall.start == pytest.approx(0.009)
        assert stall.seconds == pytest.approx(0.05021)
        straggler = ranks(job)[worker(1)]
        assert straggler.last == 4
        assert straggler.lag is not None
        assert straggler.lag["max"] == pytest.approx(50_100)

    def test_rank_that_never_comes(self, tmp_path: Path) -> None:
        seen = rounds(8) + [s for s in round_of(8, 0.009) if not s.result and s.rank != 1]
        seen += [Seen(0.4, 0, contribution(8, 0))]
        job = only(report(tmp_path, seen))
        assert (job.rounds, job.finished) == (9, 8)
        [stall] = job.stalls
        assert (stall.late, stall.unfinished) == ({worker(1): 1}, 1)

    def test_limit_can_be_chosen(self, tmp_path: Path) -> None:
        assert len(only(report(tmp_path, rounds(4), stall=0.0001)).stalls) == 4
        assert not only(report(tmp_path, rounds(4), stall=0.001)).stalls


class TestRules:
    @pytest.mark.parametrize(
        ("payload", "rule"),
        [
            (contribution(5, 0)[:-4], "wrong length"),
            (contribution(5, 0, msg_type=3), "unknown msg_type"),
            (contribution(5, 0, size=7), "unknown size"),
            (contribution(5, 0, reserved=1), "reserved bits set"),
            (contribution(5, 0, pool_index=0x4001), "reserved bits set"),
            (contribution(5, 0, pool_index=2), "pool_index does not follow from tsi"),
            (make_packet(tsi=5, slots=SLOTS, values=np.ones(64), per_packet=64, job=3).encode(), "other size"),
            (contribution(5, 0, job=77), "other job than the sender's"),
        ],
    )
    def test_what_the_switch_drops_is_named(self, payload: bytes, rule: str, tmp_path: Path) -> None:
        job = only(report(tmp_path, [*rounds(12), Seen(0.1, 0, payload)]))
        [problem] = job.problems
        assert problem.rule.startswith(rule)
        assert problem.count == 1
        assert problem.examples == [f"{tmp_path}/0.pcap, frame 73"]
        assert ranks(job)[worker(0)].contributions == 12

    def test_wrong_sums_are_found(self, tmp_path: Path) -> None:
        seen = rounds(12)
        for index, each in enumerate(seen):
            packet = decode(each.payload)
            if each.result and packet.tsi == 7:
                wrong = packet.values.copy()
                wrong[31] += 1
                seen[index] = replace(each, payload=replace(packet, values=wrong).encode())
            if each.result and packet.tsi == 9:
                seen[index] = replace(each, payload=replace(packet, e0=1).encode())
        job = only(report(tmp_path, seen))
        assert job.sums == {"checked": 12, "right": 10}
        [problem] = job.problems
        assert (problem.rule, problem.examples) == ("wrong sum", ["chunk 7", "chunk 9"])

    def test_sums_wrap(self, tmp_path: Path) -> None:
        def packet(values: int) -> Packet:
            return make_packet(tsi=0, slots=SLOTS, values=np.full(32, values), per_packet=32)

        seen = [Seen(0.001 * rank, rank, packet(2**31 - 1).encode()) for rank in range(2)]
        seen += [Seen(0.01, rank, packet(-2).encode(), result=True) for rank in range(2)]
        assert only(report(tmp_path, seen)).sums == {"checked": 1, "right": 1}

    def test_results_that_differ_between_ranks(self, tmp_path: Path) -> None:
        seen = rounds(8)
        seen[-1] = replace(seen[-1], payload=seen[-1].payload[:-1] + b"\xee")
        [problem] = only(report(tmp_path, seen)).problems
        assert (problem.rule, problem.examples) == ("results of one chunk differ", ["chunk 7"])

    def test_what_is_sent_again_must_be_the_same(self, tmp_path: Path) -> None:
        job = only(report(tmp_path, [*rounds(8), Seen(0.1, 0, contribution(7, 0)[:-1] + b"\x55")]))
        [problem] = job.problems
        assert (problem.rule, problem.examples) == ("what was sent again differs", ["chunk 7"])
        assert job.sums == {"checked": 7, "right": 7}

    def test_next_round_of_a_slot_before_the_result(self, tmp_path: Path) -> None:
        seen = sorted([*rounds(4), Seen(0.00001, 0, contribution(4, 0))], key=lambda s: s.at)
        [problem] = only(report(tmp_path, seen)).problems
        assert problem.rule == "sent before the slot's last result came"

    def test_strangers_are_no_ranks(self, tmp_path: Path) -> None:
        job = only(report(tmp_path, [*rounds(12), Seen(0.1, 9, contribution(11, 0))]))
        assert len(job.ranks) == 3
        assert worker(9) in job.notes[0]


class TestOfSomeRanks:
    def test_sums_are_not_said_to_be_wrong(self, tmp_path: Path) -> None:
        seen = [s for s in rounds(12) if s.rank != 2]
        job = only(report(tmp_path, seen))
        assert job.all_ranks_seen is False
        assert job.sums == {"checked": 0, "right": 0}
        assert not job.problems
        assert "hardly any result is the sum of what the 2 ranks seen have sent" in job.notes[0]
        assert [rank.lost_contributions for rank in job.ranks] == [None, None]

    def test_unless_their_number_is_given(self, tmp_path: Path) -> None:
        seen = [s for s in rounds(12) if s.rank != 2]
        job = only(report(tmp_path, seen, ranks=2))
        assert [problem.rule for problem in job.problems] == ["wrong sum"]
        assert only(report(tmp_path, seen, ranks=3)).all_ranks_seen is False


def test_leaf_of_a_tree_is_checked_against_what_it_sent_upward(tmp_path: Path) -> None:
    """Two ranks below a leaf whose parent adds a third: the leaf's results are the parent's sums."""
    leaf, root = "10.0.0.254", "10.0.1.1"
    seen: list[bytes] = []
    for tsi in range(8):
        partial, whole = result(tsi, 2), result(tsi, 3)
        steps = [Seen(0, rank, contribution(tsi, rank)).frame() for rank in range(2)]
        steps.append(between(leaf, root, partial))
        steps.append(between(root, leaf, whole))
        steps += [Seen(0, rank, whole, result=True).frame() for rank in range(2)]
        seen += steps
    path = tmp_path / "tree.pcap"
    head = pcap([])
    records = [
        (1_700_000_000).to_bytes(4, "little")
        + (number * 1000).to_bytes(4, "little")
        + len(frame).to_bytes(4, "little") * 2
        + frame
        for number, frame in enumerate(seen)
    ]
    path.write_bytes(head + b"".join(records))
    jobs = {job.switch: job for job in analyse([path], port=DATA_PORT).report.jobs}
    assert jobs[leaf].sums == {"checked": 8, "right": 8}
    assert jobs[leaf].all_ranks_seen is True
    assert [rank.address for rank in jobs[root].ranks] == [f"{leaf}:{DATA_PORT}"]
    assert jobs[root].all_ranks_seen is False  # the third rank is elsewhere


def between(source: str, destination: str, payload: bytes) -> bytes:
    """A frame from switch to switch."""
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    return bytes(Ether() / IP(src=source, dst=destination) / UDP(sport=DATA_PORT, dport=DATA_PORT) / payload)


def run_rack(*, seed: int = 5, loss: float = 0.03) -> CapturedRack:
    rack = CapturedRack(3, slots=8, values=32, up=FaultRates(loss=loss), down=FaultRates(loss=loss), seed=seed)
    rng = np.random.default_rng(seed)
    rack.submit([rng.standard_normal(32 * 300).astype(np.float32) for _ in range(3)])
    rack.run()
    return rack


@pytest.mark.parametrize("seed", [1, 2])
def test_simulated_run_at_the_switch(seed: int, tmp_path: Path) -> None:
    """Against a plain count of the same packets, one by one."""
    rack = run_rack(seed=seed)
    seen = rack.at_switch
    job = only(report(tmp_path, seen))
    assert job.slots == 8
    assert job.finished == job.rounds == 308  # exponents for 8 slots, then 300 chunks
    assert job.sums == {"checked": 308, "right": 308}
    assert not job.problems

    sent: dict[tuple[int, int], int] = defaultdict(int)
    answered: set[int] = set()
    again, after, got = [0] * 3, [0] * 3, [0] * 3
    for each in seen:
        tsi = decode(each.payload).tsi
        if each.result:
            answered.add(tsi)
            got[each.rank] += 1
            continue
        sent[tsi, each.rank] += 1
        again[each.rank] += sent[tsi, each.rank] > 1
        after[each.rank] += sent[tsi, each.rank] > 1 and tsi in answered
    for number in range(3):
        rank = ranks(job)[worker(number)]
        assert rank.contributions == sum(count for (_, r), count in sent.items() if r == number)
        assert sum(rank.again.values()) == again[number]
        assert rank.again["answered"] == after[number] == rank.results_again > 0
        assert rank.again["unanswered"] == 0  # at the switch, what is missing is not there
        assert rank.results == got[number]
    assert sum(rank.last for rank in job.ranks) == 308
    assert sum(slot.again for slot in job.slots_seen) == sum(again)


def test_simulated_run_at_all_ends(tmp_path: Path) -> None:
    """The workers' captures tell of the losses on the way up; the switch's adds nothing twice."""
    rack = run_rack()
    ends = [pcap(seen) for seen in rack.at_workers]
    workers = only(report(tmp_path, *ends))
    merged = report(tmp_path, *ends, pcapng(rack.at_switch))
    sent = sum(not each.result for seen in rack.at_workers for each in seen)
    arrived = sum(not each.result for each in rack.at_switch)
    got = sum(each.result for seen in rack.at_workers for each in seen)
    left = sum(each.result for each in rack.at_switch)
    assert sum(rank.contributions for rank in workers.ranks) == sent
    assert sum(rank.contributions for rank in only(merged).ranks) == sent
    assert sum(rank.results for rank in only(merged).ranks) == left
    assert merged.copies == arrived + got
    assert workers.sums == only(merged).sums == {"checked": 308, "right": 308}
    lost = sum(rank.lost_contributions or 0 for rank in workers.ranks)
    assert 0 < lost <= sent - arrived
    assert 0 < sum(rank.lost_results for rank in workers.ranks) <= left - got
    assert not only(merged).problems


def test_simulated_straggler(tmp_path: Path) -> None:
    rack = CapturedRack(3, slots=8, values=32)
    rack.asleep[1] = (0.002, 0.202)
    rack.submit([np.ones(32 * 300, np.float32) for _ in range(3)])
    rack.run()
    job = only(report(tmp_path, rack.at_switch))
    longest = max(job.stalls, key=lambda stall: stall.seconds)
    assert longest.late == {worker(1): 8}
    assert longest.seconds == pytest.approx(0.2, rel=0.1)
    assert len(longest.slots) == 8
    assert all(rank.again["answered"] == rank.again["unanswered"] == 0 for rank in job.ranks)
