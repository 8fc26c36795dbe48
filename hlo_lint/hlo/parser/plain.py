"""Plain statements: the instructions, heads and closing braces that people write, read in bulk.

One `findall` reads statements one after the other as far as they are plain, and what they hold is
checked in bulk: brackets in pairs, attributes with values, operands with names. Plain statements
mean the same to the general reader (`general.py`), which would take ten times as long. They may be
indented, end with comments, and go on in the next line.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Final

from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Module
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.parser.fast import MAX_TOGETHER
from hlo_lint.hlo.parser.references import read_written_references
from hlo_lint.hlo.records import InstructionRecord
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
    r"(?:\{(?:[-0-9:?][-0-9,:? ]*+(?:[A-Z]*+\([-0-9,:*A-Z ]*+\))*+)?+\})?+"
)


def _in_pairs(outside: str) -> str:
    """A pattern of text in which parentheses stand in pairs, at most six deep."""
    flat = rf"[^()=<\"'/{outside}]*+"
    comment = _COMMENT if outside else rf"{_COMMENT}|//.*+"
    pairs = special = rf"(?:<=?|{comment}){flat}"
    for _ in range(5):
        pairs = rf"(?:\({flat}(?:{pairs})*+\){flat}|{special})"
    return rf"{flat}(?:{pairs})*+"


def _tail(wraps: bool) -> str:
    """A pattern of attributes, whatever stands in them, up to the end of the line.

    A line may end after a comma, in brackets, and where the next one is indented.
    """
    flat = braces = rf"[^{{}}\"/']++|{_STRING}"
    for _ in range(6):
        braces = rf"{flat}|\{{(?:{braces})*+\}}"
    line_ends = (
        rf"|\n(?=[ \t]++,)|(?<=[,=:])\n|(?<=,[ \t\r])\n|(?<=\{{)\n(?:{braces})*+\}}"
        if wraps
        else ""
    )
    flat = r"[^\n\"'/]*+"
    return rf",{flat}(?:(?:{_STRING}|/(?![/*]){line_ends}){flat})*+"


_GAP: Final = r"[ \t\r\n]*+(?<!\n)"
"""Blanks within a statement that goes on in the next line."""
_LINE_END: Final = r"[ \t]*+(?=[\n\r/}]|\Z)"
_NEXT: Final = rf"{_LEAD}(?![,/#\ufeff])"
"""White space and comments up to the next statement."""


def _piece(wraps: bool) -> re.Pattern[str]:
    """The pattern of one statement, and of the white space and comments after it."""
    gap = _GAP if wraps else r"[ \t]*+"
    inside = _in_pairs("" if wraps else r"\n")
    operands = rf"(?:(%?{_WORD}(?:, %?{_WORD})*+)(?=\))|({inside}))"
    instruction = (
        rf"=(?!=){gap}(?:({_ARRAY}|b?\({inside}\)){gap})?+(?!b\()([A-Za-z_][A-Za-z0-9_\-]*+)"
        rf"[ \t]*+\({operands}\)(?:{_LINE_END}|{gap}({_tail(wraps)}){_LINE_END})"
    )
    signature = rf"\({inside}\){gap}->{gap}(?:{_ARRAY}|b?\({inside}\))"
    head = rf"{gap}(?:({signature}){gap})?+\{{(?!\s*+[-\d:?}}])"  # of a computation: no layout
    close = r"(\}(?:,[ \t]*+execution_thread=\"[^\"\n]*+\"(?=[ \t]*+(?:[\r\n]|//|\Z)))?+)"
    named = rf"(?:(ROOT |ENTRY[ \t])[ \t]*+)?+(?!(?:ROOT|ENTRY)\b)%?({_WORD}):?[ \t]*+"
    return re.compile(rf"((?:{named}(?:{instruction}|{head})|{close}){_NEXT})|(?s:.++)", re.ASCII)


match_lead = re.compile(_LEAD).match
"""White space and comments."""
_match_header = re.compile(
    rf"HloModule[ \t]++%?({_WORD}):?(?:{_GAP}({_tail(True)}))?{_LINE_END}{_NEXT}", re.ASCII
).match

# The groups of a piece.
_FULL: Final = 0
"""The whole of it, with what follows up to the next statement."""
_PREFIX: Final = 1
"""`ROOT ` or `ENTRY `."""
_NAME: Final = 2
"""The name of an instruction, or of a computation that begins."""
_OPCODE: Final = 4
_NAMES: Final = 5
"""Operands that are nothing but names."""
_OPERANDS: Final = 6
"""Any others."""
_TAIL: Final = 7
_SIGNATURE: Final = 8
CLOSE: Final = 9
"""The closing brace of a computation and the attributes after it."""
_full_of = itemgetter(_FULL)
Piece = tuple[str, ...]

_NO_INSTRUCTION: Final[InstructionRecord] = ("", "", "", "", "", "", ())
"""Stands for a head or a closing brace."""
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
_braces = rf"\{{{_inside}(?:(?:\({_inside}\)|\{{{_inside}\}}){_inside})*+\}}"
_array = rf"\[{_inside}\]|{_braces}"
_tuple = rf"\({_inside}(?:(?:{_array}){_inside})*+\)"
_tuple = rf"\({_inside}(?:(?:{_array}|{_tuple}){_inside})*+\)"
_are_usual_pairs = re.compile(rf"(?:[^(){{}}\[\]]++|{_array}|{_tuple})*+").fullmatch
_sizes = re.compile(r"\[[\d, ]*+\](?:\{[\d,]*+\})?+")
_has_bracket = re.compile(r"[(){}\[\]]").search
_VALUE = "\1"
"""Stands for a string, and for a pair of brackets and what is in it."""
_ANOTHER = r"(?:%?[A-Za-z_][A-Za-z0-9_.\-]*\s*=(?!=)|(?:ROOT|ENTRY)\b)"
"""Begins another statement after a value, be it in the same line."""
_are_attributes = re.compile(
    rf"(?:(?:,\s*+[A-Za-z_][A-Za-z0-9_.\-]*+[ \t]*+=[ \t]*+(?:\n\s*+(?!{_ANOTHER}))?+"
    rf"(?:[^\s,(){{}}\[\]\"'\0{_VALUE}]++|{_VALUE}(?!{_ANOTHER}))++\s*+)++(?:\0|\Z))*+"
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
    return re.compile(rf"(?:(?:,\s*+{name}(?:{value})++\s*+)++(?:\0|\Z))*+", re.ASCII)


_are_usual = _usual().fullmatch
_has_instruction = re.compile(r"[a-z0-9_\-]\((?<!\Wb\()(?<!\Ab\()").search
"""An operand that is an instruction of its own: `negate(x)`."""
_white = re.compile(r"\s+")
_after_shape = re.compile(r"([\])}])(?=[%\w])", re.ASCII)


class Stretch:
    """Statements that follow one another, and a row for each instruction."""

    __slots__ = (
        *("end", "is_plain", "is_stuck", "may_wrap"),
        *("next", "pieces", "rows", "starts", "stops"),
    )

    def __init__(self, pieces: list[Piece], start: int, is_stuck: bool, may_wrap: bool) -> None:
        self.pieces = pieces
        self.is_stuck = is_stuck
        """True if no plain piece begins at the end."""
        self.may_wrap = may_wrap
        """True if a statement may go on in the next line."""
        self.starts: list[int] = [*accumulate(map(len, map(_full_of, pieces)), initial=start)]
        """The first character of each piece, and then the end of the last."""
        self.end = self.starts[-1]
        self.rows, self.stops, self.is_plain = _rows(pieces)
        """A row for each piece, and the numbers of those that are not plain instructions."""
        self.stops.append(len(pieces))
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

    def head(self, number: int) -> tuple[str, bool, str] | None:
        """The name and signature of the computation that a piece begins; true of the entry."""
        piece = self.pieces[number]
        if piece[_OPCODE] or piece[CLOSE]:
            return None
        return piece[_NAME], piece[_PREFIX] != "", piece[_SIGNATURE]

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
            head, stop = self.head(number), stops[at + 1]
            if head is None or stop == len(pieces) or rows[number] is _NOT_PLAIN:
                break
            if not (close := pieces[stop][CLOSE]):
                break
            start, body, last = starts[number], starts[number + 1], starts[stop]
            end = last + len(close)
            computation = Computation(
                text,
                *head,
                tuple(rows[number + 1 : stop]),
                close[1:].strip(),
                partial(_spans_between, body - start, last - start, self.may_wrap),
                part=(start, end),
            )
            computations.append((start, end, computation))
            number = self.next = stop + 1
            at += 2
        return computations

    def module(self, text: str, name: str, header: str) -> Module | None:
        """The module of a text that is nothing else after its header; else None.

        Most of what people write is.
        """
        if self.end < len(text) or not self.pieces or not self.is_plain:
            return None
        first = self.pieces[0]
        if not header and first[_SIGNATURE] and not first[_PREFIX]:
            return None  # XLA reads a single instruction here
        computations = self.computations(text, len(text))
        if not computations or self.next < len(self.pieces):
            return None
        starts, _, bodies = zip(*computations, strict=True)
        places = (0,) * len(bodies)
        return Module(name, header, (), (text,), bodies, places, offsets=starts)


def _spans_between(start: int, end: int, may_wrap: bool, text: str) -> tuple[Span, ...]:
    """The spans of the plain instructions from a place of a text to another."""
    return tuple(spans(text, start, end, may_wrap))


def read_stretch(text: str, start: int, may_wrap: bool) -> Stretch:
    """The statements from a place on that look plain, about 64 KB of them at most.

    Args:
        text: in which no carriage return stands without a line break, and no NUL.
        start: the first character of a statement.
        may_wrap: True if a statement may go on in the next line.
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


