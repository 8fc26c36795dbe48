"""The instructions of many computations as columns, so that equal ones are checked once.

A module of a language model has hundreds of computations of three instructions, and thousands of
instructions that differ in nothing but their names. A column is made by `map` and `zip`, which run
without a Python frame.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import chain, repeat
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.layout_mismatches import name_in
from hlo_lint.analysis.shape_inference.shape_check import element_type
from hlo_lint.hlo.ir import Computation, cached_analysis
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    references_of,
    type_of,
)


class Batch:
    """Rows to check, of computations that have no name in common."""

    def __init__(self) -> None:
        self.rows: list[InstructionRecord] = []
        self.types: dict[str, str] = {}
        """The type of each instruction that a row may read, by name."""
        self.callees: dict[int, tuple[str, ...]] = {}
        """The names of the computations that a row calls."""
        self._starts: list[int] = []
        self._texts: dict[frozenset[str], str] = {}
        self._parts: list[tuple[Computation, Sequence[int]]] = []

    def add(self, computation: Computation, numbers: Sequence[int]) -> None:
        """Add instructions of a computation by their positions."""
        rows, index = computation.rows, computation.index
        start = len(self.rows)
        self._starts.append(start)
        self._parts.append((computation, numbers))
        calls = calls_of(computation)
        if len(numbers) == len(rows) == len(index):
            self.callees.update([(start + number, names) for number, names in calls.items()])
            self.rows += rows
            self.types.update(zip(index, map(type_of, rows), strict=True))
        else:
            if calls:
                self.callees.update(
                    [(at, calls[n]) for at, n in enumerate(numbers, start) if n in calls]
                )
            chosen = [rows[number] for number in numbers]
            self.rows += chosen
            names = {name_in(reference) for row in chosen for reference in references_of(row)}
            self.types.update([(name, type_of(rows[index[name]])) for name in names & index.keys()])
        for reference in order_of(computation).elements:
            name, _, element = reference.partition("#")
            if self.types.get(name):
                self.types[reference] = element_type(self.types[name], element)

    def place(self, at: int) -> tuple[Computation, int]:
        """The computation of a row, and its position there."""
        part = bisect_right(self._starts, at) - 1
        computation, numbers = self._parts[part]
        return computation, numbers[at - self._starts[part]]

    @cached_property
    def by_opcode(self) -> Mapping[str, Sequence[int]]:
        """The rows of each opcode."""
        groups: dict[str, list[int]] = defaultdict(list)
        for at, opcode in enumerate(map(opcode_of, self.rows)):
            groups[opcode].append(at)
        return groups

    def operand_types(
        self, rows: Sequence[InstructionRecord]
    ) -> Sequence[Iterable[str | tuple[str | None, ...] | None]]:
        """The types of the rows' operands in columns; None for one that is not defined.

        Rows of different lengths have one column, of tuples.
        """
        type_named = self.types.get
        references = list(map(references_of, rows))
        if len(set(map(len, references))) == 1:
            return [map(type_named, column) for column in zip(*references, strict=True)]
        return [[tuple(map(type_named, names)) for names in references]]

    @cached_property
    def facts(self) -> Sequence[str]:
        """The attributes of each row, as `facts` cuts them."""
        return facts_of(list(map(attributes_of, self.rows)))

    @cached_property
    def _distinct(self) -> Mapping[str, Set[str]]:
        """The distinct attributes of each opcode."""
        texts = self.facts
        return {opcode: {texts[at] for at in places} for opcode, places in self.by_opcode.items()}

    def with_word(self, opcode: str, word: str) -> Sequence[int]:
        """The rows of an opcode whose attributes hold a word."""
        holding = {text for text in self._distinct[opcode] if word in text}
        texts = self.facts
        return [at for at in self.by_opcode[opcode] if texts[at] in holding] if holding else ()

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


class Order(NamedTuple):
    """The order of the definitions and the uses in a computation."""

    is_sound: bool
    """True if names are unique, and if operands are defined above what reads them."""
    elements: Set[str]
    """The operands that are elements of tuples, as they are spelled: `call#1`."""


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
def order_of(computation: Computation) -> Order:
    """Read once whether operands come first: most checks of the structure need no more."""
    elements: set[str] = set()
    is_sound = len(computation.index) == len(computation.rows)
    defined: set[str] = set()
    are_above, define = defined.issuperset, defined.add
    for row in computation.rows:
        references = references_of(row)
        if not are_above(references):
            elements.update(name for name in references if "#" in name)
            is_sound = is_sound and are_above(map(name_in, references))
        define(name_of(row))
    return Order(is_sound, elements)


def batches(parts: Iterable[tuple[Computation, Sequence[int]]]) -> Iterator[Batch]:
    """The instructions to check of some computations, together as far as names allow."""
    batch = Batch()
    for computation, numbers in parts:
        if not order_of(computation).is_sound:
            alone = Batch()  # what it reads may be the name of something in another computation
            alone.add(computation, numbers)
            yield alone
            continue
        if not batch.types.keys().isdisjoint(computation.index):
            yield batch
            batch = Batch()
        batch.add(computation, numbers)
    yield batch


_METADATA: Final = ", metadata={"


def facts(attributes: str) -> str:
    """The attributes before metadata, if nothing that counts follows it."""
    head, _, after = attributes.partition(_METADATA)
    end = after.find("}, ")
    return head if end < 0 or after.startswith("backend_config=", end + 3) else attributes


def facts_of(attributes: Sequence[str]) -> Sequence[str]:
    """`facts` of many texts, most of which are cut without a Python frame."""
    parts = list(map(str.partition, attributes, repeat(_METADATA)))
    heads = [head for head, _, _ in parts]
    if any("}, " in after for _, _, after in parts):
        return list(map(facts, attributes))
    return heads
