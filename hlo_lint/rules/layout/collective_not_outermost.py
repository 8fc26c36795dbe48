"""Collectives along a dimension that is not outermost in memory."""

from __future__ import annotations

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.shape import ArrayShape, TupleShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Stage


class CollectiveNotOutermost(Rule):
    """A collective along a dimension that is not most major in memory.

    ## Why
    NCCL concatenates and splits contiguous blocks of bytes, so the dimension of an all-gather,
    reduce-scatter or all-to-all has to be the most major in memory. XLA:GPU's layout assignment
    ensures that (`backends/gpu/transforms/layout_assignment.cc:657-686`), and no later check
    exists: if a later pass changes the layout or the dimension, data of the devices is interleaved.
    """

    opcodes = frozenset({"all-gather", "all-gather-start", "all-to-all", "reduce-scatter"})
    skip_fusion_bodies = False  # a fusion may hold a collective
    always_reported = True  # the harm stays when a later pass resolves it
    evidence = (RefusedByXla("all-gather dim 1 is not the most major", passes="none"),)
    examples = (
        Bad.final("""
            HloModule m, replica_count=2
            ROOT g = f32[8,6]{1,0} all-gather(f32[8,3]{1,0} p), dimensions={1},  // error
                replica_groups={}
        """),
        Good.final("""
            HloModule m, replica_count=2
            ROOT g = f32[8,6]{0,1} all-gather(f32[8,3]{0,1} p), replica_groups={}, dimensions={1}
        """),
        Good.final("""
            HloModule m, replica_count=2
            ROOT g = f32[1,6]{1,0} all-gather(f32[1,3]{1,0} p), replica_groups={}, dimensions={1}
        """),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Collectives with a result in which another dimension is more major than theirs."""
        # Only the layout assignment of XLA:GPU moves the dimension outermost, for NCCL.
        if not stage.layouts or stage.backend != "gpu":
            return
        for collective in with_opcodes(computation, self.opcodes):
            dimensions = collective.integers_attribute("dimensions") or ()
            if len(dimensions) != 1:
                continue  # an all-to-all of a tuple
            (dimension,) = dimensions
            for shape in _results(collective):
                if not shape.has_valid_layout or not 0 <= dimension < shape.rank:
                    continue
                outer = shape.minor_to_major[shape.minor_to_major.index(dimension) + 1 :]
                if any(shape.dims[d] != 1 for d in outer):
                    yield Finding(
                        collective,
                        f"this {collective.opcode} is along dimension {dimension} of {shape}, "
                        "which is not the most major dimension",
                    )
                    break


def _results(collective: Instruction) -> list[ArrayShape]:
    """The result arrays of a collective; for a start, those in its second element."""
    shape = collective.shape_or_none
    if collective.opcode == "all-gather-start" and isinstance(shape, TupleShape):
        shape = shape.elements[1] if len(shape.elements) == 2 else None
    shapes = shape.elements if isinstance(shape, TupleShape) else (shape,)
    return [part for part in shapes if isinstance(part, ArrayShape)]
