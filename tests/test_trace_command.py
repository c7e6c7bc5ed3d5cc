"""`wiresum trace` as it is called."""

import json
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from protocol.packets import make_packet
from tests.test_trace import contribution, rounds
from tests.trace_captures import Seen, pcap, save, worker
from wiresum import cli


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli._COMMANDS, "trace", "wiresum.trace_command")


@pytest.fixture
def capture(tmp_path: Path) -> str:
    seen = [*rounds(12), Seen(0.1, 0, contribution(11, 0)), Seen(0.11, 0, contribution(11, 0, reserved=1))]
    return str(save(tmp_path, "run.pcap", pcap(seen)))


def test_plain_text_has_no_frames_and_is_not_cut(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", capture]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0].startswith("job 3 at 10.0.0.254: 3 ranks, 4 slots of 32 values, 0.100 s")
    assert "12 finished, 0 without a result; results checked against the sums: 12, 12 right" in lines[1]
    assert any(line.split() == [worker(0), "13", "0", "0", "1", "0", "1", "12", "0"] for line in lines)
    assert f"broken rule: reserved bits set, 1 times, as in {capture}, frame 74" in lines
    assert not any(symbol in said.out for symbol in "│┃…")


def test_rounds_of_one_slot(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", capture, "--slot", "3"]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out[out.index("slot 3") :].splitlines()[2:]]
    assert [row[:2] for row in rows] == [["3", "0"], ["7", "1"], ["11", "0"]]
    assert rows[2][4:] == ["210", "us", "1", "0", f"{worker(2)},", "100", "us"]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_slot_or_job_that_is_not_there(options: list[str], capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", capture, "--slot", "9", *options]) == 1
    assert cli.main(["trace", capture, "--job", "9", *options]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "wiresum: slot 9 is not in the captures; they show 4 slots, from 0 to 3",
        "wiresum: the captures show no packets of a job 9; jobs in them: 3",
    ]


def test_a_picture_that_cannot_be_is_told_before_the_work(
    capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder.png").mkdir()
    for name, message in (
        ("none/x.png", "is in a folder that is not there"),
        ("folder.png", "is a folder"),
        ("x.jpg", "the name of the picture must end with .png, not 'x.jpg'"),
    ):
        assert cli.main(["trace", capture, "--png", str(tmp_path / name)]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert message in said.err


def test_json_is_all_of_it(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", capture, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    [job] = report["jobs"]
    assert report["captures"] == [{"file": capture, "frames": 74, "packets": 74, "notes": []}]
    assert job["ranks"][0]["again"] == {"waiting": 0, "unanswered": 0, "answered": 1}
    assert job["problems"][0]["rule"] == "reserved bits set"
    assert len(job["slots_seen"]) == 4


def test_timeline_is_a_picture(capture: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib.image import imread

    picture = tmp_path / "run.png"
    assert cli.main(["trace", capture, "--png", str(picture)]) == 0
    pixels = imread(picture)
    assert pixels.shape[1] == 1440
    orange = np.array([1.0, 127 / 255, 14 / 255])  # rank 1 is never last
    green = np.array([44, 160, 44]) / 255  # rank 2 always is
    assert np.isclose(pixels[..., :3], green, atol=0.01).all(axis=-1).any()
    assert not np.isclose(pixels[..., :3], orange, atol=0.01).all(axis=-1).any()


def test_each_job_has_a_picture_of_its_own(tmp_path: Path) -> None:
    first = rounds(8, world=2)
    other = [Seen(s.at, s.rank + 4, s.payload[:1] + b"\x09" + s.payload[2:], s.result) for s in first]
    path = save(tmp_path, "two.pcap", pcap([*first, *other]))
    assert cli.main(["trace", str(path), "--png", str(tmp_path / "t.png")]) == 0
    assert sorted(each.name for each in tmp_path.glob("*.png")) == ["t-1.png", "t-2.png"]


def test_without_matplotlib_the_extra_is_named(
    capture: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> object:
        if name == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return import_module(name)

    monkeypatch.setattr("wiresum.trace_command.import_module", missing)
    assert cli.main(["trace", capture, "--png", "x.png"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "wiresum: this needs matplotlib; install it with: pip install 'wiresum[demo]'\n"


@pytest.mark.parametrize(
    ("contents", "message"),
    [(b"", "is empty"), (b"text", "is neither a pcap nor a pcapng file"), (pcap([]), "no packets from or to UDP port")],
)
def test_a_failure_is_one_line(
    contents: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, "bad.pcap", contents)
    assert cli.main(["trace", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("wiresum: ")
    assert message in said.err
    assert said.err.count("\n") == 1


def test_files_that_cannot_be_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", str(tmp_path / "none.pcap")]) == 1
    assert cli.main(["trace", str(tmp_path)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "No such file" in first
    assert "Is a directory" in second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--slot", "16384"], "'16384' is not a slot from 0 to 16383"),
        (["--job", "x"], "'x' is not a job from 0 to 255"),
        (["--port", "0"], "'0' is not a port from 1 to 65535"),
        (["--ranks", "33"], "'33' is not a number of ranks from 1 to 32"),
        (["--stall", "-1"], "'-1' is not a number of seconds above 0"),
        (["--png", ""], "the name of a file or folder must not be empty"),
        (["--stall", "nan"], "'nan' is not a number of seconds above 0"),
    ],
)
def test_bad_options_are_named(
    options: list[str], message: str, capture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["trace", capture, *options])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_two_hundred_thousand_packets_take_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = [np.arange(256) * (rank + 1) for rank in range(4)]
    frames: list[bytes] = []
    for result, numbers in [*((False, each) for each in values), *[(True, sum(values))] * 4]:
        payload = make_packet(tsi=0, slots=64, values=numbers, per_packet=256, job=1).encode()
        frames.append(Seen(0, len(frames) % 4, payload, result).frame())
    path = tmp_path / "large.pcap"
    with path.open("wb") as file:
        file.write(pcap([]))
        for chunk in range(25_000):
            header = chunk.to_bytes(4, "big") + (chunk % 64 | (chunk // 64 % 2) << 15).to_bytes(2, "big")
            time_word = (chunk * 1000).to_bytes(4, "little")
            for frame in frames:
                length = len(frame).to_bytes(4, "little")
                file.write(bytes(4) + time_word + length + length + frame[:44] + header + frame[50:])
    start = time.process_time()
    assert cli.main(["trace", str(path)]) == 0
    taken = time.process_time() - start
    path.unlink()
    assert taken < 10
    assert "results checked against the sums: 25,000, 25,000 right" in capsys.readouterr().out
