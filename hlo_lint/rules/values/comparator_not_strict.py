"""Sorts whose comparator is not a strict weak order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.kinds import template_of
from hlo_lint.analysis.value_numbering import ValueNumbering
from hlo_lint.analysis.walks import operands_first, reached
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COMMUTATIVE, SYMMETRIC
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Severity

_OF_EQUALS: Final = {"LT": False, "GT": False, "NE": False, "LE": True, "GE": True, "EQ": True}
"""The result of comparing a value with itself, by direction."""
_MAX_SIZE: Final = 500
"""The largest comparator that is checked, in instructions."""
_BY_ONE_KEY = """
before {{ ROOT c = pred[] compare(s32[] a, s32[] b), direction={direction} }}
ROOT s = s32[64] sort(s32[64] p), dimensions={{0}}, to_apply=before  // error
"""
_BY_TWO_KEYS = """
before {{
  first = pred[] compare(s32[] a, s32[] b), direction={direction}
  same = pred[] compare(a, b), direction=EQ
  second = pred[] compare(s32[] i, s32[] j), direction=LT
  ROOT c = pred[] select(same, {chosen})
}}
ROOT s = (s32[64], s32[64]) sort(s32[64] p, s32[64] q), dimensions={{0}}, to_apply=before  // error
"""


class ComparatorNotStrict(Rule):
    """A sort whose comparator is not a strict weak order.

    ## Why
    The comparator returns true if its first element must come before its second. XLA requires a
    strict weak order: no element comes before an equal element, and two elements do not each come
    before the other. `LE`, `GE`, `EQ` and `NE` in place of `LT` violate that. XLA:CPU passes the
    comparator to `std::sort`, which may then read past the end of the array: 64 elements with `LE`
    crash jax 0.10.2 with SIGSEGV. On other backends a stable sort is not stable, and the order
    depends on the algorithm.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"sort"})
    evidence = (RefusedByXla("SIGSEGV", by="cpu 0.10.2"),)
    examples = (
        Bad.entry(_BY_ONE_KEY.format(direction="LE")),
        Bad.entry(_BY_ONE_KEY.format(direction="NE")),
        Bad.entry(_BY_TWO_KEYS.format(direction="GE", chosen="first, second")),
        Bad.entry("""
            before {
              a = s32[] parameter(0)
              b = s32[] parameter(1)
              zero = s32[] constant(0)
              ROOT c = pred[] compare(a, zero), direction=LT
            }
            ROOT s = s32[64] sort(s32[64] p), dimensions={0}, to_apply=before  // error
        """),
        Good.entry(_BY_ONE_KEY.format(direction="LT")),
        Good.entry(_BY_TWO_KEYS.format(direction="GT", chosen="second, first")),
    )

    def check(self, module: Module) -> Findings:
        """Sorts whose comparator is not a strict weak order."""
        defects: dict[object, str] = {}
        for sort in instructions_of(module, "sort"):
            comparator = module.callee(sort)
            if comparator is None:
                continue
            template = template_of(comparator) or comparator
            if template not in defects:
                defects[template] = _defect(comparator)
            if defects[template]:
                reason = f"%{comparator.name} is not a strict weak order: {defects[template]}"
                yield Finding(sort, reason)


def _defect(comparator: Computation) -> str:
    """The reason that a comparator is not a strict weak order; empty if it may be."""
    root = comparator.root
    # bad-sort reports a comparator that does not return a pred.
    if root is None or root.type_text != "pred[]" or len(comparator.rows) > _MAX_SIZE:
        return ""
    numbering = ValueNumbering()
    equal = _forms(root, numbering, lambda number: number & ~1)
    if _of_equals(root, equal) is True:
        return "it returns true for equal elements"
    forth = _forms(root, numbering, lambda number: number)
    back = _forms(root, numbering, lambda number: number ^ 1)
    numbers = (value.parameter_number for value in reached([root], _PRODUCERS))
    read = {number for number in numbers if number is not None}
    pairs = [number for number in read if number ^ 1 in read]
    if pairs and forth[root] == back[root]:
        return "it returns the same if its elements are swapped"
    # A constant comparator does not order, and is accepted.
    return "" if pairs or not read else "it never reads both elements of a pair"


def _of_equals(root: Instruction, forms: Mapping[Instruction, int]) -> bool | None:
    """The result of a comparator for equal elements; None if unknown."""
    truths: dict[Instruction | None, bool | None] = {}
    for value in operands_first([root], _PRODUCERS):
        operands = [operand.instruction for operand in value.operands]
        result: bool | None = None
        match value.opcode, operands:
            case "constant", _:
                text = value.operands_text.strip()
                result = text == "true" if text in ("true", "false") else None
            case "compare", [Instruction() as left, Instruction() as right]:
                if forms[left] == forms[right]:
                    result = _OF_EQUALS.get(value.attributes.get("direction", ""))
            case "copy" | "not", [inner]:
                truth = truths.get(inner)
                result = truth if value.opcode == "copy" or truth is None else not truth
            case "and" | "or", [left, right]:
                sides = {truths.get(left), truths.get(right)}
                decisive = value.opcode == "or"
                result = decisive if decisive in sides else None if None in sides else not decisive
            case "select", [predicate, on_true, on_false]:
                condition = truths.get(predicate)
                if condition is not None:
                    result = truths.get(on_true if condition else on_false)
        truths[value] = result
    return truths[root]


def _forms(
    root: Instruction, numbering: ValueNumbering, numbered: Callable[[int], int]
) -> Mapping[Instruction, int]:
    """Value numbers of a comparator's instructions, with parameters renumbered by `numbered`."""
    forms: dict[Instruction | None, int] = {}
    for value in operands_first([root], _PRODUCERS):
        number = value.parameter_number
        if number is not None:
            forms[value] = numbering.number(("parameter", numbered(number)))
            continue
        read = [
            (forms[operand.instruction], operand.shape_index)
            for operand in value.operands
            if operand.instruction in forms
        ]
        attributes, _, _ = value.attributes_text.partition(", metadata=")
        if value.attributes.get("direction", "") in SYMMETRIC or value.opcode in COMMUTATIVE:
            read.sort()
        literal = value.operands_text if value.opcode == "constant" else ""
        forms[value] = numbering.number((value.opcode, value.type_text, attributes, literal, *read))
    return {value: number for value, number in forms.items() if value is not None}


_PRODUCERS: Final = attrgetter("producers")
