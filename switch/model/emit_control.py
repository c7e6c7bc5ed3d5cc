"""Python for a pipeline: tables, conditions and the actions inside of them, as nested statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from switch.model.controls import Action, Pipeline, Table
from switch.model.emit_actions import emit_action
from switch.model.emit_base import Frame, TooDeepError, Value, constant, wrapped
from switch.model.emit_calculations import CalculationEmitter
from switch.model.emit_expressions import ExpressionEmitter
from switch.model.emit_statements import StatementEmitter
from switch.model.load_pipeline import successors
from switch.model.source_text import condition_text

_MOST_COPIES = 3  # how often longer than the pipeline its nested form may be


class TangledError(Exception):
    """Nodes would be written too often because the graph is not one of nested statements."""


class PipelineEmitter:
    """Writes a pipeline into a frame, inside of a loop that `exit` leaves."""

    def __init__(self, frame: Frame, pipeline: Pipeline) -> None:
        self.frame, self.pipeline, self.program = frame, pipeline, frame.program
        self.written = 0
        self.flat = False
        self.nodes = self._order()
        self.joins = self._joins()

    def emit(self) -> None:
        """Writes all of it."""
        if self.pipeline.start is None:
            return
        w = self.frame.w
        if any(self._exits(node) for node in self.nodes):
            w.line(f"{self.frame.use('exited')} = False")
        kept, used, depth = len(w.lines), dict(self.frame.used), w.depth
        try:
            with w.block("while True:"):
                self._run(self.pipeline.start, None)
                w.line("break")
        except (TangledError, TooDeepError):
            del w.lines[kept:]
            w.depth = depth
            self.frame.used = used
            self.flat = True
            self._emit_flat()

    def _emit_flat(self) -> None:
        """Every node by its number: slower, but for every graph."""
        w = self.frame.w
        numbers = {name: number for number, name in enumerate(self.nodes)}

        def go(name: str | None) -> None:
            w.line("break" if name is None else f"node = {numbers[name]}")

        w.line(f"node = {numbers[self.pipeline.start or '']}")
        with w.block("while True:"):
            for name, number in numbers.items():
                with w.block(f"{'elif' if number else 'if'} node == {number}:"):
                    self._node(name, go)

    # The graph

    def _order(self) -> list[str]:
        """The nodes that can be reached, each after those that lead to it."""
        order: list[str] = []
        seen: set[str] = set()
        work = [(self.pipeline.start, False)]
        while work:
            name, leaving = work.pop()
            if name is None:
                continue
            if leaving:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                work.append((name, True))
                work += [(each, False) for each in successors(self.pipeline, name)]
        return order[::-1]

    def _joins(self) -> dict[str, str | None]:
        """For each node the one where all ways from it meet again (its immediate post-dominator); None: the end."""
        joins: dict[str, str | None] = {}
        depth: dict[str | None, int] = {None: 0}
        for name in reversed(self.nodes):
            ways: list[str | None] = [*self._following(name)]
            meeting = ways[0]
            for way in ways[1:]:
                other = way
                while meeting != other:
                    if depth[meeting] < depth[other]:
                        meeting, other = other, meeting
                    meeting = joins[meeting] if meeting is not None else None
            joins[name] = meeting
            depth[name] = depth[meeting] + 1
        return joins

    def _following(self, name: str) -> list[str | None]:
        pipeline = self.pipeline
        if name in pipeline.tables:
            table = pipeline.tables[name]
            found = [table.next_hit, table.next_miss] if table.by_hit else self._after_actions(table)
        elif name in pipeline.conditionals:
            found = [pipeline.conditionals[name].next_true, pipeline.conditionals[name].next_false]
        else:
            found = [pipeline.calls[name].next]
        return list(dict.fromkeys(found))

    @staticmethod
    def _after_actions(table: Table) -> list[str | None]:
        """What can come after each action, and after none if that can be."""
        if _inlined(table) is not None and table.default is not None:
            return [table.next_action[table.default.action]]
        sure = table.default is not None and table.profile is None
        return [*table.next_action] if sure else [*table.next_action, table.next_default]

    def _exits(self, name: str) -> bool:
        if name in self.pipeline.tables:
            return any(_has_exit(each) for each in self.pipeline.tables[name].actions)
        return name in self.pipeline.calls and _has_exit(self.pipeline.calls[name].action)

    # Nodes

    def _run(self, name: str | None, stop: str | None) -> None:
        """Writes nodes from `name` up to `stop`."""
        while name is not None and name != stop:
            self.written += 1
            if self.written > _MOST_COPIES * len(self.nodes) + 50:
                raise TangledError
            join = self.joins[name]
            self._node(name, lambda following, join=join: self._run(following, join))  # type: ignore[misc]
            name = join

    def _node(self, name: str, go: Callable[[str | None], None]) -> None:
        """Writes one node; `go` writes the way to the next."""
        pipeline = self.pipeline
        if name in pipeline.tables:
            self._table(pipeline.tables[name], go)
        elif name in pipeline.conditionals:
            self._conditional(name, go)
        else:
            call = pipeline.calls[name]
            emit_action(self.frame, call.action, ())
            self._leave_on_exit([call.action])
            go(call.next)

    def _conditional(self, name: str, go: Callable[[str | None], None]) -> None:
        w = self.frame.w
        node = self.pipeline.conditionals[name]
        condition = ExpressionEmitter(self.frame).truth(node.condition)
        if self.frame.trace:
            text = condition_text(node.source, node.condition, name, self.frame.program.folder)
            result = self.frame.temporary()
            w.line(f"{result} = bool({condition})")
            w.line(f"tr.condition({text!r}, {str(node.source)!r}, {result})")
            condition = result
        self._either(condition, node.next_true, node.next_false, self.joins[name], go)

    def _either(
        self,
        condition: str,
        if_true: str | None,
        if_false: str | None,
        join: str | None,
        go: Callable[[str | None], None],
    ) -> None:
        """Writes two ways, of which one may be to go on."""
        w = self.frame.w
        if self.flat or if_true != join:
            with w.block(f"if {condition}:"):
                go(if_true)
            if self.flat or if_false != join:
                with w.block("else:"):
                    go(if_false)
        elif if_false != join:
            with w.block(f"if not {condition}:"):
                go(if_false)

    def _leave_on_exit(self, actions: Sequence[Action]) -> None:
        if any(_has_exit(each) for each in actions):
            with self.frame.w.block(f"if {self.frame.use('exited')}:"):
                self.frame.w.line("break")

    def _table(self, table: Table, go: Callable[[str | None], None]) -> None:
        inlined = _inlined(table)
        if inlined is None:
            self._lookup(table)
            self._dispatch(table, go)
            return
        assert table.default is not None
        if self.frame.trace and "." in inlined.name:  # the others are p4c's own, for statements outside of actions
            self.frame.w.line(f"tr.action({inlined.name!r}, {table.default.args!r})")
        emit_action(self.frame, inlined, [constant(each) for each in table.default.args])
        self._leave_on_exit([inlined])
        go(table.next_miss if table.by_hit else table.next_action[table.default.action])

    def _lookup(self, table: Table) -> None:
        """Writes the search for the entry, into `e`, and what happens to the entry itself."""
        w, frame = self.frame.w, self.frame
        name = frame.object("T", table.name)
        codes = []
        for key in table.keys:
            value = wrapped(ExpressionEmitter(frame).number(key.target), key.width, signed=False)
            codes.append(value.code if key.mask is None else f"{value.code} & {key.mask:#x}")
        more = "," if len(codes) == 1 else ""
        key_code = f"({', '.join(codes)}{more})"
        if not table.keys:
            w.line(f"e = {name}.default" if table.profile is None else f"e = {frame.object('L', table.name)}(())")
        elif table.kind == "indirect_ws" and table.profile is not None:
            profile = self.program.profiles[table.profile]
            assert profile.algorithm is not None
            value = CalculationEmitter(StatementEmitter(frame)).fields_hash(
                profile.algorithm, profile.name, profile.inputs
            )
            w.line(f"e = {frame.object('L', table.name)}({key_code}, {value.code})")
        else:
            w.line(f"e = {frame.object('L', table.name)}({key_code})")
        if frame.trace:
            w.line(f"tr.table({name}, {key_code if table.keys else '()'}, e)")
        if not (table.counters or table.timeouts or table.meter):
            return
        with w.block("if e.hit:"):
            if table.counters:
                w.line("e.packets += 1")
                w.line(f"e.bytes += {frame.use('size')}")
            if table.timeouts:
                w.line(f"e.last_hit = {frame.use('now')}")
            if table.meter:
                result = self.program.meters[table.meter].result
                assert result is not None
                call = f"e.meter.execute({frame.use('now')}, {frame.use('size')})"
                StatementEmitter(frame).assign(result, Value(call, 0, 2))

    def _dispatch(self, table: Table, go: Callable[[str | None], None]) -> None:
        """Writes the actions, of which the entry's is run, and the ways after them."""
        w = self.frame.w
        by_action = not table.by_hit and len(set(self._after_actions(table))) > 1
        opened = False
        for place, action in enumerate(table.actions):
            if not action.body and not by_action and not self.frame.trace:
                continue
            with w.block(f"{'elif' if opened else 'if'} e.action == {place}:"):
                self._call(action)
                if by_action:
                    self._leave_on_exit([action])
                    go(table.next_action[place])
            opened = True
        if by_action:
            if table.next_default in self._after_actions(table):
                with w.block("else:" if opened else "if True:"):
                    go(table.next_default)
            return
        self._leave_on_exit(table.actions)
        if not table.by_hit:
            go(self._after_actions(table)[0])
        elif table.next_hit == table.next_miss:
            go(table.next_hit)
        else:
            self._either("e.hit", table.next_hit, table.next_miss, self.joins[table.name], go)

    def _call(self, action: Action) -> None:
        names = [f"p{place}" for place in range(len(action.params))]
        if names:
            self.frame.w.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = e.args")
        if self.frame.trace:
            self.frame.w.line(f"tr.action({action.name!r}, e.args)")
        params = [Value(name, 0, (1 << param.width) - 1) for name, param in zip(names, action.params, strict=True)]
        emit_action(self.frame, action, params)


def _inlined(table: Table) -> Action | None:
    """The action of a table that always does the same: no key, and a default that nobody may change."""
    default = table.default
    if table.keys or table.profile is not None or default is None or not default.const_entry:
        return None
    return table.actions[default.action]


def _has_exit(action: Action) -> bool:
    return any(each.op == "exit" for each in action.body)
