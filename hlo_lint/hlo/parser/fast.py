"""The fast path: computations as XLA's printer writes them, with a single `findall` for many lines.

It is sound because it guesses nothing: every line between head and closing brace must match from
its first to its last character, the numbers of matches and lines must agree, and names are checked
in bulk. Other text goes to the general parser (`general.py`).

Computations are read together, as many as fit into the processor's second cache with their results:
most are a few lines long, and a call for each would cost more than its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import compress
from operator import not_
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.ir.computation_text import ComputationText
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.records import InstructionRecord, SharedLines
from hlo_lint.text.patterns import late

_is_no_index = late(r"#(?:(?<=[ \n]#)|(?<=\A#)|(?![0-9]+(?:[# \n]|\Z)))").search
# A comment inside a name is kept, so the list is left to the general parser.
_remove_comments = late(r"/\*(?<![\w.\-#%]/\*)[^*\n]*\*/").sub
_no_name = late(r"%(?:(?<![ \n/]%)(?<!\A%)|(?![A-Za-z_]))").search
_ARRAY = (
    r"[a-z][a-z0-9]*+\[[^()\[\]{}=<\n]*+(?:<=?[^()\[\]{}=<\n]*+)*+\]"
    r"(?:\{(?:[ \t]*+[-\d:?][^()\[\]{}\n]*+(?:\([^()\[\]{}\n]*+\)[^()\[\]{}\n]*+)*+)?+\})?+"
)


def _shape() -> str:
    """A pattern of arrays, and of tuples of these, at most six deep."""
    shape = _ARRAY
    for _ in range(6):
        shape = rf"(?:{_ARRAY}|b?\((?:{shape}|[^()\[\]{{}}\n])*+\))"
    return shape


_remove_shapes = late(rf", ?+{_shape()} ").sub

NAME_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-\n"
_REFERENCE_BYTES = NAME_BYTES + b"# "
_FIRST_LETTERS = bytes.maketrans(b"0123456789.-\n", b"0" * 12 + b" ")
"""Maps characters that cannot begin a name to `0`, and line breaks to blanks."""


def utf8(text: str) -> bytes:
    """The bytes of a text, surrogates among them."""
    return text.encode("utf-8", "surrogatepass")


def read_references(operands: Iterable[str]) -> list[tuple[str, ...]] | None:
    """The names in each list of operands; None if any list is not plain enough.

    Operands are names separated by `, `, each with or without its shape (releases before jax 0.5
    print shapes). Lists have no line breaks.

    >>> read_references(["%a, b#1", "", "f32[2]{0} %x, (f32[], s32[]) %y"])
    [('a', 'b#1'), (), ('x', 'y')]
    """
    joined = "\n".join(operands)
    if "/" in joined:
        joined = _remove_comments("", joined)
    if is_typed := joined.count(" ") != joined.count(", "):
        # With a comma before each operand, the pattern is only tried at commas.
        joined = joined.replace(", ", ",").replace("\n", "\n,")
        joined = _remove_shapes(",", f",{joined}")[1:]
        if " " in joined:
            return None
        joined = joined.replace("\n,", "\n").replace(",", ", ")
    if "%" in joined:
        if is_typed and _no_name(joined):
            return None
        joined = joined.replace("%", "")
    joined = joined.replace(", ", " ")
    encoded = utf8(joined)
    if encoded.translate(None, _REFERENCE_BYTES):
        return None
    # An operand is missing between, before or after others.
    if " " in (joined[:1], joined[-1:]) or any(gap in joined for gap in ("  ", "\n ", " \n")):
        return None
    if b" 0" in b" " + encoded.translate(_FIRST_LETTERS):
        return None
    if "#" in joined and _is_no_index(joined):
        return None
    return list(map(tuple, map(str.split, joined.split("\n"))))


# Groups: root, name, type, opcode, operands, tail. A tuple type ends at the first `)` before a
# space, and only a buffer's has a parenthesis before a bracket: `add(f32[2] …` begins with an
# opcode. Classes that exclude a single character are the fastest. They let a match run on into the
# next line: then there are fewer matches than lines, and the text is rejected.
_LINE = (
    r"\n  (ROOT )?%%?([^ ]++) = ([^ (\[]++(?:\[[^ ]*+)?|b\([^ ]*+|\((?:[^)]*\))+?(?= )) ([^(]++)"
    r"\((%s)\)(, [^\n]*+|(?=\n))"
)
# Operands without parentheses, or one complex literal.
_find_flat = re.compile(_LINE % r"\([^()\n]*+\)|[^)]*+").findall
# Operands with one level of parentheses: types of tuples, and arrays of complex literals.
_find_nested = late(_LINE % r"[^()\n]*+(?:\([^()\n]*\)[^()\n]*+)*+").findall
_is_opcode = re.compile(r"[a-z][a-z\d\-]*").fullmatch
_match_head = re.compile(r"(ENTRY )?%?([A-Za-z_][\w.\-]*+) (\(.*)?\{(?=\n  [^ \t])", re.A).match
_begins_line = re.compile(r"\n[ \t]*+(?:ROOT )?%?[A-Za-z_][\w.\-]* = ", re.A).match
_closing_line = re.compile(r"\n[ \t]*+\}").search
# A search for a pattern that begins with a literal is three times as fast as `str.find`.
_search_close = re.compile(r"\n\}").search
_match_tail = re.compile(r"\}(, execution_thread=\"[^\"\n]*\")?(?: //[^\n]*)?").fullmatch

_NO_BRACKETS: Final = bytes(set(range(256)).difference(b"()[]{}"))
MAX_WORD: Final = 1 << 12
"""The largest length of the first word of a computation that is looked up in `latest`."""

MAX_TOGETHER: Final = 1 << 16
"""The number of characters of computations that are read together."""
_FIRST_TOGETHER: Final = 1 << 8
"""The number of characters after a computation that failed the fast path: more failures may follow,
and a failure repeats the work of the whole group."""


class Spelling:
    """Facts of earlier lines that speed up reading the next lines."""

    __slots__ = ("has_nested", "shared")

    def __init__(self) -> None:
        self.has_nested = False
        """True if operands had parentheses: the pattern without them is then not tried first."""
        self.shared: dict[str, str] = {}
        """Opcodes and types, interned: equal texts are one object, which is fast to compare."""


class LineMemo(Spelling):
    """A cache of earlier reads, for a directory: rows by line, computations by name."""

    __slots__ = ("latest", "lines")

    def __init__(self) -> None:
        super().__init__()
        self.lines = SharedLines()
        self.latest: dict[str, Computation] = {}
        """The last computation for each first word: its name, or ENTRY."""

    def known(self, text: str, offset: int) -> Computation | None:
        """The computation that begins here, if it repeats the latest of its name.

        Most computations of a dump are unchanged, so each is compared first with the latest of its
        name, without a copy or a hash of its text.
        """
        space = text.find(" ", offset, offset + MAX_WORD)
        computation = self.latest.get(text[offset:space]) if space > offset else None
        if computation is None or not text.startswith(computation.text, offset):
            return None
        end = offset + len(computation.text)
        return computation if text[end : end + 2] in ("\n\n", "\n", "") else None

    def add(self, computation: Computation) -> None:
        """Store a computation as the latest of its name; release the text of the previous."""
        text = computation.text
        word = text[: text.find(" ")]
        if (earlier := self.latest.get(word)) is not None:
            earlier.let_text_go()
        self.latest[word] = computation


def _is_signature(text: str) -> bool:
    """False if the general parser would reject the head: a bracket is not closed."""
    brackets = utf8(text).translate(None, _NO_BRACKETS)
    count = brackets.count
    return (
        ") -> " in text
        and (
            brackets.replace(b"[]", b"").replace(b"{}", b"") == b"()"  # of arrays alone, mostly
            or all(count(pair[:1]) == count(pair[1:]) for pair in (b"[]", b"{}", b"()"))
        )
    )


class _Outline(NamedTuple):
    """The facts of a computation before its lines are read."""

    start: int
    end: int
    lines: int
    name: str
    is_entry: bool
    signature: str
    tail: str
    """The text after the closing brace."""


def _find_close(text: str, offset: int) -> int:
    """The closing brace of a computation whose body begins here; -1 if it is missing.

    If no brace is at the first column, each computation would search to the end of the text: the
    search stops early if another computation begins first.
    """
    end = offset + MAX_TOGETHER
    close = _search_close(text, offset, end)
    if close is None and end < len(text) and text.find(" {\n", offset, end) < 0:
        close = _search_close(text, end - 1)
    return close.start() if close is not None else -1


def _outline_at(text: str, offset: int) -> _Outline | None:
    """The outline of a computation that begins here, if it is spelled as in a dump."""
    head = _match_head(text, offset)
    if head is None:
        return None
    entry, name, signature = head.groups("")
    signature = signature.rstrip()
    first = head.end()
    close = _find_close(text, first)
    if close < 0 or (signature and not _is_signature(signature)):
        return None
    tail, end = "", close + 2
    if not text.startswith("\n\n", end):
        end = text.find("\n", close + 1)
        end = len(text) if end < 0 else end
        if not text.startswith("\n", end + 1) and end + 1 < len(text):
            return None
    if end > close + 2:
        closing = _match_tail(text, close + 1, end)
        if closing is None:
            return None
        tail = closing[1] or ""
    return _Outline(offset, end, text.count("\n", first, close), name, bool(entry), signature, tail)


Placed: TypeAlias = tuple[int, Computation]
"""A computation, after the offset in the text at which it begins."""
_Group = list[_Outline | Placed]
"""Successive computations: outlines of new computations, and known computations."""


class PrintedReader:
    """Reads the computations of a text that are spelled as XLA prints them."""

    def __init__(self, text: str, memo: LineMemo | None) -> None:
        self._text = text
        self._memo = memo
        self._spelling = Spelling() if memo is None else memo
        self._together = MAX_TOGETHER

    def read(self, offset: int, computations: list[Placed]) -> int:
        """Add the computations from `offset` on with their beginnings; return the end.

        It is the end of the text, or the beginning of the first text that is not a computation as
        XLA prints it.
        """
        text, memo, size = self._text, self._memo, len(self._text)
        group: _Group = []
        unread = 0
        while offset < size:
            if text[offset] == "\n":
                offset += 1
                continue
            computation = memo.known(text, offset) if memo is not None else None
            if computation is not None:
                group.append((offset, computation))
                offset += len(computation.text) + 2
                continue
            outline = _outline_at(text, offset)
            if outline is None:
                break
            group.append(outline)
            unread += outline.end - offset
            offset = outline.end + 2
            if unread > self._together:
                stuck = self._read_group(group, computations)
                if stuck is not None:
                    return stuck
                group, unread = [], 0
        stuck = self._read_group(group, computations)
        return min(offset, size) if stuck is None else stuck

    def _read_group(self, group: _Group, computations: list[Placed]) -> int | None:
        """Add a group of computations; return the start of the first that fails, if any.

        They are read together, and one by one if that fails.
        """
        outlines = [item for item in group if isinstance(item, _Outline)]
        rows = self._rows(outlines) if outlines else []
        if rows is None:
            self._together = _FIRST_TOGETHER
            if len(group) == 1:
                return outlines[0].start
            alone = (self._read_group([item], computations) for item in group)
            return next((stuck for stuck in alone if stuck is not None), None)
        self._together = min(2 * self._together, MAX_TOGETHER)
        row = 0
        for item in group:
            if isinstance(item, _Outline):
                own = tuple(rows[row : row + item.lines])
                row += item.lines
                item = (item.start, self._computation(item, own))
            computations.append(item)
        return None

    def _rows(self, outlines: list[_Outline]) -> list[InstructionRecord] | None:
        if self._memo is not None:
            texts = [self._text[outline.start : outline.end] for outline in outlines]
            return _read_lines(texts, self._memo)
        # Without a memo, all computations are new, so the group is contiguous.
        count = sum(outline.lines for outline in outlines)
        return _find_rows(self._text, outlines[0].start, outlines[-1].end, count, self._spelling)

    def _computation(self, outline: _Outline, rows: tuple[InstructionRecord, ...]) -> Computation:
        start, end, _, name, is_entry, signature, tail = outline
        if self._memo is None:  # its text is a part of the whole text, without a copy
            text = ComputationText(self._text, rows, (start, end))
            return Computation(text, name, is_entry, signature, rows, tail)
        text = ComputationText(self._text[start:end], rows, lines=self._memo.lines)
        computation = Computation(text, name, is_entry, signature, rows, tail)
        self._memo.add(computation)
        return computation


def read_lines(text: str, offset: int, size: int) -> tuple[list[InstructionRecord], int]:
    """The instructions of the lines from `offset` on, and the end of the last line.

    About `size` characters are read, up to a closing brace or to the next instruction. The list is
    empty unless each line is spelled as XLA prints it, apart from white space around it.

    Args:
        offset: the first character of an instruction.
    """
    end = text.find("\n", offset + size)
    end = len(text) if end < 0 else end
    close = _closing_line(text, offset, end)
    if close is not None:
        end = close.start()
    elif not _begins_line(text, end):
        return [], offset
    # A statement of several lines has brackets or a string that end in a later line.
    if any(text.count(a, offset, end) != text.count(b, offset, end) for a, b in ("{}", "()", "[]")):
        return [], offset
    if text.count('"', offset, end) % 2:
        return [], offset
    lines = [line for line in map(str.strip, text[offset:end].split("\n")) if line]
    printed = "".join([f"\n  {line}" for line in lines]) + "\n"
    # The patterns accept an attribute without a value.
    if "\r" in printed or "=\n" in printed or "=, " in printed:
        return [], offset
    return (_find_rows(printed, 0, len(printed) - 1, len(lines), Spelling()) or []), end


def _find_rows(
    text: str, begin: int, end: int, lines: int, spelling: Spelling
) -> list[InstructionRecord] | None:
    """The rows of a stretch with `lines` lines of instructions, and no other indented lines."""
    rows: list[InstructionRecord] = []
    start = begin
    while begin < end:  # each line is read with the line breaks around it
        is_long = end - begin > 2 * MAX_TOGETHER
        stop = text.find("\n", begin + MAX_TOGETHER, end) if is_long else -1
        if stop < 0:
            stop, count = end, lines - len(rows)
        else:  # after the first part there is no head: the last computation continues
            count = text.count("\n" if begin > start else "\n  ", begin, stop)
        fresh = _rows_of_part(text, begin, stop, count, spelling)
        if fresh is None:
            return None
        rows += fresh
        begin = stop
    return rows


def _rows_of_part(
    text: str, begin: int, end: int, lines: int, spelling: Spelling
) -> list[InstructionRecord] | None:
    for find in (_find_nested,) if spelling.has_nested else (_find_flat, _find_nested):
        groups = find(text, begin, end + 1)
        if len(groups) == lines:
            rows = _make_rows(groups, spelling.shared, find is _find_flat)
            if rows is not None:
                spelling.has_nested = find is _find_nested
                return rows
    return None


def _read_lines(texts: list[str], memo: LineMemo) -> list[InstructionRecord] | None:
    lines: list[str] = []
    for text in texts:
        lines += text.split("\n")[1:-1]
    by_line = memo.lines.rows
    rows = list(map(by_line.get, lines))
    missing = rows.count(None)
    if not missing:
        return rows  # type: ignore[return-value]  # all are rows
    places = list(compress(range(len(rows)), map(not_, rows)))  # no record is empty
    new_lines = [lines[number] for number in places]
    new = "\n".join(["", *new_lines, ""])
    fresh = _find_rows(new, 0, len(new) - 1, missing, memo)
    if fresh is None:
        return None
    by_line.update(zip(new_lines, fresh, strict=True))
    for number, line in zip(places, new_lines, strict=True):
        rows[number] = by_line[line]  # a single record for a repeated new line
    return rows  # type: ignore[return-value]  # all are rows now


def _make_rows(
    groups: list[tuple[str, ...]], shared: dict[str, str], is_flat: bool
) -> list[InstructionRecord] | None:
    """The rows of matches; None if any is not spelled as in a dump, or is not flat."""
    if not groups:
        return []
    roots, names, types, opcodes, operands, tails = zip(*groups, strict=True)
    if utf8("\n".join(names)).translate(None, NAME_BYTES):
        return None
    interned = shared.setdefault
    words = list(map(interned, opcodes, opcodes))
    different = set(words)
    if not all(map(_is_opcode, different)):
        return None
    if is_flat:
        # The pattern without parentheses has to match each list of operands to its end.
        together = "".join(operands)
        is_closed = "(" not in together or all(t[-1:] == ")" for t in operands if "(" in t)
        if "\n" in together or not is_closed:
            return None
    named: Iterable[str] = operands
    if not LITERAL_OPERANDS.isdisjoint(different):
        named = [
            "" if opcode in LITERAL_OPERANDS else read
            for opcode, read in zip(words, operands, strict=True)
        ]
    references = read_references(named)
    if references is None:
        return None
    if not all(map(_is_one_tail, {tail for tail in tails if " = " in tail})):
        return None
    shapes = map(interned, types, types)
    return list(zip(roots, names, shapes, words, operands, tails, references, strict=True))


def _is_one_tail(tail: str) -> bool:
    """True if it has only attributes, without an instruction in them or after them."""
    from hlo_lint.hlo.parser.general import Scanner
    from hlo_lint.hlo.parser.pieces import Unreadable

    try:
        end, computations = Scanner(tail).attributes_and_computations(0)
    except Unreadable:
        return False
    return end == len(tail) and not computations
