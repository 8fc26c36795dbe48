"""Preconditions of passes, each with the passes that establish it, as data.

A rule names a `Precondition`; the pass lists of the releases (`pipelines/*.txt`) determine where in
a run it binds.
"""

from __future__ import annotations

from typing import NamedTuple

LAYOUT_ASSIGNMENT = "layout-assignment"
"""The pass that gives every array its layout; layouts printed earlier do not bind."""

LAYOUT_NORMALIZATION = "layout_normalization"
"""The pass after whose last run every layout is descending."""

HOST_OFFLOADER = "host-offloader"
"""The pass that puts values into host memory, S(5); before it, no result is there."""


class Precondition(NamedTuple):
    """A precondition of a pass."""

    demanded_by: str
    """The pass that dies, or goes wrong, if the fact does not hold."""
    fact: str
    established_by: tuple[str, ...]
    """Passes after which the fact holds."""
    failure: str
    """XLA's error message if the fact does not hold."""
    about_layouts: bool = True
    """True if it holds only where layouts bind, after layout-assignment."""
    only_if_certain: bool = False
    """True if it is reported only when the next passes are known: uncompiled programs may break
    it."""

    @property
    def messages(self) -> tuple[str, ...]:
        """The parts of `failure`, as `Rule.messages` has them: `layout_normalization.cc: text`."""
        file, _, text = self.failure.rpartition(".cc) ")
        if not file:
            return (self.failure.partition(": ")[2],)
        return tuple(f"{file.rpartition('(')[2]}.cc: {part}" for part in text.split(", or "))


RESHAPES_ARE_BITCASTS = Precondition(
    demanded_by=LAYOUT_NORMALIZATION,
    fact="no reshape outside a fusion moves a byte",
    established_by=("reshape-decomposer",),
    failure="RET_CHECK failure (layout_normalization.cc) "
    "ShapeUtil::ReshapeIsBitcast(s, operand->shape())",
)

SCATTERS_ARE_SIMPLE = Precondition(
    demanded_by=LAYOUT_NORMALIZATION,
    fact="a scatter has descending layouts, or one scatter dimension and operands of one layout",
    established_by=("scatter_simplifier",),
    failure="FailedPrecondition (layout_normalization.cc) All scatter operands must have the same "
    "layout, or There should be just a single scatter dimension",
)

REDUCE_INPUTS_LIE_ALIKE = Precondition(
    demanded_by="reduction-layout-normalizer",
    fact="all inputs of a reduction have the same layout",
    established_by=(LAYOUT_ASSIGNMENT,),
    failure="FailedPrecondition (reduction_layout_normalizer.cc) Layout assignment should have "
    "assigned the same layout to all reduce inputs",
)

REDUCE_INPUTS_DESCEND = Precondition(
    demanded_by="reduction-dimension-grouper",
    fact="the inputs of reductions have descending layouts",
    established_by=("reduction-layout-normalizer",),
    failure="a CHECK that ends the process (reduction_dimension_grouper.cc) Default layout should "
    "be enforced on reduction operand",
)

COPY_INSERTION = "copy-insertion"
"""The pass that gives values their buffers, and copies where two would share one."""

CALL_GRAPH_IS_FLAT = Precondition(
    demanded_by=COPY_INSERTION,
    fact="each sequential computation has one caller",
    established_by=("flatten-call-graph",),
    failure="FAILED_PRECONDITION: Call graph must be flattened before copy insertion",
    about_layouts=False,
    only_if_certain=True,
)

AUTOTUNERS = ("autotuner", "config-assigner")
"""The pass that chooses a backend for each kernel, by its names in the releases."""

PRECONDITIONS = {
    "reshapes-are-bitcasts": RESHAPES_ARE_BITCASTS,
    "scatters-are-simple": SCATTERS_ARE_SIMPLE,
    "reduce-inputs-lie-alike": REDUCE_INPUTS_LIE_ALIKE,
    "reduce-inputs-descend": REDUCE_INPUTS_DESCEND,
    "call-graph-is-flat": CALL_GRAPH_IS_FLAT,
}
"""All preconditions, by their names in contracts.toml."""

DEMANDING = tuple(dict.fromkeys(demand.demanded_by for demand in PRECONDITIONS.values()))
"""The passes with a precondition."""

BINDING_PASSES = (*DEMANDING, *AUTOTUNERS)
"""The passes before which a rule binds."""

BEFORE_LAYOUTS = ("before_optimizations", "after_spmd_partitioner")
"""Named dumps that are written before layout-assignment."""

LOOSE_BEFORE_LAYOUTS = (*BEFORE_LAYOUTS, "before_optimization")
"""Endings of the names of loose files from before layout-assignment."""

BEFORE_CONFIG_ASSIGNMENT = "before_config_assignment"
"""The named dump before the pass config-assigner."""

AFTER_NORMALIZATION = (BEFORE_CONFIG_ASSIGNMENT, "after_optimizations")
"""Endings of named dumps that are written after the last layout_normalization."""

HELPER_PIPELINES = (
    "cublaslt_rewriter_pipeline",
    "hipblaslt_rewriter_pipeline",
    "annotate-sync-collectives",
)
"""Pipelines on modules that never run and have no final dump: the autotuner's on an extracted
fusion, to try a backend, and the scheduler's of jax 0.7 and 0.8 on a clone without copies, to find
the collectives that do not overlap."""
