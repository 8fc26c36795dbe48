"""Results that share memory: by declared aliases, by donation, by being handed on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hlo_lint.analysis.walks import chain
from hlo_lint.hlo.attributes.plain import Alias, Donor
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand
from hlo_lint.hlo.records import attributes_of, opcode_of, references_of
from hlo_lint.hlo.shape import ArrayShape, Index, array_indices, arrays, spelled_index
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from hlo_lint.dumps.artefacts.buffer_assignment import AssignedValue, BufferAssignment


ResultPart: TypeAlias = tuple[Instruction, Index]

NumberedPart: TypeAlias = tuple[int, Index]
"""A part of the result of an instruction, given by its number in a known computation."""

_ELEMENT = late(r", index=(\d{1,9})(?:,|\Z)")
"""The attributes of nearly all get-tuple-elements."""


def input_output_aliases(module: Module) -> tuple[Alias, ...]:
    """The results that alias parameters, by `input_output_alias` of the header."""
    value = module.attribute_or_none("input_output_alias")
    entries = value if isinstance(value, tuple) else ()
    return tuple(entry for entry in entries if isinstance(entry, Alias))


def donated_parts(module: Module) -> frozenset[tuple[int, Index]] | None:
    """The parts of parameters that the caller donates; None if the header is unreadable."""
    given: set[tuple[int, Index]] = set()
    for name in ("input_output_alias", "buffer_donor"):
        if name not in module.attributes:
            continue
        pairs = module.attribute_or_none(name)
        if pairs is None:
            return None
        for pair in pairs if isinstance(pairs, tuple) else ():
            if isinstance(pair, Alias):
                given.add((pair.operand, pair.operand_index))
            elif isinstance(pair, Donor):
                given.add((pair.parameter, pair.shape_index))
            else:
                return None
    return frozenset(given)


@dataclass(frozen=True, slots=True)
class ResultArray:
    """An array in an instruction's result."""

    number: int
    """Its number among all arrays of the result, in order."""
    index: Index
    """The index in the tuple: `{1}`."""
    shape: ArrayShape

    def __str__(self) -> str:
        return spelled_index(self.index)


def results(instruction: Instruction) -> tuple[ResultArray, ...]:
    """The arrays of an instruction's result, with tuples flattened."""
    shape = instruction.shape_or_none
    placed = zip(array_indices(shape), arrays(shape), strict=True)
    return tuple(ResultArray(number, *array) for number, array in enumerate(placed))


def declared_aliases(instruction: Instruction) -> dict[Index, int]:
    """The operand whose memory each result takes: `output_to_operand_aliasing`.

    Parts of tuple operands are left out: kernel calls do not take tuples.
    """
    declared = instruction.attribute_or_none("output_to_operand_aliasing")
    if not isinstance(declared, tuple):
        return {}
    return {
        alias.output_index: alias.operand
        for alias in declared
        if isinstance(alias, Alias)
        and not alias.operand_index
        and 0 <= alias.operand < len(instruction.operand_names)
    }


def memory_of(
    buffers: BufferAssignment, instruction: Instruction | None, index: Index
) -> tuple[AssignedValue, ...]:
    """The values, each with its memory, that a part of an instruction's result may be.

    Looks through get-tuple-element, bitcast and tuple. Empty if the buffer assignment does not list
    the value.
    """
    for source, part_of in () if instruction is None else origins(instruction, index, ("bitcast",)):
        if values := buffers.values_of(source.name, part_of):
            return values
    return ()


def operand_memory(
    buffers: BufferAssignment, instruction: Instruction, number: int
) -> tuple[AssignedValue, ...]:
    """The values, each with its memory, that an operand may be."""
    operand = instruction.operands[number]
    return memory_of(buffers, operand.instruction, operand.shape_index)


def source_of(
    operand: Operand | None, renames: Collection[str] = ("get-tuple-element", "bitcast")
) -> Instruction | None:
    """The instruction that computes an operand, behind instructions that only rename it."""
    source = None if operand is None else operand.instruction
    return None if source is None else renamed_source(source, renames)


def renamed_source(instruction: Instruction, renames: Collection[str]) -> Instruction | None:
    """The instruction that computes a renamed value; None if the text does not define it."""
    for source in chain(instruction, Instruction.producer):
        if source.opcode not in renames or not source.operand_names:
            return source
    return None


def origins(
    instruction: Instruction, index: Index, renames: Collection[str]
) -> Iterator[ResultPart]:
    """The parts that hold the same value, from a part of a result back to its computation."""
    return chain((instruction, index), lambda place: handed_on(*place, renames))


def operand_position(instruction: Instruction, number: int, index: Index) -> ResultPart | None:
    """The position of part `index` of operand `number`; None if the operand is undefined."""
    computation = instruction.computation
    return _position(computation, operand_place(computation, instruction.number, number, index))


def handed_on(
    instruction: Instruction, index: Index, renames: Collection[str]
) -> ResultPart | None:
    """The position that a part of a result comes from unchanged; None if it is computed.

    Looks through tuples, their elements, and operations in `renames`, which pass on operand 0.
    """
    computation = instruction.computation
    return _position(computation, handed_on_place(computation, instruction.number, index, renames))


def _position(computation: Computation, place: NumberedPart | None) -> ResultPart | None:
    return None if place is None else (computation.at(place[0]), place[1])


def operand_place(
    computation: Computation, position: int, number: int, index: Index
) -> NumberedPart | None:
    """`operand_position` by numbers."""
    references = references_of(computation.rows[position])
    if not 0 <= number < len(references):
        return None
    name, *elements = references[number].split("#")
    source = computation.index.get(name)
    if source is None:
        return None
    return source, ((*map(int, elements), *index) if elements else index)


def handed_on_place(
    computation: Computation, position: int, index: Index, renames: Collection[str]
) -> NumberedPart | None:
    """`handed_on` by numbers."""
    opcode = opcode_of(computation.rows[position])
    if opcode == "get-tuple-element":
        number = element_taken(computation, position)
        return None if number is None else operand_place(computation, position, 0, (number, *index))
    if opcode == "tuple":
        return operand_place(computation, position, index[0], index[1:]) if index else None
    return operand_place(computation, position, 0, index) if opcode in renames else None


def element_taken(computation: Computation, position: int) -> int | None:
    """The index of a get-tuple-element; None if it is unreadable."""
    printed = _ELEMENT.match(attributes_of(computation.rows[position]))
    return int(printed[1]) if printed else computation.at(position).tuple_index
