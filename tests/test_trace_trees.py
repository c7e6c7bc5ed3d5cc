"""What `wiresum trace` tells of trees of switches, and what it calls their nodes."""

import json
import struct
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protocol.constants import DATA_PORT
from protocol.packets import make_packet
from tests.trace_captures import Seen, pcap, save
from wiresum import cli
from wiresum.trace.analysis import analyse
from wiresum.trace.report import JobReport

SLOTS, ROUNDS = 4, 12
PARENTS = {"s1": None, "s2": "s1", "s10": "s1", "h1": "s2", "h2": "s2", "h3": "s10"}
ADDRESSES = {
    "s1": "10.254.1.1", "s2": "10.254.2.1", "s10": "10.254.10.1",
    "h1": "10.0.0.1", "h2": "10.0.0.2", "h3": "10.0.0.3",
}  # fmt: skip


@dataclass(frozen=True)
class Passed(Seen):
    """A payload between two nodes; the one above answers from the data port."""

    child: str = ""

    def network(self) -> bytes:
        ends = [(ADDRESSES[self.child], 41000), (ADDRESSES[PARENTS[self.child] or ""], DATA_PORT)]
        source, destination = reversed(ends) if self.result else ends
        udp = struct.pack(">HHHH", source[1], destination[1], 8 + len(self.payload), 0) + self.payload
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0)
        return head + IPv4Address(source[0]).packed + IPv4Address(destination[0]).packed + udp


def links(*, job: int = 3, start: float = 0.0) -> dict[str, list[Seen]]:
    """What passes each link while three hosts sum; hosts contribute first, so that leaves are seen before the root."""
    found: dict[str, list[Seen]] = {child: [] for child, parent in PARENTS.items() if parent}
    for tsi in range(ROUNDS):
        at = start + 0.001 * tsi
        one = {f"h{number}": np.arange(32) * number + tsi for number in (1, 2, 3)}
        one |= {"s2": one["h1"] + one["h2"], "s10": one["h3"]}
        total = one["s2"] + one["s10"]
        packets = {
            name: make_packet(tsi=tsi, slots=SLOTS, values=values, per_packet=32, job=job)
            for name, values in {**one, "total": total}.items()
        }
        for place, child in enumerate(("h3", "h1", "h2", "s10", "s2")):
            found[child].append(Passed(at + 1e-5 * place, 0, packets[child].encode(), child=child))
        for place, child in enumerate(("s2", "s10", "h1", "h2", "h3"), 6):
            found[child].append(Passed(at + 1e-5 * place, 0, packets["total"].encode(), result=True, child=child))
    return found


def write(folder: Path, seen: dict[str, list[Seen]]) -> list[Path]:
    return [save(folder, f"{child}.pcap", pcap(packets)) for child, packets in seen.items()]


def summary(folder: Path, **changes: Any) -> Path:
    topology = {
        "hosts": [{"name": name, "address": ADDRESSES[name]} for name in PARENTS if name[0] == "h"],
        "switches": [
            {"name": name, "address": ADDRESSES[name], "parent": above}
            for name, above in PARENTS.items()
            if name[0] == "s"
        ],
        **changes,
    }
    path = folder / "summary.json"
    path.write_text(json.dumps({"run": "x", "topology": topology}))
    return path


def jobs(paths: list[Path], **options: Any) -> list[JobReport]:
    return analyse(paths, port=DATA_PORT, **options).report.jobs


def test_switches_have_their_names_and_the_root_is_first(tmp_path: Path) -> None:
    summary(tmp_path)
    found = jobs(write(tmp_path, links()))
    assert [(job.name, job.level, job.parent) for job in found] == [("s1", 0, None), ("s2", 1, "s1"), ("s10", 1, "s1")]
    assert [[rank.name for rank in job.ranks] for job in found] == [["s2", "s10"], ["h1", "h2"], ["h3"]]
    assert [job.switch for job in found] == ["10.254.1.1", "10.254.2.1", "10.254.10.1"]
    assert all(job.sums == {"checked": ROUNDS, "right": ROUNDS} and not job.notes for job in found)


def test_without_a_summary_the_tree_is_read_off_the_packets(tmp_path: Path) -> None:
    found = jobs(write(tmp_path, links()))
    root, *leaves = ("10.254.1.1", "10.254.2.1", "10.254.10.1")
    assert [(job.name, job.level, job.parent) for job in found] == [
        (root, 0, None),
        *((leaf, 1, root) for leaf in leaves),
    ]
    assert [rank.name for rank in found[1].ranks] == ["10.0.0.1:41000", "10.0.0.2:41000"]


def test_jobs_of_one_number_one_after_the_other_stay_in_time(tmp_path: Path) -> None:
    summary(tmp_path)
    first, other = links(), links(job=1, start=0.002)
    together = {child: sorted([*first[child], *other[child]], key=lambda seen: seen.at) for child in first}
    found = jobs(write(tmp_path, together))
    assert [(job.job, job.name) for job in found] == [(n, name) for n in (3, 1) for name in ("s1", "s2", "s10")]
    assert all(job.sums["right"] == ROUNDS for job in found)
    assert [job.name for job in jobs(write(tmp_path, together), job=1)] == ["s1", "s2", "s10"]


def test_several_ranks_of_one_host_keep_their_ports(tmp_path: Path) -> None:
    summary(tmp_path, hosts=[{"name": "h1", "address": "10.0.0.1"}])
    frames = pcap(links()["h1"])
    other = frames[24:].replace(struct.pack(">HH", 41000, DATA_PORT), struct.pack(">HH", 41001, DATA_PORT))
    other = other.replace(struct.pack(">HH", DATA_PORT, 41000), struct.pack(">HH", DATA_PORT, 41001))
    (job,) = jobs([save(tmp_path, "h1.pcap", frames + other)])
    assert [rank.name for rank in job.ranks] == ["h1:41000", "h1:41001"]


