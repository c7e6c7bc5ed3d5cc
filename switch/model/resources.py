"""What a compiled program would need of a Tofino: an estimate from the data flow of its ingress and egress.

The limits are those of the first Tofino, as p4c's open-source back end for it states them (backends/tofino/bf-p4c:
specs/device.h, specs/mau_spec.h, specs/phv_spec.cpp, mau/resource_estimate.h). ASSUMPTIONS says what the estimate takes
for granted; no compiler of the vendor's has confirmed it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from switch.model.controls import Action, Pipeline, Table
from switch.model.expressions import VALID, Expr, FieldRef, Op, Param, Primitive, Ref, RegisterCell, Vector
from switch.model.program import Program

STAGES: Final = 12
STATEFUL_ALUS: Final = 4  # of each stage
SRAM_BLOCKS: Final = 80  # of each stage
SRAM_ROWS: Final = 1024  # of a block
SRAM_BITS: Final = 128  # of a row
LOGICAL_TABLES: Final = 16  # of each stage
HEADER_VECTOR_BITS: Final = 64 * 8 + 96 * 16 + 64 * 32  # containers that actions can change

ASSUMPTIONS: Final = (
    "A statement runs in the first stage in which all that it reads is known; what it writes is known one stage later.",
    "A register's read, the decisions made from it and its write are one stateful ALU in one stage; decisions that need"
    " more conditions than such an ALU has would take another stage.",
    "A condition costs no stage of its own: it is evaluated in the stage of what it guards.",
    "An exact table fills its memory to 80 % and stores key, action data and 16 bits besides in each row; a counter"
    " takes 64 bits; a register takes one block more than its cells need.",
    "Header bits are those of all headers that one packet can have at once; metadata is counted in full, although"
    " fields that are never live together can share a container.",
    "Multicast, resubmission, digests and checksums are done outside of the stages.",
)


@dataclass
class Stage:
    """What one stage holds."""

    registers: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    sram: int = 0  # blocks


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a program needs.

    Attributes:
        ingress, egress: stages in order; those beyond the twelfth mean another pass, or another pipe.
        alus: stateful ALUs in all.
        register_bits: of all cells.
        header_bits: of the headers that one packet can have at once.
        metadata_bits: of the program's own metadata.
    """

    name: str
    per_alu: int
    ingress: tuple[Stage, ...]
    egress: tuple[Stage, ...]
    alus: int
    register_bits: int
    header_bits: int
    metadata_bits: int

    @property
    def passes(self) -> int:
        """How often a packet must go through the pipeline; 1: it fits."""
        stages = max(len(self.ingress), len(self.egress))
        return max(-(-stages // STAGES), -(-(self.header_bits + self.metadata_bits) // HEADER_VECTOR_BITS))

    @property
    def sram(self) -> int:
        """Blocks of SRAM in all."""
        return sum(stage.sram for stage in (*self.ingress, *self.egress))


def estimate(program: Program, *, per_alu: int = 1) -> Estimate:
    """Estimates what a program needs.

    Args:
        per_alu: registers of up to 32 bits that share one stateful ALU, 1 or 2: its cells may have 64 bits.

    Raises:
        ValueError: neither 1 nor 2.
    """
    if per_alu not in (1, 2):
        raise ValueError(f"a stateful ALU holds one register or two, not {per_alu}")
    registers = program.registers.values()
    metadata = [header for header in program.headers.values() if header.metadata and header.name != "standard_metadata"]
    return Estimate(
        name=program.name,
        per_alu=per_alu,
        ingress=_place(program, program.ingress, per_alu),
        egress=_place(program, program.egress, per_alu),
        alus=-(-len(registers) // per_alu),
        register_bits=sum(register.size * register.width for register in registers),
        header_bits=_longest(program, program.parser.start, {}),
        metadata_bits=sum(header.type.fixed_bits for header in metadata),
    )


def _longest(program: Program, state: str | None, known: dict[str, int]) -> int:
    """Bits of the headers on the longest way from a parser state to the end; loops are walked once."""
    if state is None:
        return 0
    if state not in known:
        known[state] = 0
        found = program.parser.states[state]
        first = [op.args[0] for op in found.ops if op.op.startswith("extract")]
        extracted = [arg.name for arg in first if isinstance(arg, Ref)]
        own = sum(program.headers[name].type.fixed_bits for name in extracted if name in program.headers)
        known[state] = own + max((_longest(program, each.next, known) for each in found.transitions), default=0)
    return known[state]


def _fields(expression: Expr | None) -> Iterator[str]:
    """The fields and headers that an expression reads, by name."""
    match expression:
        case FieldRef(header, name):
            yield f"{header}.{name}"
        case Ref("header", name):
            yield f"{name}.{VALID}"
        case Op():
            for part in (expression.left, expression.right, expression.condition):
                yield from _fields(part)
        case Vector(items):
            for item in items:
                yield from _fields(item)
        case RegisterCell(_, index):
            yield from _fields(index)
        case None | Param():
            return


@dataclass
class _Placer:
    """Puts a pipeline's nodes into stages, in an order in which every node follows all that lead to it."""

    program: Program
    per_alu: int
    stages: list[Stage] = field(default_factory=list)
    ready: dict[str, int] = field(default_factory=dict)  # by field: the stage from which on it can be read
    placed: dict[str, int] = field(default_factory=dict)  # by register: its stage

    def stage(self, number: int) -> Stage:
        while len(self.stages) <= number:
            self.stages.append(Stage())
        return self.stages[number]

    def after(self, names: Iterable[str]) -> int:
        return max((self.ready.get(name, 0) for name in names), default=0)

    def write(self, name: str, stage: int) -> None:
        self.ready[name] = max(self.ready.get(name, 0), stage + 1)
        self.stage(stage)

    def table(self, table: Table, at: int) -> int:
        at = max(at, self.after(name for key in table.keys for name in _fields(key.target)))
        key = sum(each.width for each in table.keys)
        data = max((sum(param.width for param in action.params) for action in table.actions), default=0)
        blocks = _blocks(table.size, key + data + 16, 0.8) if table.keys else 0
        if table.counters:
            blocks += _blocks(table.size, 64, 1.0)
        while len(self.stage(at).tables) >= LOGICAL_TABLES or (
            self.stages[at].sram + blocks > SRAM_BLOCKS and blocks <= SRAM_BLOCKS
        ):
            at += 1
        self.stages[at].tables.append(table.name)
        self.stages[at].sram += blocks
        for action in table.actions:
            self.action(action, at)
        return at

    def action(self, action: Action, at: int) -> None:
        slices = _register_slices(action)
        for place, statement in enumerate(action.body):
            if statement.op == "register_read" or statement.op == "register_write":
                name = _register(statement)
                if name not in self.placed:
                    self.placed[name] = self.register(name, action, slices[name], at)
                if statement.op == "register_read":
                    for target in _fields(statement.args[0]):
                        self.write(target, self.placed[name])
                continue
            if any(place in part for part in slices.values()):
                # Decided within the register's ALU, and given out by it.
                owner = next(name for name, part in slices.items() if place in part)
                for target in _fields(statement.args[0]):
                    self.write(target, self.placed.get(owner, at))
                continue
            if statement.op == "count" and isinstance(statement.args[0], Ref):
                counter = self.program.counters[statement.args[0].name]
                stage = max(at, self.after(_fields(statement.args[1])))
                if counter.name not in self.placed:
                    self.placed[counter.name] = stage
                    self.stage(stage).sram += _blocks(counter.size, 64, 1.0)
                continue
            targets = list(_fields(statement.args[0])) if statement.args else []
            stage = max(at, self.after(name for arg in statement.args[1:] for name in _fields(arg)))
            for target in targets:
                self.write(target, stage)

    def register(self, name: str, action: Action, part: set[int], at: int) -> int:
        """The stage of a register: when its index and all that its ALU needs from outside is known, and one is free."""
        inside = {target for place in part for target in _fields(action.body[place].args[0])}
        needed: list[str] = []
        for place, statement in enumerate(action.body):
            if place in part:
                needed += [each for arg in statement.args[1:] for each in _fields(arg)]
            elif statement.op in ("register_read", "register_write") and _register(statement) == name:
                if statement.op == "register_read":
                    inside |= set(_fields(statement.args[0]))
                needed += [each for arg in statement.args[1:] for each in _fields(arg)]
        stage = max(at, self.after(each for each in needed if each not in inside))
        array = self.program.registers[name]
        blocks = _blocks(array.size, array.width, 1.0) + 1
        room = STATEFUL_ALUS * (self.per_alu if array.width <= 32 else 1)
        while len(self.stage(stage).registers) >= room or (
            self.stages[stage].sram + blocks > SRAM_BLOCKS and blocks <= SRAM_BLOCKS
        ):
            stage += 1
        self.stages[stage].registers.append(name)
        self.stages[stage].sram += blocks
        return stage


def _register(statement: Primitive) -> str:
    found = statement.args[1] if statement.op == "register_read" else statement.args[0]
    assert isinstance(found, Ref)
    return found.name


def _register_slices(action: Action) -> dict[str, set[int]]:
    """By register: the statements between its read and its write through which the one reaches the other."""
    slices: dict[str, set[int]] = {}
    for place, statement in enumerate(action.body):
        if statement.op not in ("register_read", "register_write"):
            continue
        name = _register(statement)
        slices.setdefault(name, set())
        if statement.op != "register_write":
            continue
        read = next(
            (
                before
                for before in range(place - 1, -1, -1)
                if action.body[before].op == "register_read" and _register(action.body[before]) == name
            ),
            None,
        )
        if read is None:
            continue
        wanted = set(_fields(statement.args[2]))
        for before in range(place - 1, read, -1):
            body = action.body[before]
            if body.op == "assign" and wanted & set(_fields(body.args[0])):
                wanted -= set(_fields(body.args[0]))
                wanted |= {each for arg in body.args[1:] for each in _fields(arg)}
                slices[name].add(before)
    return slices


def _blocks(entries: int, bits: int, fill: float) -> int:
    """Blocks of SRAM for so many entries of so many bits: several in a row if they are short, else several rows."""
    if bits > SRAM_BITS:
        return -(-bits // SRAM_BITS) * -(-int(entries / fill) // SRAM_ROWS)
    per_row = SRAM_BITS // max(1, bits)
    return -(-int(entries / fill) // (SRAM_ROWS * per_row))


def _place(program: Program, pipeline: Pipeline, per_alu: int) -> tuple[Stage, ...]:
    placer = _Placer(program, per_alu)
    earliest: dict[str, int] = {}
    for name in _order(pipeline):
        at = earliest.get(name, 0)
        if name in pipeline.conditionals:
            condition = pipeline.conditionals[name]
            at = max(at, placer.after(_fields(condition.condition)))
            following = [condition.next_true, condition.next_false]
        elif name in pipeline.tables:
            table = pipeline.tables[name]
            at = placer.table(table, at)
            following = _after_table(table)
        else:
            call = pipeline.calls[name]
            placer.action(call.action, at)
            following = [call.next]
        for each in following:
            if each is not None:
                # What follows a condition or a lookup is guarded by it; what follows another, by the same as that.
                guards = name in pipeline.conditionals or (name in pipeline.tables and len(set(following)) > 1)
                guard = at if guards else earliest.get(name, 0)
                earliest[each] = min(earliest.get(each, guard), guard)
    return tuple(placer.stages)


def _after_table(table: Table) -> list[str | None]:
    return [*table.next_action, table.next_hit, table.next_miss, table.next_default]


def _order(pipeline: Pipeline) -> list[str]:
    """All nodes from the start on, each after all from which it can be reached."""
    order: list[str] = []
    done: set[str] = set()

    def visit(name: str | None) -> None:
        if name is None or name in done:
            return
        done.add(name)
        if name in pipeline.conditionals:
            following = [pipeline.conditionals[name].next_true, pipeline.conditionals[name].next_false]
        elif name in pipeline.tables:
            following = _after_table(pipeline.tables[name])
        else:
            following = [pipeline.calls[name].next]
        for each in following:
            visit(each)
        order.append(name)

    visit(pipeline.start)
    return order[::-1]
