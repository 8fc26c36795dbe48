"""Edits of one module's text, fresh names, and notes on what the new text cannot express."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise

from hlo_lint.hlo.comments import COMMENT
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.parser.tokens import InstructionSpans, OperandSpan, split_at_commas
from hlo_lint.hlo.records import InstructionRecord, attributes_of, references_of, type_of
from hlo_lint.text.source import Span

_line_feeds = re.compile(r"\n*").match
_BLANK = rf"(?:\s|{COMMENT})"
_head = re.compile(rf"(?:ENTRY{_BLANK}+)?(%?)([\w.\-]+):?(?!\s*=)", re.S).match


class TextEditor:
    """Collects the edits of one module; a conversion changes nothing else."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.text = module.text
        """As it was."""
        self.newline = "\r\n" if "\r\n" in self.text else "\n"
        self.notes: Counter[str] = Counter()
        """Messages on what the new text lost, each with its count."""
        self._edits: list[tuple[int, int, str]] = []
        self._taken: set[str] | None = None
        self._numbers: Counter[str] = Counter()
        """The last number that was appended to a name."""

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


class Statement(InstructionSpans):
    """One instruction with its position in the text of a module."""

    def __init__(self, record: InstructionRecord, start: int, text: str, anchor: int) -> None:
        super().__init__(text, record)
        self.start = start
        """The start of its text, in characters of the module's text."""
        self.anchor = anchor
        """The start of the statement around it, if it is written into the operands of another."""
        self.end = start + len(text)

    @property
    def operands_start(self) -> int:
        """The start of its operands, in characters of the module's text."""
        return self.start + self.operands.start

    @property
    def tail_start(self) -> int:
        """The start of its attributes: after the parenthesis that closes the operands."""
        return self.start + self.close + 1

    def moved(self, span: Span) -> Span:
        """A span of the instruction's text, in characters of the module's text."""
        return Span(self.start + span.start, self.start + span.end)

    @property
    def is_nested(self) -> bool:
        """True if it is written into the operands of another, so that it has no name."""
        return self.anchor != self.start

    @property
    def sign(self) -> Span | None:
        """The `%` before its name, empty if there is none; None if it has no name."""
        name = None if self.is_nested else self.name
        if name is None:
            return None
        return self.moved(Span(name.start, name.start + self.text.startswith("%", name.start)))

    @property
    def percent(self) -> str:
        """The sign before its name: `%` or nothing."""
        return "%" if self.sign and self.sign.start < self.sign.end else ""

    def named_operands(self) -> Iterator[tuple[str, OperandSpan]]:
        """The references that are written as a name, and their spans in the module's text."""
        for reference, span in zip(references_of(self.record), self.operand_spans, strict=False):
            if span is not None:
                yield reference, OperandSpan(*(self.start + at for at in span))

    def values(self) -> dict[str, Span]:
        """The spans of the values of its attributes in the module's text."""
        return {name: self.moved(span) for name, span in self.attributes.items()}


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

    def mentioning(self, text: str) -> Iterator[Statement]:
        """Those with a text in their attributes, in the order of the text."""
        return self.where(lambda row: text in attributes_of(row))


def statements(module: Module) -> Iterator[tuple[Computation, Statements]]:
    """The instructions of each computation, in the order of the text."""
    for number, computation in enumerate(module.computations):
        yield computation, Statements(computation, module.offset(number))


@lru_cache(4096)
def tuple_elements(type_text: str) -> tuple[str, ...] | None:
    """The shapes of a tuple's elements as spelled; None if it is not a tuple.

    >>> tuple_elements("(f32[2]{0}, /*index=1*/(s32[], pred[]))")
    ('f32[2]{0}', '(s32[], pred[])')
    """
    if not (type_text.startswith("(") and type_text.endswith(")")):
        return None
    inner = type_text[1:-1]
    return tuple(inner[start:end] for start, end in split_at_commas(inner))


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
    breaks = _line_feeds(text, at)
    return breaks.end() if breaks else at


def head_of(computation: Computation) -> re.Match[str] | None:
    """`ENTRY %main`, with `%` and name as groups; None for a computation that has no head."""
    head = _head(computation.text)
    return head if head and head[2] == computation.name else None


def drop_attributes(editor: TextEditor, statement: Statement, dropped: set[str]) -> None:
    """Remove attributes with the commas before them."""
    text = editor.text
    places = statement.values()
    if "" in places:
        return  # they cannot be told apart
    ends = [statement.tail_start, *(end for _, end in places.values())]
    for name, (before, end) in zip(places, pairwise(ends), strict=True):
        if name in dropped:
            comma = text.index(",", before, end)
            editor.replace(comma, end, "")
