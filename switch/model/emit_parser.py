"""Python for a parser. States that one other state leads to are written where it does; the others are run by number."""

from __future__ import annotations

from switch.model.controls import ParserOp, ParserState, Transition
from switch.model.emit_base import MAX_DEPTH, Frame, Value, wrapped
from switch.model.emit_bytes import unpack, unpack_varbit
from switch.model.emit_statements import StatementEmitter
from switch.model.expressions import FieldRef, Lookahead, Primitive, Ref, StackField, Text, UnionStackField
from switch.model.program import Header

_MAX_STEPS = 10_000  # states, for parsers with cycles; BMv2 has no limit and would not come back
_MAX_INLINE = MAX_DEPTH - 30
_INT_MAX = (1 << 31) - 1
_MANY_STATES = 25


class ParserEmitter:
    """Writes a parser into a frame: from byte 0 of `pkt`, with `size` bytes, to `pos`, with `err` if it failed."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.w = frame, frame.w
        self.program = frame.program
        self.parser = frame.program.parser
        self.statements = StatementEmitter(frame)
        self.moving = False  # whether the place is `pos` plus a number, or the number itself
        self.offset = 0
        self.heads: dict[str, int] = {}

    def emit(self) -> None:
        """Writes all of it."""
        self.w.line("err = 0")
        start = self.parser.start
        if start is None:
            self.w.line("pos = 0")
            return
        self.heads, cyclic = self._find_heads(start)
        if not self.heads:
            with self.w.block("while True:"):
                self._state(start)
            return
        self.w.line("pos = 0")
        self.w.line(f"state = {self.heads.setdefault(start, len(self.heads))}")
        if cyclic:
            self.w.line("steps = 0")
        with self.w.block("while True:"):
            if cyclic:
                self.w.line("steps += 1")
                with self.w.block(f"if steps > {_MAX_STEPS}:"):
                    self.w.line(f"err = {self.program.errors['ParserTimeout']}")
                    self.w.line("break")
            done = 0
            while done < len(self.heads):
                name = list(self.heads)[done]
                with self.w.block(f"{'if' if done == 0 else 'elif'} state == {self.heads[name]}:"):
                    self.moving, self.offset = True, 0
                    self._state(name)
                done += 1

    def _find_heads(self, start: str) -> tuple[dict[str, int], bool]:
        """States that more than one transition leads to, by number; and whether there is a cycle."""
        edges: dict[str, list[str]] = {}
        work = [start]
        while work:
            name = work.pop()
            if name not in edges:
                edges[name] = [each for _, each in _cases(self.parser.states[name]) if each is not None]
                work += edges[name]
        counts: dict[str, int] = {start: 1}
        for targets in edges.values():
            for each in targets:
                counts[each] = counts.get(each, 0) + 1
        heads = [name for name, count in counts.items() if count > 1]
        if not heads and len(counts) > _MANY_STATES:
            heads = [start]  # so that states can be taken out of nests that get too deep
        return {name: number for number, name in enumerate(heads)}, _has_cycle(edges)

    # Places in the packet

    @property
    def place(self) -> str:
        """Code for the place of the next byte."""
        if not self.moving:
            return str(self.offset)
        return f"pos + {self.offset}" if self.offset else "pos"

    def _settle(self) -> None:
        """Writes the place into `pos`."""
        if not self.moving:
            self.w.line(f"pos = {self.offset}")
        elif self.offset:
            self.w.line(f"pos += {self.offset}")

    def _fail(self, error: str) -> None:
        self._settle()
        self.w.line(f"err = {error}")
        self.w.line("break")

    def _fail_with(self, name: str) -> None:
        self._fail(str(self.program.errors[name]))

    def _need(self, size: str) -> None:
        end = str(self.offset + int(size)) if size.isdigit() and not self.moving else f"{self.place} + {size}"
        with self.w.block(f"if size < {end}:"):
            self._fail_with("PacketTooShort")

    def _move_to_variable(self) -> None:
        self._settle()
        self.moving, self.offset = True, 0

    # States

    def _state(self, name: str) -> None:
        state = self.parser.states[name]
        if self.frame.trace:
            self.w.line(f"tr.state({name!r})")
        for op in state.ops:
            self._op(op)
        saved = self.moving, self.offset
        keys = [self._key(*each) for each in zip(state.keys, state.key_widths, strict=True)]
        cases = _cases(state)
        opened = False
        for transitions, following in cases:
            conditions = [self._condition(state, each, keys) for each in transitions]
            if not transitions or "True" in conditions:
                if opened:
                    with self.w.block("else:"):
                        self._go(following)
                else:
                    self._go(following)
                return
            with self.w.block(f"{'elif' if opened else 'if'} {' or '.join(conditions)}:"):
                self._go(following)
            opened = True
            self.moving, self.offset = saved

    def _go(self, name: str | None) -> None:
        """Writes the step to the next state."""
        if name is None:
            self._settle()
            self.w.line("break")
            return
        if name not in self.heads and self.w.depth > _MAX_INLINE and self.heads:
            self.heads[name] = len(self.heads)
        if name in self.heads:
            self._settle()
            self.w.line(f"state = {self.heads[name]}")
            self.w.line("continue")
            return
        saved = self.moving, self.offset
        self._state(name)
        self.moving, self.offset = saved

    def _key(self, key: FieldRef | StackField | UnionStackField | Lookahead, width: int) -> str:
        if isinstance(key, Lookahead):
            size = (key.offset + width + 7) // 8
            self._need(str(size))
            value = self._peek(key)
        else:
            value = wrapped(self.statements.number(key), width, signed=False)
        if value.code.isidentifier():
            return value.code
        name = self.frame.temporary()
        self.w.line(f"{name} = {value.code}")
        return name

    def _peek(self, ahead: Lookahead) -> Value:
        """Bits that lie ahead; the caller sees to it that they are there."""
        skip, inside = divmod(ahead.offset, 8)
        size = (inside + ahead.width + 7) // 8
        start = self.place if skip == 0 else f"{self.place} + {skip}"
        code = f"from_bytes(pkt[{start}:{start} + {size}], 'big')"
        shift = size * 8 - inside - ahead.width
        if shift:
            code = f"({code} >> {shift})"
        if inside:
            code = f"({code} & {(1 << ahead.width) - 1:#x})"
        return Value(code, 0, (1 << ahead.width) - 1)

    def _condition(self, state: ParserState, transition: Transition, keys: list[str]) -> str:
        values = transition.values
        assert values is not None
        if isinstance(values, str):
            code = keys[0]
            for key, width in zip(keys[1:], state.key_widths[1:], strict=True):
                code = f"({code} << {width} | {key})"
            return f"{code} in {self.frame.object('VS', values)}"
        terms = []
        for place, (key, width, value) in enumerate(zip(keys, state.key_widths, values, strict=True)):
            full = (1 << width) - 1
            mask = full if transition.masks is None else transition.masks[place] & full
            if mask == full:
                terms.append(f"{key} == {value:#x}")
            elif mask:
                terms.append(f"{key} & {mask:#x} == {value & mask:#x}")
        code = " and ".join(terms) or "True"
        return f"({code})" if len(terms) > 1 else code

    # Statements

    def _op(self, op: ParserOp) -> None:
        args = op.args
        if op.op in ("extract", "extract_vl"):
            self._extract(op)
        elif op.op == "set":
            assert isinstance(args[0], FieldRef)
            if isinstance(args[1], Lookahead):
                self._need(str((args[1].width + 7) // 8))
                self.statements.assign(args[0], self._peek(args[1]))
            elif self.program.field(args[0]).varbit:
                self.statements.primitive(Primitive("assign_VL", args, op.source))
            else:
                self.statements.assign(args[0], self.statements.number(args[1]))
        elif op.op == "verify":
            with self.w.block(f"if not {self.statements.truth(args[0])}:"):
                self._fail(self.statements.number(args[1]).code)
        elif op.op == "advance":
            self._advance(self.statements.number(args[0]))
        else:
            self.statements.primitive(Primitive(op.op, args, op.source))

    def _advance(self, amount: Value) -> None:
        known = amount.constant
        if known is not None and known % 8 == 0 and known >= 0:
            self._need(str(known // 8))
            self.offset += known // 8
            return
        bits = self.frame.temporary()
        self.w.line(f"{bits} = {amount.code}")
        with self.w.block(f"if {bits} & 7:"):
            self._fail_with("ParserInvalidArgument")
        self._need(f"({bits} >> 3)")
        self.w.line(f"pos = {self.place} + ({bits} >> 3)")
        self.moving, self.offset = True, 0

    def _extract(self, op: ParserOp) -> None:
        ref = op.args[0]
        assert isinstance(ref, Ref)
        length = self.statements.number(op.args[-1]) if op.op == "extract_vl" else None
        if ref.kind == "header":
            self._extract_header(self.program.headers[ref.name], length)
            return
        if ref.kind == "stack":
            elements = list(self.program.stacks[ref.name].headers)
        else:
            assert isinstance(op.args[1], Text)
            elements = self.statements.last_headers(UnionStackField(ref.name, op.args[1].value, ""))
        following = self.frame.next(ref.name)
        saved = self.moving, self.offset
        for number, name in enumerate(elements):
            with self.w.block(f"{'if' if number == 0 else 'elif'} {following} == {number}:"):
                self.moving, self.offset = saved
                self._extract_header(self.program.headers[name], length)
                if length is not None:
                    self._move_to_variable()
        with self.w.block("else:"):
            after = self.moving, self.offset
            self.moving, self.offset = saved
            self._fail_with("StackOutOfBounds")
            self.moving, self.offset = after
        self.w.line(f"{following} += 1")

    def _extract_header(self, header: Header, length: Value | None) -> None:
        size = header.type.fixed_bits // 8
        if length is None:
            self._need(str(size))
            unpack(self.frame, header, self.place)
            self.offset += size
        else:
            bits = self.frame.temporary()
            self.w.line(f"{bits} = {length.code}")
            with self.w.block(f"if {bits} & 7 or not 0 <= {bits} <= {_INT_MAX}:"):
                self._fail_with("ParserInvalidArgument")
            self._need(f"({size} + ({bits} >> 3))")
            if header.type.max_bytes:
                with self.w.block(f"if {size} + ({bits} >> 3) > {header.type.max_bytes}:"):
                    self._fail_with("HeaderTooShort")
            unpack_varbit(self.frame, header, self.place, bits)
            self.w.line(f"pos = {self.place} + {size} + ({bits} >> 3)")
            self.moving, self.offset = True, 0
        self.statements.mark_valid(header.name)
        if self.frame.trace:
            pairs = ", ".join(
                f"({f.name!r}, {self.frame.field(FieldRef(header.name, f.name))})" for f in header.type.fields
            )
            self.w.line(f"tr.extracted({header.name!r}, [{pairs}])")


def _cases(state: ParserState) -> list[tuple[list[Transition], str | None]]:
    """Transitions in the order of their tests, those that follow each other to one state together; the default last."""
    cases: list[tuple[list[Transition], str | None]] = []
    default: str | None = None
    for each in state.transitions:
        if each.values is None or not state.keys:
            default = each.next
        elif cases and cases[-1][1] == each.next:
            cases[-1][0].append(each)
        else:
            cases.append(([each], each.next))
    return [*cases, ([], default)]


def _has_cycle(edges: dict[str, list[str]]) -> bool:
    """Whether a state can come again: taking away states that nothing leads to leaves some."""
    incoming = dict.fromkeys(edges, 0)
    for targets in edges.values():
        for each in targets:
            incoming[each] += 1
    free = [name for name, count in incoming.items() if count == 0]
    left = len(edges)
    while free:
        left -= 1
        for each in edges[free.pop()]:
            incoming[each] -= 1
            if incoming[each] == 0:
                free.append(each)
    return left > 0
