"""A number for each structure: two graphs with the same number differ only in names.

An instruction's number follows from its opcode, its shape, its attributes by meaning, and the
numbers of its operands and callees; a computation's number follows from all its instructions.

A get-tuple-element counts as a way to read its operand, not as an instruction: some releases print
it (`%get-tuple-element.3`), some do not (`%call#1`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hlo_lint.analysis.buffers import element_taken
from hlo_lint.analysis.calls import named_computations
from hlo_lint.analysis.cycles import cycles_of
from hlo_lint.analysis.diff.normalize import (
    PROVENANCE,
    attributes,
    literal_meaning,
    meaning,
    shape_meaning,
    without_metadata,
)
from hlo_lint.analysis.value_numbering import UNKNOWN, ModuleNumbering
from hlo_lint.analysis.walks import operands_first
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS, NO_KERNEL
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    operands_of,
    references_of,
    root_mark_of,
    type_of,
)
from hlo_lint.text.source import whole_number

_MAX_NUMBERS: Final = 2_000_000
"""The number of structures above which they are dropped before the next comparison."""
_ELEMENT: Final = "get-tuple-element"


Read = tuple[int, tuple[int, ...]]
"""The position of an operand, and the index of the element that is read; `()` for all of it.

The position is -1 if the computation does not define the name.
"""


@dataclass(eq=False)
class Body:
    """A computation with its numbers and edges; lists have an entry for each row."""

    computation: Computation
    labels: list[int]
    """A number for each instruction's opcode, shape and attributes, without callees."""
    values: list[int]
    """A number for each instruction's label, operands and callees: its value."""
    reads: list[tuple[Read, ...]]
    """Operands, then control predecessors."""
    operands: list[int]
    """The number of the reads that are operands."""
    callees: Mapping[int, tuple[str, ...]]
    elements: frozenset[int]
    """Positions of get-tuple-elements that are read through."""
    root: int
    """Position; -1 if there are no instructions."""
    number: int
    """The hash of the computation without its schedule."""

    @cached_property
    def positions(self) -> list[int]:
        """The positions of all instructions that are not read through."""
        return [position for position in range(len(self.values)) if position not in self.elements]

    @cached_property
    def schedule(self) -> tuple[int, ...]:
        """The value numbers of instructions that become kernels, in the order of the text."""
        rows = self.computation.rows
        return tuple(
            self.values[position]
            for position in self.positions
            if opcode_of(rows[position]) not in NO_KERNEL
        )


@dataclass(eq=False)
class Structure:
    """A module with the numbers of its computations and its header."""

    module: Module
    bodies: dict[str, Body]
    """By name, in the order of the text; the first computation if a name repeats."""
    header: dict[str, Hashable]
    """The values of the header's attributes."""
    number: int
    """Modules with the same number differ only in names."""


