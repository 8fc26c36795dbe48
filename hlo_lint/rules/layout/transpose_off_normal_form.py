"""Transposes between layouts that are not descending, after layout normalization."""

from __future__ import annotations

from hlo_lint.analysis.layout_mismatches import in_other_orders, is_descending
from hlo_lint.analysis.rewrite import OperandValue, Rewrite
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.layouts import compose, inverse, normalize
from hlo_lint.hlo.shape import ArrayShape, spelled_index
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Stage
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.text.edits import Fix


class TransposeOffNormalForm(Rule):
    """A transpose between layouts that are not descending, after layout normalization.

    ## Why
    Once layouts are normalized, XLA:GPU's emitters and heuristics read only the logical dimensions
    of a transpose (`ir_emission_utils.cc:266-330`). `MakeTransposeHlo` gives its result the layout
    in which no data moves, so a pass that uses it after the last layout_normalization makes a
    transpose that is emitted with a wrong permutation: wrong numbers (openxla/xla#17276). XLA does
    not check this.

    ## Fix
    Writes the same transpose between descending layouts, with bitcasts around it; a transpose that
    moves no data becomes a single bitcast.
    """

    opcodes = frozenset({"transpose"})
    evidence = (MeasuredHarm("XLA:GPU computed wrong products."),)
    reports = "openxla/xla#17276"
    examples = (
        Bad.final(
            "ROOT t = s8[4,2,3]{2,1,0} transpose(s8[2,3,4]{0,2,1} p), dimensions={2,0,1}  // error",
            fixed="""
            t.bitcast = s8[3,4,2]{2,1,0} bitcast(s8[2,3,4]{0,2,1} p)
            ROOT t = s8[4,2,3]{2,1,0} transpose(t.bitcast), dimensions={1,2,0}
            """,
        ),
        Bad.final(
            "ROOT t = f32[3,2]{0,1} transpose(f32[2,3]{1,0} p), dimensions={1,0}  // error",
            fixed="ROOT t = f32[3,2]{0,1} bitcast(f32[2,3]{1,0} p)",
        ),
        Good.final("ROOT t = f32[3,2,1] transpose(f32[2,1,3]{2,0,1} p), dimensions={2,0,1}"),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Transposes whose operand or result layout is not descending."""
        # Before layout_normalization, such a transpose is right, and often a bitcast.
        if stage.normalized is not True or stage.backend != "gpu":
            return
        for transpose in in_other_orders(computation, self.opcodes):
            before, after = operand_array(transpose, 0), result_array(transpose)
            if before is None or after is None:
                continue
            if not is_descending(before) or not is_descending(after):
                order = _dimensions(transpose, before, after) if before == after else None
                by = f" by dimensions={spelled_index(order)}" if order else ""
                yield Finding(
                    transpose,
                    f"this transpose from {before} to {after}{by} is emitted as if both layouts "
                    "were descending",
                )

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Rewrite the transpose between the descending layouts of the same bytes."""
        before, after = operand_array(instruction, 0), result_array(instruction)
        if before is None or after is None:
            return None
        dimensions = _dimensions(instruction, before, after)
        # A bitcast between two tilings moves bytes.
        if dimensions is None or before.is_tiled or after.is_tiled:
            return None
        major_before, major_after = before.minor_to_major[::-1], after.minor_to_major[::-1]
        moves = compose(inverse(major_before), compose(dimensions, major_after))
        rewrite = Rewrite(module)
        value: OperandValue = instruction.operands[0]
        shape = before
        if list(moves) != sorted(moves):
            if normalize(before) != before:
                value = rewrite.insert_before(instruction, "bitcast", normalize(before), [value])
            shape = normalize(after)
            value = rewrite.insert_before(
                instruction, "transpose", shape, [value], dimensions=moves
            )
        if shape != after or shape is before:
            value = rewrite.insert_before(instruction, "bitcast", after, [value])
        rewrite.replace(instruction, value)
        return rewrite.fix("spell the transpose between descending layouts")


def _dimensions(
    transpose: Instruction, before: ArrayShape, after: ArrayShape
) -> tuple[int, ...] | None:
    dimensions = transpose.integers_attribute("dimensions")
    if dimensions is None or before.rank != after.rank:
        return None
    return dimensions if sorted(dimensions) == list(range(before.rank)) else None
