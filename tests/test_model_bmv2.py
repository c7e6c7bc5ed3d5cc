"""Our test programs on BMv2, if it is at hand, and on the programmable switch: the same packets must leave."""

import os
import random
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

from switch.model.pcap import PcapWriter
from tests.model_programs import FOLDER, load

PORTS = (0, 1, 2, 3)
PACKETS = 40  # BMv2's queues hold 64
SECONDS = 20

# What packets of each program may begin with. Not what ends BMv2, what is random, and register<int<8>>, where it errs.
COMMANDS = {
    "arithmetic": tuple(range(256)),
    "control": (1, 2, 3, 4, 9),
    "copies": (0, 1, 2, 3, 4, 5, 6, 7),
    "externs": (1, 3, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21),
    "headers": (1, 2, 3, 4, 5, 6, 7, 8, 9),
    "parsing": (1, 2, 3, 4, 5, 6, 0x70, 0x81),
}
needs_bmv2 = pytest.mark.skipif(shutil.which("simple_switch") is None, reason="simple_switch of BMv2 is not on PATH")


def packets_for(name: str, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    packets = []
    for _ in range(PACKETS):
        size = chance.randrange(64, 90) if name in ("arithmetic", "control", "copies", "externs", "headers") else None
        packet = bytearray(chance.randbytes(size or chance.randrange(2, 60)))
        packet[0] = chance.choice(COMMANDS[name])
        packet[1] = chance.randrange(4)
        if name == "arithmetic" and chance.random() < 0.5:
            packet = bytearray(chance.choices((0, 1, 127, 128, 255), k=64))
        elif name == "headers":
            packet[1], packet[2] = packet[1] % 3, packet[2] % 10
        elif name == "parsing":
            packet[1] = chance.choice((1, 7, 8, 9, packet[1]))
            packet[3::4] = bytes(chance.choices((0, 1), k=len(packet[3::4])))
        packets.append(bytes(packet))
    return packets


def frames(folder: Path, port: int) -> list[bytes]:
    """What BMv2 has written so far, whole frames only. `read_pcap` refuses its files: they do not say Ethernet."""
    path = folder / f"p{port}_out.pcap"
    data = path.read_bytes() if path.exists() else b""
    found, place = [], 24
    while place + 16 <= len(data):
        (size,) = struct.unpack_from("<I", data, place + 8)
        if place + 16 + size > len(data):
            break
        found.append(data[place + 16 : place + 16 + size])
        place += 16 + size
    return found


def on_bmv2(name: str, packets: list[bytes], folder: Path, expected: int) -> dict[int, list[bytes]]:
    """Lets BMv2 read packets from a file as those of port 1, until so many have left."""
    for port in PORTS:
        with PcapWriter(folder / f"p{port}_in.pcap") as writer:
            for packet in packets if port == 1 else ():
                writer.write(0.0, packet)
    command = ["simple_switch", "--use-files", "0", "--thrift-port", "0", "--device-id", str(os.getpid())]
    for port in PORTS:
        command += ["-i", f"{port}@{folder}/p{port}"]
    process = subprocess.Popen(
        [*command, str(FOLDER / f"{name}.json")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end = time.monotonic() + SECONDS
        while sum(len(frames(folder, port)) for port in PORTS) < expected:
            assert process.poll() is None, f"BMv2 ended with {process.returncode}"
            assert time.monotonic() < end, "BMv2 sent less than the programmable switch"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return {port: sorted(frames(folder, port)) for port in PORTS}


@needs_bmv2
@pytest.mark.parametrize("name", COMMANDS)
def test_bmv2_does_the_same(name: str, tmp_path: Path) -> None:
    packets = packets_for(name, seed=5)
    switch = load(name)
    found: dict[int, list[bytes]] = {port: [] for port in PORTS}
    for packet in packets:
        for port, data in switch.receive(1, packet, 0.0):
            found[port].append(data)
    assert switch.counters.faults == switch.counters.bad_indexes == 0
    ours = {port: sorted(sent) for port, sent in found.items()}
    assert on_bmv2(name, packets, tmp_path, sum(map(len, ours.values()))) == ours
