"""Integer sums in a type too narrow for the number of summands."""

from __future__ import annotations

from math import prod
from typing import Any

from hlo_lint.analysis.kinds import instructions_where
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.dtypes import integer_range, is_integer
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import TYPE, RowKind
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, WrongValues

_SUM = """
sum {{ ROOT s = {type}[] add({type}[] a, {type}[] b) }}
zero = {type}[] constant(0)
ROOT r = {type}[4] reduce({type}[4,1000] p, zero), dimensions={{1}}, to_apply=sum  // error
"""
_DOT = """
ROOT d = {type}[8,8] dot(s8[8,{size}] p, s8[{size},8] q), lhs_contracting_dims={{1}}, \
rhs_contracting_dims={{0}}  // error
"""


class AccumulatorTooNarrow(Rule):
    """An integer sum that overflows even if all summands are 1.

    ## Why
    A dot, a convolution or a reduction of integers accumulates in its result type. `jnp.dot` of
    int8 arrays returns int8, and so does a sum with `dtype=jnp.int8`: a sum of 1000 products wraps
    around at 127 again and again, and only the last eight bits remain, without an error. The same
    happens to counts of true elements. Request a wider result (`preferred_element_type=jnp.int32`,
    `dtype=jnp.int32`), and convert afterwards.
    """

    severity = Severity.WARNING
    mentions = ("s8[", "u8[", "s16[", "u16[", "s4[", "u4[", "s2[", "u2[")
    evidence = (WrongValues(),)
    examples = (
        Bad.entry(_SUM.format(type="u8")),
        Bad.entry(_DOT.format(size=512, type="s8")),
        Good.entry(_SUM.format(type="u16")),
        Good.entry(_DOT.format(size=512, type="s32")),
        Good.entry(_DOT.format(size=64, type="s8")),
    )

    def check(self, module: Module) -> Findings:
        """Sums with more summands than their type can count, including fusion bodies."""
        for opcode in ("convolution", "dot", "reduce", "reduce-window"):
            for instruction in instructions_where(module, opcode, _counts):
                shape = result_array(instruction)
                if shape is None or not is_integer(shape.dtype):
                    continue
                terms, largest = _terms(instruction, module), integer_range(shape.dtype)[-1]
                if terms > largest:
                    yield Finding(
                        instruction,
                        f"this {opcode} adds {terms} numbers for each element of its result, "
                        f"but the largest {shape.dtype} is {largest}",
                    )


def _counts(kind: RowKind) -> bool:
    """True if the result has integer elements."""
    return kind[TYPE].startswith(("s", "u"))


def _terms(instruction: Instruction, module: Module) -> int:
    """The number of summands per element of the result; 0 if the reducer is not an add."""
    array, result = operand_array(instruction, 0), result_array(instruction)
    if array is None or result is None or not result.elements:
        return 0
    if instruction.opcode == "dot":
        dimensions = instruction.dimensions_attribute("lhs_contracting_dims", array.rank) or ()
        return prod(array.dims[number] for number in dimensions)
    if instruction.opcode == "convolution":
        kernel, labels = operand_array(instruction, 1), instruction.attributes.get("dim_labels", "")
        features = labels.partition("_")[2].partition("->")[0].find("o")
        if kernel is None or not 0 <= features < len(kernel.dims) or not kernel.dims[features]:
            return 0
        return kernel.elements // kernel.dims[features]
    reducer = module.callee(instruction)
    if reducer is None or reducer.root is None or reducer.root.opcode != "add":
        return 0
    if instruction.opcode == "reduce":
        return array.elements // result.elements
    window: Any = instruction.attribute_or_none("window") or ()
    return prod(dimension.size for dimension in window)
