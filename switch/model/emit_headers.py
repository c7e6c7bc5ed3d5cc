"""Python for assignments, and for what controls do to whole headers, stacks and unions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from switch.model.emit_base import Frame, Value, saturated, wrapped
from switch.model.emit_expressions import ExpressionEmitter
from switch.model.expressions import (
    Const,
    Expr,
    FieldRef,
    Op,
    Primitive,
    Ref,
    RegisterCell,
    StackField,
    UnionStackField,
)
from switch.model.program import Field, Header


class HeaderEmitter(ExpressionEmitter):
    """Writes assignments into a frame; the primitive `x` is the method `_do_x`.

    Attributes:
        w: the writer of the frame.
    """

    def __init__(self, frame: Frame, params: Sequence[Value] = ()) -> None:
        super().__init__(frame, params)
        self.w = frame.w

    def write_register(self, name: str, index: Value, value: Value) -> None:
        """Writes a cell of a register array."""
        raise NotImplementedError

    # Assignments

    def assign(self, target: Expr, value: Value) -> None:
        """Writes `target = value`, cut to the target's width."""
        if isinstance(target, FieldRef):
            self._store(target, self.program.field(target), value)
        elif isinstance(target, StackField | UnionStackField):
            headers = self.last_headers(target)
            self._store_one_of(f"{self.frame.next(target.stack)} - 1", headers, target.field, value)
        elif isinstance(target, RegisterCell):
            self.write_register(target.register, self.number(target.index), value)
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
