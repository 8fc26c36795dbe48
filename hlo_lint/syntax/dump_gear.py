"""The fast gear: a computation as XLA's printer writes it, one `findall` for all its lines.

It is sound because nothing is guessed: every line between head and closing brace must match from
its first to its last character, the matches must be as many as the lines, and names are checked in
bulk. Whatever is not dump-shaped goes to the faithful gear (`faithful_gear.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hlo_lint.ir import Computation, Row

# Groups: root, name, type, opcode, operands, tail. A tuple type ends at the first `)` before a
# space; operands may hold one level of parentheses (typed operands, complex literals).
_INSTRUCTION = (
    r"  (ROOT )?%?([^ \n]+) = ([^ (\n][^ \n]*|\((?:[^)\n]*\))+?(?= )) ([a-z][a-z\d\-]*)"
    r"\(([^()\n]*(?:\([^()\n]*\)[^()\n]*)*)\)(|, .*)"
)
_find_instructions = re.compile(f"^{_INSTRUCTION}$", re.M).findall
_match_instruction = re.compile(_INSTRUCTION).fullmatch
_match_head = re.compile(r"(ENTRY )?%?([A-Za-z_][\w.\-]*) (\(.*)?\{", re.A).fullmatch
_match_tail = re.compile(r"\}(, execution_thread=\"[^\"\n]*\")?(?: //[^\n]*)?").fullmatch
_are_names = re.compile(r"[\w.\-\n]+", re.A).fullmatch
_is_reference_list = re.compile(r"[\w.\-#,\n]*", re.A).fullmatch
_is_no_index = re.compile(r"#(?![0-9]+(?:[#,\n]|\Z))|(?:\A|[,\n])#").search
_remove_comments = re.compile(r"/\*[^*\n]*\*/").sub
_match_typed_operand = re.compile(
    r" ?(?:[a-z0-9]*\[\] )?%?([A-Za-z_][\w.\-]*(?:#[0-9]+)*)", re.A
).fullmatch
_balanced_type = re.compile(r"\([^()]*\)")

WITHOUT_OPERANDS = frozenset({"constant", "parameter"})
"""Opcodes whose parentheses hold a literal or a number."""


class LineMemo:
    """What has been read before: rows by line, computations by text. One for each directory."""

    __slots__ = ("computations", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.computations: dict[str, Computation] = {}


def read_computation(text: str, memo: LineMemo) -> Computation | None:
    """The computation that `text` spells line for line as a dump does, else None."""
    known = memo.computations.get(text)
    if known is not None:
        return known
    first, last = text.find("\n"), text.rfind("\n")
    if first < 0 or last <= first:
        return None
    head = _match_head(text, 0, first)
    tail = _match_tail(text, last + 1)
    if head is None or tail is None:
        return None
    rows = _read_rows(text[first + 1 : last], memo)
    if rows is None:
        return None
    entry, name, signature = head.groups("")
    signature = signature.rstrip()
    if signature and ") -> " not in signature:
        return None
    computation = Computation(text, name, bool(entry), signature, rows, tail[1] or "")
    memo.computations[text] = computation
    return computation


def _read_rows(body: str, memo: LineMemo) -> tuple[Row, ...] | None:
    lines = body.split("\n")
    rows = memo.rows
    found = list(map(rows.get, lines))
    missing = found.count(None)
    if not missing:
        return tuple(found)  # type: ignore[arg-type]  # none is None
    if missing * 3 >= len(lines):
        fresh = _make_rows(_find_instructions(body))
        if fresh is None or len(fresh) != len(lines):
            return None
        if missing == len(lines):
            rows.update(zip(lines, fresh, strict=True))
            return tuple(fresh)
        return tuple(
            rows.setdefault(line, new) if old is None else old
            for line, old, new in zip(lines, found, fresh, strict=True)
        )
    matches = [_match_instruction(line) for line, row in zip(lines, found, strict=True) if not row]
    if None in matches:
        return None
    new_rows = _make_rows([match.groups("") for match in matches if match])
    if new_rows is None:
        return None
    new = iter(new_rows)
    return tuple(
        rows.setdefault(line, next(new)) if row is None else row
        for line, row in zip(lines, found, strict=True)
    )


def _make_rows(groups: Iterable[tuple[str, ...]]) -> list[Row] | None:
    columns = list(zip(*groups, strict=True))
    if not columns:
        return None
    roots, names, types, opcodes, operands, tails = columns
    if _are_names("\n".join(names)) is None:
        return None
    references = _references(opcodes, operands)
    if references is None:
        return None
    if any(" = " in tail and not _is_one_tail(tail) for tail in tails):
        return None
    return list(
        zip(map(bool, roots), names, types, opcodes, operands, tails, references, strict=True)
    )


def _is_one_tail(tail: str) -> bool:
    """Whether it is nothing but attributes: two instructions may stand on one line."""
    from hlo_lint.syntax.faithful_gear import Scanner, Unreadable

    try:
        return Scanner(tail).attributes(0) == len(tail)
    except Unreadable:
        return False


def _references(
    opcodes: tuple[str, ...], operands: tuple[str, ...]
) -> list[tuple[str, ...]] | None:
    """The names each operand list refers to, or None where a list is not plain enough."""
    joined = "\n".join(
        "" if opcode in WITHOUT_OPERANDS else text
        for opcode, text in zip(opcodes, operands, strict=True)
    )
    if "/" in joined:
        joined = _remove_comments("", joined)
    joined = joined.replace(", ", ",")
    if " " in joined:
        return _typed_references(joined)
    joined = joined.replace("%", "")
    if _is_reference_list(joined) is None or _has_a_gap(joined) or _is_no_index(joined):
        return None
    return [tuple(line.split(",")) if line else () for line in joined.split("\n")]


def _typed_references(joined: str) -> list[tuple[str, ...]] | None:
    """References out of `f32[8]{0} %x,(f32[], s32[]) %y`, as older releases print operands."""
    result: list[tuple[str, ...]] = []
    for line in joined.split("\n"):
        plain = _BOUNDS.sub("[]", _LAYOUT.sub("", line))
        while "(" in plain:
            shorter = _balanced_type.sub("[]", plain)
            if shorter == plain:
                return None
            plain = shorter
        names = []
        for operand in plain.split(",") if plain else ():
            found = _match_typed_operand(operand)
            if found is None:
                return None
            names.append(found[1])
        result.append(tuple(names))
    return result


def _has_a_gap(joined: str) -> bool:
    """Whether an operand is missing between two commas, or before or behind one."""
    edges = joined[:1] == "," or joined[-1:] == ","
    return edges or any(gap in joined for gap in (",,", "\n,", ",\n"))


_LAYOUT = re.compile(r"\{[^{}]*\}")
_BOUNDS = re.compile(r"\[[^\[\]]*\]")
