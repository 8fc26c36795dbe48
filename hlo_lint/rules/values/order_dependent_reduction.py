"""Reductions whose result depends on the order in which XLA takes the elements."""

from __future__ import annotations

from typing import Final

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
    """A reduction whose computation gives another result in another order.

    ## Why
    XLA takes the elements of a reduction in any order, and in parts: rows by several threads,
    vectors, devices. That is right for sums, products and maxima, which are associative. A
    difference, a quotient or a power of the two elements is not: the result changes with the
    backend, the shape and the number of devices, and a collective with such a computation is
    refused on a GPU (`MatchReductionComputation` in `xla/service/collective_ops_utils.cc`).
    """

    severity = Severity.WARNING
    opcodes = frozenset(_REDUCTIONS)
    examples = (
        Bad.module(_PROGRAM.format(step="subtract(a, b)", mark="  // error")),
        Good.module(_PROGRAM.format(step="add(a, b)", mark="")),
    )

    def check(self, module: Module) -> Findings:
        """Each such reduction."""
        by_name: dict[str, Computation] = {}
        for computation in module.computations:
            for opcode in _REDUCTIONS:
                for reduction in computation.with_opcode(opcode):
                    by_name = by_name or {called.name: called for called in module.computations}
                    name = next(iter(reduction.called_computations), "")
                    step = _ordered_step(by_name.get(name))
                    if step is not None:
                        yield Finding(
                            reduction,
                            f"this {opcode} applies %{name}, a {step.opcode}, in any order",
                        )


def _ordered_step(step: Computation | None) -> Instruction | None:
    """The operation of the two elements that is not associative; None where there is none."""
    root = None if step is None else step.root
    while root is not None and root.opcode in _HANDS_ON and root.operands:
        root = root.operands[0].instruction
    if root is None or root.opcode not in _ORDERED:
        return None
    numbers = {_parameter(operand.instruction) for operand in root.operands}
    return root if numbers == {0, 1} else None


def _parameter(value: Instruction | None) -> int | None:
    while value is not None and value.opcode in _HANDS_ON and value.operands:
        value = value.operands[0].instruction
    return None if value is None else value.parameter_number
