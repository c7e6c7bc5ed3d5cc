"""What happened to one packet, in the terms of the P4 source."""

from __future__ import annotations

from typing import Any

from switch.model.matching import Lpm, Match, Range, Ternary
from switch.model.program import Program

_KINDS = {
    0: "the packet",
    1: "a clone of ingress",
    2: "a clone of egress",
    4: "recirculated",
    5: "a copy",
    6: "resubmitted",
}


class Trace:
    """An account of a packet's way; `str` gives it as text.

    Attributes:
        lines: one for each event, in order.
        out: what left, as (port, packet).
    """

    def __init__(self, program: Program, port: int, packet: bytes) -> None:
        self.program = program
        self.lines: list[str] = [f"port {port}: packet of {len(packet)} bytes: {_hex(packet)}"]
        self.out: list[tuple[int, bytes]] = []
        self._errors = {number: name for name, number in program.errors.items()}

    def __str__(self) -> str:
        sent = [f"sent to port {port}: {len(data)} bytes: {_hex(data)}" for port, data in self.out]
        return "\n".join([*self.lines, *(sent or ["nothing sent"])])

    # Generated code calls these.

    def note(self, text: str) -> None:
        """Anything."""
        self.lines.append(f"  {text}")

    def again(self, kind: int, packet: bytes) -> None:
        """Another pass."""
        self.lines.append(f"{_KINDS.get(kind, 'again')}: packet of {len(packet)} bytes: {_hex(packet)}")

    def state(self, name: str) -> None:
        """A parser state is entered."""
        self.lines.append(f"  parser state {name}")

    def extracted(self, header: str, fields: list[tuple[str, int]]) -> None:
        """A header was extracted."""
        self.note(f"  extracted {header}: {', '.join(f'{name} {_number(value)}' for name, value in fields)}")

    def parser_error(self, number: int) -> None:
        """Parsing failed."""
        self.note(f"parser error {self._errors.get(number, number)}")

    def decided(self, group: int, port: int) -> None:
        """Ingress is over."""
        self.note(f"to multicast group {int(group)}" if group else f"to port {int(port)}")

    def egress(self, port: int, rid: int | None, kind: int) -> None:
        """Egress begins."""
        copy = "" if rid is None else f", replication id {rid}"
        self.lines.append(f"egress of {_KINDS.get(kind, 'a packet')} to port {port}{copy}")

    def statement(self, text: str, place: str, value: int | None = None) -> None:
        """A statement was run; `value` is what its target holds now."""
        result = "" if value is None else f", now {_number(value)}"
        self.note(f"  {text}{result} ({place})")

    def condition(self, text: str, place: str, result: bool) -> None:
        """An if."""
        self.note(f"if ({text}) at {place}: {'true' if result else 'false'}")

    def table(self, table: Any, key: tuple[int, ...], entry: Any) -> None:
        """A table was applied."""
        names = ", ".join(f"{field.name} {_number(value)}" for field, value in zip(table.keys, key, strict=True))
        found = f"hit {', '.join(map(_match, entry.matches))}" if entry.hit else "miss"
        self.note(f"table {table.name}({names}): {found}")

    def action(self, name: str, args: tuple[int, ...]) -> None:
        """An action is run."""
        self.note(f"  action {name}({', '.join(map(_number, args))})")

    def register_read(self, name: str, index: int, value: int) -> None:
        """A cell was read."""
        self.note(f"    register {name}[{int(index)}] is {_number(value)}")

    def register_write(self, name: str, index: int, old: int, new: int) -> None:
        """A cell was written."""
        self.note(f"    register {name}[{int(index)}] from {_number(old)} to {_number(new)}")

    def count(self, name: str, index: int, packets: int) -> None:
        """A counter was raised."""
        self.note(f"    counter {name}[{int(index)}] now {packets} packets")

    def emit(self, header: str, data: bytes) -> bytes:
        """A header was written to the packet, if it has any bytes."""
        if data:
            self.note(f"emitted {header}: {_hex(data)}")
        return data


def _match(match: Match) -> str:
    if match is None:
        return "_"
    if isinstance(match, Range):
        return f"{_number(match.low)}..{_number(match.high)}"
    if isinstance(match, Lpm):
        return f"{_number(match.value)}/{match.prefix}"
    return _number(match.value) + (f" &&& {_number(match.mask)}" if isinstance(match, Ternary) else "")


def _number(value: int) -> str:
    value = int(value)
    return str(value) if -10 < value < 10 else hex(value)


def _hex(data: bytes) -> str:
    return data.hex() if len(data) <= 128 else f"{data[:128].hex()}..."
