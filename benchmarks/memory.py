"""How much memory worker and switch take beyond their tensors and the interpreter."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.common import spec_for
from benchmarks.group import Group
from benchmarks.participant import Memory, memory_of
from wiresum.processes import SwitchProcess

_WORKERS: Final = 2
_BARE: Final = """
import {modules}
from pathlib import Path
lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(*(1024 * int(lines[name].split()[0]) for name in ("VmRSS", "RssAnon", "VmHWM")))
"""


@dataclass(frozen=True, kw_only=True)
class WorkerMemory:
    """Bytes of one worker beyond its tensor and an interpreter that has loaded numpy (for the backend, torch).

    Attributes:
        libraries: resident once the way to reduce is open and before it is used, mapped program files included.
        peak: the highest while it reduced.
        private: the part of that which is not a mapped file, and so not shared by the workers of one machine; at the
            end.
    """

    side: str
    elements: int
    libraries: int
    peak: int
    private: int


def bare_memory(*modules: str) -> Memory:
    """Of an interpreter that has loaded these modules and nothing else."""
    command = [sys.executable, "-c", _BARE.format(modules=", ".join(modules))]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    resident, anonymous, peak = map(int, words)
    return Memory(resident=resident, anonymous=anonymous, peak=peak)


def worker_memory(side: str, sizes: Sequence[int], *, values: int, slots: int | None) -> list[WorkerMemory]:
    """Measures, for each size in fresh processes, the worker that takes the most."""
    bare = bare_memory("numpy") if side == "wiresum" else bare_memory("torch.distributed")
    results = []
    for elements in sizes:
        with tempfile.TemporaryDirectory() as directory, SwitchProcess() as switch, Group(_WORKERS) as group:
            store = Path(directory, "store")
            spec = spec_for(side, switch=None if side == "gloo" else switch, store=store, values=values, slots=slots)
            group.call("allocate", elements=elements)
            group.call("open", name=side, spec=spec)
            opened: list[Memory] = group.call("memory")
            for _ in range(3):
                group.time(side, 1)
            after: list[Memory] = group.call("memory")
        tensor = 4 * elements
        results.append(
            WorkerMemory(
                side=side,
                elements=elements,
                libraries=max(memory.resident for memory in opened) - bare.resident - tensor,
                peak=max(memory.peak for memory in after) - bare.peak - tensor,
                private=max(memory.anonymous for memory in after) - bare.anonymous - tensor,
            )
        )
    return results


def switch_memory(switch: SwitchProcess) -> int:
    """Bytes that a switch has taken at its peak, beyond an interpreter that has loaded numpy."""
    return memory_of(switch.pid).peak - bare_memory("numpy").peak
