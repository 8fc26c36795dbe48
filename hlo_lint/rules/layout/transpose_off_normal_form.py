"""Transposes between layouts that are not descending, after layout normalization."""

from __future__ import annotations

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.layout_mismatches import is_descending
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.shape import ArrayShape, spelled_index
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, Stage

_FINAL = {".ir-no-opt.ll": ""}


class TransposeOffNormalForm(Rule):
    """A transpose between layouts that are not descending, after layout normalization.

    ## Why
    Once layouts are normalized, XLA:GPU's emitters and heuristics read only the logical dimensions
    of a transpose (`ir_emission_utils.cc:266-330`). `MakeTransposeHlo` gives its result the layout
    in which no data moves, so a pass that uses it after the last layout_normalization makes a
    transpose that is emitted with a wrong permutation: wrong numbers (openxla/xla#17276). XLA does
    not check this.
    """

    opcodes = frozenset({"transpose"})
    evidence = (PublicReport("openxla/xla#17276"),)
    examples = (
        Bad.entry(
            """
                ROOT t = f32[4,2,3]{2,1,0} transpose(f32[2,3,4]{0,2,1} p),  // error
                    dimensions={2,0,1}
            """,
            artefacts=_FINAL,
        ),
        Bad.entry(
            "ROOT t = f32[3,2]{0,1} transpose(f32[2,3]{1,0} p), dimensions={1,0}  // error",
            artefacts=_FINAL,
        ),
        Good.entry(
            "ROOT t = f32[3,2,1]{2,1,0} transpose(f32[2,1,3]{2,0,1} p), dimensions={2,0,1}",
            artefacts=_FINAL,
        ),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Transposes whose operand or result layout is not descending."""
        if stage.normalized is not True or stage.backend != "gpu":
            return
        for transpose in with_opcodes(computation, self.opcodes):
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


def _dimensions(
    transpose: Instruction, before: ArrayShape, after: ArrayShape
) -> tuple[int, ...] | None:
    dimensions = transpose.integers_attribute("dimensions")
    if dimensions is None or before.rank != after.rank:
        return None
    return dimensions if sorted(dimensions) == list(range(before.rank)) else None