def is_plain(text: str) -> bool:
    """True if plain statements may stand in a text: no line ends with a carriage return alone."""
    return "\0" not in text and ("\r" not in text or text.count("\r") == text.count("\r\n"))


def read_header(text: str, start: int) -> tuple[str, int, int] | None:
    """The name in `HloModule name, attribute=…`, its end and where the next statement begins."""
    line = _match_header(text, start)
    if line is None:
        return None
    name, tail = line.groups("")
    if tail and not are_attributes(tail):
        return None
    end = line.start(2) + len(tail.rstrip()) if tail else line.end(1)
    return name, end + text.startswith(":", end), line.end()


def spans(text: str, start: int, end: int, may_wrap: bool) -> list[Span]:
    """The places of the instructions in a text that a stretch was read from."""
    pattern = _wrapping if may_wrap else _of_one_line
    places = []
    for piece in pattern.finditer(text, start, end):
        tail = piece[_TAIL + 1]
        stop = max(piece.end(_NAMES + 1), piece.end(_OPERANDS + 1)) + 1
        if tail:
            stop = piece.start(_TAIL + 1) + len(tail.rstrip())
        places.append(Span(piece.start(), stop))
    return places


def _rows(pieces: list[Piece]) -> tuple[list[InstructionRecord], list[int], bool]:
    """A row for each piece, and the numbers of the pieces that are not plain instructions.

    The third is true if each piece is plain.
    """
    rows: list[InstructionRecord] = []
    stops: list[int] = []
    not_plain: set[int] = set()
    not_names: list[int] = []
    bracketed: set[str] = set()
    distinct: set[str] = set()
    for at, piece in enumerate(pieces):
        _, prefix, name, shape, opcode, names, operands, tail, signature, _ = piece
        if not opcode:
            rows.append(_NO_INSTRUCTION)
            stops.append(at)
            if signature:
                bracketed.add(signature)
            if prefix == "ROOT ":
                not_plain.add(at)
            continue
        references: tuple[str, ...] = ()
        if opcode in LITERAL_OPERANDS:
            if operands and not operands.isalnum() and _has_bracket(operands):
                bracketed.add(operands)
        elif names:
            references = tuple(names.replace("%", "").split(", "))
        elif operands:
            not_names.append(at)
        if tail:
            distinct.add(tail)
            tail = tail.rstrip()
        if shape[-1:] == ")":
            bracketed.add(shape)
        if prefix and prefix != "ROOT ":
            not_plain.add(at)
        rows.append((prefix, name, shape, opcode, names or operands, tail, references))
    if not_names:
        read = _references([pieces[at][_OPERANDS] for at in not_names])
        for at, others in zip(not_names, read, strict=True):
            if others is None:
                not_plain.add(at)
            elif others:
                rows[at] = (*rows[at][:-1], others)
    odd: set[str] = set()
    if bracketed and not _are_in_pairs(_SEPARATOR.join(bracketed)):
        odd.update(text for text in bracketed if not _are_in_pairs(text))
    if distinct and not are_attributes(_SEPARATOR.join(distinct)):
        odd.update(text for text in distinct if not are_attributes(text))
    if odd:
        not_plain.update(at for at, piece in enumerate(pieces) if not odd.isdisjoint(piece))
    if not_plain:
        for at in not_plain:
            rows[at] = _NOT_PLAIN
        stops = sorted(not_plain.union(stops))
    return rows, stops, not not_plain


