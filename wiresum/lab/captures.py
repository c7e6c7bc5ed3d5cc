"""Captures of what passes the hosts' interfaces, by tcpdump."""

import mmap
import os
import signal
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from wiresum.lab.network import Lab
from wiresum.lab.programs import Program, end_all
from wiresum.lab.topology import LinkSpec
from wiresum.processes import describe_exit

_READY_SECONDS: Final = 20.0
# tcpdump asks the kernel for packets in blocks, which come when they are full or a second old. What is in a block when
# tcpdump is told to end is lost, and nobody counts it.
_BLOCK_SECONDS: Final = 1.2
_FULL_BYTES: Final = 65536
_FILE_HEADER, _RECORD_HEADER = 24, 16


class Captures:
    """One file for each link of the network, named after its lower end: h1.pcap, s2.pcap.

    Args:
        lab: the network.
        folder: for the files.
        links: those to capture; all by default.

    Attributes:
        files: what `stop` has found.

    Raises:
        LabError: a capture did not start.
    """

    def __init__(self, lab: Lab, folder: Path, links: Sequence[LinkSpec] | None = None) -> None:
        self._programs: list[Program] = []
        self._folder = folder
        self.files: list[Path] = []
        try:
            for link in lab.topology.links if links is None else links:
                pid, interface = lab.interfaces(link)[0]
                target = folder / f"{link.child}.pcap"
                # Its own user, so that it may write where we do; big buffers, since the machine is busy.
                words = ["-i", interface, "-w", str(target), "-Z", "root", "-s", "0", "-B", "16384"]
                self._programs.append(Program(link.child, ["tcpdump", "-n", *words], namespace=pid))
            for program in self._programs:
                program.await_line(".*listening on", _READY_SECONDS)
        except BaseException:
            end_all(self._programs, grace=0)
            raise

    def stop(self) -> tuple[dict[str, str], list[str]]:
        """Ends them when they have what has passed so far; returns the files by link, and what went wrong."""
        time.sleep(_BLOCK_SECONDS)
        early = {program.name: code for program in self._programs if (code := program.poll()) is not None}
        end_all(self._programs, gentle=signal.SIGINT)
        found = {program.name: self._incomplete(program, early.get(program.name)) for program in self._programs}
        problems = [f"the capture of {name} is not complete: {why}" for name, why in found.items() if why]
        files = {name: f"{name}.pcap" for name in found if (self._folder / f"{name}.pcap").exists()}
        self.files = [self._folder / file for file in files.values()]
        self._programs.clear()
        return files, problems

    def _incomplete(self, program: Program, early: int | None) -> str:
        said = [line for line in program.said().splitlines() if "listening on" not in line]
        if early is not None or program.poll():
            return "; ".join(said[-2:]) or describe_exit(program.poll() or 0)
        for line in said:
            number, _, what = line.partition(" ")
            if what == "packets dropped by kernel" and number != "0":
                return line
            # tcpdump does not look whether its packets reach the disk.
            if what.startswith("packet") and what.endswith("captured"):
                written = packets_in(self._folder / f"{program.name}.pcap")
                if written < int(number):
                    space = os.statvfs(self._folder)
                    why = "no space left on device" if space.f_bavail * space.f_frsize < _FULL_BYTES else "it was cut"
                    return f"{written} of {number} packets are in the file: {why}"
        return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_all(self._programs, grace=0)


def packets_in(path: Path) -> int:
    """Whole packets in a pcap file; 0 if it is none."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < _FILE_HEADER:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
            length = struct.Struct(f"{order}I")
            position, count = _FILE_HEADER, 0
            while position + _RECORD_HEADER <= size:
                position += _RECORD_HEADER + length.unpack_from(data, position + 8)[0]
                count += position <= size
            return count
