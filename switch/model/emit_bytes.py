"""Python that takes headers out of bytes and makes bytes of headers, many fields at a time."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from switch.model.emit_base import Frame
from switch.model.expressions import FieldRef
from switch.model.program import Field, Header, HeaderType

_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}
# How struct takes pieces of so many bytes: codes, and how far each is shifted in the number that they make together.
_PIECES = {
    1: (("B", 0),),
    2: (("H", 0),),
    3: (("H", 8), ("B", 0)),
    4: (("I", 0),),
    5: (("I", 8), ("B", 0)),
    6: (("I", 16), ("H", 0)),
    7: (("I", 24), ("H", 8), ("B", 0)),
    8: (("Q", 0),),
}


@dataclass
class _Piece:
    """Fields that fill whole bytes together."""

    fields: list[Field] = field(default_factory=list)
    bits: int = 0

    @property
    def plain(self) -> str | None:
        """The struct code if the piece is one field that struct knows."""
        if len(self.fields) != 1 or self.bits not in _CODES:
            return None
        code = _CODES[self.bits]
        return code.lower() if self.fields[0].signed else code


def _pieces(kind: HeaderType) -> list[_Piece]:
    pieces: list[_Piece] = []
    for each in kind.fields:
        if not pieces or pieces[-1].bits % 8 == 0:
            pieces.append(_Piece())
        pieces[-1].fields.append(each)
        pieces[-1].bits += each.width
    return pieces


def _struct_name(frame: Frame, codes: str) -> str:
    """The global name of a compiled struct; runs of one code are counted."""
    short = ""
    place = 0
    while place < len(codes):
        end = place
        while end < len(codes) and codes[end] == codes[place] and not codes[place].isdigit():
            end += 1
        if codes[place].isdigit():
            end = codes.index("s", place) + 1
            short += codes[place:end]
        else:
            short += (str(end - place) if end - place > 1 else "") + codes[place]
        place = end
    name = f"S_{short}"
    frame.objects[name] = ("S", ">" + short)
    return name


def unpack(frame: Frame, header: Header, place: str) -> None:
    """Writes the extraction of a header without varbit field at byte `place` of the packet."""
    codes, targets, after = "", [], []
    for piece in _pieces(header.type):
        names = [frame.field(FieldRef(header.name, each.name)) for each in piece.fields]
        if plain := piece.plain:
            codes += plain
            targets.append(names[0])
            continue
        size = piece.bits // 8
        raw = []
        if size in _PIECES:
            for code, shift in _PIECES[size]:
                codes += code
                raw.append((frame.temporary(), shift))
            number = " | ".join(f"{name} << {shift}" if shift else name for name, shift in raw)
        else:
            codes += f"{size}s"
            raw.append((frame.temporary(), 0))
            number = f"from_bytes({raw[0][0]}, 'big')"
        targets += [name for name, _ in raw]
        if len(names) > 1 and not number.isidentifier():
            whole = frame.temporary()
            after.append(f"{whole} = {number}")
            number = whole
        after += _split(piece.fields, names, number, piece.bits)
    if not targets:
        return
    more = "," if len(targets) == 1 else ""
    frame.w.line(f"{', '.join(targets)}{more} = {_struct_name(frame, codes)}.unpack_from(pkt, {place})")
    for line in after:
        frame.w.line(line)


def _split(fields: list[Field], names: list[str], number: str, bits: int) -> list[str]:
    """Lines that take fields out of a number."""
    lines = []
    left = bits
    for each, name in zip(fields, names, strict=True):
        left -= each.width
        code = f"{number} >> {left}" if left and number.isidentifier() else number
        if left and not number.isidentifier():
            code = f"({number}) >> {left}"
        if left + each.width != bits:
            code = f"({code}) & {(1 << each.width) - 1:#x}" if left else f"{code} & {(1 << each.width) - 1:#x}"
        if each.signed:
            half = 1 << (each.width - 1)
            code = f"(({code}) ^ {half:#x}) - {half:#x}"
        lines.append(f"{name} = {code}")
    return lines


def unpack_varbit(frame: Frame, header: Header, place: str, length: str) -> None:
    """Writes the extraction of a header whose varbit field has `length` bits (a variable), whole bytes."""
    fixed = header.type.fixed_bits
    whole = frame.temporary()
    frame.w.line(f"{whole} = from_bytes(pkt[{place}:{place} + ({fixed} + {length} >> 3)], 'big')")
    frame.w.line(f"{frame.length(header.name)} = {length}")
    left, below = fixed, f" + {length}"
    for each in header.type.fields:
        name = frame.field(FieldRef(header.name, each.name))
        if each.varbit:
            below = ""
            frame.w.line(f"{name} = {whole} >> {left} & (1 << {length}) - 1")
            continue
        left -= each.width
        code = f"{whole} >> {left}{below} & {(1 << each.width) - 1:#x}"
        if each.signed:
            half = 1 << (each.width - 1)
            code = f"({code} ^ {half:#x}) - {half:#x}"
        frame.w.line(f"{name} = {code}")


def _unsigned(frame: Frame, header: Header, each: Field) -> str:
    name = frame.field(FieldRef(header.name, each.name))
    return f"({name} & {(1 << each.width) - 1:#x})" if each.signed and not each.varbit else name


def pack(frame: Frame, header: Header) -> str:
    """Code for the bytes of a header."""
    if header.type.varbit is not None:
        return _pack_varbit(frame, header)
    codes, args = "", []
    for piece in _pieces(header.type):
        if plain := piece.plain:
            codes += plain
            args.append(frame.field(FieldRef(header.name, piece.fields[0].name)))
            continue
        size, left, parts = piece.bits // 8, piece.bits, []
        for each in piece.fields:
            left -= each.width
            code = _unsigned(frame, header, each)
            parts.append(f"{code} << {left}" if left else code)
        number = " | ".join(parts)
        if size not in _PIECES:
            codes += f"{size}s"
            args.append(f"({number}).to_bytes({size}, 'big')")
        elif len(_PIECES[size]) == 1:
            codes += _PIECES[size][0][0]
            args.append(number)
        else:
            if len(parts) > 1:
                name = frame.temporary()
                args.append(f"({name} := {number}) >> {_PIECES[size][0][1]}")
                number = name
            else:
                args.append(f"{number} >> {_PIECES[size][0][1]}")
            codes += _PIECES[size][0][0]
            for code, shift in _PIECES[size][1:]:
                codes += code
                mask = (1 << 8 * struct.calcsize(">" + code)) - 1
                args.append(f"{number} >> {shift} & {mask:#x}" if shift else f"{number} & {mask:#x}")
    return f"{_struct_name(frame, codes)}.pack({', '.join(args)})" if codes else "b''"


def _pack_varbit(frame: Frame, header: Header) -> str:
    length = frame.length(header.name)
    code = "0"
    for each in header.type.fields:
        name = _unsigned(frame, header, each)
        code = f"({code} << {length if each.varbit else each.width} | {name})"
    return f"{code}.to_bytes({header.type.fixed_bits} + {length} >> 3, 'big')"
