"""Python for egress, checksums and the deparser."""

from __future__ import annotations

from typing import Any

from switch.model.emit_base import Frame
from switch.model.emit_bytes import pack
from switch.model.emit_calculations import CalculationEmitter
from switch.model.emit_control import PipelineEmitter
from switch.model.emit_expressions import ExpressionEmitter
from switch.model.emit_functions import EGRESS_GIVEN, INITIAL, FunctionEmitter
from switch.model.emit_statements import StatementEmitter
from switch.model.expressions import FieldRef
from switch.model.program import Checksum


class EgressEmitter(FunctionEmitter):
    """Writes `egress`: the body first, because ingress must know what it needs."""

    def egress_reads_length(self) -> bool:
        """Whether somebody wants to know how long the packet has become."""
        ref = self.program.standard("standard_metadata.packet_length")
        probe = Frame(self.program, self.names, trace=False)
        PipelineEmitter(probe, self.program.egress).emit()
        self._checksums(probe, [each for each in self.program.checksums if each.update])
        if ref is not None and ref.header in self.program.deparser.order:
            return True
        return ref is not None and (ref in self.kept or probe.names.field(ref.header, ref.field) in probe.used)

    def prepare(self) -> tuple[Frame, list[str]]:
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
            self.note(frame, "dropped at the end of egress")
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
            return INITIAL["trunc"]
        if owner is None or not self.program.headers[owner].metadata:
            return name
        return (
            name if any(self.names.field(f.header, f.field) == name for f in kept if isinstance(f, FieldRef)) else "0"
        )

    def egress(self, frame: Frame, parts: list[str]) -> list[str]:
        """The lines of `egress`, from what `prepare` gave."""
        names = [*self.live, *(f"g{number}" for number in range(len(self.groups)))]
        lines = ["def egress(X, phv, port, rid, kind, now, ts):"]
        if self.trace:
            lines += ["    tr = X.trace", "    tr.egress(port, rid, kind)"]
        lines.append(f"    {', '.join(names)}{',' if len(names) == 1 else ''} = phv")
        given = [self._std(name) for name in EGRESS_GIVEN]
        lines += self._zeros(frame, skip=[*self.live, *(each for each in given if each is not None)])
        for name, code in EGRESS_GIVEN.items():
            if self._std(name) is not None:
                narrow = code in ("kind", "plen", "0")
                lines += self._set(frame, name, code if narrow else f"{code} & {self._mask(name):#x}")
        rid = self._std("intrinsic_metadata.egress_rid")
        if rid is not None and rid in frame.used:
            lines += ["    if rid is not None:", f"        {rid} = rid"]
        if "truncate" in self.ops:
            lines += ["    if kind:", f"        trunc = {INITIAL['trunc']}"]
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

    def _checksums(self, frame: Frame, checksums: list[Checksum]) -> None:
        emitter = StatementEmitter(frame)
        for each in checksums:
            calculation = self.program.calculations[each.calculation]
            if each.condition is None:
                emitter.assign(each.target, CalculationEmitter(emitter).output(calculation))
            else:
                with frame.w.block(f"if {ExpressionEmitter(frame).truth(each.condition)}:"):
                    emitter.assign(each.target, CalculationEmitter(emitter).output(calculation))
