"""Python for primitives: the statements of actions, parser states and deparsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from switch.model.emit_base import Frame, Value, field_limits, wrapped
from switch.model.emit_calculations import CalculationEmitter
from switch.model.emit_headers import HeaderEmitter
from switch.model.expressions import Expr, FieldRef, Op, Primitive, Ref, Text, Vector
from switch.model.source_text import primitive_text

_TWO_OPERANDS = {
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}


class StatementEmitter(HeaderEmitter):
    """Writes primitives into a frame.

    Args:
        params: the parameters of the action.
        sure: (index, size) pairs of registers that are known to be in range.
    """

    def __init__(
        self, frame: Frame, params: Sequence[Value] = (), sure: frozenset[tuple[str, int]] = frozenset()
    ) -> None:
        super().__init__(frame, params)
        self.sure = sure
        self.outside: frozenset[tuple[str, int]] = frozenset()  # known to be out of range

    def primitive(self, statement: Primitive) -> None:
        """Writes one primitive, but not jumps."""
        op, args = statement.op, statement.args
        if op in _TWO_OPERANDS:
            self.assign(args[0], self.number(Op(_TWO_OPERANDS[op], args[1], args[2])))
        else:
            method: Callable[[Primitive], None] = getattr(self, f"_do_{op.lstrip('_').lower()}")
            method(statement)
        if self.frame.trace and statement.source.fragment:
            target = args[0] if args else None
            value = f", {self.frame.field(target)}" if isinstance(target, FieldRef) else ""
            text = primitive_text(statement, self.frame.program.folder)
            self.w.line(f"tr.statement({text!r}, {str(statement.source)!r}{value})")

    # Registers, counters, meters

    @contextmanager
    def _in_range(self, kind: str, name: str, index: Value, size: int) -> Iterator[bool]:
        """Writes what the caller writes, to be run if the index exists; else nothing but a note, as in BMv2."""
        key = (index.code, size)
        if key in self.outside or index.within(size, 1 << 64):
            self.w.line(f"X.note_index({kind!r}, {name!r}, {index.code})")
            yield False
        elif index.within(0, size - 1) or key in self.sure:
            yield True
        else:
            lower = "0 <= " if index.low is None or index.low < 0 else ""
            with self.w.block(f"if {lower}{index.code} < {size}:"):
                yield True
            with self.w.block("else:"):
                self.w.line(f"X.note_index({kind!r}, {name!r}, {index.code})")

    def _atom(self, value: Value) -> Value:
        """The value in a variable, if it is not one or a number."""
        if value.code.isidentifier() or value.constant is not None:
            return value
        name = self.frame.temporary()
        self.w.line(f"{name} = {value.code}")
        return Value(name, value.low, value.high)

    def index(self, expr: Expr, size: int) -> Value:
        """An index as a variable or number; whole if `sure` or `outside` know it."""
        value = self.number(expr)
        key = (value.code, size)
        return value if key in self.sure or key in self.outside else self._atom(value)

    def _do_register_read(self, statement: Primitive) -> None:
        target, register, where = statement.args
        assert isinstance(register, Ref)
        declared = self.program.registers[register.name]
        index = self.index(where, declared.size)
        with self._in_range("register", register.name, index, declared.size) as exists:
            if exists:
                cells = self.frame.object("R", register.name)
                if self.frame.trace:
                    self.w.line(f"tr.register_read({register.name!r}, {index.code}, {cells}[{index.code}])")
                self.assign(target, Value(f"{cells}[{index.code}]", 0, (1 << declared.width) - 1))

    def _do_register_write(self, statement: Primitive) -> None:
        register, where, value = statement.args
        assert isinstance(register, Ref)
        size = self.program.registers[register.name].size
        self.write_register(register.name, self.index(where, size), self.number(value))

    def write_register(self, name: str, index: Value, value: Value) -> None:
        """Writes a cell, if the index exists."""
        declared = self.program.registers[name]
        index = index if (index.code, declared.size) in self.sure | self.outside else self._atom(index)
        with self._in_range("register", name, index, declared.size) as exists:
            if exists:
                cells = self.frame.object("R", name)
                new = wrapped(value, declared.width, signed=False)
                if self.frame.trace:
                    self.w.line(f"tr.register_write({name!r}, {index.code}, {cells}[{index.code}], {new.code})")
                self.w.line(f"{cells}[{index.code}] = {new.code}")

    def _do_count(self, statement: Primitive) -> None:
        counter, where = statement.args
        assert isinstance(counter, Ref)
        size = self.program.counters[counter.name].size
        index = self.index(where, size)
        with self._in_range("counter", counter.name, index, size) as exists:
            if exists:
                packets = self.frame.object("CP", counter.name)
                octets = self.frame.object("CB", counter.name)
                self.w.line(f"{packets}[{index.code}] += 1")
                self.w.line(f"{octets}[{index.code}] += {self.frame.use('size')}")
                if self.frame.trace:
                    self.w.line(f"tr.count({counter.name!r}, {index.code}, {packets}[{index.code}])")

    def _do_execute_meter(self, statement: Primitive) -> None:
        meter, where, target = statement.args
        assert isinstance(meter, Ref)
        size = self.program.meters[meter.name].size
        index = self.index(where, size)
        with self._in_range("meter", meter.name, index, size) as exists:
            if exists:
                execute = self.frame.object("ME", meter.name)
                call = f"{execute}({index.code}, {self.frame.use('now')}, {self.frame.use('size')})"
                self.assign(target, Value(call, 0, 2))

    # Decisions about the packet

    def _standard(self, name: str) -> str | None:
        ref = self.program.standard(name)
        return None if ref is None else self.frame.field(ref)

    def _drop(self) -> None:
        ref = self.program.standard("standard_metadata.egress_spec")
        assert ref is not None
        self.w.line(f"{self.frame.field(ref)} = DROP & {field_limits(self.program.field(ref))[1]}")
        if group := self._standard("intrinsic_metadata.mcast_grp"):
            self.w.line(f"{group} = 0")

    def _do_mark_to_drop(self, statement: Primitive) -> None:
        self._drop()

    def _do_drop(self, statement: Primitive) -> None:
        self._drop()

    def _do_clone_ingress_pkt_to_egress(self, statement: Primitive) -> None:
        session, kept = statement.args
        self.w.line(f"{self.frame.use('clone')} = ({self.number(session).code}) & 0x7fff")
        self.w.line(f"{self.frame.use('clone_list')} = {self.number(kept).code}")

    _do_clone_egress_pkt_to_egress = _do_clone_ingress_pkt_to_egress

    def _do_resubmit(self, statement: Primitive) -> None:
        self.w.line(f"{self.frame.use('resubmit')} = {self.number(statement.args[0]).code}")

    def _do_recirculate(self, statement: Primitive) -> None:
        self.w.line(f"{self.frame.use('recirculate')} = {self.number(statement.args[0]).code}")

    def _do_generate_digest(self, statement: Primitive) -> None:
        self.w.line(f"{self.frame.use('digest')} = {self.number(statement.args[1]).code}")
        self.w.line(f"{self.frame.use('receiver')} = {self.number(statement.args[0]).code}")

    def _do_truncate(self, statement: Primitive) -> None:
        self.w.line(f"{self.frame.use('trunc')} = min(trunc, {self.number(statement.args[0]).code})")

    def _do_exit(self, statement: Primitive) -> None:
        self.w.line(f"{self.frame.use('exited')} = True")

    def _do_no_op(self, statement: Primitive) -> None:
        """Nothing."""

    # Values from elsewhere

    def _do_modify_field_rng_uniform(self, statement: Primitive) -> None:
        target, low, high = statement.args
        a, b = (self._atom(self.number(each)) for each in (low, high))
        with self.w.block(f"if {a.code} <= {b.code}:"):
            self.assign(target, Value(f"X.random({a.code}, {b.code})", a.low, b.high))

    def _do_modify_field_with_hash_based_offset(self, statement: Primitive) -> None:
        target, base, calculation, size = statement.args
        assert isinstance(calculation, Ref)
        output = CalculationEmitter(self).output(self.program.calculations[calculation.name])
        start, limit = self.number(base), self.number(size)
        known = limit.constant
        if known is not None:
            count = str(known & 0xFFFFFFFFFFFFFFFF or 1)
        else:
            count = f"({limit.code} & 0xffffffffffffffff or 1)"
        offset = "" if start.constant == 0 else f" + ({start.code} & 0xffffffffffffffff)"
        high = (known & 0xFFFFFFFFFFFFFFFF or 1) - 1 if known is not None and start.constant == 0 else (1 << 64) - 1
        tail = "" if high < (1 << 64) - 1 or not offset else " & 0xffffffffffffffff"
        self.assign(target, Value(f"({output.code} % {count}{offset}{tail})", 0, high))

    # Words to the operator

    def _do_log_msg(self, statement: Primitive) -> None:
        text, values = statement.args
        assert isinstance(text, Text)
        assert isinstance(values, Vector)
        codes = "".join(f"{self.number(each).code}, " for each in values.items)
        self.w.line(f"X.log({text.value!r}, ({codes}))")

    def _do_assert(self, statement: Primitive) -> None:
        place = str(statement.source)
        with self.w.block(f"if not {self.truth(statement.args[0])}:"):
            words = f"{statement.op} failed: {statement.source.fragment or 'a condition'}, {place}"
            self.w.line(f"raise Fault({words!r})")

    _do_assume = _do_assert
