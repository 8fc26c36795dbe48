"""The precondition of LayoutNormalization on scatters."""

from __future__ import annotations

from hlo_lint.analysis.layout_mismatches import in_other_orders
from hlo_lint.dumps.phases import SCATTERS_ARE_SIMPLE
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Stage


class ScatterOffNormalForm(Rule):
    """A scatter that LayoutNormalization cannot normalize.

    ## Why
    LayoutNormalization skips a scatter whose layouts are all descending. In any other scatter the
    operands must share a layout, the updates must share a layout, and the updates may have at most
    one scatter dimension, as ScatterSimplifier leaves them. Otherwise XLA fails with
    FailedPrecondition (`layout_normalization.cc:442-481`).
    """

    precondition = SCATTERS_ARE_SIMPLE
    opcodes = frozenset({"scatter"})
    evidence = (
        RefusedByXla(
            "There should be just a single scatter dimension", passes="layout_normalization"
        ),
    )
    examples = (
        Bad.entry("""
            // hlo-lint: stage gpu before=layout_normalization
            sum { ROOT s = f32[] add(f32[] a, f32[] b) }
            ROOT r = f32[8,4]{0,1} scatter(f32[8,4]{0,1} p, s32[2,3,1] i, f32[2,3,4] u),  // error
                update_window_dims={2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
                index_vector_dim=2, to_apply=sum
        """),
        Good.entry("""
            // hlo-lint: stage gpu before=layout_normalization
            sum { ROOT s = f32[] add(f32[] a, f32[] b) }
            ROOT r = f32[8,4]{0,1} scatter(f32[8,4]{0,1} p, s32[6,1] i, f32[6,4] u),
                update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
                index_vector_dim=1, to_apply=sum
        """),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Scatters that LayoutNormalization neither skips nor supports."""
        if stage.backend != "gpu":
            return
        for scatter in in_other_orders(computation, self.opcodes):
            reason = _reason(scatter)
            if reason:
                yield Finding(scatter, reason)


def _reason(scatter: Instruction) -> str:
    """The reason that LayoutNormalization rejects a scatter; empty if it does not."""
    count = len(scatter.operands)
    arrays = [operand_array(scatter, number) for number in range(count)]
    with_layout = [array for array in arrays if array is not None]
    if count < 3 or count % 2 == 0 or len(with_layout) < count:
        return ""
    # LayoutNormalization skips it, whatever its scatter dimensions.
    if all(array.minor_to_major == array.with_layout(None).minor_to_major for array in with_layout):
        return ""
    operands, updates = with_layout[: count // 2], with_layout[count // 2 + 1 :]
    for name, group in (("operands", operands), ("updates", updates)):
        if len({array.minor_to_major for array in group}) > 1:
            return (
                f"the {name} of this scatter have different layouts: {', '.join(map(str, group))}"
            )
    windows = scatter.attribute_or_none("update_window_dims")
    dimensions = updates[0].rank - len(windows) if isinstance(windows, tuple) else 0
    if dimensions > 1:
        return (
            f"this scatter has {dimensions} scatter dimensions, expected at most 1, since the "
            f"layout of {with_layout[0]} is not descending"
        )
    return ""
