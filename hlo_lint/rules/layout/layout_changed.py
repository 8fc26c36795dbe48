"""Operands whose layout an operation would have to change, although it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.analysis.layout_mismatches import in_other_orders, turned
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import KEEPS_LAYOUT
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Stage
from hlo_lint.rules.evidence import RefusedByXla, WrongValues

if TYPE_CHECKING:
    from hlo_lint.text.edits import Fix


class LayoutChanged(Rule):
    """An operand whose layout differs from the result's, where the operation cannot change layouts.

    ## Why
    Elementwise operations, slices, pads, concatenations and the like read their operands in the
    order in which they write. Layout assignment ensures that; a later pass that replaces an operand
    may break it. XLA checks it in debug builds only (`Instruction shouldn't change layouts`,
    `hlo_verifier.cc:4533-4571`). LayoutNormalization compares the first operand of an addition and
    fails there, `RET_CHECK … layout`. It does not compare the second, the operands of concatenate,
    pad and reverse, the update of a dynamic-update-slice, the predicate of a select or the bounds
    of a clamp (`layout_normalization.cc:178-860`). If the dimensions of such an operand have equal
    sizes, it reads the operand transposed, without an error.

    ## Fix
    Copies the operand into the layout of the result; values do not change.
    """

    messages = (
        "Instruction shouldn't change layouts",
        "Unexpected non-layout preserving elementwise unary",
    )
    opcodes = KEEPS_LAYOUT
    skip_fusion_bodies = False
    always_reported = True
    evidence = (
        RefusedByXla("Instruction shouldn't change layouts", passes="hlo-verifier"),
        WrongValues(0, "--xla_enable_hlo_passes_only=layout_normalization"),
    )
    examples = (
        Bad.entry(
            """
            // hlo-lint: stage gpu before=layout_normalization
            p = f32[8,8]{1,0} parameter(0)
            q = f32[8,8]{0,1} parameter(1)
            ROOT sum = f32[8,8]{1,0} add(p, q)  // error
            """,
            fixed="""
            // hlo-lint: stage gpu before=layout_normalization
            p = f32[8,8]{1,0} parameter(0)
            q = f32[8,8]{0,1} parameter(1)
            sum.copy = f32[8,8]{1,0} copy(q)
            ROOT sum = f32[8,8]{1,0} add(p, sum.copy)
            """,
        ),
        Bad.entry("""
            // hlo-lint: stage gpu before=layout_normalization
            ROOT c = u32[5,4]{0,1} bitcast-convert(u16[5,4,2]{2,1,0} p)  // error
        """),
        Good.entry("""
            // hlo-lint: stage gpu before=layout_normalization
            ROOT c = u32[5,4]{0,1} bitcast-convert(u16[5,4,2]{2,0,1} p)
        """),
        Good.entry("""
            // hlo-lint: stage gpu before=layout_normalization
            ROOT sum = f32[8,8]{0,1} add(f32[8,8]{0,1} p, f32[8,8]{0,1} q)
        """),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Operands whose order or packing differs from the result's."""
        # Before layout-assignment, a program may add an f32[32,4]{0,1} to an f32[32,4]{1,0}.
        if not stage.exact_layouts:
            return
        # XLA:TPU gives the updates of a scatter their own layout and transposes them itself.
        opcodes = KEEPS_LAYOUT - {"scatter"} if stage.backend == "tpu" else KEEPS_LAYOUT
        for instruction in in_other_orders(computation, opcodes):
            opcode = instruction.opcode
            for number, before, after in turned(instruction):
                if before.rank != after.rank and stage.backend != "gpu":
                    continue  # only XLA:GPU makes a bitcast of such a bitcast-convert
                # sub-byte-size-setter, which packs operands and result, runs after layout passes.
                same_order = before.minor_to_major == after.minor_to_major
                if same_order and not (stage.normalized or stage.final):
                    continue
                yield Finding(
                    instruction,
                    f"this {opcode} should not change layouts: operand {number} is {before}, "
                    f"the result {after}",
                    operand=number,
                )

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Copies of operands that differ only in order; no fix inside a fusion."""
        if instruction.computation.name in module.fusion_computations:
            return None
        from hlo_lint.analysis.rewrite import Rewrite

        rewrite = Rewrite(module)
        for number, before, after in turned(instruction):
            # Tiles belong to one order.
            if before.layout is None or after.layout is None or before.layout.tiles:
                return None
            # A copy keeps the rank.
            if before.rank != after.rank:
                return None
            order = after.layout.minor_to_major
            # They are packed differently: a copy in the same order would not change that.
            if order == before.minor_to_major:
                return None
            copied = before.with_layout(before.layout._replace(minor_to_major=order))
            copy = rewrite.insert_before(
                instruction, "copy", copied, [instruction.operands[number]]
            )
            rewrite.replace_operand(instruction, number, copy)
        return rewrite.fix("copy the operand into the layout of the result")
