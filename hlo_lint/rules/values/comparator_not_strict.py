"""Sorts whose comparator puts equal elements, or each of two elements, before the other."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.kinds import template_of
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_OF_EQUALS: Final = {"LT": False, "GT": False, "NE": False, "LE": True, "GE": True, "EQ": True}
"""The value of a comparison of something with itself."""
_SYMMETRIC: Final = frozenset({"EQ", "NE"})
_COMMUTATIVE: Final = frozenset({"add", "and", "maximum", "minimum", "multiply", "or", "xor"})
_MAX_SIZE: Final = 500
"""Instructions of a comparator; a larger one is not looked at."""
_PROGRAM = """
less {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  first = pred[] compare(a, b), direction={direction}
  same = pred[] compare(a, b), direction=EQ
  second = pred[] compare(i, j), direction=LT
  ROOT c = pred[] {root}
}}

ENTRY e {{
  p = s32[64] parameter(0)
  q = s32[64] parameter(1)
  ROOT s = (s32[64], s32[64]) sort(p, q), dimensions={{0}}, to_apply=less{mark}
}}
"""


class ComparatorNotStrict(Rule):
    """A sort whose comparator is not a strict order.

    ## Why
    The comparator says whether its first element has to stand before the second one. XLA demands a
    strict weak order: no element comes before an equal one, and of two elements not each before
    the other. With `LE`, `GE`, `EQ` or `NE` in the place of `LT` it is not one. XLA:CPU hands
    the comparator to `std::sort`, which may then read past the end of the array: 64 elements with
    `LE` end jax 0.10.2 with SIGSEGV. Elsewhere a stable sort is not stable, and the order depends
    on the algorithm that the backend takes.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"sort"})
    examples = (
        Bad.module(_PROGRAM.format(direction="LE", root="copy(first)", mark="  // error")),
        Bad.module(_PROGRAM.format(direction="NE", root="copy(first)", mark="  // error")),
        Bad.module(
            _PROGRAM.format(direction="GE", root="select(same, first, second)", mark="  // error")
        ),
        Bad.module(
            _PROGRAM.format(direction="LT", root="copy(first)", mark="  // error").replace(
                *("compare(a, b)", "compare(a, i)")
            )
        ),
        Good.module(_PROGRAM.format(direction="LT", root="copy(first)", mark="")),
        Good.module(_PROGRAM.format(direction="GT", root="select(same, second, first)", mark="")),
    )

    def check(self, module: Module) -> Findings:
        """Each such sort."""
        defects: dict[object, str] = {}
        for sort in instructions_of(module, "sort"):
            comparator = module.callee(sort)
            if comparator is None:
                continue
            template = template_of(comparator) or comparator
            if template not in defects:
                defects[template] = _defect(comparator)
            if defects[template]:
                reason = f"%{comparator.name} is not a strict order: {defects[template]}"
                yield Finding(sort, reason)


def _defect(comparator: Computation) -> str:
    """The reason that it is not a strict weak order; empty if none is known."""
    root = comparator.root
    if root is None or root.type_text != "pred[]" or len(comparator.rows) > _MAX_SIZE:
        return ""
    if _of_equals(root, {}) is True:
        return "it is true of two equal elements"
    forth, back = _Form(swapped=False), _Form(swapped=True)
    read = _parameters_read(root)
    pairs = [number for number in read if number ^ 1 in read]
    if pairs and forth.of(root) == back.of(root):
        return "it is the same of two elements in either order"
    # A comparator that is constant orders nothing, and is left alone.
    return "" if pairs or not read else "it never reads both elements of a pair"


def _parameters_read(root: Instruction) -> set[int]:
    reached, waiting = {root.name: root}, [root]
    while waiting:
        for operand in waiting.pop().operands:
            source = operand.instruction
            if source is not None and source.name not in reached:
                reached[source.name] = source
                waiting.append(source)
    numbers = (value.parameter_number for value in reached.values())
    return {number for number in numbers if number is not None}


def _of_equals(value: Instruction, memo: dict[str, bool | None]) -> bool | None:
    """The truth value where each element is compared with an equal one; None where unknown."""
    if value.name in memo:
        return memo[value.name]
    memo[value.name] = None
    operands = [operand.instruction for operand in value.operands]
    result: bool | None = None
    match value.opcode, operands:
        case "constant", _:
            text = value.operands_text.strip()
            result = text == "true" if text in ("true", "false") else None
        case "compare", [Instruction() as one, Instruction() as other]:
            form = _Form(equal=True)
            if form.of(one) == form.of(other):
                result = _OF_EQUALS.get(value.attributes.get("direction", ""))
        case "copy" | "not", [Instruction() as one]:
            inner = _of_equals(one, memo)
            result = inner if value.opcode == "copy" or inner is None else not inner
        case "and" | "or", [Instruction() as one, Instruction() as other]:
            sides = {_of_equals(one, memo), _of_equals(other, memo)}
            decisive = value.opcode == "or"
            result = decisive if decisive in sides else None if None in sides else not decisive
        case "select", [Instruction() as chosen, Instruction() as one, Instruction() as other]:
            condition = _of_equals(chosen, memo)
            if condition is not None:
                result = _of_equals(one if condition else other, memo)
    memo[value.name] = result
    return result


class _Form:
    """The term of a value, to be compared: with equal elements, or with swapped ones."""

    def __init__(self, *, equal: bool = False, swapped: bool = False) -> None:
        self._equal, self._swapped = equal, swapped
        self._forms: dict[str, tuple[object, ...]] = {}
        self._numbers: dict[tuple[object, ...], int] = {}

    def of(self, value: Instruction) -> tuple[object, ...]:
        """The opcode, the attributes and the forms of the operands."""
        if value.name not in self._forms:
            self._forms[value.name] = (value.name,)  # against a circle
            self._forms[value.name] = self._made(value)
        return self._forms[value.name]

    def _made(self, value: Instruction) -> tuple[object, ...]:
        number = value.parameter_number
        if number is not None:
            return ("parameter", number & ~1 if self._equal else number ^ self._swapped)
        forms = [
            (self.of(operand.instruction), operand.index)
            for operand in value.operands
            if operand.instruction is not None
        ]
        attributes, _, _ = value.attributes_text.partition(", metadata=")
        direction = value.attributes.get("direction", "")
        if direction in _SYMMETRIC or value.opcode in _COMMUTATIVE:
            forms.sort(key=repr)
        literal = value.operands_text if value.opcode == "constant" else ""
        return (value.opcode, value.type_text, attributes, literal, *forms)
