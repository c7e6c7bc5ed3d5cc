"""Compiles a program to Python source: a function for parser and ingress, one for egress and deparser, one for clones.

Header fields are local variables. What egress needs travels in one tuple; headers that egress does not look into travel
as the bytes that they will be, so that they are made once for all copies of a packet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from switch.model.emit_base import Frame, Names
from switch.model.emit_bytes import pack
from switch.model.emit_calculations import CalculationEmitter
from switch.model.emit_control import PipelineEmitter
from switch.model.emit_expressions import ExpressionEmitter
from switch.model.emit_parser import ParserEmitter
from switch.model.emit_statements import StatementEmitter
from switch.model.program import Action, Checksum, Const, FieldRef, Primitive, Program

# What variables that are no fields start with; the rest are arguments of the functions.
_INITIAL = {
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
_EGRESS_GIVEN = {
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


@dataclass(frozen=True)
class Compiled:
    """Generated code. `objects` are what its global names stand for; a switch binds them."""

    source: str
    code: CodeType
    objects: dict[str, tuple[Any, ...]]


def compile_program(program: Program, *, trace: bool = False) -> Compiled:
    """The code of a program, with or without calls of a trace. It is kept with the program."""
    key = "trace" if trace else "plain"
    if key not in program.compiled:
        program.compiled[key] = _Compiler(program, trace=trace).compile()
    found: Compiled = program.compiled[key]
    return found


class _Compiler:
    def __init__(self, program: Program, *, trace: bool) -> None:
        self.program, self.trace = program, trace
        self.names = Names(program)
        self.objects: dict[str, tuple[Any, ...]] = {}
        self.source: list[str] = []
        self.ops = {each.op for each in _primitives(program)}
        keepers = [each for each in _primitives(program) if each.op in _KEEPERS]
        lists = {last.value for each in keepers if isinstance(last := each.args[-1], Const)}
        self.lists = [program.field_lists[each] for each in sorted(lists)]
        # Fields that any list keeps, with one place for each in what is kept.
        self.kept = list(dict.fromkeys(f for each in self.lists for f in each.fields if isinstance(f, FieldRef)))
        self.clones_egress = "clone_egress_pkt_to_egress" in self.ops
        self.live: list[str] = []  # variables that travel from ingress to egress
        self.groups: list[list[str]] = []  # headers that become bytes together
        self.with_payload = False  # whether the last group takes the payload in
        self.tracks_length = self._egress_reads_length()

    def compile(self) -> Compiled:
        egress, whole = self._egress()
        ingress = self._ingress()
        self.source = [*ingress]
        if "clone_ingress_pkt_to_egress" in self.ops:
            self.source += self._clone()
        self.source += self._finish_egress(egress, whole)
        text = "\n".join(self.source) + "\n"
        return Compiled(text, compile(text, f"<{self.program.name or 'program'}>", "exec"), self.objects)

    def _frame(self) -> Frame:
        frame = Frame(self.program, self.names, trace=self.trace)
        frame.tracks_length = self.tracks_length
        return frame

    def _egress_reads_length(self) -> bool:
        ref = self.program.standard("standard_metadata.packet_length")
        probe = Frame(self.program, self.names, trace=False)
        PipelineEmitter(probe, self.program.egress).emit()
        self._checksums(probe, [each for each in self.program.checksums if each.update])
        return ref is not None and (ref in self.kept or probe.names.field(ref.header, ref.field) in probe.used)

    def _std(self, name: str) -> str | None:
        """The variable of a field that simple_switch knows, if the program has it."""
        ref = self.program.standard(name)
        return None if ref is None else self.names.field(ref.header, ref.field)

    # Ingress

    def _ingress(self) -> list[str]:
        frame = self._frame()
        w = frame.w
        ParserEmitter(frame).emit()
        w.line("payload = pkt[pos:]")
        with w.block("if err:"):
            w.line("X.parser_errors += 1")
            if self.trace:
                w.line("tr.parser_error(err)")
        self._verify(frame)
        PipelineEmitter(frame, self.program.ingress).emit()
        w.line("")
        self._ingress_events(frame)
        spec, group = self._std("standard_metadata.egress_spec"), self._std("intrinsic_metadata.mcast_grp")
        assert spec is not None
        frame.use(spec)
        if group in frame.used:
            with w.block(f"if {spec} == DROP and not {group}:"):
                w.line("return None")
        else:
            with w.block(f"if {spec} == DROP:"):
                w.line("return None")
        self._plan(frame)
        w.line(f"return {group if group in frame.used else 0}, {spec}, {self._live_tuple(frame)}")
        head = ["def ingress(X, pkt, port, kind, now, ts, keep):", "    size = len(pkt)"]
        return [*head, *self._prologue(frame, ingress=True), *w.lines, ""]

    def _verify(self, frame: Frame) -> None:
        """Parser error and checksum error, into standard metadata."""
        w = frame.w
        error = self._std("standard_metadata.parser_error")
        if error is not None:
            w.line(f"{frame.use(error)} = err")
        wrong = self._std("standard_metadata.checksum_error")
        checksums = [each for each in self.program.checksums if each.verify]
        if not checksums or wrong is None:
            return
        w.line(f"{frame.use(wrong)} = 0")
        emitter = StatementEmitter(frame)
        for each in checksums:
            conditions = [frame.valid(each.target.header)]
            if each.condition is not None:
                conditions.append(emitter.truth(each.condition))
            with w.block(f"if {' and '.join(conditions)}:"):
                output = CalculationEmitter(emitter).output(self.program.calculations[each.calculation])
                with w.block(f"if {output.code} != {frame.field(each.target)}:"):
                    w.line(f"{wrong} = 1")
                    if self.trace:
                        w.line(f"tr.note('checksum of {each.target.header}.{each.target.field} is wrong')")

    def _ingress_events(self, frame: Frame) -> None:
        """What ingress asked for besides the packet's way: clones, digests, resubmission."""
        w = frame.w
        if "clone_ingress_pkt_to_egress" in self.ops:
            with w.block(f"if {frame.use('clone')} >= 0:"):
                self._keep(frame, frame.use("clone_list"))
                w.line("X.clones.append((pkt, port, clone, kept))")
        if "generate_digest" in self.ops and frame.use("digest"):
            self._digests(frame)
        if "resubmit" in self.ops:
            with w.block(f"if {frame.use('resubmit')}:"):
                self._keep(frame, "resubmit")
                w.line("X.again.append((pkt, 6, kept, port))")
                w.line("return False")

    def _digests(self, frame: Frame) -> None:
        opened = False
        for number, each in self.program.learn_lists.items():
            with frame.w.block(f"{'elif' if opened else 'if'} digest == {number}:"):
                codes = [str(f.value) if isinstance(f, Const) else f"int({frame.field(f)})" for f in each.fields]
                more = "," if len(codes) == 1 else ""
                frame.w.line(f"X.digest({each.name!r}, {number}, {frame.use('receiver')}, ({', '.join(codes)}{more}))")
            opened = True

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
        """First values of all variables of an ingress-like function."""
        lines = ["    tr = X.trace"] if self.trace else []
        kept = self._take_kept(frame) if self.kept else []
        given: dict[str, str] = {}
        if ingress:
            given = {
                "standard_metadata.ingress_port": "0 if kind else port",
                "standard_metadata.packet_length": "size",
                "standard_metadata.instance_type": "kind",
                "intrinsic_metadata.ingress_global_timestamp": "0 if kind else ts",
            }
        lines += self._zeros(frame)
        for name, code in given.items():
            variable = self._std(name)
            if variable is not None and variable in frame.used:
                lines.append(
                    f"    {variable} = {code} & {self._mask(name):#x}" if "ts" in code else f"    {variable} = {code}"
                )
        return lines + kept if ingress else lines

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
            if name in _INITIAL:
                lines.append(f"    {name} = {_INITIAL[name]}")
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
        given = {self._std(name) for name in _EGRESS_GIVEN}
        for name in self.egress_used:
            owner = self.names.of_header.get(name)
            from_ingress = name in frame.used or name in always or name == "payload"
            kept = self.clones_egress and owner is not None and not self.program.headers[owner].metadata
            kept = kept or (self.clones_egress and name.startswith("n_"))
            if name in given or name in _INITIAL or (owner in packed and name.startswith(("h_", "l_"))):
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
                alone = valid == "True" or header in self.kept_validity
                if header in self.kept_validity:
                    parts.append(f"({code} if {valid} else b'')")
                else:
                    parts.append(code if alone else f"({code} if {valid} else b'')")
            if self.with_payload and number == len(self.groups) - 1:
                parts.append("payload")
            codes.append(" + ".join(parts) or "b''")
        return f"({', '.join(codes)},)"

    # Egress

    def _egress(self) -> tuple[Frame, list[str]]:
        """The body of egress, and the code of what it emits."""
        frame = self._frame()
        PipelineEmitter(frame, self.program.egress).emit()
        body = frame.w.lines
        frame.w.lines = []
        spec = self._std("standard_metadata.egress_spec")
        assert spec is not None
        frame.use(spec)
        self._egress_events(frame)
        with frame.w.block(f"if {spec} == DROP:"):
            frame.w.line("return None")
        self._checksums(frame, [each for each in self.program.checksums if each.update])
        emitter = StatementEmitter(frame)
        for each in self.program.deparser.body:
            emitter.primitive(each)
        self.after = frame.w.lines
        frame.w.lines = body
        if "truncate" in self.ops:
            frame.use("trunc")
        if self.tracks_length:
            frame.use("plen")
        whole = self._emission(frame)
        self.egress_used = list(frame.used)
        return frame, whole

    def _emission(self, frame: Frame) -> list[str]:
        """Parts of the packet in order; headers that egress knows nothing of come as groups of bytes."""
        parts: list[str] = []
        self.kept_validity: set[str] = set()
        used = set(frame.used)
        group: list[str] | None = None
        for name in self.program.deparser.order:
            header = self.program.headers[name]
            fields = [self.names.field(name, each.name) for each in header.type.fields]
            if header.type.varbit is not None:
                fields.append(self.names.length(name))
            touched = any(each in used for each in fields)
            checked = not header.metadata and self.names.valid(name) in used
            if touched:
                group = None
                valid, code = frame.valid(name), pack(frame, header)
                parts.append(code if valid == "True" else f"({code} if {valid} else b'')")
                if self.trace:
                    parts[-1] = f"tr.emit({name!r}, {parts[-1]})"
            elif checked or self.trace:
                self.groups.append([name])
                self.kept_validity.add(name)
                code = f"g{len(self.groups) - 1}"
                parts.append(f"({code} if {frame.valid(name)} else b'')")
                if self.trace:
                    parts[-1] = f"tr.emit({name!r}, {parts[-1]})"
                group = None
            else:
                if group is None:
                    group = []
                    self.groups.append(group)
                    parts.append(f"g{len(self.groups) - 1}")
                group.append(name)
        self.with_payload = group is not None and "payload" not in used
        if not self.with_payload:
            parts.append("payload")
        return parts

    def _checksums(self, frame: Frame, checksums: list[Checksum]) -> None:
        emitter = StatementEmitter(frame)
        for each in checksums:
            calculation = self.program.calculations[each.calculation]
            if each.condition is None:
                emitter.assign(each.target, CalculationEmitter(emitter).output(calculation))
            else:
                with frame.w.block(f"if {ExpressionEmitter(frame).truth(each.condition)}:"):
                    emitter.assign(each.target, CalculationEmitter(emitter).output(calculation))

    def _egress_events(self, frame: Frame) -> None:
        if self.clones_egress:
            with frame.w.block(f"if {frame.use('clone')} >= 0:"):
                frame.w.line("@clone")
        if "recirculate" in self.ops:
            frame.use("recirculate")
        for each in self.kept if self.ops & {"recirculate", "clone_egress_pkt_to_egress"} else ():
            frame.field(each)

    def _egress_clone(self, frame: Frame, indent: str) -> list[str]:
        """The packet as egress leaves it, with metadata gone but for what is kept."""
        lines = []
        for each in self.lists:
            codes = [self._cloned(name, set(each.fields)) for name in self.live]
            codes += [f"g{number}" for number in range(len(self.groups))]
            lines += [
                f"{indent}if clone_list == {each.id}:",
                f"{indent}    X.egress_clones.append((clone, ({', '.join(codes)},)))",
            ]
        return lines

    def _cloned(self, name: str, kept: set[Any]) -> str:
        owner = self.names.of_header.get(name)
        if name == "trunc":
            return _INITIAL["trunc"]
        if owner is None or not self.program.headers[owner].metadata:
            return name
        return (
            name if any(self.names.field(f.header, f.field) == name for f in kept if isinstance(f, FieldRef)) else "0"
        )

    def _finish_egress(self, frame: Frame, parts: list[str]) -> list[str]:
        names = [*self.live, *(f"g{number}" for number in range(len(self.groups)))]
        lines = ["def egress(X, phv, port, rid, kind, now, ts):"]
        if self.trace:
            lines.append("    tr = X.trace")
        lines.append(f"    {', '.join(names)}{',' if len(names) == 1 else ''} = phv")
        lines += self._zeros(frame, skip=self.live)
        for name, code in _EGRESS_GIVEN.items():
            variable = self._std(name)
            if variable is not None and variable in frame.used:
                needs_mask = code not in ("kind", "plen", "0")
                lines.append(
                    f"    {variable} = {code} & {self._mask(name):#x}" if needs_mask else f"    {variable} = {code}"
                )
        rid = self._std("intrinsic_metadata.egress_rid")
        if rid is not None and rid in frame.used:
            lines += ["    if rid is not None:", f"        {rid} = rid"]
        if "truncate" in self.ops:
            lines += ["    if kind:", f"        trunc = {_INITIAL['trunc']}"]
        lines += frame.w.lines
        for line in self.after:
            if line.strip() == "@clone":
                lines += self._egress_clone(frame, line[: line.index("@")])
            else:
                lines.append(line)
        lines.append(f"    data = {' + '.join(parts)}")
        if "recirculate" in self.ops:
            keep = self._frame()  # its variables are those of the egress frame
            keep.w.depth = 2
            self._keep(keep, "recirculate")
            lines += [
                "    if recirculate:",
                *keep.w.lines,
                "        X.again.append((data, 4, kept, X.port))",
                "        return False",
            ]
        if "truncate" in self.ops:
            lines += ["    if len(data) > trunc:", "        data = data[:trunc]"]
        lines.append("    return data")
        return [*lines, ""]

    # Clones of ingress: parsed again

    def _clone(self) -> list[str]:
        frame = self._frame()
        w = frame.w
        ParserEmitter(frame).emit()
        w.line("payload = pkt[pos:]")
        port = self._std("standard_metadata.ingress_port")
        for name in self.live:
            if name not in ("size", "payload"):
                frame.use(name)
        lost = [
            name
            for name in frame.used
            if (owner := self.names.of_header.get(name)) and self.program.headers[owner].metadata
        ]
        if lost:
            w.line(f"{' = '.join(lost)} = 0")
        for line in self._take_kept(frame):
            w.line(line[4:])
        w.line(f"return {self._live_tuple(frame)}")
        head = ["def clone(X, pkt, port, now, keep):", "    size = len(pkt)"]
        lines = self._prologue(frame, ingress=False)
        if port is not None and port in frame.used:
            lines.append(f"    {port} = port")
        return [*head, *lines, *w.lines, ""]


def _primitives(program: Program) -> Iterable[Primitive]:
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
