"""Python for hashes and checksums over fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from switch.model.emit_base import Value
from switch.model.expressions import NOWHERE, Const, Expr, FieldRef, Payload, Ref
from switch.model.program import Calculation

if TYPE_CHECKING:
    from switch.model.emit_expressions import ExpressionEmitter

_OUTPUT_BITS = {"identity": 64, "round_robin": 64, "crc64_custom": 64, "crc8_custom": 8}
_Group = tuple[str, list[FieldRef | Const]]  # a condition, and the fields that count if it holds
_SUM_FROM = 12  # terms; from here `sum` of a tuple beats a chain of +


class CalculationEmitter:
    """Writes calculations into the frame of an emitter of statements."""

    def __init__(self, emitter: ExpressionEmitter) -> None:
        self.emitter, self.frame, self.program = emitter, emitter.frame, emitter.program

    def output(self, calculation: Calculation) -> Value:
        """Writes what must be computed before, and returns the code for the result."""
        algorithm = calculation.algorithm
        bits = _OUTPUT_BITS.get(algorithm, 32 if "32" in algorithm else 16)
        groups, payload = self._groups(calculation.inputs)
        if algorithm in ("csum16", "cksum16"):
            return Value(self._internet_checksum(calculation, groups, payload), 0, 0xFFFF)
        return Value(self._hash(calculation, groups, payload), 0, (1 << bits) - 1)

    def _hash(self, calculation: Calculation, groups: list[_Group], payload: bool) -> str:
        data = self._bytes(groups, payload)
        function = self.frame.object("H", f"{calculation.algorithm}_{calculation.name}", calculation.algorithm)
        return f"{function}({data})"

    def fields_hash(self, algorithm: str, name: str, fields: Sequence[FieldRef]) -> Value:
        """The same for the inputs of an action selector."""
        return self.output(Calculation(name, algorithm, tuple(fields), NOWHERE))

    def _groups(self, inputs: Sequence[Expr]) -> tuple[list[_Group], bool]:
        """Fields that follow each other and are there under the same condition: that their header is valid."""
        groups: list[_Group] = []
        payload = False
        for each in inputs:
            if isinstance(each, Payload):
                payload = True
                continue
            if isinstance(each, Ref):
                header = self.program.headers[each.name]
                fields: list[FieldRef | Const] = [FieldRef(header.name, field.name) for field in header.type.fields]
                condition = self.frame.valid(header.name)
            elif isinstance(each, FieldRef):
                fields, condition = [each], self.frame.valid(each.header)
            else:
                assert isinstance(each, Const)
                fields, condition = [each], "True"
            if groups and groups[-1][0] == condition:
                groups[-1][1].extend(fields)
            else:
                groups.append((condition, fields))
        return groups, payload

    def _width(self, item: FieldRef | Const) -> int | None:
        if isinstance(item, Const):
            return item.width
        field = self.program.field(item)
        return None if field.varbit else field.width

    def _bits(self, item: FieldRef | Const) -> str:
        """The item as a number without sign."""
        if isinstance(item, Const):
            return str(item.value & ((1 << item.width) - 1))
        field = self.program.field(item)
        name = self.frame.field(item)
        return f"({name} & {(1 << field.width) - 1:#x})" if field.signed else name

    def _internet_checksum(self, calculation: Calculation, groups: list[_Group], payload: bool) -> str:
        """Sums fields in place of bytes, if they lie in words of 16 bits whatever headers are valid.

        If they do so only if all headers are valid, the sum is for that case, and bytes for the others.
        """
        w = self.frame.w
        name = self.frame.temporary()
        result = f"(0xffff ^ ({name} % 0xffff or 0xffff) if {name} else 0xffff)"
        terms = self._terms(groups, payload)
        if terms is not None:
            w.line(f"{name} = {terms}")
            return result
        conditions = list(dict.fromkeys(condition for condition, _ in groups if condition != "True"))
        merged: list[_Group] = [("True", [item for _, items in groups for item in items])]
        terms = self._terms(merged, payload)
        if terms is None or not conditions:
            return self._hash(calculation, groups, payload)
        found = self.frame.temporary()
        with w.block(f"if {' and '.join(conditions)}:"):
            w.line(f"{name} = {terms}")
            w.line(f"{found} = {result}")
        with w.block("else:"):
            w.line(f"{found} = {self._hash(calculation, groups, payload)}")
        return found

    def _terms(self, groups: list[_Group], payload: bool) -> str | None:
        """Code for the sum of words; None: fields do not lie in them."""
        sums: list[str] = []
        for number, (condition, items) in enumerate(groups):
            end = 0
            terms = []
            for item in items:
                width = self._width(item)
                if width is None:
                    return None
                end += width
                shift = -end % 16
                code = self._bits(item)
                if code != "0":
                    terms.append(f"({code} << {shift})" if shift else code)
            if end % 16 and (payload or number < len(groups) - 1):
                return None
            code = f"sum(({', '.join(terms)}))" if len(terms) >= _SUM_FROM else " + ".join(terms) or "0"
            sums.append(code if condition == "True" else f"({code} if {condition} else 0)")
        if payload:
            data = self.frame.use("payload")
            sums.append(f"from_bytes({data} + b'\\0' if len({data}) & 1 else {data}, 'big')")
        return " + ".join(sums) or "0"

    def _bytes(self, groups: list[_Group], payload: bool) -> str:
        """Writes code that collects the bits, and returns code for the bytes."""
        w = self.frame.w
        number, bits = self.frame.temporary(), self.frame.temporary()
        w.line(f"{number} = {bits} = 0")
        for condition, items in groups:
            if condition == "True":
                self._collect(number, bits, items)
            else:
                with w.block(f"if {condition}:"):
                    self._collect(number, bits, items)
        code = f"({number} << (-{bits} & 7)).to_bytes({bits} + 7 >> 3, 'big')"
        return f"{code} + {self.frame.use('payload')}" if payload else code

    def _collect(self, number: str, bits: str, items: list[FieldRef | Const]) -> None:
        fixed = 0
        for item in items:
            width = self._width(item)
            if width is None:
                assert isinstance(item, FieldRef)
                length = self.frame.length(item.header)
                self.frame.w.line(f"{number} = {number} << {length} | {self.frame.field(item)}")
                self.frame.w.line(f"{bits} += {length}")
            else:
                fixed += width
                self.frame.w.line(f"{number} = {number} << {width} | {self._bits(item)}")
        if fixed:
            self.frame.w.line(f"{bits} += {fixed}")
