"""P4 programs for tests of the programmable switch: one concern each, compiled beside their source."""

from pathlib import Path
from typing import Any

from switch.model.core import ModelSwitch

FOLDER = Path(__file__).resolve().parent / "p4"
NAMES = ("arithmetic", "control", "copies", "externs", "headers", "parsing", "tables")


def load(name: str, **options: Any) -> ModelSwitch:
    """A fresh switch for one of the programs."""
    return ModelSwitch.load(FOLDER / f"{name}.json", **options)


def one(switch: ModelSwitch, packet: bytes, port: int = 1, now: float = 0.0) -> bytes:
    """The only packet that leaves, which must do so by port 2; the traced run must do the same."""
    ((out, data),) = switch.receive(port, packet, now)
    assert out == 2
    return data
