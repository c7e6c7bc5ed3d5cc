"""Pipelines of BMv2's JSON: tables, conditionals, action profiles."""

from __future__ import annotations

from collections.abc import Mapping

from switch.model.controls import (
    Action,
    ActionCall,
    Conditional,
    ConstEntry,
    ConstMatch,
    DefaultEntry,
    Key,
    Pipeline,
    Profile,
    Table,
)
from switch.model.expressions import VALID, FieldRef
from switch.model.json_reader import Node
from switch.model.load_expressions import ExpressionLoader, Scope
from switch.model.program import Meter

_MATCH_KINDS = ("exact", "lpm", "ternary", "range", "valid")


def load_profiles(node: Node, scope: Scope) -> dict[str, Profile]:
    """Reads the action profiles and selectors of a pipeline."""
    found: dict[str, Profile] = {}
    for each in node.items("action_profiles", needed=False):
        name = each.text("name")
        algorithm, inputs = None, []
        if each.has("selector"):
            algorithm = each["selector"].text("algo")
            for field in each["selector"].items("input"):
                if field.text("type") != "field":
                    field.unsupported(f"a {field.text('type')} as input of an action selector", each.source())
                inputs.append(scope.field(field["value"]))
        found[name] = Profile(name, each.number("max_size"), algorithm, tuple(inputs))
    return found


def load_pipeline(
    node: Node,
    scope: Scope,
    actions: Mapping[int, Action],
    profiles: Mapping[str, Profile],
    meters: Mapping[str, Meter],
) -> Pipeline:
    """Reads one pipeline and checks that it ends."""
    loader = _PipelineLoader(node, scope, actions, profiles, meters)
    tables = {each.text("name"): loader.table(each) for each in node.items("tables")}
    conditionals = {each.text("name"): loader.conditional(each) for each in node.items("conditionals")}
    calls = {each.text("name"): loader.call(each) for each in node.items("action_calls", needed=False)}
    pipeline = Pipeline(node.text("name"), loader.following(node, "init_table"), tables, conditionals, calls)
    _check_no_loop(node, pipeline)
    return pipeline


