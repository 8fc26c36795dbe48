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
from typing import Final, NamedTuple

from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.parser.fast import MAX_TOGETHER
from hlo_lint.hlo.parser.references import read_written_references
from hlo_lint.hlo.parser.statement_pattern import (
    CALLS,
    COMMENT,
    LEAD,
    NEXT,
    STRING,
    USUAL_TYPE,
    WHITE,
    WORD,
    statement_pattern,
    tail_pattern,
)
from hlo_lint.hlo.records import REFERENCES, InstructionRecord, name_of
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span

match_lead = re.compile(LEAD).match
"""White space and comments."""
_match_header = late(
    rf"HloModule[ \t]++%?({WORD}):?{tail_pattern(wraps=True)}{NEXT}", re.ASCII
).match

# The groups of a piece.
_FULL: Final = 0
"""The whole of it, with what follows up to the next statement."""
_PREFIX: Final = 1
"""`ROOT ` or `ENTRY `."""
_NAME: Final = 2
"""The name of an instruction, or of a computation that begins."""
_OPCODE: Final = 5
_NAMES: Final = 6
"""Operands that are nothing but names."""
_TYPED: Final = 7
"""Names, each after its type."""
_OPERANDS: Final = 8
"""Any others."""
_TAIL: Final = 9
"""Attributes as most are written."""
_OTHER_TAIL: Final = 10
_SIGNATURE: Final = 11
_OTHER_SIGNATURE: Final = 12
CLOSE: Final = 13
"""The closing brace of a computation and the attributes after it."""
_full_of = itemgetter(_FULL)
Piece = tuple[str, ...]

_NO_INSTRUCTION: Final[InstructionRecord] = ("", "", "", "", "", "", ())
"""Stands for a head or a closing brace."""
_NOT_PLAIN: Final[InstructionRecord] = ("", "", "", "", "", ", =", ())
"""Stands for a statement that is not plain."""
_wrapping = statement_pattern(wraps=True)
_of_one_line = statement_pattern(wraps=False)

# What is checked together is joined with NUL, which no text has that is read here.
_SEPARATOR = "\0"
_strings = re.compile(STRING, re.S)
_comments = re.compile(rf"{COMMENT}|//.*+")
_inside = r"[^(){}\[\]\0]*+"
_pair = re.compile(rf"\{{{_inside}\}}|\({_inside}\)|\[{_inside}\]")
_braces = rf"\{{{_inside}(?:(?:\({_inside}\)|\{{{_inside}\}}){_inside})*+\}}"
_array = rf"\[{_inside}\]|{_braces}"
_tuple = rf"\({_inside}(?:(?:{_array}){_inside})*+\)"
_tuple = rf"\({_inside}(?:(?:{_array}|{_tuple}){_inside})*+\)"
_are_usual_pairs = late(rf"(?:[^(){{}}\[\]]++|{_array}|{_tuple})*+").fullmatch
_sizes = re.compile(r"\[[\d, ]*+\](?:\{[\d,]*+\})?+")
_has_bracket = re.compile(r"[(){}\[\]]").search
_VALUE = "\1"
"""Stands for a string, and for a pair of brackets and what is in it."""
_ANOTHER = r"(?:%?[A-Za-z_][A-Za-z0-9_.\-]*\s*=(?!=)|(?:ROOT|ENTRY)\b)"
"""Begins another statement after a value, be it in the same line."""
_are_attributes = late(
    rf"(?:(?:,\s*+[A-Za-z_][A-Za-z0-9_.\-]*+[ \t]*+=[ \t]*+(?:\n\s*+(?!{_ANOTHER}))?+"
    rf"(?:[^\s,(){{}}\[\]\"'\0{_VALUE}]++|{_VALUE}(?!{_ANOTHER}))++\s*+)++(?:\0|\Z))*+"
).fullmatch
_has_computation = late(rf"\b(?:{CALLS})\s*+=\s*+\{{[^}}\0]*=").search

_typed_names = late(rf" %?({WORD}){WHITE}*+(?:,|\Z)").findall
_has_instruction = re.compile(r"[a-z0-9_\-]\((?<!\Wb\()(?<!\Ab\()").search
"""An operand that is an instruction of its own: `negate(x)`."""
_OPERAND_NAME = rf"%?{WORD}(?:#[0-9]++)*+"
_operand_names = rf"(?:{_OPERAND_NAME}(?:, ?+{_OPERAND_NAME})*+)?+"
_literal = r"(?:[^(){}\[\]\"'/\n]*+|\{[^(){}\[\]\"'/\n]*+\})"
_match_operand = late(
    rf"{WHITE}*+(?:((?:({USUAL_TYPE}){WHITE}++)?+(?!b\()([a-z][a-z0-9\-]*+)"
    rf"\((?:({_operand_names})|({_literal}))\))|(?:{USUAL_TYPE}{WHITE}++)?+"
    rf"({_OPERAND_NAME})){WHITE}*+(?:,|\Z)",
    re.ASCII,
).match
_white = re.compile(r"\s+")
_after_shape = re.compile(r"([\])}])(?=[%\w])", re.ASCII)


