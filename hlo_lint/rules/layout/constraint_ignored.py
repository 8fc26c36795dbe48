"""Custom calls whose operands violate `operand_layout_constraints`."""

from __future__ import annotations

from typing import NamedTuple

from hlo_lint.analysis.layout_mismatches import lie_alike
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.shape import ArrayShape, Layout
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding
from hlo_lint.text.edits import Fix

_CONSTRAINTS = "operand_layout_constraints="
_FINAL = {".ir-no-opt.ll": ""}


class ConstraintIgnored(Rule):
    """A custom call with an operand whose layout violates its constraints.

    ## Why
    `operand_layout_constraints` states the layouts in which a custom call's kernel reads its
    operands. Only layout assignment enforces them: XLA's verifier compares the constraints with the
    operands but ignores layouts (`hlo_verifier.cc:1715-1732`), and a pass that clones the call with
    a new operand keeps the old constraints. The kernel then reads a transposed array.

    ## Fix
    Copies the operand into the layout of the constraint.
    """

    opcodes = frozenset({"custom-call"})
    always_reported = True
    examples = (
        Bad.entry(
            """
            p = f32[8,3]{0,1} parameter(0)
            ROOT c = f32[8,3]{1,0} custom-call(p), custom_call_target="t", operand_layout_constraints={f32[8,3]{1,0}}  // error
            """,  # noqa: E501
            fixed="""
            p = f32[8,3]{0,1} parameter(0)
            c.copy = f32[8,3]{1,0} copy(p)
            ROOT c = f32[8,3]{1,0} custom-call(c.copy), custom_call_target="t", operand_layout_constraints={f32[8,3]{1,0}}
            """,  # noqa: E501
            artefacts=_FINAL,
        ),
        Good.entry(
            """
            p = f32[8,1]{0,1} parameter(0)
            ROOT c = f32[8,1]{1,0} custom-call(p), custom_call_target="t", operand_layout_constraints={f32[8,1]{1,0}}
            """,  # noqa: E501
            artefacts=_FINAL,
        ),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Array operands whose layout differs from their constraint."""
        for call in computation.with_opcode("custom-call"):
            if (
                _CONSTRAINTS not in call.attributes_text
                or not stage.layouts
                or stage.backend is None
            ):
                continue
            for number, before, wanted in _ignored(call):
                yield Finding(
                    call,
                    f"operand {number} is {before}, but operand_layout_constraints demand {wanted}",
                    operand=number,
                )

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Copies each of these operands into its constraint's layout."""
        rewrite = Rewrite(module)
        for number, before, wanted in _ignored(instruction):
            layout = before.layout or Layout(before.minor_to_major)
            ordered = layout._replace(minor_to_major=wanted.minor_to_major)
            copied = before.with_layout(ordered)
            read = instruction.operands[number]
            copy = rewrite.insert_before(instruction, "copy", copied, [read])
            rewrite.replace_operand(instruction, number, copy)
        return rewrite.fix("copy the operand into the layout of its constraint")


class _Ignored(NamedTuple):
    operand: int
    before: ArrayShape
    wanted: ArrayShape


def _ignored(call: Instruction) -> list[_Ignored]:
    constraints = call.attribute_or_none("operand_layout_constraints")
    if not isinstance(constraints, tuple):
        return []  # unreadable constraints: another rule reports them
    ignored = []
    for number, wanted in enumerate(constraints):
        before = operand_array(call, number)
        if not isinstance(wanted, ArrayShape) or before is None or not wanted.has_valid_layout:
            continue
        if before.dims == wanted.dims and not lie_alike(before, wanted):
            ignored.append(_Ignored(number, before, wanted))
    return ignored
