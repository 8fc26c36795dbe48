"""The fast gear: computations as XLA's printer writes them, one `findall` for many lines.

It is sound because nothing is guessed: every line between head and closing brace must match from
its first to its last character, the matches must be as many as the lines, and names are checked in
bulk. Whatever is not dump-shaped goes to the general parser (`general.py`).

Computations are read together, as many as the processor's second cache holds with what is made of
them: most are a few lines long, and a call for each would cost more than its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.parser.references import NAME_BYTES, read_references, utf8
from hlo_lint.hlo.records import InstructionRecord
from hlo_lint.text.patterns import late

# Groups: root, name, type, opcode, operands, tail. A tuple type ends at the first `)` before a
# space, and only a buffer's has a parenthesis before a bracket: `add(f32[2] …` begins with an
# opcode. Classes that shut out a single character are the fastest there are. They let a match run
# on into the next line: then there are fewer matches than lines, and the text is not taken.
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
_begins_line = re.compile(r"\n  (?:ROOT )?%?[A-Za-z_][\w.\-]* = ", re.A).match
# A pattern that begins with one literal is searched for three times as fast as by `str.find`.
_search_close = re.compile(r"\n\}").search
_match_tail = re.compile(r"\}(, execution_thread=\"[^\"\n]*\")?(?: //[^\n]*)?").fullmatch

_NO_BRACKETS: Final = bytes(set(range(256)).difference(b"()[]{}"))
MAX_WORD: Final = 1 << 12
"""Characters of the first word of a computation that is compared with the last one of its name."""

MAX_TOGETHER: Final = 1 << 16
"""Number of characters of computations that are read together."""
_FIRST_TOGETHER: Final = 1 << 8
"""Of the first ones, and of those after a computation that a dump spells not so: more of its kind
may follow, and what was read together with them is read again."""


class Spelling:
    """The facts of the lines so far that the next ones are read with."""

    __slots__ = ("has_nested", "shared")

    def __init__(self) -> None:
        self.has_nested = False
        """True if operands held parentheses: to look for others first would take twice as long."""
        self.shared: dict[str, str] = {}
        """Opcodes and types: each text once, so that to compare or hash it takes no time."""


class LineMemo(Spelling):
    """A cache of earlier reads: rows by line, computations by text. One for each directory."""

    __slots__ = ("computations", "latest", "rows")

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, InstructionRecord] = {}
        self.computations: dict[str, Computation] = {}
        self.latest: dict[str, Computation] = {}
        """The last computation whose text begins with a word: with its name, or ENTRY."""


def _is_signature(text: str) -> bool:
    """False where the general parser would refuse the head: a bracket is not closed."""
    brackets = utf8(text).translate(None, _NO_BRACKETS)
    count = brackets.count
    return (
        ") -> " in text
        and (
            brackets.replace(b"[]", b"").replace(b"{}", b"") == b"()"  # of arrays alone, mostly
            or all(count(pair[:1]) == count(pair[1:]) for pair in (b"[]", b"{}", b"()"))
        )
    )


def known_blocks(text: str, at: int, memo: LineMemo) -> tuple[list[str], list[Computation | None]]:
    """Split the text from `at` on at empty lines; return also the known computation of each block.

    Most computations of a dump are as the last dump had them, so each is compared first with the
    last one of its name: neither a copy nor a hash of its text is made.
    """
    latest = memo.latest.get
    blocks: list[str] = []
    bodies: list[Computation | None] = []
    starts_with, find = text.startswith, text.find
    size = len(text)
    while True:
        space = find(" ", at, at + MAX_WORD)
        computation = latest(text[at:space]) if space > at else None
        if computation is not None and starts_with(computation.text, at):
            end = at + len(computation.text)
            if end == size or starts_with("\n\n", end):
                blocks.append(computation.text)
                bodies.append(computation)
                if end == size:
                    return blocks, bodies
                at = end + 2
                continue
        end = find("\n\n", at)
        bodies.append(None)
        if end < 0:
            blocks.append(text[at:])
            return blocks, bodies
        blocks.append(text[at:end])
        at = end + 2


def read_again(texts: Sequence[str], bodies: list[Computation | None], memo: LineMemo) -> None:
    """Put into `bodies` the computation that each text spells line for line as a dump does.

    What is there already stays, what `memo` knows is not read again, and what is read it will know.

    Args:
        texts: each from the head of a computation to its closing brace and what belongs to it.
        bodies: as many as there are texts.
        memo: of the directory, whose files repeat most of their lines.
    """
    by_text, latest = memo.computations, memo.latest
    new = [at for at, computation in enumerate(bodies) if computation is None]
    for at in new:
        bodies[at] = by_text.get(texts[at])
    for outlines in _outlines(texts, bodies):
        _fill(texts, bodies, outlines, memo)
    for at in new:
        computation = bodies[at]
        if computation is not None:
            text = computation.text
            by_text[text] = latest[text[: text.find(" ")]] = computation


class _Outline(NamedTuple):
    """The facts of a computation before its lines are read."""

    start: int
    end: int
    lines: int
    """Of its body."""
    name: str
    is_entry: bool
    signature: str
    tail: str
    """The text after the closing brace."""


def _find_close(text: str, at: int) -> int:
    """The closing brace of a computation whose body begins here; -1 if it has none of its own.

    Where no brace stands at the first column, each computation would look to the end of the text:
    none does that may be seen to end before another begins.
    """
    end = at + MAX_TOGETHER
    close = _search_close(text, at, end)
    if close is None and end < len(text) and text.find(" {\n", at, end) < 0:
        close = _search_close(text, end - 1)
    return close.start() if close is not None else -1


def _outline_at(text: str, at: int) -> _Outline | None:
    """The outline of a computation that begins here as a dump spells it, up to an empty line."""
    head = _match_head(text, at)
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
    return _Outline(at, end, text.count("\n", first, close), name, bool(entry), signature, tail)


def read_alone(text: str, at: int, bodies: list[tuple[int, Computation]]) -> int:
    """Add to `bodies` the computations from `at` on, and where they begin; give the place after.

    That is the end of the text, or the place where something else begins than a computation as a
    dump spells it. Their texts are not copied: each is a part of `text`.
    """
    spelling = Spelling()
    outlines: list[_Outline] = []
    size, together = len(text), _FIRST_TOGETHER
    while at < size:
        if text[at] == "\n":
            at += 1
            continue
        outline = _outline_at(text, at)
        if outline is not None:
            outlines.append(outline)
            at = outline.end + 2
            if at < size and outline.end - outlines[0].start <= together:
                continue
            together = min(2 * together, MAX_TOGETHER)
        stuck = _add_alone(text, outlines, bodies, spelling)
        if stuck is not None:
            return stuck
        if outline is None:
            return at
        outlines = []
    stuck = _add_alone(text, outlines, bodies, spelling)
    return size if stuck is None else stuck


def read_part(text: str, at: int, memo: LineMemo) -> Computation | None:
    """The computation that begins here, if it is as a dump spells it."""
    outline = _outline_at(text, at)
    bodies: list[Computation | None] = [None]
    if outline is not None:
        read_again([text[at : outline.end]], bodies, memo)
    return bodies[0]


def _add_alone(
    text: str,
    outlines: Sequence[_Outline],
    bodies: list[tuple[int, Computation]],
    spelling: Spelling,
) -> int | None:
    """Add the computations of the outlines; give the start of the first that a dump spells not so.

    They are read together, and one by one where one of them is not as a dump spells it.
    """
    if not outlines:
        return None
    count = sum(outline.lines for outline in outlines)
    rows = _find_rows(text, outlines[0].start, outlines[-1].end, count, spelling)
    if rows is None:
        if len(outlines) == 1:
            return outlines[0].start
        alone = (_add_alone(text, [outline], bodies, spelling) for outline in outlines)
        return next((stuck for stuck in alone if stuck is not None), None)
    row = 0
    for start, end, lines, name, is_entry, signature, tail in outlines:
        own = tuple(rows[row : row + lines])
        computation = Computation(text, name, is_entry, signature, own, tail, part=(start, end))
        bodies.append((start, computation))
        row += lines
    return None


def read_lines(text: str, at: int) -> tuple[list[InstructionRecord], int]:
    """The instructions of the lines from `at` on, and where the next one begins.

    None are read unless each of some 64 KB is as a dump spells it, up to a closing brace or to the
    next instruction.

    Args:
        at: the first character after the two blanks of a line.
    """
    begin = at - 3
    if not text.startswith("\n  ", begin):
        return [], at
    end = text.find("\n", at + MAX_TOGETHER)
    end = len(text) if end < 0 else end
    close = text.find("\n}", at, end)
    if close >= 0:
        end = close
    elif not _begins_line(text, end):
        return [], at
    # A statement of several lines has brackets that close in another line.
    if any(text.count(a, at, end) != text.count(b, at, end) for a, b in ("{}", "()", "[]")):
        return [], at
    rows = _find_rows(text, begin, end, text.count("\n", begin, end), Spelling())
    return (rows, end + (1 if close >= 0 else 3)) if rows else ([], at)


def _outlines(
    texts: Sequence[str], bodies: Sequence[Computation | None]
) -> Iterator[list[tuple[int, _Outline]]]:
    """The numbers and outlines of those that have no body yet: all that are read together."""
    outlines: list[tuple[int, _Outline]] = []
    size = 0
    for number, text in enumerate(texts):
        if bodies[number] is not None:
            continue
        outline = _outline_at(text, 0)
        if outline is None or outline.end < len(text):
            continue
        outlines.append((number, outline))
        size += len(text)
        if size > MAX_TOGETHER:
            yield outlines
            outlines, size = [], 0
    if outlines:
        yield outlines


def _fill(
    texts: Sequence[str],
    bodies: list[Computation | None],
    outlines: list[tuple[int, _Outline]],
    memo: LineMemo,
) -> None:
    """Make the computations of the outlines, each alone where one of them is not dump-shaped."""
    rows = _read_lines([texts[number] for number, _ in outlines], memo)
    if rows is None:
        if len(outlines) > 1:
            for outline in outlines:
                _fill(texts, bodies, [outline], memo)
        return
    row = 0
    for number, (_, _, lines, name, is_entry, signature, tail) in outlines:
        own = tuple(rows[row : row + lines])
        bodies[number] = Computation(texts[number], name, is_entry, signature, own, tail)
        row += lines


def _find_rows(
    text: str, begin: int, end: int, lines: int, spelling: Spelling
) -> list[InstructionRecord] | None:
    """The rows of a stretch that holds so many lines of instructions and no other indented ones."""
    rows: list[InstructionRecord] = []
    start = begin
    while begin < end:  # each line is read with the line breaks around it
        is_long = end - begin > 2 * MAX_TOGETHER
        stop = text.find("\n", begin + MAX_TOGETHER, end) if is_long else -1
        if stop < 0:
            stop, count = end, lines - len(rows)
        else:  # after the first part there is no head: the last computation goes on
            count = text.count("\n" if begin > start else "\n  ", begin, stop)
        made = _rows_of_part(text, begin, stop, count, spelling)
        if made is None:
            return None
        rows += made
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
    by_line = memo.rows
    rows = list(map(by_line.get, lines))
    missing = rows.count(None)
    if not missing:
        return rows  # type: ignore[return-value]  # none is None
    places = range(len(lines)) if missing == len(lines) else _places_of_none(rows, missing)
    new_lines = lines if missing == len(lines) else [lines[at] for at in places]
    new = "\n".join(["", *new_lines, ""])
    fresh = _find_rows(new, 0, len(new) - 1, missing, memo)
    if fresh is None:
        return None
    by_line.update(zip(new_lines, fresh, strict=True))
    for at, row in zip(places, fresh, strict=True):
        rows[at] = row
    return rows  # type: ignore[return-value]  # none is None any more


def _places_of_none(rows: list[InstructionRecord | None], count: int) -> list[int]:
    places = []
    at = -1
    for _ in range(count):
        at = rows.index(None, at + 1)
        places.append(at)
    return places


def _make_rows(
    groups: list[tuple[str, ...]], shared: dict[str, str], is_flat: bool
) -> list[InstructionRecord] | None:
    """The rows of matches; None if one is not as a dump spells it, or is not flat."""
    if not groups:
        return []
    roots, names, types, opcodes, operands, tails = zip(*groups, strict=True)
    if utf8("\n".join(names)).translate(None, NAME_BYTES):
        return None
    one = shared.setdefault
    words = list(map(one, opcodes, opcodes))
    different = set(words)
    if not all(map(_is_opcode, different)):
        return None
    if is_flat and not _are_flat(operands):
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
    if " = " in "\n".join(tails) and not all(map(_is_one_tail, tails)):
        return None
    shapes = map(one, types, types)
    return list(zip(roots, names, shapes, words, operands, tails, references, strict=True))


def _are_flat(operands: Sequence[str]) -> bool:
    """True if the pattern without parentheses has found each list of operands to its end."""
    text = "".join(operands)
    if "\n" in text:
        return False
    return "(" not in text or all(texts[-1:] == ")" for texts in operands if "(" in texts)


def _is_one_tail(tail: str) -> bool:
    """True if it is nothing but attributes, and no instruction stands in it or after it."""
    from hlo_lint.hlo.parser.general import Scanner, Unreadable

    if " = " not in tail:
        return True
    try:
        end, computations = Scanner(tail).attributes_and_computations(0)
    except Unreadable:
        return False
    return end == len(tail) and not computations
