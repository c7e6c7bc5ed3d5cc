"""Mininet's prompt with commands to look into the switches."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mininet.cli import CLI
from mininet.log import setLogLevel

from wiresum.lab.interruption import Interrupted, Interruption
from wiresum.lab.network import Lab
from wiresum.lab.programs import LabError, run_in
from wiresum.lab.summary import totals


class Prompt(CLI):  # type: ignore[misc]
    """Mininet's prompt; `counters`, `jobs`, `links`, `slots` and `workers` are ours."""

    prompt = "wiresum> "

    def __init__(self, lab: Lab, environment: Mapping[str, str], **options: Any) -> None:
        self._lab, self._environment = lab, environment
        super().__init__(lab.net, **options)

    def do_counters(self, line: str) -> None:
        """Usage: counters [SWITCH]. what a switch has counted, as far as it is not zero."""
        for name in self._switches(line):
            report = self._lab.counters(name)
            _say(f"{name}: {report['error']}" if "error" in report else f"{name}:")
            for key, value in totals(report).items():
                if value:
                    _say(f"  {key} {value:,}")

    def do_jobs(self, line: str) -> None:
        """Usage: jobs [SWITCH]. jobs at a switch, their ranks and their slots."""
        for name in self._switches(line):
            report = self._lab.counters(name)
            if "error" in report:
                _say(f"{name}: {report['error']}")
                continue
            _say(f"{name}: {report['free_slots']:,} of {report['total_slots']:,} slots are free")
            for job in report["jobs"]:
                _say("  " + ", ".join(f"{key} {value}" for key, value in job.items()))

    do_slots = do_jobs

    def do_stalls(self, line: str) -> None:
        """Usage: stalls [SWITCH]. What was counted of each rank, to see who keeps others waiting."""
        for name in self._switches(line):
            for row in self._lab.counters(name).get("counters", []):
                if row["rank"] is not None and row["value"]:
                    _say(f"{name} job {row['job']} rank {row['rank']}: {row['name']} {row['value']:,}")

    def do_links(self, line: str) -> None:
        """Usage: links. traffic and drops of every link. Mininet's own says only whether they are up."""
        for link in self._lab.topology.links:
            for way, found in self._lab.link_counters(link).items():
                _say(f"{link.child}-{link.parent} {way}: " + ", ".join(f"{k} {v:,}" for k, v in found.items()))

    def do_workers(self, line: str) -> None:
        """Usage: workers COMMAND. Runs it on every host, with the variables of torchrun and wiresum set."""
        from wiresum.lab.run import run_command

        if not line.strip():
            _say("say which command")
            return
        with TemporaryDirectory() as folder:
            result = run_command(
                self._lab,
                shlex.split(line),
                logs=Path(folder),
                environment=self._environment,
                on_line=lambda host, text: _say(f"[{host}] {text}"),
            )
        for problem in result.problems:
            _say(problem)

    def do_trace(self, line: str) -> None:
        """Usage: trace HOST [SECONDS]. wiresum's packets at a host, as tcpdump shows them."""
        host, _, seconds = line.strip().partition(" ")
        if host not in [spec.name for spec in self._lab.topology.hosts]:
            _say("say at which host")
            return
        pid, interface = self._lab.interfaces(self._lab.topology.link_of(host))[0]
        words = ["timeout", "--preserve-status", seconds or "2", "tcpdump", "-n", "-c", "50", "-i", interface]
        try:
            _say(run_in(pid, *words, "udp port 48864", timeout=120))
        except LabError as error:
            _say(str(error))

    def _switches(self, line: str) -> list[str]:
        known = [switch.name for switch in self._lab.topology.switches]
        asked = line.split() or known
        for name in asked:
            if name not in known:
                _say(f"there is no switch {name}; there are {', '.join(known)}")
        return [name for name in asked if name in known]


def prompt(lab: Lab, environment: Mapping[str, str], interruption: Interruption) -> None:
    """Shows the prompt until the user leaves it, or a signal comes."""
    setLogLevel("output")
    try:
        with interruption.at_prompt():
            Prompt(lab, environment)
    except Interrupted:
        pass
    finally:
        setLogLevel("critical")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
