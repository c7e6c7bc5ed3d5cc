"""Captures of what passes the hosts' interfaces, by tcpdump."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from wiresum.lab.network import Lab
from wiresum.lab.programs import Program, end_all
from wiresum.processes import describe_exit

_READY_SECONDS = 20.0


class Captures:
    """One file for each link of the network, named after its lower end: h1.pcap, s2.pcap.

    Args:
        lab: the network.
        folder: for the files.

    Raises:
        LabError: a capture did not start.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._programs: list[Program] = []
        self._folder = folder
        try:
            for link in lab.topology.links:
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
        """Ends them; returns the files by link, and what went wrong."""
        early = {program.name: code for program in self._programs if (code := program.poll()) is not None}
        end_all(self._programs, gentle=signal.SIGINT)
        problems = []
        for program in self._programs:
            said = [line for line in program.said().splitlines() if "listening on" not in line]
            dropped = [line for line in said if "dropped by kernel" in line and not line.startswith("0 ")]
            if program.name in early or program.poll():
                what = "; ".join(said[-2:]) or describe_exit(early.get(program.name, program.poll() or 0))
                problems.append(f"the capture of {program.name} is not complete: {what}")
            elif dropped:
                problems.append(f"the capture of {program.name} is not complete: {dropped[0]}")
        self._programs.clear()
        return {path.stem: path.name for path in sorted(self._folder.glob("*.pcap"))}, problems

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        end_all(self._programs, grace=0)


def programs_of(captures: "Captures") -> Sequence[Program]:
    """The running captures, for tests."""
    return captures._programs