def test_captures_of_hosts_alone_say_what_else_to_read(tmp_path: Path) -> None:
    hosts = {child: seen for child, seen in links().items() if child[0] == "h"}
    for job in jobs(write(tmp_path, hosts)):
        assert "in a tree of switches, what this one passes on" in job.notes[0]
        assert "as in RUN/*.pcap" in job.notes[0]
    summary(tmp_path)
    found = jobs(write(tmp_path, hosts))
    assert [(job.name, job.level, job.parent) for job in found] == [("s2", 1, "s1"), ("s10", 1, "s1")]
    for job in found:
        assert f"{job.name} passes that on to s1, which was not captured; read the switches' captures" in job.notes[0]


def test_a_missing_host_is_not_blamed_on_switches(tmp_path: Path) -> None:
    seen = links()
    del seen["h1"]
    job = jobs(write(tmp_path, seen))[1]
    assert job.switch == "10.254.2.1"
    assert "others are missing in the captures; read those of all hosts" in job.notes[0]


def test_a_leaf_that_waits_for_the_switch_above_has_lost_nothing(tmp_path: Path) -> None:
    summary(tmp_path)
    seen = links()
    late = 0.05  # in one round, the root's results come so much later, and h1 asks in between
    for child, packets in seen.items():
        seen[child] = [
            replace(packet, at=packet.at + late) if packet.result and packet.at > 0.001 * (ROUNDS - 1) else packet
            for packet in packets
        ]
    again = next(packet for packet in reversed(seen["h1"]) if not packet.result)
    seen["h1"] = sorted([*seen["h1"], replace(again, at=again.at + late / 2)], key=lambda packet: packet.at)
    root, leaf, _ = jobs(write(tmp_path, seen))
    assert root.stalls[0].cause == "no answer to all contributions (1)"
    assert leaf.stalls[0].cause == "no answer from s1 above (1)"
    h1 = leaf.ranks[0]
    assert (h1.name, h1.again["unanswered"], h1.lost_contributions) == ("h1", 1, 0)
    # But if the leaf passes on only what h1 has sent again, that had been lost before.
    seen["s2"] = [replace(p, at=p.at + late * 0.6) if p is seen["s2"][-2] else p for p in seen["s2"]]
    leaf = jobs(write(tmp_path, seen))[1]
    assert leaf.ranks[0].lost_contributions == 1
    assert leaf.stalls[0].cause == "contribution of h1 lost or late (1)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"topology": {"hosts": [], "switches": [{"name": "../x", "address": "10.0.0.1", "parent": null}]}}',
    ],
)
def test_a_summary_that_is_none(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path, links())
    path = tmp_path / "summary.json"
    path.write_text(text)
    report = analyse(paths, port=DATA_PORT).report
    assert report.jobs[0].name == "10.254.1.1"
    assert report.notes == [
        f"nodes are called by their addresses: {path} is not the summary of a run of `wiresum mininet`"
    ]
    assert cli.main(["trace", str(paths[0]), "--summary", str(path)]) == 1
    assert f"{path} is not the summary" in capsys.readouterr().err


def test_captures_elsewhere_find_names_when_told(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert [job.name for job in jobs(write(tmp_path, links()), summary=summary(tmp_path / "run"))] == [
        "s1",
        "s2",
        "s10",
    ]


def test_captures_of_two_networks_have_no_names(tmp_path: Path) -> None:
    paths = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        summary(folder, hosts=[{"name": f"h{number}", "address": "10.0.0.1"}])
        paths += write(folder, links(start=number))
    report = analyse(paths, port=DATA_PORT).report
    assert {job.name for job in report.jobs} == {"10.254.1.1", "10.254.2.1", "10.254.10.1"}
    assert "2 different networks" in report.notes[0]


def test_report_and_pictures_name_the_switch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    summary(tmp_path)
    paths = [str(path) for path in write(tmp_path, links())]
    assert cli.main(["trace", *paths, "--png", str(tmp_path / "t.png")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "switches, from the root down"
    assert lines[3].split()[:6] == ["s2", "s1", "3", "h1,", "h2", "24"]
    assert [line.split(": ")[0] for line in lines if line.startswith("job ")] == [
        "job 3 at s1 (10.254.1.1)",
        "job 3 at s2 (10.254.2.1), below s1",
        "job 3 at s10 (10.254.10.1), below s1",
    ]
    told = [
        f"picture of job 3 at {name}: {tmp_path}/{file}"
        for name, file in (("s1", "t-1-s1.png"), ("s2, below s1", "t-2-s2.png"), ("s10, below s1", "t-3-s10.png"))
    ]
    assert lines[-3:] == told
    assert len(list(tmp_path.glob("t-*.png"))) == 3
    assert cli.main(["trace", *paths, "--json", "--png", str(tmp_path / "t.png")]) == 0
    said = capsys.readouterr()
    assert [job["name"] for job in json.loads(said.out)["jobs"]] == ["s1", "s2", "s10"]
    assert said.err.splitlines() == told


def test_the_title_of_a_picture_says_switch_and_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes = pytest.importorskip("matplotlib.axes").Axes
    titles: list[str] = []
    monkeypatch.setattr(axes, "set_title", lambda self, text, **_: titles.append(text.partition(": ")[0]))
    summary(tmp_path)
    paths = [str(path) for path in write(tmp_path, links())]
    assert cli.main(["trace", *paths, "--png", str(tmp_path / "t.png")]) == 0
    assert titles == ["job 3 at s1", "job 3 at s2, below s1", "job 3 at s10, below s1"]
