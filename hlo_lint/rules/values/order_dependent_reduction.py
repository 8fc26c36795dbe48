"""Reductions whose result depends on the order or grouping of elements."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final, NamedTuple

from hlo_lint.analysis.buffers import renamed_source
from hlo_lint.analysis.calls import calls_of, holders
from hlo_lint.analysis.kinds import template_of
from hlo_lint.analysis.side_effects import has_effect
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.constants import number_of
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import SAME_NUMBERS, SYMMETRIC
from hlo_lint.hlo.records import opcode_of, operands_of, references_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import WrongValues
from hlo_lint.text.phrases import an

_REDUCTIONS: Final = ("all-reduce", "all-reduce-start", "reduce", "reduce-scatter", "reduce-window")
_COLLECTIVES: Final = ("all-reduce", "reduce-scatter")
_OF_COLLECTIVES: Final = frozenset("add and maximum minimum multiply or".split())
"""The operations that `MatchReductionComputation` knows."""
_INLINED: Final = frozenset({"call", "fusion", "tuple"})
_ORDERED: Final = frozenset("atan2 divide power remainder subtract".split())
MAX_WHOLE: Final = 32
"""The largest number of elements that no backend splits: XLA:CPU splits 33."""
_NEUTRAL: Final = {"add": "0", "multiply": "1"}
"""The neutral initial value of each operation."""
_REDUCE = """
step {{ ROOT s = f32[] {operation}(f32[] a, f32[] b) }}
start = f32[] constant({start})
ROOT r = f32[] reduce(f32[64] p, start), dimensions={{0}}, to_apply=step  // error
"""
_ARGMAX = """
best {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  is_greater = pred[] compare(a, b), direction=GT
  is_equal = pred[] compare(a, b), direction=EQ
  is_before = pred[] compare(i, j), direction=LT
  is_first = pred[] and(is_equal, is_before)
  is_first_greatest = pred[] or(is_greater, is_first)
  v = f32[] select({condition}, a, b)
  k = s32[] select({condition}, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k)
}}
n = s32[64] iota(), iota_dimension=0
least = f32[] constant(-inf)
zero = s32[] constant(0)
ROOT r = (f32[], s32[]) reduce(f32[64] p, n, least, zero), dimensions={{0}}, to_apply=best  // error
"""


class OrderDependentReduction(Rule):
    """A reduction whose result depends on the order or grouping of elements.

    ## Why
    XLA reduces elements in any order and in parts: by threads, vectors and devices. That is right
    for sums, products and maxima, which are associative. Differences, quotients and powers are not:
    the result changes with the backend, the shape and the number of devices, and a GPU rejects
    collectives with such a reducer (`MatchReductionComputation` in
    `xla/service/collective_ops_utils.cc`). An argmax is well defined only if the reducer breaks
    ties, by the smaller index as in `jnp.argmax`. A reducer with a side effect, such as an outfeed,
    has it an unknown number of times.

    Each part starts with the initial value, so it must be neutral: a sum with the initial value 1
    is too large by 1 for each additional part. XLA:CPU of jax 0.10.2 returns 103228 for the sum of
    1 and 100000 ones, and XLA:GPU of jax 0.11.2 (tree-reduction-rewriter) 1001001 for 1 and a
    million. Up to 32 elements are never split. Add the value to the result instead.
    """

    messages = (
        "all_reduce_thunk.cc: reduction_kind.has_value()",
        "Unsupported reduction computation",
    )
    severity = Severity.WARNING
    opcodes = frozenset(_REDUCTIONS)
    evidence = (WrongValues(2),)
    reports = "openxla/xla#47383, openxla/xla#47374"
    examples = (
        Bad.entry(_REDUCE.format(operation="subtract", start=0)),
        Bad.entry(_REDUCE.format(operation="add", start=1)),
        Bad.entry(_ARGMAX.format(condition="is_greater")),
        Good.entry(_ARGMAX.format(condition="is_first_greatest")),
        Good.entry(_REDUCE.format(operation="add", start=0)),
        Good.entry(_REDUCE.format(operation="maximum", start=0)),
        Bad.entry("""
            first {
              ROOT a = f32[] parameter(0)
              b = f32[] parameter(1)
            }
            ROOT r = f32[64] all-reduce(f32[64] p), replica_groups={}, to_apply=first  // error
        """),
        Bad.entry("""
            step {
              t = token[] after-all()
              o = token[] outfeed(f32[] a, t), outfeed_shape=f32[]
              ROOT s = f32[] add(a, f32[] b)
            }
            zero = f32[] constant(0)
            ROOT r = f32[] reduce(f32[64] p, zero), dimensions={0}, to_apply=step  // error
        """),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Reductions with a reducer or an initial value that depends on order or grouping."""
        templates: dict[object, _Reducer] = {}
        steps: dict[str, _Reducer] = {}
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
                            templates[template] = _reducer(callee)
                        steps[name] = templates[template]
                    applied, effect, other = steps[name]
                    wrong, severity = "", None
                    if effect:
                        wrong = (
                            f"applies %{name} any number of times, but {effect} has a side effect"
                        )
                    elif other and opcode.startswith(_COLLECTIVES) and stage.backend != "tpu":
                        wrong = (
                            f"applies %{name}, which {other}: collectives of XLA:CPU and XLA:GPU "
                            "reduce by add, multiply, maximum or minimum"
                        )
                    elif applied in _NEUTRAL:
                        names = references_of(rows[number])
                        initial = index.get(names[1]) if len(names) == 2 else None
                        if initial is not None and operands_of(rows[initial]) != _NEUTRAL[applied]:
                            value = computation.at(initial)
                            yield from _counted(computation.at(number), value, applied)
                    elif applied == "tuple":
                        wrong = (
                            f"does not break ties: %{name} compares only values, so either of two "
                            "equal elements may win"
                        )
                        severity = Severity.INFO  # harmless where no two are equal
                    elif applied in _ORDERED:
                        wrong = f"applies %{name} in any order, but {applied} is not associative"
                    if wrong:
                        place = computation.at(number)
                        yield Finding(place, f"this {opcode} {wrong}", severity=severity)


