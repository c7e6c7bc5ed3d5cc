"""p4runtime-shell against our server and against BMv2."""

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.p4runtime_rig import COMPILED
from tests.veth_ports import VethPorts
from tests.veths import MISSING
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
EVERYTHING = COMPILED / "p4rt_all"
WIRESUM = ROOT / "p4" / "compiled" / "wiresum_64"
ADDRESS = "127.0.0.1:9559"  # in a namespace of its own

BMV2_REFUSES = {
    "registers": "UNIMPLEMENTED, 'Register writes are not supported yet'",
    "value_sets": "UNIMPLEMENTED, 'ValueSet writes are not supported yet'",
    "clones_are_cut_to_a_length": "UNKNOWN, 'Error when creating clone session in target'",
    "reads_by_priority": "too many values to unpack",  # it gives entries of all priorities
}

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.slow]
needs_bmv2 = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")


@pytest.fixture
def ports() -> Iterator[VethPorts]:
    made = VethPorts((0, 1))
    try:
        yield made
    finally:
        made.close()


def drive(ports: VethPorts, log: Path, program: Path, *command: str) -> dict[str, str]:
    """Starts a switch, with the options that both have, and runs the script against it; what each step came to."""
    inside = ("ip", "netns", "exec", ports.namespace)
    device = str(secrets.randbelow(2**24) + 1)  # two BMv2s of one number disturb each other, wherever they run
    options = ("--no-p4", "--device-id", device, "-i", "0@s0", "-i", "1@s1", "--log-console", "-L", "warn")
    server = ("--", "--grpc-server-addr", ADDRESS, "--cpu-port", "255")
    with (
        log.open("w") as file,
        subprocess.Popen([*inside, *command, *options, *server], stdout=file, stderr=file, cwd=ROOT) as switch,
    ):
        try:
            listening = ("ss", "-Hltn", "sport", "=", ":9559")
            wait_until(lambda: switch.poll() is not None or "9559" in ports.inside(*listening), "it does not listen")
            assert switch.poll() is None, log.read_text()
            script = (sys.executable, "-m", "tests.p4runtime_shell_script", device, ADDRESS)
            files = (f"{program}.p4info.txtpb", f"{program}.json")
            done = subprocess.run(
                [*inside, *script, *files], capture_output=True, text=True, timeout=100, check=False, cwd=ROOT
            )
        finally:
            switch.terminate()
            switch.wait(timeout=20)
    assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    assert found
    return found


@pytest.mark.parametrize("program", [EVERYTHING, WIRESUM], ids=lambda path: path.name)
def test_the_shell_can_do_everything_here(program: Path, ports: VethPorts, tmp_path: Path) -> None:
    results = drive(ports, tmp_path / "log", program, sys.executable, "-m", "wiresum", "p4switch")
    assert set(results.values()) == {"ok"}, results


@needs_bmv2
def test_the_same_on_bmv2_but_for_what_it_refuses(ports: VethPorts, tmp_path: Path) -> None:
    results = drive(ports, tmp_path / "log", EVERYTHING, "simple_switch_grpc")
    refused = {name: text for name, text in results.items() if text != "ok"}
    assert refused.keys() == BMV2_REFUSES.keys(), refused
    for name, text in BMV2_REFUSES.items():
        assert text in refused[name]


@needs_bmv2
def test_the_slot_rules_on_bmv2(ports: VethPorts, tmp_path: Path) -> None:
    results = drive(ports, tmp_path / "log", WIRESUM, "simple_switch_grpc")
    assert set(results.values()) == {"ok"}, results
