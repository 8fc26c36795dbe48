"""The precondition of ReductionDimensionGrouper: reductions read descending layouts."""

from __future__ import annotations

from hlo_lint.analysis.layout_mismatches import in_other_orders
from hlo_lint.dumps.phases import REDUCE_INPUTS_DESCEND
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.ir import Computation
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Stage

_PROGRAM = """
// hlo-lint: stage gpu before=reduction-dimension-grouper
sum {{ ROOT s = f32[] add(f32[] a, f32[] b) }}
z = f32[] constant(0)
ROOT r = f32[8] reduce(f32[8,4]{layout} p, z), dimensions={{1}}, to_apply=sum  // error
"""


class ReduceOffNormalForm(Rule):
    """A reduction of an array whose layout is not descending, although XLA:GPU requires it.

    ## Why
    XLA:GPU's ReductionLayoutNormalizer gives every reduction an operand in the descending order.
    ReductionDimensionGrouper and ReductionSplitter merge and split dimensions by number, and abort
    the process on any other order (`reduction_dimension_grouper.cc:59`,
    `reduction_splitter.cc:70`), even if only dimensions of size 1 are out of order.
    """

    precondition = REDUCE_INPUTS_DESCEND
    opcodes = frozenset({"reduce"})
    evidence = (
        RefusedByXla(
            "Default layout should be enforced on reduction operand",
            passes="reduction-dimension-grouper",
        ),
    )
    examples = (
        Bad.entry(_PROGRAM.format(layout="{0,1}")),
        Good.entry(_PROGRAM.format(layout="{1,0}")),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Reductions with an input whose layout is not descending."""
        if stage.backend != "gpu":
            return
        for reduce in in_other_orders(computation, self.opcodes):
            for number in range(len(reduce.operands) // 2):
                read = operand_array(reduce, number)
                if (
                    read is not None
                    and read.minor_to_major != read.with_layout(None).minor_to_major
                ):
                    yield Finding(
                        reduce,
                        f"this reduce reads {read}, whose layout is not descending",
                        operand=number,
                    )
                    break
