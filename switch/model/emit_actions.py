"""Python for the body of an action: p4c's jumps become if and else again, and register indexes are checked once."""

from __future__ import annotations

from collections.abc import Sequence

from switch.model.controls import Action
from switch.model.emit_base import Frame, TooDeepError, Value
from switch.model.emit_statements import StatementEmitter
from switch.model.expressions import Const, Expr, FieldRef, Op, Param, Primitive, Ref

_MOST_STEPS = 100_000  # of a loop in an action; BMv2 would not come back
_FEW = 3  # register accesses; from so many it pays to check an index once and write the code twice


class UnstructuredError(Exception):
    """The jumps of an action are not those of if and else."""


def emit_action(frame: Frame, action: Action, params: Sequence[Value]) -> None:
    """Writes the body of an action; `params` are its arguments."""
    emitter = _ActionEmitter(frame, action, params)
    emitter.emit()


class _ActionEmitter:
    def __init__(self, frame: Frame, action: Action, params: Sequence[Value]) -> None:
        self.frame, self.w, self.body, self.params = frame, frame.w, action.body, params

    def emit(self) -> None:
        kept, depth = len(self.w.lines), self.w.depth
        try:
            self._range(0, len(self.body), frozenset())
        except (UnstructuredError, TooDeepError):
            del self.w.lines[kept:]
            self.w.depth = depth
            self._blocks()

    def _target(self, place: int) -> int:
        last = self.body[place].args[-1]
        assert isinstance(last, Const)
        return last.value

    def _range(self, start: int, end: int, after: frozenset[int]) -> None:
        """Writes statements; a jump to `after` is the same as falling off their end."""
        place = start
        while place < end:
            statement = self.body[place]
            if statement.op == "_jump":
                if self._target(place) not in after | {end}:
                    raise UnstructuredError
                return
            if statement.op != "_jump_if_zero":
                straight = place
                while place < end and not self.body[place].op.startswith("_jump"):
                    place += 1
                self._straight(self.body[straight:place])
            else:
                place = self._branch(place, end, after | {end})

    def _branch(self, place: int, end: int, after: frozenset[int]) -> int:
        """Writes an if, with the else that p4c marks by a jump before it, and returns where its ways meet again."""
        middle = self._target(place)
        if not place < middle <= end:
            raise UnstructuredError
        condition = StatementEmitter(self.frame, self.params).truth(self.body[place].args[0])
        if middle - 1 == place or self.body[middle - 1].op != "_jump":
            with self.w.block(f"if {condition}:"):
                self._range(place + 1, middle, after if middle == end else frozenset({middle}))
            return middle
        join = self._target(middle - 1)
        if join in after:
            join = end
        elif not middle <= join <= end:
            raise UnstructuredError
        meeting = after if join == end else frozenset({join})
        with self.w.block(f"if {condition}:"):
            self._range(place + 1, middle - 1, meeting)
        if join != middle:
            with self.w.block("else:"):
                self._range(middle, join, meeting)
        return join

    def _blocks(self) -> None:
        """Every jump target by its number: for loops."""
        starts = {0, len(self.body)}
        for place, each in enumerate(self.body):
            if each.op.startswith("_jump"):
                starts |= {self._target(place), place + 1}
        order = sorted(starts)
        label, steps = self.frame.temporary(), self.frame.temporary()
        self.w.line(f"{label} = {steps} = 0")
        with self.w.block("while True:"):
            self.w.line(f"{steps} += 1")
            with self.w.block(f"if {steps} > {_MOST_STEPS}:"):
                self.w.line("raise Fault('a loop in an action does not end')")
            for number, start in enumerate(order[:-1]):
                end = order[number + 1]
                with self.w.block(f"{'elif' if number else 'if'} {label} == {start}:"):
                    last = self.body[end - 1]
                    jumps = last.op.startswith("_jump")
                    self._straight(self.body[start : end - 1 if jumps else end])
                    if last.op == "_jump":
                        self.w.line(f"{label} = {self._target(end - 1)}")
                    elif last.op == "_jump_if_zero":
                        condition = StatementEmitter(self.frame, self.params).truth(last.args[0])
                        self.w.line(f"{label} = {end} if {condition} else {self._target(end - 1)}")
                    else:
                        self.w.line(f"{label} = {end}")
            with self.w.block("else:"):
                self.w.line("break")

    def _straight(self, statements: Sequence[Primitive]) -> None:
        """Writes statements without jumps.

        Where several registers of one size are accessed at one index, the index is checked once, and what happens if it
        is out of range is written apart.
        """
        emitter = StatementEmitter(self.frame, self.params)
        common = self._common_index(statements, emitter)
        if common is None:
            for each in statements:
                emitter.primitive(each)
            return
        expr, size = common
        index = emitter.number(expr)
        before = "" if index.low is not None and index.low >= 0 else "0 <= "
        sure = StatementEmitter(self.frame, self.params, frozenset({(index.code, size)}))
        with self.w.block(f"if {before}{index.code} < {size}:"):
            for each in statements:
                sure.primitive(each)
        with self.w.block("else:"):
            emitter.outside = frozenset({(index.code, size)})
            for each in statements:
                emitter.primitive(each)

    def _common_index(self, statements: Sequence[Primitive], emitter: StatementEmitter) -> tuple[Expr, int] | None:
        """The index that most registers are accessed at, if nothing changes it on the way."""
        counts: dict[tuple[Expr, int], int] = {}
        registers = self.frame.program.registers
        for each in statements:
            if each.op in ("register_read", "register_write"):
                ref = next(arg for arg in each.args if isinstance(arg, Ref) and arg.kind == "register")
                where = each.args[2] if each.op == "register_read" else each.args[1]
                key = where, registers[ref.name].size
                counts[key] = counts.get(key, 0) + 1
        for (where, size), count in sorted(counts.items(), key=lambda item: -item[1]):
            read = _fields(where)
            if count < _FEW or read is None or emitter.number(where).within(0, size - 1):
                continue
            if not any(_changes(each, read) for each in statements):
                return where, size
        return None


def _fields(expr: Expr | None) -> set[FieldRef] | None:
    """The fields that an expression reads; None: others than fields, parameters and constants."""
    if expr is None or isinstance(expr, Const | Param):
        return set()
    if isinstance(expr, FieldRef):
        return {expr}
    if isinstance(expr, Op) and expr.op not in (
        "access_field",
        "last_stack_index",
        "size_stack",
        "valid",
        "valid_union",
    ):
        found: set[FieldRef] = set()
        for part in (expr.left, expr.right, expr.condition):
            inner = _fields(part)
            if inner is None:
                return None
            found |= inner
        return found
    return None


_HARMLESS = frozenset({"register_write", "count", "log_msg", "no_op", "assert", "assume", "truncate", "exit"})
_FIRST_IS_TARGET = frozenset(
    {"assign", "modify_field", "register_read", "modify_field_rng_uniform", "modify_field_with_hash_based_offset"}
)


def _changes(statement: Primitive, fields: set[FieldRef]) -> bool:
    """Whether a statement may change one of the fields."""
    if not fields or statement.op in _HARMLESS:
        return False
    if statement.op in _FIRST_IS_TARGET and isinstance(statement.args[0], FieldRef):
        return statement.args[0] in fields
    return True
