"""The precondition of ReductionLayoutNormalizer: the inputs of a reduction share a layout."""

from __future__ import annotations

from hlo_lint.analysis.layout_mismatches import in_other_orders
from hlo_lint.dumps.phases import REDUCE_INPUTS_LIE_ALIKE
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.ir import Computation
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Stage

_PROGRAM = """
// hlo-lint: stage gpu before=reduction-layout-normalizer
largest {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  x = f32[] maximum(a, b)
  y = s32[] maximum(i, j)
  ROOT t = (f32[], s32[]) tuple(x, y)
}}
z = f32[] constant(0)
n = s32[] constant(0)
ROOT r = (f32[8]{{0}}, s32[8]{{0}}) reduce(f32[8,4]{{1,0}} p, s32[8,4]{layout} q, z, n), \
dimensions={{1}}, to_apply=largest  // error
"""


class ReduceInputsDiffer(Rule):
    """A reduction of several arrays with different layouts.

    ## Why
    A reduction of several arrays walks them together. Layout assignment gives them the same layout;
    if a later pass changes it for some of them, XLA:GPU's ReductionLayoutNormalizer fails
    (`reduction_layout_normalizer.cc:65`). XLA's verifier skips instructions with tuple results.
    """

    precondition = REDUCE_INPUTS_LIE_ALIKE
    opcodes = frozenset({"reduce"})
    evidence = (
        RefusedByXla(
            "Layout assignment should have assigned the same layout to all reduce inputs",
            passes="reduction-layout-normalizer",
        ),
    )
    examples = (
        Bad.entry(_PROGRAM.format(layout="{0,1}")),
        Good.entry(_PROGRAM.format(layout="{1,0}")),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Reductions whose input arrays differ in dimension order."""
        if stage.backend != "gpu":
            return
        for reduce in in_other_orders(computation, self.opcodes):
            count = len(reduce.operand_names) // 2  # the other half are the initial values
            if count < 2:
                continue
            arrays = [operand_array(reduce, number) for number in range(count)]
            inputs = [array for array in arrays if array is not None]
            if len({array.minor_to_major for array in inputs}) > 1:
                listed = ", ".join(map(str, inputs))
                yield Finding(reduce, f"the inputs of this reduce have different layouts: {listed}")
