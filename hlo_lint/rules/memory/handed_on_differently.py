"""Values that are handed on as if they were in another memory, or of another dynamic size."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.layout_mismatches import types_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape, Index, Shape, leaves, part, spelled_index
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding, Severity

_HANDS_ON: Final = ("tuple", "get-tuple-element", "opt-barrier")


class HandedOnDifferently(Rule):
    """A tuple, or what takes from one, that says another memory or dynamic size than its operand.

    ## Why
    A tuple, a get-tuple-element and an opt-barrier move nothing: what they give is what they take.
    Where a pass changes the shape of an operand (a fusion gives device memory where a copy gave
    host memory; a dimension becomes static) and not that of the tuple, each reader of the tuple
    believes something else. From layout assignment on, XLA's verifier refuses it; where the stage
    is known, wrong-result-shape reports it as an error instead.

    Reports: openxla/xla#20006, tensorflow/tensorflow#53685.
    """

    severity = Severity.WARNING
    mentions = ("S(", "<=", "?")
    examples = (
        Bad.entry(
            """
            p = f32[8]{0} parameter(0)
            q = f32[8]{0} parameter(1)
            ROOT t = (f32[8]{0}, f32[8]{0:S(5)}) tuple(p, q)  // error
            """
        ),
        Bad.entry(
            """
            p = (s32[8]{0}, s32[4]{0}) parameter(0)
            ROOT g = s32[<=8]{0} get-tuple-element(p), index=0  // error
            """
        ),
        Good.entry(
            """
            p = f32[8]{0} parameter(0)
            q = f32[8]{0:S(5)} parameter(1)
            ROOT t = (f32[8]{0}, f32[8]{0:S(5)}) tuple(p, q)
            """
        ),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Each instruction that hands an array on as another."""
        if not stage.assumed:
            return  # the verifier's rules find it, as errors
        for computation in module.nonfusion_computations:
            if not any(map(_may_differ, types_of(computation))):
                continue
            for opcode in _HANDS_ON:
                for instruction in computation.with_opcode(opcode):
                    for number, difference in _differences(instruction):
                        yield Finding(instruction, difference, operand=number)
                        break


@lru_cache(maxsize=1 << 14)
def _may_differ(type_text: str) -> bool:
    """True if a type spells a memory or a dynamic dimension."""
    return any(mark in type_text for mark in ("S(", "<=", "?"))


def _differences(instruction: Instruction) -> Iterator[tuple[int, str]]:
    """Numbers of operands, and the arrays that are not handed on as they are."""
    for number, operand in enumerate(instruction.operands):
        taken: Shape | None = operand.shape
        given: Shape | None = instruction.shape_or_none
        if instruction.opcode == "tuple":
            given = part(given, (number,))
        elif instruction.opcode == "get-tuple-element":
            index = instruction.integer_attribute("index")
            taken = None if index is None else part(taken, (index,))
        if taken is None or given is None or taken is given:
            continue
        theirs = dict(leaves(taken))
        for place, ours in leaves(given):
            other = theirs.get(place)
            if not isinstance(ours, ArrayShape) or not isinstance(other, ArrayShape):
                continue
            if ours.dims == other.dims and _differ(ours, other):
                yield number, _message(operand.name, place, other, ours)


def _differ(one: ArrayShape, other: ArrayShape) -> bool:
    """True if the memories or the dynamic dimensions are spelled, and are not the same."""
    if any(one.dynamic) != any(other.dynamic):
        return True
    if one.layout is None or other.layout is None:
        return False
    return one.layout.memory_space != other.layout.memory_space


def _message(name: str, place: Index, taken: ArrayShape, given: ArrayShape) -> str:
    where = f", part {spelled_index(place)}," if place else ""
    return f"%{name}{where} is {taken}, but is passed on as {given}"
