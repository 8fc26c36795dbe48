"""A conversion in the making: edits of one module's text, fresh names, and what it cannot say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from hlo_lint.hlo.attributes import split_attributes
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    operands_of,
    references_of,
    type_of,
)

_STRING = r'"(?:[^"\\]|\\.)*+"'
_COMMENT = r"/\*.*?\*/|//[^\n]*+"
_find_tokens = re.compile(
    rf"{_STRING}|{_COMMENT}|[(){{}}\[\],]|%?[\w.\-]+(?:#\d+)*+:?|\S", re.S
).finditer
_is_reference = re.compile(r"%?[A-Za-z_][\w.\-]*(?:#\d+)*:?", re.A).fullmatch
_BLANK = rf"(?:\s|{_COMMENT})"
_name_at = re.compile(rf"(?:ROOT{_BLANK}+)?(%?)[\w.\-]+:?{_BLANK}*+=(?!=)", re.A | re.S).match
_line_feeds = re.compile(r"\n*").match
_head = re.compile(rf"(?:ENTRY{_BLANK}+)?(%?)([\w.\-]+):?(?!\s*=)", re.S).match


class OperandPlace(NamedTuple):
    """Where an operand stands, in characters of its computation's text."""

    type_start: int
    """Where its shape begins; `start` where none is printed."""
    start: int
    """Where its name begins, `%` included."""
    end: int


class Draft:
    """Collects the edits of one module; a conversion changes nothing else."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.text = module.text
        """As it was."""
        self.newline = "\r\n" if "\r\n" in self.text else "\n"
        self.notes: Counter[str] = Counter()
        """What the new text does not say any more, each with how often."""
        self._edits: list[tuple[int, int, str]] = []
        self._taken: set[str] | None = None
        self._numbers: Counter[str] = Counter()
        """How often a name was taken already."""

    def replace(self, start: int, end: int, text: str) -> None:
        """Put `text` in place of a stretch, in characters of the module's text."""
        self._edits.append((start, end, text))

    def note(self, message: str) -> None:
        """Say what gets lost."""
        self.notes[message] += 1

    def fresh(self, base: str) -> str:
        """A name that nothing in the module has, taken from now on."""
        if self._taken is None:
            self._taken = self.module.names()
        name = base
        while name in self._taken:
            self._numbers[base] += 1
            name = f"{base}.{self._numbers[base]}"
        self._taken.add(name)
        return name

    def drop_line(self, start: int, end: int) -> None:
        """Remove a statement, and its line where nothing else stands there."""
        text = self.text
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", end)
        line_end = len(text) if line_end < 0 else line_end + 1
        if not text[line_start:start].strip() and not text[end:line_end].strip():
            start, end = line_start, line_end
        self.replace(start, end, "")

    def result(self) -> str:
        """The text with all edits made."""
        text = self.text
        pieces: list[str] = []
        at = 0
        for start, end, new in sorted(self._edits, key=lambda edit: edit[:2]):
            if start < at:
                continue  # inside what is replaced already
            pieces += (text[at:start], new)
            at = end
        pieces.append(text[at:])
        return "".join(pieces)


class Statement(NamedTuple):
    """One instruction with its place."""

    row: InstructionRecord
    start: int
    """Where its text begins, in characters of the module's text."""
    text: str
    anchor: int
    """Where the statement around it begins, if it is written into the operands of another."""

    @property
    def is_nested(self) -> bool:
        """Whether it is written into the operands of another, so that it has no name."""
        return self.anchor != self.start

    @property
    def end(self) -> int:
        """Where its text ends."""
        return self.start + len(self.text)

    @property
    def tail_start(self) -> int:
        """Where its attributes begin."""
        return self.end - len(attributes_of(self.row))

    @property
    def close(self) -> int:
        """Where the parenthesis behind its operands stands."""
        return self.start + self.text.rindex(")", 0, len(self.text) - len(attributes_of(self.row)))

    @property
    def sign(self) -> tuple[int, int] | None:
        """Where `%` stands before its name, or would stand; None where it has no name."""
        found = None if self.is_nested else _name_at(self.text)
        return (self.start + found.start(1), self.start + found.end(1)) if found else None

    @property
    def percent(self) -> str:
        """The sign before its name: `%` or nothing."""
        return "%" if self.sign and self.sign[0] < self.sign[1] else ""

    def operands(self) -> Iterator[tuple[str, OperandPlace]]:
        """The references that are written as a name, and where."""
        row = self.row
        places = operand_places(operands_of(row)) if references_of(row) else ()
        if not places or len(places) != len(references_of(row)):
            return
        begin = self.close - len(operands_of(row))
        for reference, place in zip(references_of(row), places, strict=True):
            if place is not None:
                yield reference, OperandPlace(*(begin + at for at in place))

    def attributes(self) -> dict[str, tuple[int, int]]:
        """Where the values of its attributes stand."""
        begin = self.tail_start
        return {
            name: (begin + start, begin + end)
            for name, (start, end) in split_attributes(attributes_of(self.row)).items()
        }


