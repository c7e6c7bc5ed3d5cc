"""What the nodes of a captured run are called: `wiresum mininet` leaves that in summary.json, beside its captures."""

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from protocol.errors import WiresumError

SUMMARY: Final = "summary.json"
_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,8}")  # as topologies have them; they become parts of files' names


@dataclass(frozen=True, slots=True)
class Nodes:
    """Hosts and switches of a run, as far as they are known.

    Attributes:
        names: by IPv4 address, as a number.
        parents: of each switch the one above it, by name; None for the root.
    """

    names: Mapping[int, str] = field(default_factory=dict)
    parents: Mapping[str, str | None] = field(default_factory=dict)

    def level(self, name: str) -> int:
        """How many switches are above it; 0 for what is not known."""
        level = 0
        while level < len(self.parents) and (above := self.parents.get(name)) is not None:
            name, level = above, level + 1
        return level


def read_nodes(summary: Path) -> Nodes:
    """The nodes that a run's summary tells.

    Raises:
        WiresumError: the file is no summary of a run.
        OSError: it cannot be read.
    """
    try:
        topology = json.loads(summary.read_bytes())["topology"]
        names = {_address(node): _name(node["name"]) for node in (*topology["hosts"], *topology["switches"])}
        parents = {
            _name(node["name"]): None if node["parent"] is None else _name(node["parent"])
            for node in topology["switches"]
        }
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WiresumError(f"{summary} is not the summary of a run of `wiresum mininet`") from None
    return Nodes(names, parents)


def nodes_beside(captures: Sequence[Path]) -> tuple[Nodes, list[str]]:
    """The nodes that summaries in the captures' folders tell, and what is to be said about those.

    Captures of several runs have no names, as one address may be several nodes.
    """
    found: list[Nodes] = []
    notes: list[str] = []
    for folder in dict.fromkeys(path.parent for path in captures):
        summary = folder / SUMMARY
        try:
            nodes = read_nodes(summary) if summary.is_file() else None
        except (WiresumError, OSError) as error:
            notes.append(f"nodes are called by their addresses: {error}")
            continue
        if nodes is not None and nodes not in found:
            found.append(nodes)
    if len(found) > 1:
        notes.append(f"nodes are called by their addresses: the captures' folders have {len(found)} different networks")
    return (found[0] if len(found) == 1 else Nodes()), notes


def _address(node: Any) -> int:
    return int(ipaddress.IPv4Address(node["address"]))


def _name(text: Any) -> str:
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise ValueError(text)
    return text
