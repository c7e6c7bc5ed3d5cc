import re
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

import wiresum.demo.command
import wiresum.switch_command
from protocol.errors import StallError
from wiresum.cli import main


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was written to standard error, which must be one line of ours."""
    text = capsys.readouterr().err
    assert text.startswith("wiresum: ")
    assert text.count("\n") == 1
    return text


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def run(args: Namespace) -> int:
        raise error

    monkeypatch.setattr(wiresum.switch_command, "run", run)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert re.fullmatch(r"wiresum (\d+\.\d+\.\d+\S*|\(not installed\))\n", capsys.readouterr().out)


@pytest.mark.parametrize("argv", [[], ["swich"]])
def test_a_wrong_command_shows_the_right_ones(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    assert exit_.value.code == 2
    assert "usage: wiresum" in (error := capsys.readouterr().err)
    assert not argv or all(command in error for command in ("swich", "switch", "demo", "stats"))


@pytest.mark.parametrize(
    "command", ["switch", "demo", "stats", "p4switch", "controller", "p4resources", "mininet", "trace"]
)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert f"usage: wiresum {command}" in capsys.readouterr().out


def test_a_failure_is_one_line_and_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, StallError("rank 3 is missing"))
    assert main(["switch"]) == 1
    assert one_line(capsys) == "wiresum: rank 3 is missing\n"


def test_debugging_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, StallError("rank 3 is missing"))
    monkeypatch.setenv("WIRESUM_DEBUG", "1")
    with pytest.raises(StallError):
        main(["switch"])


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--workers", "1", "workers must be from 2 to 32, not 1"),
        ("--workers", "33", "workers must be from 2 to 32, not 33"),
        ("--loss", "0.9", "loss must be a share from 0 to 0.5, not 0.9"),
        ("--loss", "nan", "loss must be a share from 0 to 0.5, not nan"),
        ("--epochs", "0", "epochs must be from 1 to 10000, not 0"),
        ("--values", "100", "values must be one of 32, 64, 128, 256, 512, 1024, 2048, not 100"),
        ("--slots", "48", "slots must be a power of two from 1 to 16384, not 48"),
        ("--seed", "-1", "seed must be from 0 to 4294967295, not -1"),
    ],
)
def test_a_wrong_value_is_named_and_code_2(
    option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", option, value]) == 2
    assert one_line(capsys) == f"wiresum: {expected}\n"


def test_a_folder_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["demo", "--out", str(file)]) == 2
    assert one_line(capsys) == f"wiresum: out must be a folder, and {file} is none\n"
    for words in (["demo", "--out", ""], ["p4resources", ""], ["trace", ""]):
        with pytest.raises(SystemExit) as exit_:
            main(words)
        assert exit_.value.code == 2
        assert "the name of a file or folder must not be empty" in capsys.readouterr().err


def test_no_switch_at_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in one_line(capsys)


def test_ctrl_c_is_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fail_with(monkeypatch, KeyboardInterrupt())
    assert main(["switch"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "words", ["p4resources", "p4resources --per-alu 1 | head -n 1", "--help >&-", "p4resources >&- 2>&-"]
)
def test_output_that_nobody_reads(words: str) -> None:
    command, _, pipe = words.partition(" | ")
    pipe = f" | {pipe}" if pipe else " | true" if ">" not in command else ""
    shell = f"{shlex.quote(sys.executable)} -m wiresum {command}{pipe}"
    done = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=60, text=True)
    assert done.stderr == ""


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(wiresum.demo.command, "find_spec", lambda name: None if name == "sklearn" else object())
    assert main(["demo"]) == 1
    assert one_line(capsys) == "wiresum: this needs sklearn; install it with: pip install 'wiresum[demo]'\n"


def test_a_command_does_not_load_the_others() -> None:
    script = (
        "import sys; from wiresum.cli import main\n"
        "try: main(['stats', '--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'wiresum.demo.command', 'wiresum.switch_command'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL, timeout=60)
