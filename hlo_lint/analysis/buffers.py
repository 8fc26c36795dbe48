"""The memory of values, and what a custom call declares of the memory it is given."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from hlo_lint.hlo.attributes import Alias
from hlo_lint.hlo.ir import Instruction, Operand
from hlo_lint.hlo.shape import ArrayShape, Index, array_indices, arrays
from hlo_lint.text.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from hlo_lint.dumps.artefacts.buffer_assignment import AssignedValue, BufferAssignment


@dataclass(frozen=True, slots=True)
class ResultArray:
    """One array that an instruction gives."""

    number: int
    """Counted over all arrays of the result, in order."""
    index: Index
    """The index in the tuple: `{1}`."""
    shape: ArrayShape

    def __str__(self) -> str:
        return "{" + ",".join(map(str, self.index)) + "}"


def results(instruction: Instruction) -> tuple[ResultArray, ...]:
    """The arrays of an instruction's result, tuples taken apart."""
    shape = instruction.shape_or_none
    placed = zip(array_indices(shape), arrays(shape), strict=True)
    return tuple(ResultArray(number, *array) for number, array in enumerate(placed))


def declared_aliases(instruction: Instruction) -> dict[Index, int]:
    """The operand whose memory each result takes: `output_to_operand_aliasing`.

    Parts of tuple operands are left out: no kernel call is handed a tuple.
    """
    declared = instruction.attribute_or_none("output_to_operand_aliasing")
    if not isinstance(declared, tuple):
        return {}
    return {
        alias.output_index: alias.operand
        for alias in declared
        if isinstance(alias, Alias) and not alias.operand_index
    }


def memory_of(
    buffers: BufferAssignment, instruction: Instruction | None, index: Index = ()
) -> tuple[AssignedValue, ...]:
    """The values, each with its memory, that a part of an instruction's result may be.

    Looks through what only renames: get-tuple-element, bitcast, tuple. Empty where the buffer
    assignment does not say.
    """
    for _ in range(256):
        if instruction is None:
            return ()
        values = buffers.values_of(instruction.name, index)
        if values or not instruction.operands:
            return values
        operand = instruction.operands[0]
        match instruction.opcode:
            case "get-tuple-element":
                number = instruction.attribute("index")
                if not isinstance(number, int):
                    return ()
                index = (*operand.index, number, *index)
            case "bitcast":
                index = operand.index
            case "tuple" if index and index[0] < len(instruction.operands):
                operand = instruction.operands[index[0]]
                index = (*operand.index, *index[1:])
            case _:
                return ()
        instruction = operand.instruction
    return ()


def operand_memory(
    buffers: BufferAssignment, instruction: Instruction, number: int
) -> tuple[AssignedValue, ...]:
    """The values, each with its memory, that an operand may be."""
    operand = instruction.operands[number]
    return memory_of(buffers, operand.instruction, operand.index)


def source_of(
    operand: Operand, renames: Collection[str] = ("get-tuple-element", "bitcast")
) -> Instruction | None:
    """The instruction that computes an operand: not one that only renames it."""
    at = operand.instruction
    for _ in range(256):
        if at is None or at.opcode not in renames or not at.operands:
            break
        at = at.operands[0].instruction
    return at
