"""Which header or union an expression means, where that is known only when a packet comes."""

from __future__ import annotations

from switch.model.emit_base import Frame, Value
from switch.model.expressions import Expr, Op, Ref, StackField, UnionStackField


class ChoiceEmitter:
    """Base of emitters of expressions: headers and unions are named by an index and what it chooses from."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.program = frame, frame.program

    def number(self, expr: Expr) -> Value:
        """Code for a number."""
        raise NotImplementedError

    def last_headers(self, expr: StackField | UnionStackField) -> list[str]:
        """The headers that `last` can mean, by index."""
        if isinstance(expr, StackField):
            return list(self.program.stacks[expr.stack].headers)
        unions = [self.program.unions[each] for each in self.program.union_stacks[expr.stack].unions]
        return [each.headers[each.members.index(expr.member)] for each in unions]

    def headers(self, expr: Expr | None) -> tuple[str | None, list[str]]:
        """Code for an index, and the headers to choose from; no index: there is one."""
        if isinstance(expr, Ref):
            return None, [expr.name]
        assert isinstance(expr, Op)
        if expr.op == "access_union_header":
            index, unions = self.unions(expr.left)
            return index, [self.program.unions[each].headers[expr.index] for each in unions]
        if expr.op == "?":
            raise AssertionError("a header that depends on a condition")
        assert isinstance(expr.left, Ref)
        assert expr.right is not None
        return self._place(expr.right, list(self.program.stacks[expr.left.name].headers))

    def _place(self, expr: Expr, elements: list[str]) -> tuple[str | None, list[str]]:
        index = self.number(expr)
        known = index.constant
        if known is not None and 0 <= known < len(elements):
            return None, [elements[known]]
        if index.low is None or index.low < 0:  # Python would count a negative one from the end
            return f"({index.code} & 0xffffffffffffffff)", elements
        return index.code, elements

    def unions(self, expr: Expr | None) -> tuple[str | None, list[str]]:
        """The same for unions."""
        if isinstance(expr, Ref):
            return None, [expr.name]
        assert isinstance(expr, Op)
        assert isinstance(expr.left, Ref)
        assert expr.right is not None
        return self._place(expr.right, list(self.program.union_stacks[expr.left.name].unions))
