"""`wiresum mininet` in a process of its own, and a look at what it leaves on the machine."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
MARK = "WIRESUM_TEST_MARK"
RUN_SECONDS = 90.0
PROBE = "ip -j link show dev lo"  # by which another run looks whose a namespace is
# The command, also before the front end knows it.
MAIN = (
    "import sys; import wiresum.cli as cli\n"
    "cli._COMMANDS.setdefault('mininet', 'wiresum.mininet_command')\n"
    "sys.exit(cli.main(['mininet', *sys.argv[1:]]))"
)


def why_not() -> str:
    """Why networks cannot be built here; empty if they can."""
    if os.geteuid():
        return "needs root"
    missing = [tool for tool in ("mnexec", "ip", "tc", "ethtool", "setpriv", "tcpdump") if shutil.which(tool) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if subprocess.run(["unshare", "--net", "ip", "link", "set", "lo", "up"], capture_output=True).returncode:
        return "needs to be allowed to make network namespaces"
    try:
        found = find_spec("mininet.net")
    except ModuleNotFoundError:
        found = None
    return "" if found else "needs Mininet's Python package"


class LabRun:
    """A run that can be watched and killed; as a context manager it makes sure that nothing outlives the test.

    Args:
        args: the command's.
        out: folder for runs.
        environment: variables added.
    """

    def __init__(
        self, *args: str, out: Path, environment: dict[str, str] | None = None, keep_stdin: bool = False
    ) -> None:
        self.mark = os.urandom(8).hex()
        self.out = out
        self.stderr_file = out / f"stderr-{self.mark}"
        out.mkdir(exist_ok=True)
        self._stderr = self.stderr_file.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "--out", str(out), *args],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONUNBUFFERED": "1",
                MARK: self.mark,
                **(environment or {}),
            },
            stdin=subprocess.PIPE if keep_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        # The network namespace of each node, held open, or the kernel would give its number to another one.
        self._nodes: dict[str, int] = {}
        self.stdout = b""

    @property
    def namespaces(self) -> dict[str, int]:
        """The network namespaces of the run's nodes that have been seen, by node."""
        return {name: os.fstat(descriptor).st_ino for name, descriptor in self._nodes.items()}

    def processes(self) -> dict[int, str]:
        """Every process that descends from this run or is in a namespace of it, but not the run itself."""
        found = {}
        own, namespaces = os.stat("/proc/self/ns/net").st_ino, set(self.namespaces.values())
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == self.process.pid:
                continue
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                namespace = (entry / "ns/net").stat().st_ino
                if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    # One that is about to become a program still bears the run's command line.
                    found[int(entry.name)] = "(starting)" if "cli._COMMANDS" in line else line.strip()
                    # Not those in which a run tries what the kernel can do.
                    if namespace != own and (shell := re.search(r"mininet:(\S+)", line)):
                        self._hold(shell[1], entry)
                elif namespace in namespaces and PROBE not in line:
                    found[int(entry.name)] = line.strip()
            except OSError:
                continue
        return found

    def _hold(self, node: str, process: Path) -> None:
        if node not in self._nodes:
            self._nodes[node] = os.open(process / "ns/net", os.O_RDONLY)

    def wait_for(self, words: str) -> int:
        """Waits for a process of the run whose command line has these words; returns its id."""
        return self.wait_for_many(words, 1)[0]

    def wait_for_many(self, words: str, count: int) -> list[int]:
        """The same for several processes."""
        found: list[int] = []

        def enough() -> bool:
            found[:] = [pid for pid, line in self.processes().items() if words in line]
            return len(found) >= count

        self._until(enough, f"{count} times {words}")
        return found

    def wait_for_none(self, words: str, *, but: int = 0) -> None:
        """Waits until all but some of the processes with these words are gone."""
        self._until(lambda: sum(words in line for line in self.processes().values()) <= but, f"end of {words}")

    def wait_for_line(self, words: str) -> None:
        """Waits for words on the run's standard error."""
        self._until(lambda: words in self.stderr, words)

    def _until(self, found: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + RUN_SECONDS
        while not found():
            assert self.process.poll() is None, f"ended with {self.process.returncode} before {what}:\n{self.stderr}"
            assert time.monotonic() < deadline, f"no {what}:\n{self.stderr}"
            time.sleep(0.02)

    @property
    def stderr(self) -> str:
        return self.stderr_file.read_text(errors="replace")

    def end(self, send: signal.Signals | None = None, seconds: float = RUN_SECONDS, stdin: bytes | None = None) -> int:
        """Waits for its end, after a signal if one is given; returns its exit code."""
        self.processes()
        if send is not None:
            self.process.send_signal(send)
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.stdout += self.process.communicate(stdin, timeout=0.2)[0]
                return self.process.returncode
            except subprocess.TimeoutExpired:
                assert time.monotonic() < deadline, f"still running after {seconds:g} s:\n{self.stderr}"
                stdin = None
                self.processes()  # remembers namespaces

    def type(self, *lines: str) -> None:
        """Writes lines to its standard input, which it must have kept."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.process.stdin.flush()

    def read_until(self, words: bytes) -> None:
        """Waits for a line that ends with these words on its standard output."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.stdout += line
            if line.endswith(words):
                return
        raise AssertionError(f"ended before {words!r}:\n{self.stdout.decode()}\n{self.stderr}")

    def summary(self) -> dict[str, Any]:
        """What it wrote at the end."""
        (path,) = self.out.glob("*/summary.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def left(self) -> list[str]:
        """What is still there of it: processes and interfaces."""
        found = list(self.processes().values())
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        found += [line for line in links.splitlines() if "-eth" in line.split(":")[1]]
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        self._stderr.close()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self._nodes:
            os.close(self._nodes.popitem()[1])
