"""Plain statements: the instructions, heads and closing braces that people write, read in bulk.

One `findall` reads statements one after the other as far as they are plain, and what they hold is
checked in bulk: brackets in pairs, attributes with values, operands with names. Plain statements
mean the same to the general reader (`general.py`), which would take ten times as long. They may be
indented, end with comments, and go on in the next line.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Final

from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.parser.fast import MAX_TOGETHER
from hlo_lint.hlo.parser.references import read_written_references
from hlo_lint.hlo.records import NAME, InstructionRecord
from hlo_lint.text.source import Span

# Classes are spelled out: Python tests a class that holds `\\w` or `\\d` in several steps.
# Brackets are matched roughly here, a pair of quotes or braces at a time. `are_balanced` and the
# patterns after it decide. A statement ends where the next one begins, a comma or an open comment
# do not follow.
_WHITE = r"[ \t\r\n\f\v]"
_LEAD = rf"{_WHITE}*+(?:(?://.*+|/\*[^*]*+\*/){_WHITE}*+)*+"
_WORD = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
_COMMENT = r"/\*[^*\n]*+\*/"
# First as if no escape but `\\"` were in it: a string of machine code has thousands of others.
_STRING = (
    r'"(?:[^"\n]*+(?:(?<=[^\\]\\)"[^"\n]*+)*+"(?<!\\")'
    r'|[^"\\\n]*+(?:\\.[^"\\\n]*+)*+")'
)
_ARRAY = (
    r"[a-z][a-z0-9]*+\[[0-9, ?]*+(?:<=[0-9, ?]*+)*+\]"
    r"(?:\{(?:[-0-9:?][-0-9,:?]*+(?:[A-Z]*+\([-0-9,*A-Z ]*+\))*+)?+\})?+"
)


def _in_pairs(outside: str) -> str:
    """A pattern of text in which parentheses stand in pairs, at most six deep."""
    flat = rf"[^()=<\"'/{outside}]*+"
    comment = _COMMENT if outside else rf"{_COMMENT}|//.*+"
    pairs = special = rf"(?:<=?|{comment}){flat}"
    for _ in range(5):
        pairs = rf"(?:\({flat}(?:{pairs})*+\){flat}|{special})"
    return rf"{flat}(?:{pairs})*+"


def _piece(wraps: bool) -> re.Pattern[str]:
    """The pattern of one statement, and of the white space and comments after it.

    A line may end after a comma, in brackets, and where the next one is indented.
    """
    gap = r"[ \t\r\n]*+(?<!\n)" if wraps else r"[ \t]*+"
    in_line, inside = _in_pairs(r"\n"), _in_pairs("" if wraps else r"\n")
    flat = braces = rf"[^{{}}\"/']++|{_STRING}"
    for _ in range(6):
        braces = rf"{flat}|\{{(?:{braces})*+\}}"
    line_ends = rf"|(?<=[,=:])\n|(?<=,\r)\n|(?<=\{{)\n(?:{braces})*+\}}" if wraps else ""
    tail_flat = r"[^\n\"'/]*+"
    tail = rf",{tail_flat}(?:(?:{_STRING}|/(?![/*]){line_ends}){tail_flat})*+"
    instruction = (
        rf"(?:(ROOT )[ \t]*+)?+(?!ROOT\b)%?({_WORD}):?[ \t]*+=(?!=){gap}"
        rf"(?:({_ARRAY}|b?\({inside}\)){gap})?+(?!b\()([A-Za-z_][A-Za-z0-9_\-]*+)\(({inside})\)"
    )
    module = rf"HloModule[ \t]++%?({_WORD}):?"
    signature = rf"\({in_line}\)[ \t]*+->[ \t]*+(?:{_ARRAY}|b?\({in_line}\))"
    head = (
        rf"(ENTRY[ \t]++)?+(?!ENTRY\b)%?({_WORD}):?[ \t]*+(?:({signature})[ \t]*+)?+"
        r"\{(?!\s*+[-\d:?}])"  # the body of a computation, and no layout
    )
    close = r"(\}(?:,[ \t]*+execution_thread=\"[^\"\n]*+\"(?=[ \t]*+(?:[\r\n]|//|\Z)))?+)"
    with_tail = rf"(?:{instruction}|{module})(?:{gap}({tail}))?+[ \t]*+(?=[\n\r/}}]|\Z)"
    return re.compile(rf"((?:{with_tail}|{head}|{close}){_LEAD}(?![,/#\ufeff]))|(?s:.++)", re.ASCII)


# The groups of a piece.
_FULL: Final = 0
"""The whole of it, with what follows up to the next statement."""
_OPERANDS: Final = 5
MODULE: Final = 6
"""The name of a module, whose attributes are its tail."""
TAIL: Final = 7
ENTRY: Final = 8
HEAD: Final = 9
"""The name of a computation that begins."""
SIGNATURE: Final = 10
CLOSE: Final = 11
"""The closing brace of a computation and the attributes after it."""
_full_of = itemgetter(_FULL)
Piece = tuple[str, ...]

_NOT_PLAIN: Final[InstructionRecord] = ("", "", "", "", "", ", =", ())
"""Stands for a statement that is not plain."""
_wrapping = _piece(wraps=True)
_of_one_line = _piece(wraps=False)

# What is checked together is joined with NUL, which no text has that is read here.
_SEPARATOR = "\0"
_strings = re.compile(_STRING, re.S)
_comments = re.compile(rf"{_COMMENT}|//.*+")
_inside = r"[^(){}\[\]\0]*+"
_pair = re.compile(rf"\{{{_inside}\}}|\({_inside}\)|\[{_inside}\]")
_sizes = re.compile(r"\[[\d, ]*+\](?:\{[\d,]*+\})?+")
_has_bracket = re.compile(r"[(){}\[\]]").search
_VALUE = "\1"
"""Stands for a string, and for a pair of brackets and what is in it."""
_ANOTHER = r"(?:%?[A-Za-z_][A-Za-z0-9_.\-]*\s*=(?!=)|(?:ROOT|ENTRY)\b)"
"""Begins another statement after a value, be it in the same line."""
_are_attributes = re.compile(
    rf"(?:(?:,\s*+[A-Za-z_][A-Za-z0-9_.\-]*+[ \t]*+=[ \t]*+(?:\n\s*+(?!{_ANOTHER}))?+"
    rf"(?:[^\s,(){{}}\[\]\"'\0{_VALUE}]++|{_VALUE}(?!{_ANOTHER}))++[ \t\r]*+)++(?:\0|\Z))*+"
).fullmatch
_CALLS = "|".join(CALLING_ATTRIBUTES)
_has_computation = re.compile(rf"\b(?:{_CALLS})\s*+=\s*+\{{[^}}\0]*=").search


def _usual() -> re.Pattern[str]:
    """The pattern of attributes as most are written: it saves a look at each pair of brackets.

    Braces are five deep at most, and `=` is in those of no attribute that calls.
    """
    flat = rf"[^(){{}}\[\]\"'/\0]++|{_STRING}"
    braces = rf"\{{(?:{flat}|\{{(?:{flat})*+\}})*+\}}"
    inner = rf"{flat}|\((?:{flat}|{braces})*+\)|\[(?:{flat}|{braces}|\[(?:{flat})*+\])*+\]"
    json = rf"{flat}|\[(?:{flat}|\{{(?:{flat}|\[(?:{flat})*+\])*+\}})*+\]"
    closed = rf"{_STRING}|\[(?:{flat})*+\]|\((?:{flat})*+\)"
    closed += rf"|\{{(?:{inner}|\{{(?:{json}|\{{(?:{json}|\{{(?:{json})*+\}})*+\}})*+\}})*+\}}"
    value = rf"[^ \t\r\n\f\v,(){{}}\[\]\"'/=<\0]++|<=?|(?:{closed})(?!{_ANOTHER})"
    name = rf"(?!(?:{_CALLS})=\{{[^}}=\0]*+=){_WORD}="
    return re.compile(rf"(?:(?:,\s*+{name}(?:{value})++[ \t\r]*+)++(?:\0|\Z))*+", re.ASCII)


_are_usual = _usual().fullmatch
_has_instruction = re.compile(r"[a-z0-9_\-]\((?<!\Wb\()(?<!\Ab\()").search
"""An operand that is an instruction of its own: `negate(x)`."""
_white = re.compile(r"\s+")
_after_shape = re.compile(r"([\])}])(?=[%\w])", re.ASCII)


class Stretch:
    """Statements that follow one another, and a row for each instruction."""

    __slots__ = ("end", "is_stuck", "may_wrap", "next", "pieces", "rows", "starts", "stops")

    def __init__(self, pieces: list[Piece], start: int, is_stuck: bool, may_wrap: bool) -> None:
        self.pieces = pieces
        self.is_stuck = is_stuck
        """True if no plain piece begins at the end."""
        self.may_wrap = may_wrap
        """True if a statement may go on in the next line."""
        self.starts: list[int] = [*accumulate(map(len, map(_full_of, pieces)), initial=start)]
        """The first character of each piece, and then the end of the last."""
        self.end = self.starts[-1]
        self.rows, self.stops = _rows(pieces) if pieces else ([], [])
        """A row for each piece; that of a head or a brace has no name, nor has `_NOT_PLAIN`."""
        self.stops.append(len(pieces))
        """The numbers of the pieces that are not plain instructions, and then of all pieces."""
        self.next = 0
        """The piece that is asked for next, most likely."""

    def at(self, place: int) -> int:
        """The number of the plain piece that begins at a place of the text; -1 if none does."""
        number = self.next
        if self.starts[number] != place:
            number = bisect_left(self.starts, place)
        if number >= len(self.pieces) or self.starts[number] != place:
            return -1
        return number if self.rows[number] is not _NOT_PLAIN else -1

    def instructions(self, number: int) -> int:
        """The number of the first piece from `number` on that is not a plain instruction."""
        return self.stops[bisect_left(self.stops, number)]

    def computations(self, text: str, enough: int) -> list[tuple[int, int, Computation]]:
        """The computations from the next piece on, one after the other, where they begin and end.

        Args:
            text: what the stretch was read from.
            enough: no computation that begins here or after it is looked for.
        """
        computations: list[tuple[int, int, Computation]] = []
        pieces, starts, rows, stops = self.pieces, self.starts, self.rows, self.stops
        number = self.next
        at = bisect_left(stops, number)
        while stops[at] == number < len(pieces) and starts[number] < enough:
            head, stop = pieces[number], stops[at + 1]
            if not head[HEAD] or stop == len(pieces) or rows[number] is _NOT_PLAIN:
                break
            if not (close := pieces[stop][CLOSE]):
                break
            start, body, last = starts[number], starts[number + 1], starts[stop]
            end = last + len(close)
            computation = Computation(
                text,
                head[HEAD],
                head[ENTRY] != "",
                head[SIGNATURE],
                tuple(rows[number + 1 : stop]),
                close[1:].strip(),
                partial(_spans_between, body - start, last - start, self.may_wrap),
                part=(start, end),
            )
            computations.append((start, end, computation))
            number = self.next = stop + 1
            at += 2
        return computations


def _spans_between(start: int, end: int, may_wrap: bool, text: str) -> tuple[Span, ...]:
    """The spans of the plain instructions from a place of a text to another."""
    return tuple(spans(text, start, end, may_wrap))


def read_stretch(text: str, start: int, may_wrap: bool) -> Stretch:
    """The statements from a place on that look plain, about 64 KB of them at most.

    Args:
        text: in which no carriage return stands without a line break, and no NUL.
        start: the first character of a statement.
        may_wrap: whether a statement may go on in the next line.
    """
    size, end = MAX_TOGETHER, len(text)
    pattern = _wrapping if may_wrap else _of_one_line
    while True:
        cut = text.find("\n", start + size) if start + size < end else -1
        pieces = pattern.findall(text, start, end if cut < 0 else cut)
        is_stuck = bool(pieces) and not pieces[-1][_FULL]
        if is_stuck or cut >= 0:
            pieces.pop()  # the text after the last one was not looked at
        if pieces or cut < 0 or is_stuck:
            return Stretch(pieces, start, is_stuck, may_wrap)
        size *= 8


def spans(text: str, start: int, end: int, may_wrap: bool) -> list[Span]:
    """The places of the instructions in a text that a stretch was read from."""
    pattern = _wrapping if may_wrap else _of_one_line
    places = []
    for piece in pattern.finditer(text, start, end):
        tail = piece[TAIL + 1]
        stop = piece.end(_OPERANDS + 1) + 1
        if tail:
            stop = piece.start(TAIL + 1) + len(tail.rstrip())
        places.append(Span(piece.start(), stop))
    return places


def _rows(pieces: list[Piece]) -> tuple[list[InstructionRecord], list[int]]:
    """A row for each piece, `_NOT_PLAIN` for those that are not, and which are no instructions."""
    _, roots, names, types, opcodes, texts, _, tails, _, _, signatures, _ = zip(
        *pieces, strict=True
    )
    odd: set[str] = set()
    bracketed = {text for text in {*types, *signatures} if "(" in text}
    operands = list(texts)
    for at, opcode in enumerate(opcodes):
        if opcode in LITERAL_OPERANDS:
            operands[at] = ""
            text = texts[at]
            if not text.isalnum() and _has_bracket(text):
                bracketed.add(text)
    joined = "\n".join(operands)
    not_plain: set[int] = set()
    if "(" in joined and _has_instruction(joined):
        not_plain.update(at for at, text in enumerate(operands) if _has_instruction(text))
        operands = ["" if at in not_plain else text for at, text in enumerate(operands)]
        joined = "\n".join(operands)
    if joined.count("\n") >= len(operands):
        operands = [_in_one_line(text) if "\n" in text else text for text in operands]
        joined = "\n".join(operands)
    references = read_written_references(joined)
    if references is None:
        references = []
        for at, text in enumerate(operands):
            read = read_written_references(_in_one_line(text))
            references += read or [()]
            if read is None:
                not_plain.add(at)
    if bracketed and not _are_in_pairs(_SEPARATOR.join(bracketed)):
        odd.update(text for text in bracketed if not _are_in_pairs(text))
    distinct = {*tails}
    distinct.discard("")
    if distinct and not are_attributes(_SEPARATOR.join(distinct)):
        odd.update(tail for tail in distinct if not are_attributes(tail))
    stripped = map(str.rstrip, tails)
    rows = list(zip(roots, names, types, opcodes, texts, stripped, references, strict=True))
    if odd:
        columns = zip(types, texts, tails, signatures, strict=True)
        not_plain.update(at for at, column in enumerate(columns) if not odd.isdisjoint(column))
    for at in not_plain:
        rows[at] = _NOT_PLAIN
    return rows, [at for at, row in enumerate(rows) if not row[NAME]]


def _in_one_line(operands: str) -> str:
    """The operands without comments, a blank wherever it is usual and nowhere else."""
    text = _white.sub(" ", _comments.sub(" ", operands)).strip().replace(" ,", ",")
    return _after_shape.sub(r"\1 ", text)


def _are_in_pairs(joined: str) -> bool:
    """True if brackets stand in pairs in each of some texts that NUL is between."""
    # Of arrays, whose sizes and layouts are the most of it, no pair is looked for again and again.
    joined = _sizes.sub("", joined)
    return not _has_bracket(_without_pairs(_comments.sub("", joined)))


def are_attributes(joined: str) -> bool:
    """True if texts that NUL is between are attributes, without comments and computations."""
    if _are_usual(joined):
        return True
    joined = _strings.sub(_VALUE, joined) if '"' in joined else joined
    if any(mark in joined for mark in ('"', "//", "/*")) or _has_computation(joined):
        return False
    return _are_attributes(_without_pairs(joined)) is not None


def _without_pairs(joined: str) -> str:
    """The texts with one character for each pair of brackets and what is in it."""
    while True:
        shorter = _pair.sub(_VALUE, joined)
        if shorter == joined:
            return joined
        joined = shorter