class _PipelineLoader:
    def __init__(
        self,
        node: Node,
        scope: Scope,
        actions: Mapping[int, Action],
        profiles: Mapping[str, Profile],
        meters: Mapping[str, Meter],
    ) -> None:
        self.scope, self.actions, self.profiles, self.meters = scope, actions, profiles, meters
        self.names: set[str] = set()
        for key in ("tables", "conditionals", "action_calls"):
            for each in node.items(key, needed=key != "action_calls"):
                name = each.text("name")
                if name in self.names:
                    each.fail(f"the name {name!r} is there twice")
                self.names.add(name)

    def following(self, node: Node, key: str) -> str | None:
        name = node.name_or_none(key)
        if name is not None and name not in self.names:
            node[key].fail(f"there is no table or condition {name!r}")
        return name

    def conditional(self, node: Node) -> Conditional:
        condition = ExpressionLoader(self.scope).condition(node["expression"])
        names = self.following(node, "true_next"), self.following(node, "false_next")
        return Conditional(node.text("name"), condition, *names, node.source())

    def call(self, node: Node) -> ActionCall:
        action = self._action(node["action_id"])
        if action.params:
            node.fail(f"action {action.name!r} has parameters and needs a table")
        return ActionCall(node.text("name"), action, self.following(node, "next_node"))

    def _action(self, node: Node) -> Action:
        if node.as_(int) not in self.actions:
            node.fail(f"there is no action with id {node.value}")
        return self.actions[node.value]

    def table(self, node: Node) -> Table:
        kind = node.text("type")
        if kind not in ("simple", "indirect", "indirect_ws"):
            node.unsupported(f"a table of type {kind!r}")
        profile = node.text("action_profile") if kind != "simple" else None
        if profile is not None and profile not in self.profiles:
            node["action_profile"].fail(f"there is no action profile {profile!r}")
        if profile is not None and (kind == "indirect_ws") != (self.profiles[profile].algorithm is not None):
            node["action_profile"].fail(f"{profile!r} does not fit a table of type {kind!r}")
        actions = tuple(self._action(each) for each in node.items("action_ids"))
        keys = tuple(self._key(each) for each in node.items("key"))
        if sum(each.kind == "lpm" for each in keys) > 1:
            node["key"].fail("a table has at most one lpm key")
        meter = node.name_or_none("direct_meters")
        if meter is not None and (meter not in self.meters or self.meters[meter].result is None):
            node["direct_meters"].fail(f"there is no direct meter {meter!r}")
        following = node["next_tables"]
        by_hit = any(key in following.as_(dict) for key in ("__HIT__", "__MISS__"))
        default = self._default(node["default_entry"], actions) if node.has("default_entry") else None
        entries = tuple(self._entry(each, keys, actions) for each in node.items("entries", needed=False))
        size = node.number("max_size") if node.has("max_size") else len(entries)
        return Table(
            name=node.text("name"),
            kind=kind,  # type: ignore[arg-type]
            match=node.text("match_type"),
            keys=keys,
            actions=actions,
            size=max(size, len(entries)),
            counters=node.flag("with_counters"),
            timeouts=node.flag("support_timeout"),
            meter=meter,
            profile=profile,
            default=default,
            entries=entries,
            entries_const=node.has("entries"),
            by_hit=by_hit,
            next_action=tuple(None if by_hit else self.following(following, each.name) for each in actions),
            next_hit=self.following(following, "__HIT__") if by_hit else None,
            next_miss=self.following(following, "__MISS__") if by_hit else None,
            next_default=self.following(node, "base_default_next"),
            source=node.source(),
        )

    def _key(self, node: Node) -> Key:
        kind = node.text("match_type")
        if kind not in _MATCH_KINDS:
            node.unsupported(f"match kind {kind!r}")
        target = node["target"]
        if kind == "valid":
            ref = FieldRef(target.as_(str), VALID)
            if ref.header not in self.scope.headers:
                target.fail(f"there is no header {ref.header!r}")
        else:
            ref = self.scope.field(target)
        width = self.scope.field_of(target, ref.header, ref.field).width
        mask = node["mask"].hex() if node.has("mask") else None
        name = node.name_or_none("name") or f"{ref.header}.{ref.field}"
        return Key(name, kind, ref, width, mask)  # type: ignore[arg-type]

    @staticmethod
    def _position(node: Node, actions: tuple[Action, ...]) -> int:
        number = node.as_(int)
        for place, each in enumerate(actions):
            if each.id == number:
                return place
        return node.fail(f"the table has no action with id {number}")

    def _args(self, node: Node, key: str, action: Action) -> tuple[int, ...]:
        args = tuple(each.hex() for each in node.items(key, needed=False))
        if len(args) != len(action.params):
            node.fail(f"action {action.name!r} takes {len(action.params)} arguments, found {len(args)}")
        return tuple(arg & ((1 << param.width) - 1) for arg, param in zip(args, action.params, strict=True))

    def _default(self, node: Node, actions: tuple[Action, ...]) -> DefaultEntry:
        place = self._position(node["action_id"], actions)
        args = self._args(node, "action_data", actions[place])
        return DefaultEntry(place, args, node.flag("action_const"), node.flag("action_entry_const"))

    def _entry(self, node: Node, keys: tuple[Key, ...], actions: tuple[Action, ...]) -> ConstEntry:
        matches = list(node.items("match_key"))
        if len(matches) != len(keys):
            node["match_key"].fail(f"the table has {len(keys)} keys, the entry {len(matches)}")
        place = self._position(node["action_entry"]["action_id"], actions)
        args = self._args(node["action_entry"], "action_data", actions[place])
        found = tuple(self._match(*each) for each in zip(matches, keys, strict=True))
        return ConstEntry(found, place, args, node["priority"].as_(int) if node.has("priority") else 0)

    @staticmethod
    def _match(node: Node, key: Key) -> ConstMatch:
        kind = node.text("match_type")
        if kind != key.kind:
            node.fail(f"the key is {key.kind}, the entry's match {kind}")
        full = (1 << key.width) - 1
        if kind == "valid":
            return ConstMatch(kind, int(node.flag("key")))
        if kind == "range":
            return ConstMatch(kind, node["start"].hex() & full, high=node["end"].hex() & full)
        value = node["key"].hex() & full
        if kind == "lpm":
            return ConstMatch(kind, value, prefix=node.number("prefix_length", 0, key.width))
        return ConstMatch(kind, value, mask=node["mask"].hex() & full if kind == "ternary" else full)


def _check_no_loop(node: Node, pipeline: Pipeline) -> None:
    """A pipeline is a graph without cycles, or a packet would never leave it."""
    done: set[str] = set()
    open_: set[str] = set()
    work: list[tuple[str, bool]] = [(pipeline.start, False)] if pipeline.start is not None else []
    while work:
        name, leaving = work.pop()
        if leaving:
            open_.discard(name)
            done.add(name)
            continue
        if name in open_:
            node.fail(f"{name!r} follows itself")
        if name in done:
            continue
        open_.add(name)
        work.append((name, True))
        work.extend((each, False) for each in successors(pipeline, name) if each not in done)


def successors(pipeline: Pipeline, name: str) -> list[str]:
    """The nodes that can come after a node, each once, in a fixed order."""
    if name in pipeline.tables:
        table = pipeline.tables[name]
        options = [table.next_hit, table.next_miss] if table.by_hit else [*table.next_action, table.next_default]
    elif name in pipeline.conditionals:
        options = [pipeline.conditionals[name].next_true, pipeline.conditionals[name].next_false]
    else:
        options = [pipeline.calls[name].next]
    return list(dict.fromkeys(each for each in options if each is not None))
