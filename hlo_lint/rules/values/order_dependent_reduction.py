"""Reductions whose result depends on the order and the parts in which XLA takes the elements."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.constants import number_of
from hlo_lint.analysis.layout_mismatches import operand_array, result_array
from hlo_lint.analysis.verifier.batch import template_of
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_REDUCTIONS: Final = (
    "all-reduce",
    "all-reduce-start",
    "reduce",
    "reduce-scatter",
    "reduce-window",
)
_ORDERED: Final = frozenset("atan2 divide power remainder subtract".split())
MAX_WHOLE: Final = 32
"""Elements that no backend takes in parts: XLA:CPU takes 33 in two."""
_NEUTRAL: Final = {"add": 0.0, "multiply": 1.0}
"""The initial value of each operation that changes no result."""
_HANDS_ON: Final = frozenset({"bitcast", "convert", "copy"})
_PROGRAM = """
step {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] {step}
}}

ENTRY e {{
  p = f32[64] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[] reduce(p, zero), dimensions={{0}}, to_apply=step{mark}
}}
"""


class OrderDependentReduction(Rule):
    """A reduction that gives another result in another order, or in other parts.

    ## Why
    XLA takes the elements of a reduction in any order, and in parts: rows by several threads,
    vectors, devices. That is right for sums, products and maxima, which are associative. A
    difference, a quotient or a power of the two elements is not: the result changes with the
    backend, the shape and the number of devices, and a collective with such a computation is
    refused on a GPU (`MatchReductionComputation` in `xla/service/collective_ops_utils.cc`).

    Each part begins with the initial value. That has to be neutral: a sum that begins with 1 has
    one more for each part. XLA:CPU of jax 0.10.2 gives 103228 for the sum of 1 and 100000 ones, and
    XLA:GPU of jax 0.11.2 (tree-reduction-rewriter) 1001001 for that of 1 and a million. Up to 32
    elements are taken whole. Add the value to the result.
    """

    severity = Severity.WARNING
    opcodes = frozenset(_REDUCTIONS)
    examples = (
        Bad.module(_PROGRAM.format(step="subtract(a, b)", mark="  // error")),
        Bad.module(
            _PROGRAM.format(step="add(a, b)", mark="  // error").replace(
                *("constant(0)", "constant(1)")
            )
        ),
        Good.module(_PROGRAM.format(step="add(a, b)", mark="")),
        Good.module(_PROGRAM.format(step="maximum(a, b)", mark="")),
    )

    def check(self, module: Module) -> Findings:
        """Each such reduction."""
        steps: dict[object, Instruction | None] = {}
        for computation in module.computations:
            calls = calls_of(computation)
            for opcode in _REDUCTIONS if calls else ():
                for number in computation.positions(opcode):
                    name = next(iter(calls.get(number, ())), "")
                    callee = module.computation(name)
                    template = None if callee is None else template_of(callee) or callee
                    if template not in steps:
                        steps[template] = _step(callee)
                    step = steps[template]
                    if step is None:
                        continue
                    if step.opcode in _NEUTRAL:
                        reduction = computation.at(number)
                        yield from _counted_initial_value(reduction, step.opcode)
                    elif step.opcode in _ORDERED:
                        yield Finding(
                            computation.at(number),
                            f"this {opcode} applies %{name}, a {step.opcode}, in any order",
                        )


def _counted_initial_value(reduction: Instruction, opcode: str) -> Findings:
    """A constant that each part of a sum or product begins with, and that counts."""
    initial = reduction.producer(1) if len(reduction.operand_names) == 2 else None
    value = number_of(initial)
    if value is None:
        return
    absorbs = not isfinite(value) or (opcode == "multiply" and value == 0)
    if value != _NEUTRAL[opcode] and not absorbs and _reduced(reduction) > MAX_WHOLE:
        yield Finding(
            reduction,
            f"this {reduction.opcode} begins each part with {value:g}, which counts in the "
            f"{opcode} once for each",
            operand=1,
        )


def _reduced(reduction: Instruction) -> int:
    """The number of elements that one element of the result is made of."""
    before, after = operand_array(reduction, 0), result_array(reduction)
    if reduction.opcode != "reduce":
        window: Any = reduction.attribute_or_none("window") or ()
        return max((dimension.size for dimension in window), default=0)
    if before is None or after is None or not after.elements:
        return 0
    return before.elements // after.elements


def _step(step: Computation | None) -> Instruction | None:
    """The operation of the two elements; None where there is more than one."""
    root = None if step is None else step.root
    while root is not None and root.opcode in _HANDS_ON and root.operands:
        root = root.operands[0].instruction
    if root is None:
        return None
    numbers = {_parameter(operand.instruction) for operand in root.operands}
    return root if numbers == {0, 1} else None


def _parameter(value: Instruction | None) -> int | None:
    while value is not None and value.opcode in _HANDS_ON and value.operands:
        value = value.operands[0].instruction
    return None if value is None else value.parameter_number
