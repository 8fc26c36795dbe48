"""The instructions of a computation by kind: their fields without name or metadata."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.hlo.ir import Computation, cached_analysis
from hlo_lint.hlo.ir.computation import shared_range
from hlo_lint.hlo.records import attributes_before_metadata, name_in, references_of, type_of
from hlo_lint.hlo.shape import element_type

RowKind: TypeAlias = tuple[str, str, str, tuple[str | None, ...]]
"""An instruction without its name and metadata: opcode, type, attributes, and the types of its
operands, None for an undefined operand; for a constant, the literal."""
OPCODE: Final = 0
TYPE: Final = 1
ATTRIBUTES: Final = 2
OPERAND_TYPES: Final = 3
"""Places in a `RowKind`."""


class Reading(NamedTuple):
    """The instructions of a computation by kind."""

    is_sound: bool
    """True if names are unique, and operands are defined above their users."""
    kinds: Sequence[RowKind]
    kind_of: Sequence[int]
    """The number of the kind of each instruction."""

    def examples(self) -> Mapping[int, int]:
        """The position of an instruction of each kind."""
        return dict(zip(self.kind_of, shared_range(len(self.kind_of)), strict=False))


@cached_analysis
def reading_of(computation: Computation) -> Reading:
    """The instructions by kind: each row is read once, and most checks look only at kinds."""
    types = _Types()
    # A new kind gets the next number: the loop runs for each row of a module.
    numbers: defaultdict[RowKind, int] = defaultdict(count().__next__)
    kind_of: list[int] = []
    type_of_operand, number_of, add = types.__getitem__, numbers.__getitem__, kind_of.append
    read: tuple[str | None, ...]
    for _, name, type_text, opcode, operands, attributes, references in computation.rows:
        head = attributes_before_metadata(attributes) if attributes else ""
        if not references:
            read = (operands,) if opcode == "constant" else ()
        elif len(references) == 1:  # so frequent that a special case pays
            read = (types[references[0]],)
        elif len(references) == 2:
            left, right = references
            read = types[left], types[right]
        else:
            read = tuple(map(type_of_operand, references))
        add(number_of((opcode, type_text, head, read)))
        types[name] = type_text
    is_sound = len(types) == len(computation.rows) and not any(
        None in kind[OPERAND_TYPES] for kind in numbers
    )
    return Reading(True, list(numbers), kind_of) if is_sound else _read_carefully(computation)


class _Types(dict[str, str]):
    """The types of the instructions above, by name; types of elements are computed on demand."""

    def __missing__(self, reference: str) -> str | None:
        name, _, element = reference.partition("#")
        text = self.get(name)
        return element_type(text, element) if element and text else None


def _read_carefully(computation: Computation) -> Reading:
    """The kinds of a computation with repeated names, or with operands not defined above."""
    index = computation.index
    is_sound = len(index) == len(computation.rows)
    numbers: defaultdict[RowKind, int] = defaultdict(count().__next__)
    kind_of: list[int] = []
    for number, row in enumerate(computation.rows):
        names = map(name_in, references_of(row))
        is_sound = is_sound and all(index.get(name, number) < number for name in names)
        kind_of.append(numbers[kind_at(computation, number)])
    return Reading(is_sound, list(numbers), kind_of)


def kind_at(computation: Computation, number: int) -> RowKind:
    """The kind of the instruction at a position; for a few, faster than `reading_of`."""
    _, _, type_text, opcode, operands, tail, references = computation.rows[number]
    read: tuple[str | None, ...] = (operands,)
    if opcode != "constant":
        read = tuple([_type_of(reference, computation) for reference in references])
    return opcode, type_text, attributes_before_metadata(tail), read


def _type_of(reference: str, computation: Computation) -> str | None:
    """The type of an operand, or of an element of a tuple, `name#1`."""
    name, _, element = reference.partition("#")
    number = computation.index.get(name)
    if number is None:
        return None
    text = type_of(computation.rows[number])
    return element_type(text, element) if element and text else text


@cached_analysis
def types_of(computation: Computation) -> frozenset[str]:
    """The distinct types of its instructions, as spelled."""
    return frozenset(map(type_of, computation.rows))
