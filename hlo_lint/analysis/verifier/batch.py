"""The instructions of many computations by kind, so that equal ones are checked once.

A module of a language model has hundreds of computations of three instructions, and thousands of
instructions that differ in nothing but their names and their metadata. What is true of a kind is
found once, however many rows are of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.shape_inference.shape_check import METADATA, element_type, facts
from hlo_lint.hlo.ir import Computation, Module, cached_analysis
from hlo_lint.hlo.ir.computation import shared_range
from hlo_lint.hlo.records import InstructionRecord, name_in, type_of

RowKind: TypeAlias = tuple[str, str, str, tuple[str | None, ...]]
"""All of an instruction but its name and metadata: opcode, type, attributes, and the types of its
operands, None for one that is not defined; of a constant the literal."""


class Reading(NamedTuple):
    """The instructions of a computation by kind, and what its names stand for."""

    is_sound: bool
    """True if names are unique, and if operands are defined above what reads them."""
    kinds: Sequence[RowKind]
    """The different ones."""
    kind_of: Sequence[int]
    """The number of the kind of each instruction."""

    def examples(self) -> Mapping[int, int]:
        """The position of an instruction of each kind."""
        return dict(zip(self.kind_of, shared_range(len(self.kind_of)), strict=False))


class Batch:
    """Rows to check, of some computations."""

    def __init__(self) -> None:
        self.kinds: dict[str, dict[RowKind, int]] = {}
        """The kinds of each opcode, and a row of each."""
        self._starts: list[int] = []
        self._parts: list[tuple[Computation, Sequence[int]]] = []
        self._holders: dict[str, list[int]] = defaultdict(list)
        """The parts that hold an opcode."""
        self._size = 0

    def add(self, computation: Computation, numbers: Sequence[int]) -> None:
        """Add instructions of a computation by their positions."""
        _, kinds, kind_of = reading = reading_of(computation)
        start = self._size
        for opcode in computation.opcodes:
            self._holders[opcode].append(len(self._parts))
        self._starts.append(start)
        self._parts.append((computation, numbers))
        self._size += len(numbers)
        if len(numbers) == len(kind_of):
            examples = reading.examples()
        else:
            examples = {kind_of[number]: at for at, number in enumerate(numbers)}
        for kind, at in examples.items():
            row_kind = kinds[kind]
            self.kinds.setdefault(row_kind[0], {}).setdefault(row_kind, start + at)

    def place(self, at: int) -> tuple[Computation, int]:
        """The computation of a row, and its position there."""
        part = bisect_right(self._starts, at) - 1
        computation, numbers = self._parts[part]
        return computation, numbers[at - self._starts[part]]

    def row(self, at: int) -> InstructionRecord:
        """A row as a record."""
        computation, number = self.place(at)
        return computation.rows[number]

    def callees(self, at: int) -> tuple[str, ...]:
        """The names of the computations that a row calls."""
        computation, number = self.place(at)
        return calls_of(computation).get(number, ())

    def of_kinds(self, kinds: Iterable[RowKind]) -> list[int]:
        """The rows of some kinds."""
        by_opcode: dict[str, set[RowKind]] = {}
        for kind in kinds:
            by_opcode.setdefault(kind[0], set()).add(kind)
        places: list[int] = []
        for opcode, wanted in by_opcode.items():
            for part in self._holders[opcode]:
                start, (computation, numbers) = self._starts[part], self._parts[part]
                _, held, kind_of = reading_of(computation)
                positions = computation.positions(opcode)
                chosen = [number for number in positions if held[kind_of[number]] in wanted]
                if len(numbers) < len(kind_of):
                    among = set(chosen)
                    chosen = [at for at, number in enumerate(numbers) if number in among]
                places += [start + number for number in chosen]
        places.sort()
        return places

    @cached_property
    def _by_attributes(self) -> Mapping[str, list[RowKind]]:
        """The kinds with the same attributes."""
        groups: dict[str, list[RowKind]] = defaultdict(list)
        for kinds in self.kinds.values():
            for kind in kinds:
                groups[kind[2]].append(kind)
        return groups

    @cached_property
    def _attributes(self) -> str:
        """The attributes of all kinds: most hold no word that a check asks for."""
        return "\n".join(self._by_attributes)

    def with_attribute(self, word: str, other_than: frozenset[str] = frozenset()) -> list[int]:
        """The rows whose attributes hold a word, those of some opcodes left out."""
        if word not in self._attributes:
            return []
        holding = [kinds for text, kinds in self._by_attributes.items() if word in text]
        return self.of_kinds(
            {kind for kinds in holding for kind in kinds if kind[0] not in other_than}
        )


Template: TypeAlias = tuple[tuple[object, ...], ...]
"""A small computation without the names of its instructions, and without metadata."""

_MAX_TEMPLATE: Final = 8


@cached_analysis
def template_of(computation: Computation) -> Template | None:
    """Equal for computations that do the same: a module has a reducer for each reduction.

    None if it is long or calls others, or if its text has something besides its instructions.
    """
    rows = computation.rows
    if len(rows) > _MAX_TEMPLATE or computation.is_entry:
        return None
    index = computation.index
    if len(index) < len(rows):
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
def different_computations(module: Module) -> tuple[Computation, ...]:
    """The computations of a module; of small ones that do the same the first."""
    first: dict[object, Computation] = {}
    for computation in module.computations:
        first.setdefault(template_of(computation) or computation, computation)
    return tuple(first.values())


@cached_analysis
def reading_of(computation: Computation) -> Reading:
    """The instructions by kind: each row is looked at once, and most checks look at kinds alone."""
    types = _Types()
    # A new kind gets the next number: the loop runs for each row of a module.
    numbers: defaultdict[RowKind, int] = defaultdict(count().__next__)
    kind_of: list[int] = []
    type_of_operand, number_of, add = types.__getitem__, numbers.__getitem__, kind_of.append
    for _, name, type_text, opcode, operands, attributes, references in computation.rows:
        head, _, metadata = attributes.partition(METADATA)
        if metadata.find("}") != len(metadata) - 1:  # more follows; both are -1 without metadata
            head = facts(attributes)
        read: tuple[str | None, ...] = ()
        if references:
            read = tuple(map(type_of_operand, references))
        elif opcode == "constant":
            read = (operands,)
        add(number_of((opcode, type_text, head, read)))
        types[name] = type_text
    is_sound = len(types) == len(computation.rows) and not any(None in kind[3] for kind in numbers)
    return Reading(True, list(numbers), kind_of) if is_sound else _read_carefully(computation)


class _Types(dict[str, str]):
    """The types of the instructions above, by name, and of their elements, which are not kept."""

    def __missing__(self, reference: str) -> str | None:
        name, _, element = reference.partition("#")
        text = self.get(name)
        return element_type(text, element) if element and text else None


def _read_carefully(computation: Computation) -> Reading:
    """A computation with errors: names that are not unique, or operands that are not above."""
    index = computation.index
    is_sound = len(index) == len(computation.rows)
    numbers: defaultdict[RowKind, int] = defaultdict(count().__next__)
    kind_of: list[int] = []
    for at, (_, _, type_text, opcode, operands, tail, references) in enumerate(computation.rows):
        is_sound = is_sound and all(index.get(name, at) < at for name in map(name_in, references))
        read = tuple([_type_of(reference, computation) for reference in references])
        if opcode == "constant":
            read = (operands,)
        kind_of.append(numbers[opcode, type_text, facts(tail), read])
    return Reading(is_sound, list(numbers), kind_of)


def _type_of(reference: str, computation: Computation) -> str | None:
    """The type of an operand, also of an element of a tuple that is spelled `name#1`."""
    name, _, element = reference.partition("#")
    number = computation.index.get(name)
    if number is None:
        return None
    text = type_of(computation.rows[number])
    return element_type(text, element) if element and text else text
