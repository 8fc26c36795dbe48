"""The instructions of many computations as columns, so that equal ones are checked once.

A module of a language model has hundreds of computations of three instructions, and thousands of
instructions that differ in nothing but their names. A column is made by `map` and `zip`, which run
without a Python frame.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.layout_mismatches import name_in
from hlo_lint.analysis.shape_inference.shape_check import element_type
from hlo_lint.hlo.ir import Computation, cached_analysis
from hlo_lint.hlo.ir.computation import shared_range
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    opcode_of,
    references_of,
    type_of,
)


class Batch:
    """Rows to check, of some computations."""

    def __init__(self) -> None:
        self.rows: list[InstructionRecord] = []
        self.operands: list[OperandTypes] = []
        """The types of the operands of each row."""
        self.callees: dict[int, tuple[str, ...]] = {}
        """The names of the computations that a row calls."""
        self._starts: list[int] = []
        self._texts: dict[frozenset[str], str] = {}
        self._parts: list[tuple[Computation, Sequence[int]]] = []

    def add(self, computation: Computation, numbers: Sequence[int]) -> None:
        """Add instructions of a computation by their positions."""
        rows, operands = computation.rows, reading_of(computation).operands
        start = len(self.rows)
        self._starts.append(start)
        self._parts.append((computation, numbers))
        calls = calls_of(computation)
        if len(numbers) == len(rows):
            self.callees.update([(start + number, names) for number, names in calls.items()])
            self.rows += rows
            self.operands += operands
        else:
            self.callees.update(
                [(at, calls[n]) for at, n in enumerate(numbers, start) if n in calls]
            )
            self.rows += [rows[number] for number in numbers]
            self.operands += [operands[number] for number in numbers]

    def place(self, at: int) -> tuple[Computation, int]:
        """The computation of a row, and its position there."""
        part = bisect_right(self._starts, at) - 1
        computation, numbers = self._parts[part]
        return computation, numbers[at - self._starts[part]]

    @cached_property
    def by_opcode(self) -> Mapping[str, Sequence[int]]:
        """The rows of each opcode."""
        groups: dict[str, list[int]] = defaultdict(list)
        rows = self.rows
        for at, opcode in zip(shared_range(len(rows)), map(opcode_of, rows), strict=False):
            groups[opcode].append(at)
        return groups

    @cached_property
    def rows_of(self) -> Mapping[str, Sequence[InstructionRecord]]:
        """The same rows as records."""
        row_at = self.rows.__getitem__
        return {opcode: list(map(row_at, places)) for opcode, places in self.by_opcode.items()}

    def operands_of(self, opcode: str) -> Iterator[OperandTypes]:
        """The types of the operands of the rows of an opcode."""
        return map(self.operands.__getitem__, self.by_opcode[opcode])

    @cached_property
    def facts_of(self) -> Mapping[str, Sequence[str]]:
        """The attributes of the rows of each opcode, as `facts` cuts them."""
        by_opcode: dict[str, Sequence[str]] = {}
        one = dict[str, str]().setdefault  # equal ones are one object
        for opcode, rows in self.rows_of.items():
            tails = list(map(attributes_of, rows))
            cut = {tail: one(head := facts(tail), head) for tail in set(tails)}
            by_opcode[opcode] = list(map(cut.__getitem__, tails))
        return by_opcode

    @cached_property
    def _distinct(self) -> Mapping[str, Set[str]]:
        """The distinct attributes of each opcode."""
        return {opcode: set(texts) for opcode, texts in self.facts_of.items()}

    def with_word(self, opcode: str, word: str) -> Sequence[int]:
        """The rows of an opcode whose attributes hold a word."""
        holding = {text for text in self._distinct[opcode] if word in text}
        if not holding:
            return ()
        texts = zip(self.by_opcode[opcode], self.facts_of[opcode], strict=True)
        return [at for at, text in texts if text in holding]

    def with_attribute(self, word: str, other_than: frozenset[str] = frozenset()) -> Iterator[int]:
        """The rows whose attributes hold a word, those of some opcodes left out."""
        excluded = other_than.intersection(self.by_opcode)
        text = self._texts.get(excluded)
        if text is None:
            kept = [texts for opcode, texts in self._distinct.items() if opcode not in excluded]
            text = self._texts[excluded] = "\n".join(set().union(*kept))
        if word in text:
            places = [self.with_word(opcode, word) for opcode in self.by_opcode.keys() - excluded]
            yield from sorted(chain.from_iterable(places))


OperandTypes: TypeAlias = tuple[str | None, ...]
"""The types of an instruction's operands; None for one that is not defined."""


class Reading(NamedTuple):
    """The instructions that the names in a computation stand for."""

    is_sound: bool
    """True if names are unique, and if operands are defined above what reads them."""
    operands: Sequence[OperandTypes]
    """The types of the operands of each instruction: equal ones are one object."""


Template: TypeAlias = tuple[tuple[object, ...], ...]
"""A small computation without the names of its instructions, and without metadata."""

_MAX_TEMPLATE: Final = 8


@cached_analysis
def template_of(computation: Computation) -> Template | None:
    """Equal for computations that do the same: a module has a reducer for each reduction.

    None if it is long or calls others, or if its text has something besides its instructions.
    """
    rows, index = computation.rows, computation.index
    if len(rows) > _MAX_TEMPLATE or len(index) < len(rows) or computation.is_entry:
        return None
    if computation.parse_errors or computation.tail or computation.inline or computation.nested:
        return None
    if calls_of(computation):
        return None
    lines = []
    for root, _, type_text, opcode, operands, attributes, references in rows:
        if "control-predecessors" in attributes:
            return None
        read: object = tuple(map(index.get, references)) if references else operands
        lines.append((root, type_text, opcode, read, facts(attributes)))
    return tuple(lines)


@cached_analysis
def reading_of(computation: Computation) -> Reading:
    """Look each operand up once: most checks need no more of names than the types."""
    types: dict[str, str] = {}
    shared: dict[OperandTypes, OperandTypes] = {}
    operands, type_named, share = [], types.get, shared.setdefault
    for _, name, type_text, *_, references in computation.rows:
        read = tuple(map(type_named, references))
        operands.append(share(read, read))
        types[name] = type_text
    if len(types) == len(computation.rows) and not any(None in read for read in shared):
        return Reading(True, operands)
    del types, type_named, operands, shared, share  # as large as the names of the computation
    return _read_carefully(computation)


def _read_carefully(computation: Computation) -> Reading:
    """A computation with elements of tuples as operands, or with errors."""
    rows, index = computation.rows, computation.index
    is_sound = len(index) == len(rows)
    operands: list[OperandTypes] = []
    share = dict[OperandTypes, OperandTypes]().setdefault
    for at, row in enumerate(rows):
        names = map(name_in, references_of(row))
        is_sound = is_sound and all(index.get(name, at) < at for name in names)
        read = tuple([_type_of(reference, computation) for reference in references_of(row)])
        operands.append(share(read, read))
    return Reading(is_sound, operands)


def _type_of(reference: str, computation: Computation) -> str | None:
    """The type of an operand, also of an element of a tuple that is spelled `name#1`."""
    name, _, element = reference.partition("#")
    number = computation.index.get(name)
    if number is None:
        return None
    text = type_of(computation.rows[number])
    return element_type(text, element) if element and text else text


def facts(attributes: str) -> str:
    """The attributes before metadata, if nothing that counts follows it."""
    head, _, after = attributes.partition(", metadata={")
    end = after.find("}, ")
    return head if end < 0 or after.startswith("backend_config=", end + 3) else attributes
