"""Operations with layouts that are not descending, after layout normalization."""

from __future__ import annotations

from hlo_lint.analysis.layout_mismatches import in_other_orders, is_descending
from hlo_lint.hlo.arrays import result_array
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.opcodes import BINARY, UNARY
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding, Severity

_FINAL = {".ir-no-opt.ll": ""}

_NORMALIZED = (
    UNARY
    | BINARY
    | frozenset(
        "broadcast clamp concatenate constant dynamic-slice dynamic-update-slice iota pad "
        "reduce-window reverse scatter select slice".split()
    )
)


class NormalFormLost(Rule):
    """An operation on arrays whose layouts are not descending, after layout normalization.

    ## Why
    XLA:GPU's LayoutNormalization puts each slice, pad, broadcast, elementwise operation and the
    like on descending layouts, with bitcasts around it (`layout_normalization.cc:79-910`). Later
    passes and emitters assume that form: they look at logical dimensions, and choose worse kernels
    or none for any other order. XLA never checks the form, and does not repair an operation that a
    pass adds after the last layout_normalization.
    """

    severity = Severity.WARNING
    opcodes = _NORMALIZED
    examples = (
        Bad.entry(
            """
            p = f32[8,3]{0,1} parameter(0)
            ROOT n = f32[8,3]{0,1} negate(p)  // error
            """,
            artefacts=_FINAL,
        ),
        Good.entry(
            """
            p = f32[8,3]{0,1} parameter(0)
            b = f32[3,8]{1,0} bitcast(p)
            n = f32[3,8]{1,0} negate(b)
            ROOT r = f32[8,3]{0,1} bitcast(n)
            """,
            artefacts=_FINAL,
        ),
    )

    def can_skip(self, module: Module, stage: Stage) -> bool:
        """True if LayoutNormalization does not run, or has not run."""
        return stage.normalized is not True or stage.backend != "gpu"

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Operations that LayoutNormalization would have rewritten."""
        if stage.normalized is not True or stage.backend != "gpu":
            return
        for instruction in in_other_orders(computation, _NORMALIZED):
            shape = result_array(instruction)
            if shape is not None and not is_descending(shape):
                yield Finding(
                    instruction,
                    f"this {instruction.opcode} gives {shape}, whose layout is not descending",
                )
