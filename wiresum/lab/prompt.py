"""Mininet's prompt with commands to look into the switches."""

import inspect
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from mininet.cli import CLI
from mininet.log import setLogLevel

from wiresum.lab.captures import Captures
from wiresum.lab.interruption import Interrupted, Interruption
from wiresum.lab.network import Lab
from wiresum.lab.programs import LabError, run_in
from wiresum.lab.slots import describe
from wiresum.lab.summary import totals
from wiresum.lab.topology import LinkSpec

_OWN: Final = ("workers", "slots", "stalls", "jobs", "counters", "ranks", "links", "trace", "packets")
_STALL_SECONDS: Final = 0.5
_CAPTURE_SECONDS: Final = 2.0
_LONGEST_CAPTURE: Final = 3600.0
_COUNTED: Final = (
    "BMv2 cannot read registers: this follows from how many chunks each rank has sent, and is not exact while packets "
    "are under way or lost"
)


class Prompt(CLI):  # type: ignore[misc]
    """Mininet's prompt; the commands in `_OWN` are ours."""

    prompt = "wiresum> "

    def __init__(self, lab: Lab, environment: Mapping[str, str], background: "Background") -> None:
        self._lab, self._environment, self._background = lab, environment, background
        super().__init__(lab.net)

    def onecmd(self, line: str) -> bool:
        """Does what a line says; returns whether the prompt is left, which it is not for anything that fails."""
        return bool(_survive(line, lambda: super(Prompt, self).onecmd(line)))

    def do_help(self, line: str) -> None:
        """Usage: help [COMMAND]. What there is."""
        if line.strip():
            super().do_help(line)
            return
        for name in _OWN:
            usage, meaning = _usage(getattr(self, f"do_{name}"))
            _say(f"  {usage:<28} {meaning}")
        others = [name[3:] for name in self.get_names() if name.startswith("do_") and name[3:] not in (*_OWN, "EOF")]
        _say(f"Of Mininet's own: HOST COMMAND runs one on a host, as in h1 ping h2; {', '.join(sorted(others))}")

    def do_workers(self, line: str) -> None:
        """Usage: workers COMMAND [&]. Run it on every host, with the variables of torchrun and wiresum set."""
        line, background = line.strip(), line.strip().endswith("&")
        try:
            words = shlex.split(line.removesuffix("&"))
        except ValueError as error:
            _say(f"{line}: {str(error).lower()}")
            return
        if not words:
            _say("say which command")
        elif background:
            self._background.start(lambda: _survive(line, lambda: self._work(words)))
        else:
            self._work(words)

    def _work(self, words: Sequence[str]) -> None:
        from wiresum.lab.run import run_command

        with TemporaryDirectory() as folder:
            result = run_command(
                self._lab,
                words,
                logs=Path(folder),
                environment=self._environment,
                on_line=lambda host, text: _say(f"[{host}] {text}"),
                stop=lambda: signal.SIGTERM if self._background.leaving.is_set() else None,
            )
        if not self._background.leaving.is_set():
            for problem in result.problems:
                _say(problem)

    def do_slots(self, line: str) -> None:
        """Usage: slots [SWITCH]. Slots of each job: how many wait, for which chunk, who is there and who is missing."""
        self._slots(line, None)

    def do_stalls(self, line: str) -> None:
        """Usage: stalls [SWITCH]. Slots that have waited for the same ranks for half a second, and for whom."""
        self._slots(line, _STALL_SECONDS)

    def _slots(self, line: str, again: float | None) -> None:
        hosts = {host.address: host.name for host in self._lab.topology.hosts}
        for name, jobs in self._ask(line, lambda switch: self._lab.slots(switch, again)):
            shown = [job for job in jobs if again is None or job["waiting"] or job["number"] is None]
            if not shown:
                _say(f"{name}: {'nothing stalls' if jobs else 'no jobs'}")
            for job in shown:
                for number, text in enumerate(describe(job, hosts, stalled=again is not None)):
                    _say(text if number else f"{name}: {text}")
            if any(job["number"] is not None for job in shown) and self._lab.settings.kind == "bmv2":
                _say(f"  ({_COUNTED})")

    def do_jobs(self, line: str) -> None:
        """Usage: jobs [SWITCH]. Jobs, their ranks and pools, and how many slots of the switch are free."""
        for name, report in self._ask(line, self._lab.counters):
            _say(f"{name}: {report['free_slots']:,} of {report['total_slots']:,} slots are free")
            for job in report["jobs"]:
                ranks = f"{len(job['joined'])} of {job['world_size']} ranks"
                number = "" if job["number"] is None else f" number {job['number']},"
                pool = f", {job['slots']} slots of {job['values']} values" if job["slots"] else ""
                _say(f"  job {job['name']!r}:{number} {job['state']}, {ranks}{pool}")

    def do_counters(self, line: str) -> None:
        """Usage: counters [SWITCH]. What a switch has counted, as far as it is not zero."""
        for name, report in self._ask(line, self._lab.counters):
            _say(f"{name}:")
            for key, value in totals(report).items():
                if value:
                    _say(f"  {key} {value:,}")

    def do_ranks(self, line: str) -> None:
        """Usage: ranks [SWITCH]. What it has counted of each rank of the jobs that run."""
        for name, report in self._ask(line, self._lab.counters):
            rows: dict[tuple[str, int], list[str]] = {}
            for row in report["counters"]:
                if row["rank"] is not None and row["value"]:
                    rows.setdefault((row["job"], row["rank"]), []).append(f"{row['name']} {row['value']:,}")
            for (job, rank), found in rows.items():
                _say(f"{name}: job {job!r} rank {rank}: {', '.join(found)}")
            if not rows:
                _say(f"{name}: no ranks")

    def do_links(self, line: str) -> None:
        """Usage: links. Traffic and drops of every link."""
        for link in self._lab.topology.links:
            for way, found in self._lab.link_counters(link).items():
                _say(f"{link.child}-{link.parent} {way}: " + ", ".join(f"{k} {v:,}" for k, v in found.items()))

    def do_trace(self, line: str) -> None:
        """Usage: trace NODE [SECONDS]. Capture there, at all links of a switch, and show what `wiresum trace` tells."""
        links, seconds = self._place(line)
        if not links:
            return
        from wiresum.cli import main

        with TemporaryDirectory() as folder:
            with Captures(self._lab, Path(folder), links) as captures:
                _say(f"capturing for {seconds:g} s")
                time.sleep(seconds)
                files, problems = captures.stop()
            for problem in problems:
                _say(problem)
            sys.stdout.flush()
            main(["trace", *(str(Path(folder) / file) for file in files.values())])

    def do_packets(self, line: str) -> None:
        """Usage: packets NODE [SECONDS]. The next packets of wiresum there, as tcpdump shows them; up to 50."""
        links, seconds = self._place(line)
        for link in links:
            pid, interface = self._lab.interfaces(link)[0]
            words = ["timeout", "--preserve-status", f"{seconds:g}", "tcpdump", "-n", "-c", "50", "-i", interface]
            try:
                found = run_in(pid, *words, "udp port 48864", timeout=seconds + 30)
            except LabError as error:
                found = str(error)
            _say(found.rstrip() or f"{link.child}: no packets of wiresum")

    def _place(self, line: str) -> tuple[list[LinkSpec], float]:
        """The links of a host or switch, and for how long; none if the line does not say, which is told."""
        topology = self._lab.topology
        name, _, rest = line.strip().partition(" ")
        links = [link for link in topology.links if name in (link.child, link.parent)]
        try:
            seconds = float(rest or _CAPTURE_SECONDS)
        except ValueError:
            seconds = 0.0
        if not links:
            _say(f"say at which host or switch, of {', '.join(node.name for node in self._lab.net.values())}")
        elif not 0 < seconds <= _LONGEST_CAPTURE:
            _say(f"seconds must be above 0, up to {_LONGEST_CAPTURE:g}, not {rest}")
            links = []
        return links, seconds

    def _ask(self, line: str, question: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        """What the switches of a line answer, or all; those that do not are told."""
        known = [switch.name for switch in self._lab.topology.switches]
        asked = line.split() or known
        for name in set(asked) - set(known):
            _say(f"there is no switch {name}; there are {', '.join(known)}")
        asked = [name for name in asked if name in known]
        with ThreadPoolExecutor() as pool:
            answers = list(pool.map(question, asked))
        for name, answer in zip(asked, answers, strict=True):
            if isinstance(answer, dict) and "error" in answer:
                _say(f"{name}: {answer['error']}")
            else:
                yield name, answer


class Background:
    """Commands that run beside the prompt.

    Attributes:
        leaving: set when they are to end.
    """

    def __init__(self) -> None:
        self.leaving = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        """Does the work in a thread, which has to wait for the programs that it starts: they end with it."""
        thread = threading.Thread(target=work, name="workers", daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        """Ends what still runs."""
        self.leaving.set()
        for thread in self._threads:
            thread.join()


def _usage(command: Callable[[str], None]) -> tuple[str, str]:
    usage, _, meaning = (inspect.getdoc(command) or "").removeprefix("Usage: ").partition(". ")
    return usage, meaning


def prompt(lab: Lab, environment: Mapping[str, str], interruption: Interruption) -> None:
    """Shows the prompt until the user leaves it, or a signal comes."""
    setLogLevel("output")
    background = Background()
    try:
        with interruption.at_prompt():
            Prompt(lab, environment, background)
    except Interrupted:
        pass
    finally:
        background.close()
        setLogLevel("critical")


def _survive(line: str, command: Callable[[], Any]) -> Any:
    """What a command returns; if it fails, that is said."""
    try:
        return command()
    except LabError as error:
        _say(f"{line.strip()}: {error}")
    except Exception as error:  # Mininet's own raise whatever there is
        _say(f"{line.strip()}: {type(error).__name__}: {error}")
    return None


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