class _Reducer(NamedTuple):
    """The facts of a reducer that matter here."""

    step: str | None
    """The opcode of its root, if it combines both values or leaves ties; else None."""
    effect: str
    """The opcode of an instruction with a side effect, or empty."""
    other: str
    """The reason why no collective can apply it, or empty."""


def _reducer(callee: Computation | None) -> _Reducer:
    if callee is None or callee.root is None:
        return _Reducer(None, "", "")
    step, root = _step(callee), _bare(callee.root)
    effects = (row for row in callee.rows if has_effect(row))
    effect = next(map(opcode_of, effects), "")
    other = ""
    # XLA inlines calls; a reducer of several values has a tuple.
    if root is not None and root.opcode == "parameter":
        other = f"returns its parameter {root.parameter_number}"
    elif root is not None and root.opcode not in _OF_COLLECTIVES | _INLINED:
        other = f"computes {an(root.opcode)}"
    return _Reducer(None if step is None else step.opcode, effect, other)


def _counted(reduction: Instruction, initial: Instruction, opcode: str) -> Findings:
    """A finding for a sum or product whose constant initial value is not neutral."""
    value = number_of(initial)
    if value is None:
        return
    absorbs = not isfinite(value) or (opcode == "multiply" and value == 0)
    if value != float(_NEUTRAL[opcode]) and not absorbs and _reduced(reduction) > MAX_WHOLE:
        yield Finding(
            reduction,
            f"this {reduction.opcode} starts each part with {value:g}, so the {opcode} includes it "
            "once per part",
            operand=1,
        )


def _reduced(reduction: Instruction) -> int:
    """The number of elements reduced per element of the result."""
    before, after = operand_array(reduction, 0), result_array(reduction)
    if reduction.opcode != "reduce":
        window: Any = reduction.attribute_or_none("window") or ()
        return max((dimension.size for dimension in window), default=0)
    if before is None or after is None or not after.elements:
        return 0
    return before.elements // after.elements


def _step(step: Computation | None) -> Instruction | None:
    """The root operation of a reducer, or its tuple of selects; None for other reducers."""
    root = _bare(None if step is None else step.root)
    if root is None or (root.opcode == "tuple" and not _leaves_ties(root)):
        return None
    if root.opcode == "tuple":
        return root
    numbers = {_parameter(operand.instruction) for operand in root.operands}
    return root if numbers == {0, 1} else None


def _leaves_ties(pair: Instruction) -> bool:
    """True if all results are selected by a single comparison of the first two elements."""
    choices = [operand.instruction for operand in pair.operands]
    if len(choices) < 2 or any(choice is None or choice.opcode != "select" for choice in choices):
        return False
    tests = {choice.producer() for choice in choices if choice is not None}
    test = tests.pop()
    # A single comparison leaves ties open; jnp.argmax selects value and index by different tests.
    if tests or test is None or test.opcode != "compare":
        return False
    compared = {_parameter(operand.instruction) for operand in test.operands}
    # A reducer's parameters are all accumulators, then all new elements.
    return compared == {0, len(choices)} and test.attributes.get("direction") not in SYMMETRIC


def _parameter(value: Instruction | None) -> int | None:
    source = _bare(value)
    return None if source is None else source.parameter_number


def _bare(value: Instruction | None) -> Instruction | None:
    return None if value is None else renamed_source(value, SAME_NUMBERS)