class Statements:
    """The instructions of a computation with their places, found when asked for."""

    __slots__ = ("_begin", "_computation")

    def __init__(self, computation: Computation, begin: int) -> None:
        self._computation = computation
        self._begin = begin

    def __getitem__(self, number: int) -> Statement:
        computation, begin = self._computation, self._begin
        start, end = computation.spans[number]
        around = number
        while around in computation.nested:
            around += 1  # what stands in the operands of another is a row before it
        anchor = begin + computation.spans[around].start
        text = computation.text[start:end]
        return Statement(computation.rows[number], begin + start, text, anchor)

    def __iter__(self) -> Iterator[Statement]:
        return map(self.__getitem__, range(len(self._computation.rows)))

    def where(self, wanted: Callable[[InstructionRecord], bool]) -> Iterator[Statement]:
        """Those whose row is wanted, in the order of the text."""
        rows = self._computation.rows
        return (self[number] for number, row in enumerate(rows) if wanted(row))


def statements(module: Module) -> Iterator[tuple[Computation, Statements]]:
    """The instructions of each computation, in the order of the text."""
    for number, computation in enumerate(module.computations):
        yield computation, Statements(computation, module.offset(number))


@lru_cache(4096)
def operand_places(operands: str) -> tuple[OperandPlace | None, ...]:
    """Where the operands of a list stand; None for what is no name but an instruction.

    >>> operand_places("f32[2]{0} %a, b#1")
    (OperandPlace(type_start=0, start=10, end=12), OperandPlace(type_start=14, start=14, end=17))
    """
    found: list[OperandPlace | None] = []
    for tokens in _parts(operands):
        start, end = tokens[-1] if tokens else (0, 0)
        if _is_reference(operands, start, end):
            end -= operands[end - 1] == ":"
            found.append(OperandPlace(tokens[0][0], start, end))
        else:
            found.append(None)
    return tuple(found)


def _parts(text: str) -> list[list[tuple[int, int]]]:
    """The tokens between top-level commas, without comments; what is in brackets is one token."""
    parts: list[list[tuple[int, int]]] = [[]]
    depth = start = 0
    for token in _find_tokens(text):
        mark = token[0]
        if mark.startswith(("/*", "//")):
            continue
        if mark in ("(", "{", "["):
            if not depth:
                start = token.start()
            depth += 1
        elif mark in (")", "}", "]"):
            depth -= 1
            if not depth:
                parts[-1].append((start, token.end()))
        elif depth:
            continue
        elif mark == ",":
            parts.append([])
        else:
            parts[-1].append(token.span())
    return parts if parts != [[]] else []


def bracketed(text: str) -> list[tuple[int, int]]:
    """Where the parts between top-level commas stand.

    >>> bracketed("{replicated}, {mesh['x'=2], [{'x'}]}")
    [(0, 12), (14, 36)]
    """
    return [(part[0][0], part[-1][1]) for part in _parts(text) if part]


@lru_cache(4096)
def tuple_elements(type_text: str) -> tuple[str, ...] | None:
    """The shapes of a tuple's elements as spelled; None where it is no tuple.

    >>> tuple_elements("(f32[2]{0}, /*index=1*/(s32[], pred[]))")
    ('f32[2]{0}', '(s32[], pred[])')
    """
    if not (type_text.startswith("(") and type_text.endswith(")")):
        return None
    inner = type_text[1:-1]
    return tuple(inner[part[0][0] : part[-1][1]] for part in _parts(inner) if part)


def referenced_type(computation: Computation, reference: str) -> str | None:
    """The shape of what a reference reads, as spelled; None where the text does not say."""
    name, *path = reference.split("#")
    number = computation.index.get(name)
    if number is None:
        return None
    text = type_of(computation.rows[number])
    for element in map(int, path):
        elements = tuple_elements(text)
        if elements is None or element >= len(elements):
            return None
        text = elements[element]
    return text or None


def blank_lines(text: str, at: int) -> int:
    """The end of the line feeds at `at`."""
    found = _line_feeds(text, at)
    return found.end() if found else at


def head_of(computation: Computation) -> re.Match[str] | None:
    """`ENTRY %main`, with `%` and name as groups; None for a computation that has no head."""
    found = _head(computation.text)
    return found if found and found[2] == computation.name else None


def drop_attributes(draft: Draft, statement: Statement, dropped: set[str]) -> None:
    """Remove attributes with the commas before them."""
    text = draft.text
    places = statement.attributes()
    if "" in places:
        return  # they cannot be told apart
    ends = [statement.close + 1, *(end for _, end in places.values())]
    for name, (before, end) in zip(places, pairwise(ends), strict=True):
        if name in dropped:
            comma = text.index(",", before, end)
            draft.replace(comma, end, "")
