"""What the functions of a compiled program have in common: their variables, and what travels from one to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from switch.model.controls import Action
from switch.model.emit_base import Frame, Names
from switch.model.emit_bytes import pack
from switch.model.expressions import Const, FieldRef, Primitive
from switch.model.program import Program

# What variables that are no fields start with; the rest are arguments of the functions.
INITIAL = {
    "trunc": "1 << 62",
    "clone": "-1",
    "clone_list": "0",
    "resubmit": "0",
    "recirculate": "0",
    "digest": "0",
    "receiver": "0",
}
_ARGUMENTS = frozenset({"size", "now", "pkt", "port", "exited"})
_KEEPERS = frozenset({"resubmit", "recirculate", "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress"})
# What simple_switch sets before egress, and with which code.
EGRESS_GIVEN = {
    "standard_metadata.egress_port": "port",
    "standard_metadata.instance_type": "kind",
    "standard_metadata.packet_length": "plen",
    "intrinsic_metadata.egress_global_timestamp": "ts",
    "queueing_metadata.enq_timestamp": "ts",
    "queueing_metadata.enq_qdepth": "0",
    "queueing_metadata.deq_timedelta": "0",
    "queueing_metadata.deq_qdepth": "0",
    "standard_metadata.egress_spec": "DROP + 1",
}


class FunctionEmitter:
    """Base of what writes functions; all parts of a compiler are one object.

    Attributes:
        ops: the primitives that the program uses.
        lists: the field lists that it keeps fields by; `kept` are their fields, with one place for each.
        live: variables that travel from ingress to egress.
        groups: headers that become bytes together, and travel so.
        kept_validity: headers among them whose validity egress wants to know.
        with_payload: whether the last group takes the payload in.
        egress_used: variables that egress uses.
    """

    def __init__(self, program: Program, *, trace: bool) -> None:
        self.program, self.trace = program, trace
        self.names = Names(program)
        self.objects: dict[str, tuple[Any, ...]] = {}
        self.ops = {each.op for each in primitives(program)}
        keepers = [each for each in primitives(program) if each.op in _KEEPERS]
        lists = {last.value for each in keepers if isinstance(last := each.args[-1], Const)}
        self.lists = [program.field_lists[each] for each in sorted(lists)]
        self.kept = list(dict.fromkeys(f for each in self.lists for f in each.fields if isinstance(f, FieldRef)))
        self.clones_egress = "clone_egress_pkt_to_egress" in self.ops
        self.live: list[str] = []
        self.groups: list[list[str]] = []
        self.with_payload = False
        self.kept_validity: set[str] = set()
        self.egress_used: list[str] = []
        self.tracks_length = False

    def _frame(self) -> Frame:
        frame = Frame(self.program, self.names, trace=self.trace)
        frame.tracks_length = self.tracks_length
        return frame

    def note(self, frame: Frame, words: str) -> None:
        """Writes a note for the trace, if there is one."""
        if self.trace:
            frame.w.line(f"tr.note({words!r})")

    def _std(self, name: str) -> str | None:
        """The variable of a field that simple_switch knows, if the program has it."""
        ref = self.program.standard(name)
        return None if ref is None else self.names.field(ref.header, ref.field)

    def _keep(self, frame: Frame, chosen: str) -> None:
        """Writes `kept`: the values of the fields of a list, 0 for those of other lists."""
        w = frame.w
        w.line("kept = None")
        for each in self.lists:
            if each.fields:
                values = [frame.field(f) if f in each.fields else "0" for f in self.kept]
                with w.block(f"if {chosen} == {each.id}:"):
                    w.line(f"kept = ({', '.join(values)},)")

    def _take_kept(self, frame: Frame) -> list[str]:
        names = [frame.field(each) for each in self.kept]
        if not names:
            return []
        return ["    if keep is not None:", f"        {', '.join(names)}, = keep"]

    def _prologue(self, frame: Frame, *, ingress: bool) -> list[str]:
        """First values of all variables of an ingress-like function, in BMv2's order: what is kept comes in between."""
        lines = ["    tr = X.trace"] if self.trace else []
        kept = self._take_kept(frame) if ingress else []
        lines += self._zeros(frame)
        if not ingress:
            return lines
        stamp = "intrinsic_metadata.ingress_global_timestamp"
        lines += self._set(frame, "standard_metadata.ingress_port", "0 if kind else port")
        if self._std(stamp) is not None:
            lines += self._set(frame, stamp, f"0 if kind else ts & {self._mask(stamp):#x}")
        lines += kept
        lines += self._set(frame, "standard_metadata.packet_length", "size")
        lines += self._set(frame, "standard_metadata.instance_type", "kind")
        return lines

    def _set(self, frame: Frame, name: str, code: str) -> list[str]:
        """Sets a field that simple_switch knows, if the function uses it."""
        variable = self._std(name)
        return [] if variable is None or variable not in frame.used else [f"    {variable} = {code}"]

    def _mask(self, name: str) -> int:
        ref = self.program.standard(name)
        assert ref is not None
        return int((1 << self.program.field(ref).width) - 1)

    def _zeros(self, frame: Frame, skip: Iterable[str] = ()) -> list[str]:
        """0 and False for the variables that a function uses."""
        zeros: list[str] = []
        invalid: list[str] = []
        lines: list[str] = []
        without = {*skip, *_ARGUMENTS, "payload"}
        for name in frame.used:
            if name in without:
                continue
            if name in INITIAL:
                lines.append(f"    {name} = {INITIAL[name]}")
            elif name == "plen":
                lines.append("    plen = size")
            else:
                (invalid if name.startswith("v_") else zeros).append(name)
        for names, value in ((zeros, "0"), (invalid, "False")):
            pieces = [names[place : place + 100] for place in range(0, len(names), 100)]
            lines += [f"    {' = '.join(piece)} = {value}" for piece in pieces]
        self.objects.update(frame.objects)
        return lines

    # What travels

    def _plan(self, frame: Frame) -> None:
        """Decides what travels: variables of egress that ingress has changed, and headers as bytes."""
        self.live = []
        packed = {header for group in self.groups for header in group}
        always = {"size", "plen"}
        given = {self._std(name) for name in EGRESS_GIVEN}
        for name in self.egress_used:
            owner = self.names.of_header.get(name)
            from_ingress = name in frame.used or name in always or name == "payload"
            kept = self.clones_egress and owner is not None and not self.program.headers[owner].metadata
            kept = kept or (self.clones_egress and name.startswith("n_"))
            if name in given or name in INITIAL or (owner in packed and name.startswith(("h_", "l_"))):
                continue
            if from_ingress or kept:
                self.live.append(name)
        if "truncate" in self.ops and "trunc" not in self.live:
            self.live.append("trunc")
        if not self.with_payload and "payload" not in self.live:
            self.live.append("payload")

    def _live_tuple(self, frame: Frame) -> str:
        """Writes what is needed and returns the tuple that travels."""
        codes = [name if name in ("size", "payload") else frame.use(name) for name in self.live]
        for number, group in enumerate(self.groups):
            parts = []
            for header in group:
                valid = frame.valid(header)
                code = pack(frame, self.program.headers[header])
                parts.append(code if valid == "True" else f"({code} if {valid} else b'')")
            if self.with_payload and number == len(self.groups) - 1:
                parts.append("payload")
            codes.append(" + ".join(parts) or "b''")
        return f"({', '.join(codes)},)"


def primitives(program: Program) -> Iterable[Primitive]:
    """The primitives that can be run."""
    actions: dict[int, Action] = {}
    for pipeline in (program.ingress, program.egress):
        for table in pipeline.tables.values():
            actions.update((each.id, each) for each in table.actions)
        actions.update((each.action.id, each.action) for each in pipeline.calls.values())
    for action in actions.values():
        yield from action.body
    yield from program.deparser.body
    for state in program.parser.states.values():
        for op in state.ops:
            yield Primitive(op.op, op.args, op.source)