def _references(texts: list[str]) -> Sequence[tuple[str, ...] | None]:
    """The names that each list of operands refers to; None for one that is not plain."""
    nested: set[int] = set()
    joined = "\n".join(texts)
    if "(" in joined and _has_instruction(joined):
        nested.update(at for at, text in enumerate(texts) if _has_instruction(text))
        texts = ["" if at in nested else text for at, text in enumerate(texts)]
        joined = "\n".join(texts)
    if joined.count("\n") >= len(texts):
        texts = [_in_one_line(text) if "\n" in text else text for text in texts]
        joined = "\n".join(texts)
    read = read_written_references(joined)
    if read is not None:
        return (
            [None if at in nested else names for at, names in enumerate(read)] if nested else read
        )
    alone = [read_written_references(_in_one_line(text)) for text in texts]
    return [one[0] if one and at not in nested else None for at, one in enumerate(alone)]


def _in_one_line(operands: str) -> str:
    """The operands without comments, a blank wherever it is usual and nowhere else."""
    text = _white.sub(" ", _comments.sub(" ", operands)).strip().replace(" ,", ",")
    return _after_shape.sub(r"\1 ", text)


def _are_in_pairs(joined: str) -> bool:
    """True if brackets stand in pairs in each of some texts that NUL is between."""
    if "/" in joined:
        joined = _comments.sub("", joined)
    # Of arrays, whose sizes and layouts are the most of it, no pair is looked for again and again.
    return _are_usual_pairs(joined) is not None or not _has_bracket(
        _without_pairs(_sizes.sub("", joined))
    )


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
