"""Python for parser and ingress, and for the clones that ingress makes."""

from __future__ import annotations

from switch.model.emit_base import Frame
from switch.model.emit_calculations import CalculationEmitter
from switch.model.emit_control import PipelineEmitter
from switch.model.emit_functions import FunctionEmitter
from switch.model.emit_parser import ParserEmitter
from switch.model.emit_statements import StatementEmitter
from switch.model.expressions import Const, FieldRef


class IngressEmitter(FunctionEmitter):
    """Writes `ingress`, which parses a packet and decides about it, and `clone`, which only parses."""

    def ingress(self) -> list[str]:
        """The lines of `ingress`, for which egress must have been prepared."""
        frame = self._frame()
        w = frame.w
        ParserEmitter(frame).emit()
        w.line("payload = pkt[pos:]")
        with w.block("if err:"):
            w.line("X.parser_errors += 1")
            if self.trace:
                w.line("tr.parser_error(err)")
        before, w.lines = w.lines, []
        PipelineEmitter(frame, self.program.ingress).emit()
        pipeline, w.lines = w.lines, before
        self._verify(frame)
        w.lines += ["", *pipeline, ""]
        self._ingress_events(frame)
        spec, group = self._std("standard_metadata.egress_spec"), self._std("intrinsic_metadata.mcast_grp")
        assert spec is not None
        frame.use(spec)
        if group in frame.used:
            with w.block(f"if {spec} == DROP and not {group}:"):
                self.note(frame, "dropped at the end of ingress")
                w.line("return None")
            if self.trace:
                w.line(f"tr.decided({group}, {spec})")
        else:
            with w.block(f"if {spec} == DROP:"):
                self.note(frame, "dropped at the end of ingress")
                w.line("return None")
            if self.trace:
                w.line(f"tr.decided(0, {spec})")
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
        if not checksums or wrong is None or not (self.trace or self._is_read(frame, wrong)):
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

    def _is_read(self, frame: Frame, variable: str) -> bool:
        """Whether anything after the parser, or a list, may read a variable."""
        lists = [*self.lists, *self.program.learn_lists.values()]
        fields = [each for found in lists for each in found.fields if isinstance(each, FieldRef)]
        named = {self.names.field(each.header, each.field) for each in fields}
        return variable in frame.used or variable in self.egress_used or variable in named

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
                self.note(frame, "resubmitted")
                w.line("return False")

    def _digests(self, frame: Frame) -> None:
        opened = False
        for number, each in self.program.learn_lists.items():
            with frame.w.block(f"{'elif' if opened else 'if'} digest == {number}:"):
                codes = [str(f.value) if isinstance(f, Const) else f"int({frame.field(f)})" for f in each.fields]
                more = "," if len(codes) == 1 else ""
                frame.w.line(f"X.digest({each.name!r}, {number}, {frame.use('receiver')}, ({', '.join(codes)}{more}))")
            opened = True

    def clone(self) -> list[str]:
        """The lines of `clone`."""
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
