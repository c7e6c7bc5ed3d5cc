"""Python for expressions. Numbers are computed without limit, as in BMv2; what is stored is cut to its width."""

from __future__ import annotations

from collections.abc import Sequence

from switch.model.emit_base import Frame, Value, constant, field_limits, is_deep, saturated, wrapped
from switch.model.emit_choices import ChoiceEmitter
from switch.model.expressions import (
    Bool,
    Const,
    Expr,
    FieldRef,
    Op,
    Param,
    Ref,
    RegisterCell,
    StackField,
    UnionStackField,
)
from switch.model.program import Field

_BIG_SHIFT = 1 << 16  # no field is wider: what is shifted so far is 0
_BIGGEST = 1 << 4096
_COMPARE = {"==", "!=", "<", ">", "<=", ">="}


class ExpressionEmitter(ChoiceEmitter):
    """Turns expressions into code. `params` are those of the action at hand."""

    def __init__(self, frame: Frame, params: Sequence[Value] = ()) -> None:
        super().__init__(frame)
        self.params = params

    # Numbers

    def number(self, expr: Expr) -> Value:
        """Code for a number."""
        if isinstance(expr, Const):
            return constant(expr.value)
        if isinstance(expr, FieldRef):
            return Value(self.frame.field(expr), *field_limits(self.program.field(expr)))
        if isinstance(expr, Param):
            return self.params[expr.index]
        if isinstance(expr, StackField | UnionStackField):
            return self._last(expr)
        if isinstance(expr, RegisterCell):
            width = self.program.registers[expr.register].width
            cells = self.frame.object("R", expr.register)
            return Value(f"{cells}[{self.number(expr.index).code}]", 0, (1 << width) - 1)
        if isinstance(expr, Bool):
            return constant(int(expr.value))
        if isinstance(expr, Op) and expr.op in _ARITHMETIC:
            value: Value = getattr(self, _ARITHMETIC[expr.op])(expr)
            return value._replace(code=self._unnested(value.code))
        if isinstance(expr, Op):
            return Value(self.truth(expr), 0, 1)
        raise AssertionError(expr)  # the loader lets no other pass

    def _unnested(self, code: str) -> str:
        """The code, or a variable that gets its value before if the code is nested too deeply for Python."""
        if not is_deep(code):
            return code
        name = self.frame.temporary()
        self.frame.w.line(f"{name} = {code}")
        return name

    def _both(self, expr: Op) -> tuple[Value, Value]:
        assert expr.left is not None
        assert expr.right is not None
        return self.number(expr.left), self.number(expr.right)

    def _limited(self, code: str, corners: list[int | None]) -> Value:
        known = [each for each in corners if each is not None]
        if len(known) < len(corners) or max(map(abs, known)) > _BIGGEST:
            return Value(code)
        return Value(code, min(known), max(known))

    def _add(self, expr: Op) -> Value:
        a, b = self._both(expr)
        code = f"({a.code} + {b.code})"
        if a.low is None or a.high is None or b.low is None or b.high is None:
            return Value(code)
        return self._limited(code, [a.low + b.low, a.high + b.high])

    def _subtract(self, expr: Op) -> Value:
        a, b = self._both(expr)
        code = f"({a.code} - {b.code})" if a.constant != 0 else f"(-{b.code})"
        if a.low is None or a.high is None or b.low is None or b.high is None:
            return Value(code)
        return self._limited(code, [a.low - b.high, a.high - b.low])

    def _multiply(self, expr: Op) -> Value:
        a, b = self._both(expr)
        code = f"({a.code} * {b.code})"
        if a.low is None or a.high is None or b.low is None or b.high is None:
            return Value(code)
        return self._limited(code, [x * y for x in (a.low, a.high) for y in (b.low, b.high)])

    def _divide(self, expr: Op) -> Value:
        a, b = self._both(expr)
        return Value(f"({a.code} // {b.code})", 0, a.high)

    def _modulo(self, expr: Op) -> Value:
        a, b = self._both(expr)
        return Value(f"({a.code} % {b.code})", 0, b.high - 1 if b.high is not None and b.high > 0 else None)

    def _and(self, expr: Op) -> Value:
        a, b = self._both(expr)
        for one, other in ((a, b), (b, a)):
            mask = one.constant
            if mask is not None and mask >= 0 and mask & (mask + 1) == 0 and other.within(0, mask):
                return other  # a mask that changes nothing
        highs = [each.high for each in (a, b) if each.low is not None and each.low >= 0 and each.high is not None]
        code = f"({a.code} & {b.code})"
        if highs:
            return Value(code, 0, min(highs))
        if any(each.low is not None and each.low >= 0 for each in (a, b)):
            return Value(code, 0, None)
        return self._bitwise(code, a, b)

    def _or(self, expr: Op) -> Value:
        a, b = self._both(expr)
        return self._bitwise(f"({a.code} | {b.code})", a, b)

    def _xor(self, expr: Op) -> Value:
        a, b = self._both(expr)
        return self._bitwise(f"({a.code} ^ {b.code})", a, b)

    def _bitwise(self, code: str, a: Value, b: Value) -> Value:
        if a.low is None or a.high is None or b.low is None or b.high is None:
            return Value(code)
        bits = max(each.bit_length() for each in (a.low, a.high, b.low, b.high))
        low = 0 if a.low >= 0 and b.low >= 0 else -(1 << bits)
        return Value(code, low, (1 << bits) - 1)

    def _invert(self, expr: Op) -> Value:
        assert expr.right is not None
        a = self.number(expr.right)
        return Value(f"(~{a.code})", None if a.high is None else ~a.high, None if a.low is None else ~a.low)

    def _shift_left(self, expr: Op) -> Value:
        a, b = self._both(expr)
        if b.high is None or b.high >= _BIG_SHIFT:
            amount = self.frame.temporary()
            code = f"({a.code} << {amount} if ({amount} := {b.code}) < {_BIG_SHIFT} else 0)"
            return Value(code, 0 if a.low is not None and a.low >= 0 else None, None)
        code = f"({a.code} << {b.code})"
        if a.low is None or a.high is None or b.low is None or b.low < 0 or b.high > 1024:
            return Value(code, 0 if a.low is not None and a.low >= 0 else None, None)
        return self._limited(code, [x << y for x in (a.low, a.high) for y in (b.low, b.high)])

    def _shift_right(self, expr: Op) -> Value:
        a, b = self._both(expr)
        if a.low is None or a.high is None:
            return Value(f"({a.code} >> {b.code})")
        code, amount = f"({a.code} >> {b.code})", b.constant
        if amount is None or amount < 0:
            return Value(code, min(0, a.low), max(0, a.high))
        low, high = a.low >> amount, a.high >> amount
        return constant(low) if low == high else Value(code, low, high)

    def _two_complement(self, expr: Op) -> Value:
        value, width = self._both(expr)
        assert width.constant is not None
        return wrapped(value, width.constant, signed=True)

    def _saturate(self, expr: Op) -> Value:
        value, width = self._both(expr)
        assert width.constant is not None
        return saturated(self.frame, value, width.constant, signed=expr.op == "sat_cast")

    def _choice(self, expr: Op) -> Value:
        assert expr.condition is not None
        condition = self.truth(expr.condition)
        a, b = self._both(expr)
        code = f"({a.code} if {condition} else {b.code})"
        if a.low is None or a.high is None or b.low is None or b.high is None:
            return Value(code)
        return Value(code, min(a.low, b.low), max(a.high, b.high))

    def _last_index(self, expr: Op) -> Value:
        assert isinstance(expr.right, Ref)
        size = len(self.program.stacks[expr.right.name].headers)
        # BMv2 computes this with 64 bits without sign
        return Value(f"({self.frame.next(expr.right.name)} - 1 & 0xffffffffffffffff)", 0, max(size, (1 << 64) - 1))

    def _count(self, expr: Op) -> Value:
        assert isinstance(expr.right, Ref)
        return Value(self.frame.next(expr.right.name), 0, len(self.program.stacks[expr.right.name].headers))

    def _access_field(self, expr: Op) -> Value:
        index, headers = self.headers(expr.left)
        kind = self.program.headers[headers[0]].type
        field = kind.fields[expr.index]
        return self._one_of(index, headers, field)

    def _one_of(self, index: str | None, headers: Sequence[str], field: Field, *, spare: str = "") -> Value:
        variables = [self.frame.field(FieldRef(each, field.name)) for each in headers]
        limits = field_limits(field)
        if index is None:
            return Value(variables[0], *limits)
        return Value(f"({', '.join(variables)},{spare})[{index}]", *limits)

    def _last(self, expr: StackField | UnionStackField) -> Value:
        """A field of the last element. BMv2 aborts if the stack is empty; here it is 0."""
        headers = self.last_headers(expr)
        kind = self.program.headers[headers[0]].type
        place = kind.index(expr.field)
        if place is None:
            variables = ", ".join(self.frame.valid(each) for each in headers)
            return Value(f"({variables}, False)[{self.frame.next(expr.stack)} - 1]", 0, 1)
        return self._one_of(f"{self.frame.next(expr.stack)} - 1", headers, kind.fields[place], spare=" 0")

    # Truth values

    def truth(self, expr: Expr) -> str:
        """Code for a truth value: an atom or in parentheses."""
        if isinstance(expr, Bool):
            return str(expr.value)
        if not isinstance(expr, Op):
            return self.number(expr).code
        op, left, right = expr.op, expr.left, expr.right
        if op == "?":
            assert expr.condition is not None
            assert left is not None
            assert right is not None
            return f"({self.truth(left)} if {self.truth(expr.condition)} else {self.truth(right)})"
        assert right is not None or op == "access_field"
        if op in ("and", "or"):
            assert left is not None
            assert right is not None
            return self._unnested(f"({self.truth(left)} {op} {self.truth(right)})")
        if op == "not":
            assert right is not None
            return f"(not {self.truth(right)})"
        if op in ("d2b", "b2d"):
            assert right is not None
            inner = self.truth(right)
            return inner if op == "d2b" else f"({inner})"
        if op in ("valid", "valid_union"):
            assert right is not None
            return self._valid(op, right)
        kind = op[2:] if op[:2] in ("==", "!=") else ""
        if kind in ("header", "union"):
            assert left is not None
            assert right is not None
            same = self._same_headers(left, right) if kind == "header" else self._same_unions(left, right)
            return same if op.startswith("==") else f"(not {same})"
        if kind == "bool":
            assert left is not None
            assert right is not None
            return f"(bool({self.truth(left)}) {op[:2]} bool({self.truth(right)}))"
        symbol = op[:2] if kind else op
        if symbol in _COMPARE:
            a, b = self._both(expr)
            return f"({a.code} {symbol} {b.code})"
        return self.number(expr).code

    def _valid(self, op: str, expr: Expr) -> str:
        if op == "valid":
            index, headers = self.headers(expr)
            codes = [self.frame.valid(each) for each in headers]
        else:
            index, unions = self.unions(expr)
            codes = [
                "(" + " or ".join(self.frame.valid(each) for each in self.program.unions[union].headers) + ")"
                for union in unions
            ]
        return codes[0] if index is None else f"({', '.join(codes)},)[{index}]"

    def _same_headers(self, left: Expr, right: Expr) -> str:
        """As BMv2: an invalid header equals nothing, not even another invalid one."""
        (index, a), (other, b) = self.headers(left), self.headers(right)
        if index is None and other is None:
            return self._same(a[0], b[0])
        rows = [f"({', '.join(self._same(x, y) for y in b)},)[{other or 0}]" for x in a]
        return f"({', '.join(rows)},)[{index or 0}]"

    def _same(self, a: str, b: str) -> str:
        ours, theirs = (self.frame.header_variables(self.program.headers[each]) for each in (a, b))
        equal = [f"{x} == {y}" for x, y in zip(ours, theirs, strict=True)]
        return "(" + " and ".join([self.frame.valid(a), self.frame.valid(b), *equal]) + ")"

    def _same_unions(self, left: Expr, right: Expr) -> str:
        (index, a), (other, b) = self.unions(left), self.unions(right)

        def same(x: str, y: str) -> str:
            pairs = zip(self.program.unions[x].headers, self.program.unions[y].headers, strict=True)
            return "(" + " or ".join(self._same(*each) for each in pairs) + ")"

        if index is None and other is None:
            return same(a[0], b[0])
        rows = [f"({', '.join(same(x, y) for y in b)},)[{other or 0}]" for x in a]
        return f"({', '.join(rows)},)[{index or 0}]"


_ARITHMETIC = {
    "+": "_add",
    "-": "_subtract",
    "*": "_multiply",
    "/": "_divide",
    "%": "_modulo",
    "&": "_and",
    "|": "_or",
    "^": "_xor",
    "~": "_invert",
    "<<": "_shift_left",
    ">>": "_shift_right",
    "two_comp_mod": "_two_complement",
    "usat_cast": "_saturate",
    "sat_cast": "_saturate",
    "?": "_choice",
    "last_stack_index": "_last_index",
    "size_stack": "_count",
    "access_field": "_access_field",
}
