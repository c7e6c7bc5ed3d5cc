"""p4runtime-shell against our server and against BMv2."""

import json
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.p4runtime_rig import COMPILED, CPU_PORT
from tests.veth_ports import VethPorts, why_not
from tests.waiting import wait_until

JSON, P4INFO = COMPILED / "p4rt_all.json", COMPILED / "p4rt_all.p4info.txtpb"
SCRIPT = Path(__file__).with_name("p4runtime_shell_script.py")
ADDRESS = "127.0.0.1:9559"  # in a namespace of its own

BMV2_REFUSES = {
    "registers": "UNIMPLEMENTED, 'Register writes are not supported yet'",
    "value_sets": "UNIMPLEMENTED, 'ValueSet writes are not supported yet'",
    "clones_are_cut_to_a_length": "UNKNOWN, 'Error when creating clone session in target'",
    "reads_by_priority": "too many values to unpack",  # it gives entries of all priorities
}

pytestmark = [pytest.mark.skipif(bool(why_not()), reason=str(why_not())), pytest.mark.slow]


@pytest.fixture
def ports() -> Iterator[VethPorts]:
    made = VethPorts((0, 1))
    try:
        yield made
    finally:
        made.close()


def drive(ports: VethPorts, log: Path, *command: str, device: int) -> dict[str, str]:
    """Starts a switch and runs the script against it."""
    inside = ("ip", "netns", "exec", ports.namespace)
    with log.open("w") as file, subprocess.Popen([*inside, *command], stdout=file, stderr=file) as switch:
        try:
            listening = ("ss", "-Hltn", "sport", "=", ":9559")
            wait_until(
                lambda: switch.poll() is not None or "9559" in ports.inside(*listening), f"it does not listen: {log}"
            )
            assert switch.poll() is None, log.read_text()
            arguments = (str(device), ADDRESS, str(P4INFO), str(JSON))
            done = subprocess.run(
                [*inside, sys.executable, str(SCRIPT), *arguments],
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
        finally:
            switch.terminate()
            switch.wait(timeout=20)
    assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_shell_can_do_everything_here(ports: VethPorts, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "wiresum", "p4switch", "--no-p4", "--device-id", "1", "-i", "0@s0", "-i", "1@s1")
    results = drive(ports, tmp_path / "log", *command, "--", "--cpu-port", str(CPU_PORT), device=1)
    assert set(results.values()) == {"ok"}, results


@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
def test_the_same_on_bmv2_but_for_what_it_refuses(ports: VethPorts, tmp_path: Path) -> None:
    device = secrets.randbelow(2**24) + 1
    options = ("--no-p4", "--device-id", str(device), "-i", "0@s0", "-i", "1@s1", "--log-console", "-L", "warn")
    server = ("--", "--grpc-server-addr", ADDRESS, "--cpu-port", str(CPU_PORT))
    results = drive(ports, tmp_path / "log", "simple_switch_grpc", *options, *server, device=device)
    refused = {name: text for name, text in results.items() if text != "ok"}
    assert refused.keys() == BMV2_REFUSES.keys(), refused
    for name, text in BMV2_REFUSES.items():
        assert text in refused[name]