class _Nested(NamedTuple):
    """An instruction that is written into the operands of another."""

    type: str
    opcode: str
    operands: str
    references: tuple[str, ...]
    start: int
    """Its first character in the operands."""
    end: int


_Operands = list[str | _Nested]
_NONE: Final = frozenset[int]()


class Stretch:
    """Statements that follow one another, and a row for each instruction."""

    __slots__ = (
        *("_bounds", "_nesting", "end", "is_plain", "is_stuck", "may_wrap"),
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
        self.rows, self._bounds, self._nesting, self.is_plain = _rows(pieces)
        """A row for each piece, and the numbers of those that are not instructions."""
        self._bounds.append(len(pieces))
        self.stops = self._bounds
        """The numbers of the pieces that are not plain instructions on their own."""
        if self._nesting:
            self.stops = sorted({*self._bounds, *self._nesting})
        self.next = 0
        """The piece that is asked for next, most likely."""

    def at(self, place: int) -> int:
        """The number of the plain piece that begins at a place of the text; -1 if none does."""
        number = self.next
        if self.starts[number] != place:
            number = bisect_left(self.starts, place)
        if number >= len(self.pieces) or self.starts[number] != place:
            return -1
        is_plain = self.rows[number] is not _NOT_PLAIN and number not in self._nesting
        return number if is_plain else -1

    def head(self, number: int) -> tuple[str, bool, str] | None:
        """The name and signature of the computation that a piece begins; true of the entry."""
        piece = self.pieces[number]
        if piece[_OPCODE] or piece[CLOSE]:
            return None
        signature = piece[_SIGNATURE] or piece[_OTHER_SIGNATURE]
        return piece[_NAME], piece[_PREFIX] != "", signature

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
        pieces, starts, rows, bounds = self.pieces, self.starts, self.rows, self._bounds
        number = self.next
        at = bisect_left(bounds, number)
        while bounds[at] == number < len(pieces) and starts[number] < enough:
            head, stop = self.head(number), bounds[at + 1]
            if head is None or stop == len(pieces) or rows[number] is _NOT_PLAIN:
                break
            if not (close := pieces[stop][CLOSE]):
                break
            start, body, last = starts[number], starts[number + 1], starts[stop]
            end = last + len(close)
            tail = close[1:].strip() if close != "}" else ""
            own, nested = rows[number + 1 : stop], _NONE
            if self._nesting and self.instructions(number + 1) < stop:
                own, nested = self._with_nested(number + 1, stop)
            spans_of = partial(_spans_between, body - start, last - start, self.may_wrap)
            computation = Computation(
                text, *head, tuple(own), tail, spans_of, (), nested, None, (start, end)
            )
            computations.append((start, end, computation))
            number = self.next = stop + 1
            at += 2
        return computations

    def _with_nested(self, start: int, end: int) -> tuple[list[InstructionRecord], frozenset[int]]:
        """The rows of some pieces and of the instructions in their operands, and where those are.

        What is written into the operands of another stands before it.
        """
        rows: list[InstructionRecord] = []
        nested: list[int] = []
        names = set(map(name_of, self.rows[start:end]))
        numbers: dict[str, int] = {}
        for number in range(start, end):
            row = self.rows[number]
            if operands := self._nesting.get(number):
                references = []
                for operand in operands:
                    if isinstance(operand, str):
                        references.append(operand)
                        continue
                    name = anonymous_name(operand.opcode, names, numbers)
                    references.append(name)
                    nested.append(len(rows))
                    rows.append(("", name, *operand[:3], "", operand.references))
                row = (*row[:REFERENCES], tuple(references))
            rows.append(row)
        return rows, frozenset(nested)

    def module(self, text: str, name: str, header: str) -> Module | None:
        """The module of a text that is nothing else after its header; else None.

        Most of what people write is.
        """
        if self.end < len(text) or not self.pieces or not self.is_plain:
            return None
        first = self.pieces[0]
        if not header and not first[_PREFIX] and (first[_SIGNATURE] or first[_OTHER_SIGNATURE]):
            return None  # XLA reads a single instruction here
        computations = self.computations(text, len(text))
        if not computations or self.next < len(self.pieces):
            return None
        starts, _, bodies = zip(*computations, strict=True)
        places = (0,) * len(bodies)
        return Module(name, header, (), (text,), bodies, places, offsets=starts)


def anonymous_name(opcode: str, names: set[str], numbers: dict[str, int]) -> str:
    """XLA's name for what the text leaves nameless: `negate.anon`, `negate.anon.1`; it is noted.

    Args:
        names: all that the computation has so far.
        numbers: the last one for each name that had to be told from another.
    """
    base = name = f"{opcode}.anon"
    while name in names:
        numbers[base] = numbers.get(base, 0) + 1
        name = f"{base}.{numbers[base]}"
    names.add(name)
    return name


def _spans_between(start: int, end: int, may_wrap: bool, text: str) -> tuple[Span, ...]:
    """The spans of the plain instructions from a place of a text to another."""
    return tuple(spans(text, start, end, may_wrap))


def read_stretch(text: str, start: int, may_wrap: bool, end: int | None = None) -> Stretch:
    """The statements from a place on that look plain, about 64 KB of them at most.

    Args:
        text: in which no carriage return stands without a line break, and no NUL.
        start: the first character of a statement.
        may_wrap: True if a statement may go on in the next line.
        end: where no statement goes on; the end of the text if it is None.
    """
    size, end = MAX_TOGETHER, len(text) if end is None else end
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
    name, usual, others = line.groups("")
    if others and not are_attributes(others):
        return None
    end = line.end(1) + text.startswith(":", line.end(1))
    if usual:
        end = line.end(2)
    elif others:
        end = line.start(3) + len(others.rstrip())
    return name, end, line.end()


def spans(text: str, start: int, end: int, may_wrap: bool) -> list[Span]:
    """The places of the instructions in a text that a stretch was read from."""
    pattern = _wrapping if may_wrap else _of_one_line
    places = []
    for piece in pattern.finditer(text, start, end):
        operands, others = piece[_OPERANDS + 1], piece[_OTHER_TAIL + 1]
        if operands and "(" in operands and piece[_OPCODE + 1] not in LITERAL_OPERANDS:
            begin = piece.start(_OPERANDS + 1)
            places += [
                Span(begin + operand.start, begin + operand.end)
                for operand in _nested_operands(operands) or ()
                if not isinstance(operand, str)
            ]
        stop = max(map(piece.end, (_NAMES + 1, _TYPED + 1, _OPERANDS + 1))) + 1
        if others:
            stop = piece.start(_OTHER_TAIL + 1) + len(others.rstrip())
        places.append(Span(piece.start(), max(stop, piece.end(_TAIL + 1))))
    return places


def _rows(
    pieces: list[Piece],
) -> tuple[list[InstructionRecord], list[int], dict[int, _Operands], bool]:
    """A row for each piece, and the numbers of the pieces that are not instructions.

    The third says of which pieces the operands are instructions, too; the fourth is true if each
    piece is plain.
    """
    rows: list[InstructionRecord] = []
    bounds: list[int] = []
    not_plain: set[int] = set()
    not_names: list[int] = []
    bracketed: set[str] = set()
    tails: set[str] = set()
    nesting: dict[int, _Operands] = {}
    for at, piece in enumerate(pieces):
        (
            _,
            prefix,
            name,
            usual,
            shape,
            opcode,
            names,
            typed,
            operands,
            tail,
            others,
            _,
            signature,
            _,
        ) = piece
        if not opcode:
            rows.append(_NO_INSTRUCTION)
            bounds.append(at)
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
            names_alone = names.replace("%", "")
            references = tuple(names_alone.split(", ")) if "," in names else (names_alone,)
        elif typed:
            references = tuple(_typed_names(typed))
        elif operands:
            if "(" in operands and (instructions := _nested_operands(operands)):
                nesting[at] = instructions
            else:
                not_names.append(at)
        if others:
            tails.add(others)
            tail = others.rstrip()
        if shape:
            bracketed.add(shape)
        if prefix and prefix != "ROOT ":
            not_plain.add(at)
        operands = names or typed or operands
        rows.append((prefix, name, usual or shape, opcode, operands, tail, references))
    if not_names:
        read = _references([pieces[at][_OPERANDS] for at in not_names])
        for at, names_of_list in zip(not_names, read, strict=True):
            if names_of_list:
                rows[at] = (*rows[at][:REFERENCES], names_of_list)
            elif names_of_list is None:
                not_plain.add(at)
    odd: set[str] = set()
    if bracketed and not _are_in_pairs(_SEPARATOR.join(bracketed)):
        odd.update(text for text in bracketed if not _are_in_pairs(text))
    if tails and not are_attributes(_SEPARATOR.join(tails)):
        odd.update(text for text in tails if not are_attributes(text))
    if odd:
        not_plain.update(at for at, piece in enumerate(pieces) if not odd.isdisjoint(piece))
    if not_plain:
        for at in not_plain:
            rows[at] = _NOT_PLAIN
            nesting.pop(at, None)
        bounds = sorted(not_plain.union(bounds))
    return rows, bounds, nesting, not not_plain


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


def _nested_operands(operands: str) -> _Operands | None:
    """The names and instructions in a list of operands; None unless it is plain and has both."""
    read: _Operands = []
    has_instruction = False
    at, end = 0, len(operands)
    while at < end or not read:
        operand = _match_operand(operands, at)
        if operand is None:
            return None
        _, shape, opcode, names, literal, name = operand.groups("")
        references: tuple[str, ...] = ()
        if name:
            read.append(name.removeprefix("%"))
        else:
            if opcode not in LITERAL_OPERANDS:
                if literal:
                    return None
                if names:
                    references = tuple(names.replace("%", "").replace(" ", "").split(","))
            has_instruction = True
            read.append(_Nested(shape, opcode, names or literal, references, *operand.span(1)))
        at = operand.end()
    return read if has_instruction else None


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
