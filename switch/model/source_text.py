"""Statements and conditions as they stand in the P4 source.

The compiled JSON has only pieces of many. p4c leaves out what comes after the first line, and of a list or a `? :` what
comes after the part that it was compiling; of `meta.done` it leaves `meta`, and of the use of a constant the value
where that is defined. Where the source is at hand, this module finds the whole.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from switch.model.expressions import Expr, FieldRef, Op, Primitive, Source

_CUT = " ..."  # at the end of a fragment: more lines follow
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*", re.DOTALL | re.MULTILINE)
_MEMBERS = re.compile(r"(?:\s*\.\s*\w+)*")
_NAME = re.compile(r"\w+(?:\.\w+)*")
_FLATTENED = re.compile(r"\w+\._(\w+?)\d+")  # how p4c calls a member of a struct of metadata


def whole_text(source: Source, folder: Path | None) -> str:
    """The statement or expression at a place, on one line; what the JSON has of it, if that is all there is.

    Args:
        source: the place.
        folder: of the compiled program; the source is looked for there and in the folder above.
    """
    piece = source.fragment.removesuffix(_CUT)
    text = None if folder is None or not source.file else _read(folder, source.file)
    lines = [] if text is None else text.split("\n")
    if text is None or not piece or not 0 < source.line <= len(lines):
        return " ".join(source.fragment.split())
    begin = sum(len(line) + 1 for line in lines[: source.line - 1]) + source.column
    found = re.compile(r"\s+".join(map(re.escape, piece.split()))).match(text, begin)
    if found is None:  # another version of the source, or a macro's text
        return " ".join(source.fragment.split())
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    end = found.end()
    if piece != source.fragment or piece.startswith("="):
        begin, end = _begin(code, begin), _end(code, begin)
    elif piece.endswith("=") or _is_open(piece):
        end = _end(code, begin)
    elif (members := _MEMBERS.match(code, end)) is not None:
        end = members.end()
    return " ".join(code[begin:end].split())


def primitive_text(statement: Primitive, folder: Path | None) -> str:
    """A statement of an action; empty if the JSON says nothing of it."""
    text = whole_text(statement.source, folder)
    value = statement.args[-1] if statement.op == "assign" else None
    return _with_member(text, value) if text and isinstance(value, FieldRef) else text


def condition_text(source: Source, condition: Expr, name: str, folder: Path | None) -> str:
    """The condition of an `if`, never empty.

    Args:
        source, folder: see `whole_text`.
        condition: what it was compiled to.
        name: that the compiler gave it.
    """
    text = whole_text(source, folder)
    field = condition.right if isinstance(condition, Op) and condition.op == "d2b" else None
    if not isinstance(field, FieldRef):
        return text or name
    return _with_member(text, field) if text else f"{field.header}.{field.field}".removeprefix("scalars.")


def _with_member(text: str, field: FieldRef) -> str:
    """The field that a value is, if the text names only the struct; so it is where a struct is handed on."""
    flattened = _FLATTENED.fullmatch(field.field)
    if flattened is None or not _NAME.fullmatch(text) or flattened[1].endswith(text.rpartition(".")[2]):
        return text
    return f"{text}.{flattened[1]}"


def _is_open(text: str) -> bool:
    return any(text.count(one) > text.count(other) for one, other in ("()", "[]", "{}"))


@cache
def _read(folder: Path, name: str) -> str | None:
    for place in (folder / name, folder.parent / name):
        try:
            return place.read_text()
        except (OSError, UnicodeDecodeError):
            continue
    return None


def _begin(code: str, at: int) -> int:
    """Where the statement, argument or enum's member begins that `at` is in."""
    depth = 0
    for i in range(at - 1, -1, -1):
        if code[i] in ")]":
            depth += 1
        elif code[i] in "([" and depth:
            depth -= 1
        elif code[i] in "([{};" or (code[i] == "," and not depth):
            return i + 1
    return 0


def _end(code: str, at: int) -> int:
    """Where it ends."""
    depth = 0
    for i in range(at, len(code)):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}" and depth:
            depth -= 1
        elif not depth and code[i] in ")]};,":
            return i
    return len(code)
