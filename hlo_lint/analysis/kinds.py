"""The instructions of a module by kind: what is true of a kind is found once.

A module of a language model has hundreds of computations of three instructions, and thousands of
instructions that differ in nothing but their names and their metadata. A rule that asks for no
names looks at kinds first, and at instructions only where a kind concerns it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Final, TypeAlias, TypeVar

from hlo_lint.analysis.calls import calls_of, holders
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis, is_analyzed
from hlo_lint.hlo.ir.computation import shared_range
from hlo_lint.hlo.records import METADATA, attributes_before_metadata, name_in, type_of
from hlo_lint.hlo.shape import element_type
from hlo_lint.text.lazy_dataclasses import NamedTuple

_VerdictT = TypeVar("_VerdictT")

RowKind: TypeAlias = tuple[str, str, str, tuple[str | None, ...]]
"""All of an instruction but its name and metadata: opcode, type, attributes, and the types of its
operands, None for one that is not defined; of a constant the literal."""

Place: TypeAlias = tuple[Computation, int]
"""An instruction by its position in a computation."""


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


Template: TypeAlias = tuple[tuple[object, ...], ...]
"""A small computation without the names of its instructions, and without metadata."""

_MAX_TEMPLATE: Final = 32
"""Instructions up to which computations are compared: long ones are rarely equal, and to compare
them costs a part of what it costs to read them."""


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
        lines.append((root, type_text, opcode, read, attributes_before_metadata(attributes)))
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
    read: tuple[str | None, ...]
    for _, name, type_text, opcode, operands, attributes, references in computation.rows:
        head, _, metadata = attributes.partition(METADATA)
        if metadata and metadata.find("}") != len(metadata) - 1:  # more follows
            head = attributes_before_metadata(attributes)
        if len(references) == 1:  # of so many instructions that it takes a case of its own
            read = (types[references[0]],)
        elif references:
            read = tuple(map(type_of_operand, references))
        else:
            read = (operands,) if opcode == "constant" else ()
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
        kind_of.append(numbers[opcode, type_text, attributes_before_metadata(tail), read])
    return Reading(is_sound, list(numbers), kind_of)


def _type_of(reference: str, computation: Computation) -> str | None:
    """The type of an operand, also of an element of a tuple that is spelled `name#1`."""
    name, _, element = reference.partition("#")
    number = computation.index.get(name)
    if number is None:
        return None
    text = type_of(computation.rows[number])
    return element_type(text, element) if element and text else text


@cached_analysis
def kinds_of(module: Module) -> Mapping[str, Sequence[RowKind]]:
    """The different kinds of instructions of each opcode in a module."""
    readings = map(reading_of, different_computations(module))
    by_opcode: dict[str, list[RowKind]] = {}
    for kind in dict.fromkeys(chain.from_iterable([reading.kinds for reading in readings])):
        by_opcode.setdefault(kind[0], []).append(kind)
    return by_opcode


def instructions_where(
    module: Module, opcode: str, concerns: Callable[[RowKind], bool]
) -> Iterator[Instruction]:
    """The instructions of one opcode whose kind concerns a rule: mostly there are none."""
    kinds = set(filter(concerns, kinds_of(module).get(opcode, ())))
    if not kinds:
        return
    for computation in holders(module).get(opcode, ()):
        yield from instructions_in(computation, opcode, kinds.__contains__)


def instructions_in(
    computation: Computation, opcode: str, concerns: Callable[[RowKind], bool]
) -> Iterator[Instruction]:
    """The instructions of one opcode in a computation whose kind concerns a rule."""
    if opcode not in computation.opcodes:
        return
    _, kinds, kind_of = reading_of(computation)
    concerning = {at for at, kind in enumerate(kinds) if kind[0] == opcode and concerns(kind)}
    if concerning:
        for number in computation.positions(opcode):
            if kind_of[number] in concerning:
                yield computation.at(number)


def judged(
    module: Module, opcode: str, judge: Callable[[Instruction], _VerdictT | None]
) -> Iterator[tuple[Instruction, _VerdictT]]:
    """The instructions of one opcode with what `judge` says, which is asked once for each kind.

    It may look at type, attributes and the types of operands alone, and gives None where a rule has
    nothing to say.
    """
    verdicts: dict[RowKind, _VerdictT | None] = {}
    for computation in holders(module).get(opcode, ()):
        _, kinds, kind_of = reading_of(computation)
        for number in computation.positions(opcode):
            kind = kinds[kind_of[number]]
            if kind not in verdicts:
                verdicts[kind] = judge(computation.at(number))
            verdict = verdicts[kind]
            if verdict is not None:
                yield computation.at(number), verdict


@cached_analysis
def types_of(computation: Computation) -> frozenset[str]:
    """The types of its instructions as spelled, each once."""
    return frozenset(map(type_of, computation.rows))


@cached_analysis
def types_in(module: Module) -> frozenset[str]:
    """The types of all its instructions as spelled, each once."""
    if is_analyzed(module, kinds_of):
        return frozenset([kind[1] for kind in chain.from_iterable(kinds_of(module).values())])
    # Of most modules of a dump directory nobody asks more, and they share their computations.
    return frozenset().union(*map(types_of, module.computations))


@cached_analysis
def attributes_in(module: Module) -> frozenset[str]:
    """The attributes of all its instructions as spelled, each once and without metadata."""
    return frozenset([kind[2] for kind in chain.from_iterable(kinds_of(module).values())])
