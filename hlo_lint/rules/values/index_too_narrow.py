"""Indices whose type is too narrow for the indexed dimension."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from hlo_lint.analysis.kinds import instructions_where
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.constants import INDEX_MAPS
from hlo_lint.hlo.dtypes import integer_range, is_integer
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import OPERAND_TYPES, RowKind
from hlo_lint.hlo.opcodes import FIRST_INDEX
from hlo_lint.hlo.shape import ArrayShape, shape_or_none
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues


class IndexTooNarrow(Rule):
    """An index whose type cannot represent all positions of its dimension.

    ## Why
    An index of type `s8` reaches 127. Later elements of a longer dimension are never read or
    written, and arithmetic on the index wraps around: for an index of -5 into 1000 elements, `x[i]`
    in jax adds 1000 in `s8` and returns element 0 on XLA:CPU. Convert indices to `s32` before any
    arithmetic, and to `s64` for dimensions of more than 2^31 elements.
    """

    severity = Severity.WARNING
    opcodes = frozenset((*FIRST_INDEX, *INDEX_MAPS))
    evidence = (WrongValues(),)
    reports = "openxla/xla@90693a5034"
    examples = (
        Bad.entry("""
            ROOT d = f32[8] dynamic-slice(f32[1000] p, s8[] i), dynamic_slice_sizes={8}  // error
        """),
        Good.entry("ROOT d = f32[8] dynamic-slice(f32[1000] p, s16[] i), dynamic_slice_sizes={8}"),
    )

    def check(self, module: Module) -> Findings:
        """Instructions with an index that is too narrow, including fusion bodies."""
        for opcode in sorted(self.opcodes):
            for instruction in instructions_where(module, opcode, _may_be_narrow):
                for operand, size, taken in _indices(instruction):
                    index = operand_array(instruction, operand)
                    last = size if index is None else _last(index.dtype)
                    source = instruction.producer(operand)
                    if last < size - taken and source is not None and source.opcode != "constant":
                        dtype = "" if index is None else index.dtype
                        yield Finding(
                            instruction,
                            f"this {opcode} indexes a dimension of {size} elements with {dtype}, "
                            f"whose largest value is {last}",
                            operand=operand,
                        )
                        break  # one finding for an instruction


def _may_be_narrow(kind: RowKind) -> bool:
    """True if an operand's type cannot index some dimension of the first operand."""
    whole, *others = [shape_or_none(text or "") for text in kind[OPERAND_TYPES]] or [None]
    if not isinstance(whole, ArrayShape) or not whole.dims:
        return False
    arrays = [shape for shape in others if isinstance(shape, ArrayShape)]
    return any(_last(array.dtype) < max(whole.dims) for array in arrays)


def _last(dtype: str) -> float:
    """The largest value of an integer type; infinity for other types."""
    return integer_range(dtype)[-1] if is_integer(dtype) else inf


def _indices(instruction: Instruction) -> Iterator[tuple[int, int, int]]:
    """The operand number of each index, the size of its dimension, and the slice size there."""
    whole = operand_array(instruction, 0)
    if whole is None:
        return
    first = FIRST_INDEX.get(instruction.opcode)
    if first is None:
        dimensions = instruction.attribute_or_none(INDEX_MAPS[instruction.opcode])
        sizes = instruction.attribute_or_none("slice_sizes")
        for number in dimensions if isinstance(dimensions, tuple) else ():
            if isinstance(number, int) and number < len(whole.dims):
                taken = sizes[number] if isinstance(sizes, tuple) and number < len(sizes) else 1
                yield 1, whole.dims[number], taken if isinstance(taken, int) else 1
        return
    part = result_array(instruction) if first == 1 else operand_array(instruction, 1)
    if part is not None and len(part.dims) == len(whole.dims) == len(instruction.operands) - first:
        for number, (size, taken) in enumerate(zip(whole.dims, part.dims, strict=True)):
            yield first + number, size, taken
