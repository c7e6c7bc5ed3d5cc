"""Compiles a program to Python source: a function for parser and ingress, one for egress and deparser, one for clones.

Header fields are local variables. What egress needs travels in one tuple; headers that egress does not look into travel
as the bytes that they will be, so that they are made once for all copies of a packet.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CodeType
from typing import Any

from switch.model.emit_egress import EgressEmitter
from switch.model.emit_ingress import IngressEmitter
from switch.model.errors import UnsupportedError
from switch.model.program import Program


@dataclass(frozen=True)
class Compiled:
    """Generated code. `objects` are what its global names stand for; a switch binds them."""

    source: str
    code: CodeType
    objects: dict[str, tuple[Any, ...]]


def compile_program(program: Program, *, trace: bool = False) -> Compiled:
    """The code of a program, with or without calls of a trace. It is kept with the program.

    Raises:
        UnsupportedError: an expression is nested too deeply.
    """
    key = "trace" if trace else "plain"
    if key not in program.compiled:
        try:
            program.compiled[key] = _Compiler(program, trace=trace).compile()
        except RecursionError:
            raise UnsupportedError("an expression that is nested hundreds of times is not supported") from None
    found: Compiled = program.compiled[key]
    return found


class _Compiler(IngressEmitter, EgressEmitter):
    def compile(self) -> Compiled:
        self.tracks_length = self.egress_reads_length()
        frame, parts = self.prepare()
        lines = self.ingress()
        if "clone_ingress_pkt_to_egress" in self.ops:
            lines += self.clone()
        lines += self.egress(frame, parts)
        text = "\n".join(lines) + "\n"
        return Compiled(text, compile(text, f"<{self.program.name or 'program'}>", "exec"), self.objects)
