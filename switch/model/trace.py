"""What happened to one packet, in the terms of the P4 source."""

from __future__ import annotations

from typing import Any

from switch.model.program import Program

_KINDS = {4: "recirculated", 6: "resubmitted"}


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

    def condition(self, fragment: str, place: str, result: bool) -> None:
        """An if."""
        self.note(f"if ({fragment}) at {place}: {'true' if result else 'false'}")

    def table(self, table: Any, key: tuple[int, ...], entry: Any) -> None:
        """A table was applied."""
        names = ", ".join(f"{field.name} {_number(value)}" for field, value in zip(table.keys, key, strict=True))
        found = f"hit {', '.join(map(str, entry.matches))}" if entry.hit else "miss"
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


def _number(value: int) -> str:
    value = int(value)
    return str(value) if -10 < value < 10 else hex(value)


def _hex(data: bytes) -> str:
    return data.hex() if len(data) <= 128 else f"{data[:128].hex()}..."
