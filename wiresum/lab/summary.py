"""What a run came to: a file for programs and a table for people."""

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wiresum.lab.network import Lab
from wiresum.lab.run import CommandResult

_AT_ONCE = 4
_FATES = ("lost", "duplicated", "delayed", "reordered")
_PACKAGES = ("wiresum", "torch", "numpy", "mininet")


def machine() -> dict[str, Any]:
    """What a measurement ran on."""
    found: dict[str, Any] = {
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def totals(report: Mapping[str, Any]) -> dict[str, int]:
    """A switch's counters over all jobs, from what `wiresum stats --json` says."""
    rows = report.get("counters", [])
    return {row["name"]: row["value"] for row in rows if row["job"] is None and row["rank"] is None}


def summarize(
    lab: Lab,
    *,
    name: str,
    command: Sequence[str],
    result: CommandResult,
    seconds: float,
    captures: Mapping[str, str],
    problems: Sequence[str],
) -> dict[str, Any]:
    """Everything about a run, ready for JSON; asks the switches for their counters."""
    topology = lab.topology
    names = [switch.name for switch in topology.switches]
    with ThreadPoolExecutor(_AT_ONCE) as pool:  # each is a process in the switch's namespace
        counters = dict(zip(names, pool.map(lab.counters, names), strict=True))
    wires = lab.wire_counters()
    return {
        "run": name,
        "command": list(command),
        "exit_code": result.code,
        "seconds": round(seconds, 3),
        "problems": list(problems),
        "hosts": [asdict(host) for host in result.hosts],
        "switch": lab.settings.kind,
        "seed": lab.settings.seed,
        "topology": asdict(topology),
        "faults": {
            "mechanism": lab.plan.mechanism,
            "what": lab.plan.what,
            "missing": [*lab.plan.missing, *_beside(wires)],
        },
        "wires": wires,
        "rates": "HTB" if any(d.rate for link in topology.links for d in (link.up, link.down)) else "none",
        "frames_are_packets": lab.frames_are_packets,
        "links": {link.child: lab.link_counters(link) for link in topology.links},
        "counters": counters,
        "captures": dict(captures),
        "machine": machine(),
    }


def _beside(wires: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[str]:
    """What wires have done beside their faults."""
    for child, wire in wires.items():
        if not wire:
            yield f"how many frames the wire of {child} has lost is not known: it was killed"
        elif count := sum(way["overflowed"] + way["dropped"] for way in wire.values()):
            yield (
                f"the wire of {child} was given more frames than it can take, and {count:,} more were lost than its "
                "faults say"
            )


def save(summary: Mapping[str, Any], folder: Path) -> Path:
    """Writes summary.json."""
    path = folder / "summary.json"
    path.write_text(json.dumps(summary, indent=2) + "\n")
    return path


def add_trace(folder: Path, files: Sequence[str]) -> None:
    """Adds to a saved summary what the trace of its captures has left.

    Raises:
        OSError: it cannot be read or written; it is then as it was.
    """
    path = folder / "summary.json"
    new = path.with_suffix(".new")
    try:
        new.write_text(json.dumps({**json.loads(path.read_text()), "trace": list(files)}, indent=2) + "\n")
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def show(summary: Mapping[str, Any], console: Console) -> None:
    """Prints hosts, links and switches as tables."""
    codes = {host["name"]: host for host in summary["hosts"]}
    table = Table("link", "exit code", "seconds", title=f"run {summary['run']}", title_justify="left")
    by_netem = any("lost" in way for link in summary["links"].values() for way in link.values())
    lost = ["lost"] if by_netem else []
    for heading in ("MB up", "MB down", "frames up", "frames down", "queue drops", *lost):
        table.add_column(heading, justify="right")
    for child, link in summary["links"].items():
        host = codes.get(child)
        up, down = link["up"], link["down"]
        table.add_row(
            child,
            "" if host is None else str(host["code"]),
            "" if host is None else f"{host['seconds']:.1f}",
            *(f"{way['bytes'] / 1e6:,.1f}" for way in (up, down)),
            *(f"{way['packets']:,}" for way in (up, down)),
            *(f"{up.get(counter, 0) + down.get(counter, 0):,}" for counter in ("queue_dropped", *lost)),
        )
    console.print(table)
    if not summary["frames_are_packets"]:
        console.print(
            "A frame may hold many packets, up to 64 KB, as segmentation offload is on; "
            "what switches count are packets. With --pcap, it is off.",
            soft_wrap=True,
        )
    for name, report in summary["counters"].items():
        if "error" in report:
            console.print(f"{name}: no counters: {escape(report['error'])}", soft_wrap=True)
            continue
        busy = [f"{key} {value:,}" for key, value in totals(report).items() if value]
        console.print(f"{name} ({summary['switch']}): {', '.join(busy) or 'has counted nothing'}", soft_wrap=True)
    for child, wire in summary["wires"].items():
        fates = [f"{fate} {n:,}" for fate in _FATES if (n := sum(way[fate] for way in wire.values()))]
        if wire:
            console.print(f"wire of {child}: {', '.join(fates) or 'no faults'}", soft_wrap=True)
    console.print(f"faults: {escape(summary['faults']['what'])}", soft_wrap=True)
    for text in (*summary["faults"]["missing"], *summary["problems"]):
        console.print(f"[bold red]![/] {escape(text)}", soft_wrap=True)
