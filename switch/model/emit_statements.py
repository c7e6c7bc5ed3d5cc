"""Python for primitives: the statements of actions, parser states and deparsers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from switch.model.emit_base import Frame, Value, constant, field_limits
from switch.model.emit_calculations import CalculationEmitter
from switch.model.emit_expressions import ExpressionEmitter, saturated, wrapped
from switch.model.program import (
    VALID,
    Const,
    Expr,
    Field,
    FieldRef,
    Header,
    Op,
    Primitive,
    Ref,
    RegisterCell,
    StackField,
    Text,
    UnionStackField,
    Vector,
)

_TWO_OPERANDS = {
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}


class StatementEmitter(ExpressionEmitter):
    """Writes primitives into a frame.

    Args:
        params: the parameters of the action.
        sure: (index, size) pairs of registers that are known to be in range.
    """

    def __init__(
        self, frame: Frame, params: Sequence[Value] = (), sure: frozenset[tuple[str, int]] = frozenset()
    ) -> None:
        super().__init__(frame, params)
        self.w, self.sure = frame.w, sure
        self.outside: frozenset[tuple[str, int]] = frozenset()  # known to be out of range

    def primitive(self, statement: Primitive) -> None:
        """Writes one primitive, but not jumps."""
        op, args = statement.op, statement.args
        if op in _TWO_OPERANDS:
            self.assign(args[0], self.number(Op(_TWO_OPERANDS[op], args[1], args[2])))
            return
        method: Callable[[Primitive], None] = getattr(self, f"_do_{op.lstrip('_').lower()}")
        method(statement)

    # Assignments

    def assign(self, target: Expr, value: Value) -> None:
        """Writes `target = value`, cut to the target's width."""
        if isinstance(target, FieldRef):
            self._store(target, self.program.field(target), value)
        elif isinstance(target, StackField | UnionStackField):
            headers = self.last_headers(target)
            self._store_one_of(f"{self.frame.next(target.stack)} - 1", headers, target.field, value)
        elif isinstance(target, RegisterCell):
            self._write_register(target.register, self.number(target.index), value)
        else:
            assert isinstance(target, Op)
            index, headers = self.headers(target.left)
            name = self.program.headers[headers[0]].type.fields[target.index].name
            if index is None:
                self.assign(FieldRef(headers[0], name), value)
            else:
                self._store_one_of(index, headers, name, value)

    def _store(self, target: FieldRef, field: Field, value: Value) -> None:
        self.w.line(f"{self.frame.field(target)} = {self.fit(value, field).code}")

    def fit(self, value: Value, field: Field) -> Value:
        """The value as a field holds it."""
        if field.saturating:
            return saturated(self.frame, value, field.width, signed=field.signed)
        return wrapped(value, field.width, signed=field.signed)

    def _store_one_of(self, index: str, headers: Sequence[str], field: str, value: Value) -> None:
        name = self.frame.temporary()
        self.w.line(f"{name} = {value.code}")
        value = Value(name, value.low, value.high)
        for header in self.one_of(index, headers):
            self.assign(FieldRef(header, field), value)

    def one_of(self, index: str | None, names: Sequence[str]) -> Iterator[str]:
        """Writes what the caller writes for each name, to be run for the one at `index` only.

        BMv2 ends with an uncaught exception if there is none; here the packet is dropped by one.
        """
        if index is None:
            yield names[0]
            return
        place = self.frame.temporary()
        self.w.line(f"{place} = {index}")
        for number, name in enumerate(names):
            with self.w.block(f"{'if' if number == 0 else 'elif'} {place} == {number}:"):
                yield name
        with self.w.block("else:"):
            self.w.line(f"raise IndexError(f'stack index {{{place}}} is out of range')")

    def _do_assign(self, statement: Primitive) -> None:
        self.assign(statement.args[0], self.number(statement.args[1]))

    _do_modify_field = _do_assign

    def _do_add_to_field(self, statement: Primitive) -> None:
        self.assign(statement.args[0], self.number(Op("+", statement.args[0], statement.args[1])))

    def _do_subtract_from_field(self, statement: Primitive) -> None:
        self.assign(statement.args[0], self.number(Op("-", statement.args[0], statement.args[1])))

    def _do_assign_vl(self, statement: Primitive) -> None:
        source, target = statement.args[1], statement.args[0]
        for into in self._varbit_headers(target):
            for out_of in self._varbit_headers(source):
                names = [
                    (self.frame.length(header), self.frame.field(FieldRef(header, field)))
                    for header, field in (into, out_of)
                ]
                self.w.line(f"{', '.join(names[0])} = {', '.join(names[1])}")

    def _varbit_headers(self, expr: Expr) -> Iterator[tuple[str, str]]:
        if isinstance(expr, FieldRef):
            yield expr.header, expr.field
        elif isinstance(expr, StackField | UnionStackField):
            for header in self.one_of(f"{self.frame.next(expr.stack)} - 1", self.last_headers(expr)):
                yield header, expr.field
        else:
            assert isinstance(expr, Op)
            for header in self.one_of(*self.headers(expr.left)):
                yield header, self.program.headers[header].type.fields[expr.index].name

    # Headers

    def _siblings(self, header: str) -> list[str]:
        """Other members of the union that a header is a member of."""
        for union in self.program.unions.values():
            if header in union.headers:
                return [each for each in union.headers if each != header]
        return []

    def mark_valid(self, header: str) -> None:
        """Makes a header valid, and the other members of its union invalid."""
        if self.program.headers[header].metadata:
            return
        self.w.line(f"{self.frame.valid(header)} = True")
        if siblings := self._siblings(header):
            self.w.line(f"{' = '.join(self.frame.valid(each) for each in siblings)} = False")

    def _count_bytes(self, sign: str, header: Header) -> None:
        if self.frame.tracks_length:
            fixed = header.type.fixed_bits // 8
            extra = f" {sign} ({self.frame.length(header.name)} >> 3)" if header.type.varbit is not None else ""
            self.w.line(f"{self.frame.use('plen')} = plen {sign} {fixed}{extra}")

    def _do_add_header(self, statement: Primitive) -> None:
        for name in self.one_of(*self.headers(statement.args[0])):
            header = self.program.headers[name]
            with self.w.block(f"if not {self.frame.valid(name)}:"):
                fields = [self.frame.field(FieldRef(name, each.name)) for each in header.type.fields]
                if fields:
                    self.w.line(f"{' = '.join(fields)} = 0")
                self.mark_valid(name)
                self._count_bytes("+", header)

    def _do_add_header_fast(self, statement: Primitive) -> None:
        for name in self.one_of(*self.headers(statement.args[0])):
            self.mark_valid(name)

    def _do_remove_header(self, statement: Primitive) -> None:
        for name in self.one_of(*self.headers(statement.args[0])):
            header = self.program.headers[name]
            if header.metadata:
                continue
            with self.w.block(f"if {self.frame.valid(name)}:"):
                self._count_bytes("-", header)
                self.w.line(f"{self.frame.valid(name)} = False")

    def _do_assign_header(self, statement: Primitive) -> None:
        for target in self.one_of(*self.headers(statement.args[0])):
            for source in self.one_of(*self.headers(statement.args[1])):
                self.copy_header(target, source)

    _do_copy_header = _do_assign_header

    def copy_header(self, target: str, source: str) -> None:
        """Assigns a header to another: content and validity, or invalidity alone."""
        if target == source:
            return
        ours, theirs = (self.frame.header_variables(self.program.headers[each]) for each in (target, source))
        with self.w.block(f"if {self.frame.valid(source)}:"):
            if ours:
                self.w.line(f"{', '.join(ours)} = {', '.join(theirs)}")
            self.mark_valid(target)
        if not self.program.headers[target].metadata:
            with self.w.block("else:"):
                self.w.line(f"{self.frame.valid(target)} = False")

    def _do_assign_union(self, statement: Primitive) -> None:
        for target in self.one_of(*self.unions(statement.args[0])):
            for source in self.one_of(*self.unions(statement.args[1])):
                self._copy_union(target, source)

    def _copy_union(self, target: str, source: str) -> None:
        unions = self.program.unions
        for pair in zip(unions[target].headers, unions[source].headers, strict=True):
            self.copy_header(*pair)

    def _do_assign_header_stack(self, statement: Primitive) -> None:
        target, source = (each.name for each in statement.args if isinstance(each, Ref))
        self.w.line(f"{self.frame.next(target)} = {self.frame.next(source)}")
        for pair in zip(self.program.stacks[target].headers, self.program.stacks[source].headers, strict=True):
            self.copy_header(*pair)

    def _do_assign_union_stack(self, statement: Primitive) -> None:
        target, source = (each.name for each in statement.args if isinstance(each, Ref))
        self.w.line(f"{self.frame.next(target)} = {self.frame.next(source)}")
        stacks = self.program.union_stacks
        for pair in zip(stacks[target].unions, stacks[source].unions, strict=True):
            self._copy_union(*pair)

    def _elements(self, stack: Ref) -> list[list[str]]:
        """The variables of each element of a stack, its validity first."""
        program = self.program
        if stack.kind == "stack":
            rows = [[each] for each in program.stacks[stack.name].headers]
        else:
            rows = [list(program.unions[each].headers) for each in program.union_stacks[stack.name].unions]
        return [
            [
                name
                for each in row
                for name in (self.frame.valid(each), *self.frame.header_variables(program.headers[each]))
            ]
            for row in rows
        ]

    def _shift(self, statement: Primitive, *, push: bool) -> None:
        stack, number = statement.args
        assert isinstance(stack, Ref)
        assert isinstance(number, Const)
        elements = self._elements(stack)
        size, count = len(elements), min(max(0, number.value), len(elements))
        if count == 0:
            return
        following = self.frame.next(stack.name)
        self.w.line(
            f"{following} = {f'min({size}, {following} + {count})' if push else f'max(0, {following} - {count})'}"
        )
        kept = size - count
        into, out_of = (elements[count:], elements[:kept]) if push else (elements[:kept], elements[count:])
        if kept:
            left, right = ([name for row in rows for name in row] for rows in (into, out_of))
            self.w.line(f"{', '.join(left)} = {', '.join(right)}")
        emptied = range(count) if push else range(kept, size)
        program = self.program
        names = (
            [program.stacks[stack.name].headers[each] for each in emptied]
            if stack.kind == "stack"
            else [h for each in emptied for h in program.unions[program.union_stacks[stack.name].unions[each]].headers]
        )
        self.w.line(f"{' = '.join(self.frame.valid(each) for each in names)} = False")

    def _do_push(self, statement: Primitive) -> None:
        self._shift(statement, push=True)

    def _do_pop(self, statement: Primitive) -> None:
        self._shift(statement, push=False)

    # Registers, counters, meters

    def index_key(self, expr: Expr, size: int) -> tuple[str, int]:
        """What `sure` and `outside` know an index by."""
        return self.number(expr).code, size

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
        self._write_register(register.name, self.index(where, size), self.number(value))

    def _write_register(self, name: str, index: Value, value: Value) -> None:
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
        if self.frame.trace:
            self.w.line("tr.note('marked to drop')")

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

    def set_validity(self, header: str, code: str) -> None:
        """Writes a header's validity."""
        self.w.line(f"{self.frame.field(FieldRef(header, VALID))} = {code}")

    @staticmethod
    def zero() -> Value:
        """The number 0."""
        return constant(0)
