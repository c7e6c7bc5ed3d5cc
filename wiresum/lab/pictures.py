"""What a run's captures tell, left in its folder: by `wiresum trace` when the network has gone."""

import shlex
import signal
import textwrap
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from wiresum.lab.captures import Captures
from wiresum.lab.nodes import own_command, own_environment
from wiresum.lab.programs import Program
from wiresum.lab.summary import add_trace
from wiresum.processes import describe_exit

MOST_BYTES: Final = 512 << 20  # of captures; some 40 MB/s are read
LONGEST_SECONDS: Final = 60.0
REPORT, PICTURE = "trace.txt", "trace.png"
_POLL_SECONDS: Final = 0.05
_WIDTH: Final = 200


class RunTrace:
    """As a context manager around the network, traces its captures when it has gone, and says what the run has left.

    Nothing that goes wrong here raises: it is said in a line.

    Args:
        folder: the run's, for the report and the pictures.
        tell: told each line.
        stop: a signal that has come, and leaves out the trace or ends it.
        most_bytes: of captures that are traced.
        longest_seconds: that a trace may take.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tell: Callable[[str], None],
        stop: Callable[[], signal.Signals | None] = lambda: None,
        most_bytes: int = MOST_BYTES,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._folder, self._tell, self._stop = folder, tell, stop
        self._most_bytes, self._longest_seconds = most_bytes, longest_seconds
        self._source: Captures | None = None
        self._captures: list[Path] = []

    def follow(self, captures: Captures) -> None:
        """Traces what these have when they are stopped."""
        self._source = captures

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        self._captures = [] if self._source is None else self._source.files
        try:
            if self._captures:
                self._trace()
            if left := left_in(self._folder):
                self._tell(f"left in {self._folder}: {left}")
        except OSError as problem:
            self._tell(f"no trace: {problem}")

    def _trace(self) -> None:
        size = sum(path.stat().st_size for path in self._captures)
        if why := self._why_not(size):
            self._tell(f"no trace: {why}; by hand: {self._by_hand()}")
            return
        picture = find_spec("matplotlib") is not None
        if not picture:
            self._tell("no picture of the trace: that needs matplotlib; install it with: pip install 'wiresum[demo]'")
        self._tell(f"reading {size / 1e6:,.0f} MB of captures; Ctrl-C leaves that out")
        words = ["trace", *map(str, self._captures), "--summary", str(self._folder / "summary.json")]
        words += ["--png", str(self._folder / PICTURE)] if picture else []
        program = Program(
            "wiresum trace",
            own_command(*words),
            namespace=None,
            environment=own_environment(),
            log=self._folder / REPORT,
        )
        if why := self._await(program):
            for file in traces_in(self._folder):
                file.unlink(missing_ok=True)
            self._tell(f"no trace: {why}; by hand: {self._by_hand()}")
            return
        add_trace(self._folder, [file.name for file in traces_in(self._folder)])

    def _why_not(self, size: int) -> str:
        if number := self._stop():
            return f"the run was interrupted by {number.name}"
        if size > self._most_bytes:
            return f"the captures have {size / 1e6:,.0f} MB, more than {self._most_bytes / 1e6:,.0f}"
        return ""

    def _await(self, program: Program) -> str:
        """Why the trace is not complete; empty if it is."""
        deadline = time.monotonic() + self._longest_seconds
        why = ""
        while not why and program.poll() is None:
            if number := self._stop():
                why = f"interrupted by {number.name}"
            elif time.monotonic() > deadline:
                why = f"it took more than {self._longest_seconds:g} s"
            time.sleep(_POLL_SECONDS)
        code = program.end(grace=0 if why else 3)
        if code and not why:
            said = program.said().splitlines()[-1:] or [describe_exit(code)]
            why = textwrap.shorten(said[0].removeprefix("wiresum: "), _WIDTH, placeholder=" ...")
        return why or (program.log.problem if program.log is not None else "")

    def _by_hand(self) -> str:
        beside = all(path.parent == self._folder for path in self._captures)
        # A folder of one's own may hold captures of other runs.
        files = [f"{shlex.quote(str(self._folder))}/*.pcap"] if beside else [shlex.join(map(str, self._captures))]
        files += [] if beside else ["--summary", shlex.quote(str(self._folder / "summary.json"))]
        return f"wiresum trace {' '.join(files)} --png {shlex.quote(str(self._folder / PICTURE))}"


def traces_in(folder: Path) -> list[Path]:
    """Report and pictures that a run's trace has left."""
    return [*folder.glob(REPORT), *sorted(folder.glob(f"{Path(PICTURE).stem}*.png"))]


def left_in(folder: Path) -> str:
    """What a run's folder holds, by kind."""
    parts = [name for name in ("summary.json", REPORT) if (folder / name).is_file()]
    for kind, pattern in (("pictures", "*.png"), ("logs", "*.log"), ("captures", "*.pcap")):
        files = sorted(folder.glob(pattern))
        if len(files) == 1:
            parts.append(files[0].name)
        elif files:
            shown = f" ({files[0].name} ... {files[-1].name})" if kind == "pictures" else ""
            parts.append(f"{len(files)} {kind}{shown}")
        if kind == "captures" and files:
            parts[-1] += f" of {sum(file.stat().st_size for file in files) / 1e6:,.0f} MB"
    return ", ".join(parts)
