"""Reductions whose result depends on the order and the parts in which XLA takes the elements."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from hlo_lint.analysis.buffers import renamed_source
from hlo_lint.analysis.calls import calls_of, holders
from hlo_lint.analysis.kinds import template_of
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.constants import number_of
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import operands_of, references_of
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
_NEUTRAL: Final = {"add": "0", "multiply": "1"}
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
_ARGMAX = """
argmax {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  greater = pred[] compare(a, b), direction=GT
  equal = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  first = pred[] and(equal, before)
  chosen = pred[] or(greater, first)
  v = f32[] select({test}, a, b)
  k = s32[] select({test}, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k)
}}

ENTRY e {{
  p = f32[64] parameter(0)
  n = s32[64] iota(), iota_dimension=0
  least = f32[] constant(-inf)
  zero = s32[] constant(0)
  ROOT r = (f32[], s32[]) reduce(p, n, least, zero), dimensions={{0}}, to_apply=argmax{mark}
}}
"""


class OrderDependentReduction(Rule):
    """A reduction that gives another result in another order, or in other parts.

    ## Why
    XLA takes the elements of a reduction in any order, and in parts: rows by several threads,
    vectors, devices. That is right for sums, products and maxima, which are associative. A
    difference, a quotient or a power of the two elements is not: the result changes with the
    backend, the shape and the number of devices, and a collective with such a computation is
    refused on a GPU (`MatchReductionComputation` in `xla/service/collective_ops_utils.cc`). The
    place of the greatest element is the same only if the reducer says which of two equal ones it
    takes: the smaller index, as `jnp.argmax` does.

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
        Bad.module(_ARGMAX.format(test="greater", mark="  // error")),
        Good.module(_ARGMAX.format(test="chosen", mark="")),
        Good.module(_PROGRAM.format(step="add(a, b)", mark="")),
        Good.module(_PROGRAM.format(step="maximum(a, b)", mark="")),
    )

    def check(self, module: Module) -> Findings:
        """Each such reduction."""
        templates: dict[object, str | None] = {}
        steps: dict[str, str | None] = {}
        for opcode in _REDUCTIONS:
            for computation in holders(module).get(opcode, ()):
                calls, rows, index = calls_of(computation), computation.rows, computation.index
                for number in computation.positions(opcode):
                    callees = calls.get(number)
                    name = callees[0] if callees else ""
                    if name not in steps:
                        callee = module.computation(name)
                        template = None if callee is None else template_of(callee) or callee
                        if template not in templates:
                            step = _step(callee)
                            templates[template] = None if step is None else step.opcode
                        steps[name] = templates[template]
                    applied = steps[name]
                    if applied is None:
                        continue
                    if applied in _NEUTRAL:
                        names = references_of(rows[number])
                        initial = index.get(names[1]) if len(names) == 2 else None
                        if initial is not None and operands_of(rows[initial]) != _NEUTRAL[applied]:
                            value = computation.at(initial)
                            yield from _counted(computation.at(number), value, applied)
                    elif applied == "tuple":
                        yield Finding(
                            computation.at(number),
                            f"this {opcode} keeps either of two equal values with what belongs to "
                            f"it: %{name} compares the values alone",
                            severity=Severity.INFO,  # harmless where no two are equal
                        )
                    elif applied in _ORDERED:
                        yield Finding(
                            computation.at(number),
                            f"this {opcode} applies %{name}, a {applied}, in any order",
                        )


def _counted(reduction: Instruction, initial: Instruction, opcode: str) -> Findings:
    """A constant that each part of a sum or product begins with, and that counts."""
    value = number_of(initial)
    if value is None:
        return
    absorbs = not isfinite(value) or (opcode == "multiply" and value == 0)
    if value != float(_NEUTRAL[opcode]) and not absorbs and _reduced(reduction) > MAX_WHOLE:
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
    """The operation of the two elements, or a choice between pairs; None of anything else."""
    root = _bare(None if step is None else step.root)
    if root is None or (root.opcode == "tuple" and not _leaves_ties(root)):
        return None
    if root.opcode == "tuple":
        return root
    numbers = {_parameter(operand.instruction) for operand in root.operands}
    return root if numbers == {0, 1} else None


def _leaves_ties(pair: Instruction) -> bool:
    """True if both results are chosen by nothing but a comparison of the first two elements."""
    choices = [operand.instruction for operand in pair.operands]
    if len(choices) < 2 or any(choice is None or choice.opcode != "select" for choice in choices):
        return False
    tests = {choice.producer() for choice in choices if choice is not None}
    test = tests.pop()
    if tests or test is None or test.opcode != "compare":
        return False
    compared = {_parameter(operand.instruction) for operand in test.operands}
    # XLA numbers the parameters of a reducer: all old elements, then all new ones.
    return compared == {0, len(choices)} and test.attributes.get("direction") not in ("EQ", "NE")


def _parameter(value: Instruction | None) -> int | None:
    source = _bare(value)
    return None if source is None else source.parameter_number


def _bare(value: Instruction | None) -> Instruction | None:
    return None if value is None else renamed_source(value, _HANDS_ON)
