"""The fast gear: computations as XLA's printer writes them, one `findall` for many lines.

It is sound because nothing is guessed: every line between head and closing brace must match from
its first to its last character, the matches must be as many as the lines, and names are checked in
bulk. Whatever is not dump-shaped goes to the faithful gear (`faithful_gear.py`).

Computations are read together, as many as the processor's second cache holds with what is made of
them: most are a few lines long, and a call for each would cost more than its lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from hlo_lint.ir import Computation, Row

# Groups: root, name, type, opcode, operands, tail. A tuple type ends at the first `)` before a
# space; operands may hold one level of parentheses (typed operands, complex literals). Classes that
# shut out a single character are the fastest there are. They let a match run on into the next line:
# then there are fewer matches than lines, and the text is not taken.
_find_instructions = re.compile(
    r"^  (ROOT )?%?([^ ]++) = ([^ (][^ ]*+|\((?:[^)]*\))+?(?= )) ([^(]++)"
    r"\(([^()\n]*+(?:\([^()\n]*\)[^()\n]*+)*+)\)(|, .*)$",
    re.M,
).findall
_is_opcode = re.compile(r"[a-z][a-z\d\-]*").fullmatch
_match_head = re.compile(r"(ENTRY )?%?([A-Za-z_][\w.\-]*) (\(.*)?\{", re.A).fullmatch
_match_tail = re.compile(r"\}(, execution_thread=\"[^\"\n]*\")?(?: //[^\n]*)?").fullmatch
_is_no_index = re.compile(r"#(?![0-9]+(?:[# \n]|\Z))").search
_remove_comments = re.compile(r"/\*[^*\n]*\*/").sub
_match_typed_operand = re.compile(
    r" ?(?:[a-z0-9]*\[\] )?%?([A-Za-z_][\w.\-]*(?:#[0-9]+)*)", re.A
).fullmatch
_balanced_type = re.compile(r"\([^()]*\)")

WITHOUT_OPERANDS = frozenset({"constant", "parameter"})
"""Opcodes whose parentheses hold a literal or a number."""


_NAME_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-\n"
_REFERENCE_BYTES = _NAME_BYTES + b"# "
_MOST_TOGETHER = 1 << 16
"""How many characters of computations are read together."""


class LineMemo:
    """What has been read before: rows by line, computations by text. One for each directory."""

    __slots__ = ("computations", "rows", "shared")

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.computations: dict[str, Computation] = {}
        self.shared: dict[str, str] = {}
        """Opcodes and types: each text once."""


def read_computations(
    texts: Sequence[str], memo: LineMemo, *, remember: bool = True
) -> list[Computation | None]:
    """The computation that each text spells line for line as a dump does, else None.

    Args:
        texts: from the head of a computation to its closing brace and what belongs to it.
        memo: what was read before.
        remember: whether these lines are likely to come again.
    """
    found: list[Computation | None]
    found = list(map(memo.computations.get, texts)) if remember else [None] * len(texts)
    waiting: list[_Outline] = []
    size = 0
    for at, text in enumerate(texts):
        if found[at] is not None:
            continue
        outline = _outline(at, text)
        if outline is None:
            continue
        waiting.append(outline)
        size += len(text)
        if size > _MOST_TOGETHER:
            _read_outlines(waiting, memo, found, remember)
            waiting, size = [], 0
    if waiting:
        _read_outlines(waiting, memo, found, remember)
    return found


class _Outline(NamedTuple):
    """A computation whose lines are still to be read."""

    at: int
    text: str
    name: str
    is_entry: bool
    signature: str
    body: str
    tail: str


def _outline(at: int, text: str) -> _Outline | None:
    first, last = text.find("\n"), text.rfind("\n")
    if first < 0 or last <= first:
        return None
    head = _match_head(text, 0, first)
    if head is None:
        return None
    entry, name, signature = head.groups("")
    signature = signature.rstrip()
    if signature and ") -> " not in signature:
        return None
    tail = ""
    if last + 2 != len(text) or text[-1] != "}":
        closing = _match_tail(text, last + 1)
        if closing is None:
            return None
        tail = closing[1] or ""
    return _Outline(at, text, name, bool(entry), signature, text[first + 1 : last], tail)


def _read_outlines(
    outlines: list[_Outline],
    memo: LineMemo,
    found: list[Computation | None],
    remember: bool,
) -> None:
    rows = _read_rows("\n".join([outline.body for outline in outlines]), memo, remember)
    if rows is None:
        if len(outlines) > 1:
            for outline in outlines:
                _read_outlines([outline], memo, found, remember)
        return
    begin = 0
    for at, text, name, is_entry, signature, body, tail in outlines:
        end = begin + body.count("\n") + 1
        computation = Computation(text, name, is_entry, signature, tuple(rows[begin:end]), tail)
        found[at] = computation
        if remember:
            memo.computations[text] = computation
        begin = end


def _read_rows(body: str, memo: LineMemo, remember: bool) -> list[Row] | None:
    if not remember:
        rows = _make_rows(_find_instructions(body), memo)
        return rows if rows is not None and len(rows) == body.count("\n") + 1 else None
    lines = body.split("\n")
    known = memo.rows
    found = list(map(known.get, lines))
    missing = found.count(None)
    if not missing:
        return found  # type: ignore[return-value]  # none is None
    if missing == len(lines):
        fresh = _make_rows(_find_instructions(body), memo)
        if fresh is None or len(fresh) != missing:
            return None
        known.update(zip(lines, fresh, strict=True))
        return fresh
    new_lines = [line for line, row in zip(lines, found, strict=True) if row is None]
    fresh = _make_rows(_find_instructions("\n".join(new_lines)), memo)
    if fresh is None or len(fresh) != missing:
        return None
    known.update(zip(new_lines, fresh, strict=True))
    new = iter(fresh)
    return [next(new) if row is None else row for row in found]


def _make_rows(groups: list[tuple[str, ...]], memo: LineMemo) -> list[Row] | None:
    if not groups:
        return None
    roots, names, types, opcodes, operands, tails = zip(*groups, strict=True)
    if _bytes("\n".join(names)).translate(None, _NAME_BYTES):
        return None
    references = _references(opcodes, operands)
    if references is None:
        return None
    if " = " in "\n".join(tails) and not all(map(_is_one_tail, tails)):
        return None
    if not all(map(_is_opcode, set(opcodes))):
        return None
    share = memo.shared.setdefault
    return list(
        zip(
            map(bool, roots),
            names,
            map(share, types, types),
            map(share, opcodes, opcodes),
            operands,
            tails,
            references,
            strict=True,
        )
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_one_tail(tail: str) -> bool:
    """Whether it is nothing but attributes: two instructions may stand on one line."""
    from hlo_lint.syntax.faithful_gear import Scanner, Unreadable

    if " = " not in tail:
        return True
    try:
        return Scanner(tail).attributes(0) == len(tail)
    except Unreadable:
        return False


def _references(
    opcodes: tuple[str, ...], operands: tuple[str, ...]
) -> list[tuple[str, ...]] | None:
    """The names each operand list refers to, or None where a list is not plain enough."""
    joined = "\n".join(
        [
            "" if opcode in WITHOUT_OPERANDS else text
            for opcode, text in zip(opcodes, operands, strict=True)
        ]
    )
    if "/" in joined:
        joined = _remove_comments("", joined)
    if joined.count(" ") != joined.count(", "):
        return _typed_references(joined.replace(", ", ","))
    joined = joined.replace(", ", " ").replace("%", "")
    if _bytes(joined).translate(None, _REFERENCE_BYTES) or _has_a_gap(joined):
        return None
    if "#" in joined and (_is_no_index(joined) or joined[0] == "#" or _has(joined, " #", "\n#")):
        return None
    return list(map(tuple, map(str.split, joined.split("\n"))))


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
    """Whether an operand is missing between two others, or before or behind one."""
    if joined[:1] == " " or joined[-1:] == " ":
        return True
    return _has(joined, "  ", "\n ", " \n")


def _has(text: str, *parts: str) -> bool:
    return any(part in text for part in parts)


_LAYOUT = re.compile(r"\{[^{}]*\}")
_BOUNDS = re.compile(r"\[[^\[\]]*\]")