class Structures(ModuleNumbering[Body]):
    """The structures of modules; equal structures have equal numbers in all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._labels: dict[tuple[str, ...], int] = {}
        self._labels_of: dict[Computation, list[int]] = {}

    def keep(self, modules: Iterable[Module]) -> None:
        """Forget computations of other modules, to bound memory over a run with many dumps.

        Structures from before this call must not be compared with later ones.
        """
        if len(self._numbers) > _MAX_NUMBERS:
            for memo in (self._numbers, self._labels, self._computations, self._labels_of):
                memo.clear()
            return
        needed = {computation for module in modules for computation in module.computations}
        for cache in (self._computations, self._labels_of):
            for computation in cache.keys() - needed:
                del cache[computation]

    def of(self, module: Module) -> Structure:
        """The structure of a module; computations shared with earlier modules are reused."""
        bodies = self.computations(module)
        header = _header(module)
        return Structure(module, bodies, header, self._whole(module, bodies, header))

    def _whole(self, module: Module, bodies: dict[str, Body], header: dict[str, Hashable]) -> int:
        entry = module.entry
        scheduled = module.is_scheduled
        fused = module.fusion_computations if scheduled else frozenset()
        # A multiset: neither the order of computations matters, nor the choice between equal ones.
        # In a fusion the order of instructions is not a schedule.
        counted = Counter(
            (body.number, self.number(body.schedule) if scheduled and name not in fused else -1)
            for name, body in bodies.items()
        )
        result = bodies[entry.name].number if entry is not None else -1
        cyclic = module.text if cycles_of(module) else ""  # numbers do not cover cycles
        fields = tuple(header.items())
        return self.number(("module", fields, result, frozenset(counted.items()), cyclic))

    def _numbered(
        self, computation: Computation, callees: Mapping[int, tuple[int, ...]], module: Module
    ) -> Body:
        labels = self._labels_of.get(computation)
        rows = computation.rows
        if labels is None:
            labels = self._labels_of[computation] = [*map(self._label, rows)]
        root = computation.root
        reads, operands, elements = _reads(computation)
        values = [UNKNOWN] * len(rows)
        for number in _order(reads):
            if number not in elements:
                inputs = [
                    (values[position] if position >= 0 else UNKNOWN, path)
                    for position, path in reads[number]
                ]
                split = operands[number]
                key = labels[number], callees.get(number, ()), tuple(inputs[:split])
                # Control predecessors are a set: their order means nothing.
                controlled = tuple(sorted(inputs[split:]))
                values[number] = self.number((*key, controlled) if controlled else key)
        # All values count, not only those that the root needs: side effects and dead code differ,
        # too. Their order does not: only a schedule gives it a meaning.
        kept = sorted(value for number, value in enumerate(values) if number not in elements)
        at_root = -1 if root is None else root.number
        result = values[at_root] if at_root >= 0 else -1
        whole = self.number(("computation", computation.thread, result, tuple(kept)))
        called = named_computations(computation)
        return Body(computation, labels, values, reads, operands, called, elements, at_root, whole)

    def _label(self, row: InstructionRecord) -> int:
        opcode, bare = opcode_of(row), without_metadata(attributes_of(row))
        key = (type_of(row), opcode, bare, operands_of(row) if opcode in LITERAL_OPERANDS else "")
        label = self._labels.get(key)
        if label is None:
            meaning = (shape_meaning(key[0]), opcode, attributes(bare), literal_meaning(key[3]))
            label = self._labels[key] = self.number(meaning)
        return label


def _header(module: Module) -> dict[str, Hashable]:
    """The values of the header's attributes, without the module's origin."""
    header = {
        name: meaning(name, text)
        for name, text in sorted(module.attributes.items())
        if name not in PROVENANCE
    }
    if "entry_computation_layout" not in header and module.entry is not None:
        header["entry_computation_layout"] = _entry_layout(module.entry)
    return {name: value for name, value in header.items() if value is not None}


def _entry_layout(entry: Computation) -> Hashable:
    """The default without the attribute: the shapes of parameters and root."""
    root = entry.root
    shapes = [parameter.type_text for parameter in entry.parameters]
    if root is None or not all([*shapes, root.type_text]):
        return None
    return tuple(map(shape_meaning, shapes)), shape_meaning(root.type_text)


def _reads(computation: Computation) -> tuple[list[tuple[Read, ...]], list[int], frozenset[int]]:
    """The reads of each row, the number that are operands, and rows that are read through."""
    rows, index = computation.rows, computation.index
    places: dict[str, Read] = {name: (number, ()) for name, number in index.items()}
    through: set[int] = set()
    for number, row in enumerate(rows):
        if opcode_of(row) == _ELEMENT and len(references_of(row)) == 1 and not root_mark_of(row):
            element = element_taken(computation, number)
            position, path = _place(references_of(row)[0], places)
            # Elements are read through: not all releases print them as instructions.
            if element is not None and 0 <= position < number and index[name_of(row)] == number:
                places[name_of(row)] = (position, (*path, element))
                through.add(number)
    reads: list[tuple[Read, ...]] = []
    operands: list[int] = []
    for row in rows:
        references = references_of(row)
        operands.append(len(references))
        references += control_predecessors(attributes_of(row))
        reads.append(tuple([places.get(name) or _place(name, places) for name in references]))
    return reads, operands, frozenset(through)


def _place(reference: str, places: dict[str, Read]) -> Read:
    """The place of a reference like `call#1`, cached."""
    place = places.get(reference)
    if place is None:
        name, *elements = reference.split("#")
        position, path = places.get(name, (-1, ()))
        numbers = map(whole_number, elements)
        path += tuple(number for number in numbers if number is not None)
        place = places[reference] = position, path
    return place


def _order(reads: Sequence[Sequence[Read]]) -> Sequence[int]:
    """The positions, operands before users as far as possible."""
    # The usual case: XLA prints operands before their users.
    if all(position < number for number, read in enumerate(reads) for position, _ in read):
        return range(len(reads))
    return operands_first(
        range(len(reads)),
        lambda number: [position for position, _ in reads[number] if position >= 0],
    )
