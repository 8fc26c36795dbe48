"""Custom calls that only the compiler understands, in what is going to run."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.side_effects import MARKERS, SHARDY
from hlo_lint.hlo.ir import Computation
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding, Severity

_PROGRAM = """
p = f32[8]{{0}} parameter(0)
ROOT c = f32[8]{{0}} custom-call(p), custom_call_target="{target}"{mark}
"""
_FINAL = {".ir-no-opt.ll": ""}
_REMOVERS: Final = (
    "the partitioner",
    "host-offloader",
    "convert-memory-placement-to-internal-annotations",
)
"""Those that leave no mark of theirs where they ran."""

_PARTITIONED = "module_0001.m.0002.spmd-partitioner.after_spmd-partitioning.before_dce.txt"
_TO_PARTITION = {
    "module_0001.m.0001.spmd-partitioner.after_dce.before_spmd-partitioning.txt": """
        HloModule m

        ENTRY e {
          p = f32[8]{0} parameter(0)
          c = f32[8]{0} custom-call(p), custom_call_target="Sharding", sharding={replicated}
          ROOT n = f32[8]{0} negate(c)
        }
    """
}


class MarkerLeft(Rule):
    """A custom call that marks a value for a pass, in what that pass or a compiler ended with.

    ## Why
    Frontends mark values with custom calls that compute nothing: where a value is to be moved to
    the host, how it is sharded, in which layout it lies. A pass takes each of them away. Where that
    pass did not run, or did not know what to do with one, the call stays, and the program fails
    when it is loaded or run: no such custom call is registered. The partitioner leaves none of its
    marks: what it did not take away it did not partition. So it is with host-offloader
    and with the pass that turns placements into its marks.
    """

    severity = Severity.ERROR
    opcodes = frozenset({"custom-call"})
    examples = (
        Bad.entry(_PROGRAM.format(target="MoveToHost", mark="  // error"), artefacts=_FINAL),
        Bad.entry(
            _PROGRAM.format(target="Sharding", mark="  // error"),
            file=_PARTITIONED,
            beside=_TO_PARTITION,
        ),
        Bad.entry(
            _PROGRAM.format(target="MoveToHost", mark="  // error"),
            file=_PARTITIONED.replace("spmd-partitioning", "host-offloader"),
            beside={
                name.replace("spmd-partitioning", "host-offloader"): text
                for name, text in _TO_PARTITION.items()
            },
        ),
        Good.entry(_PROGRAM.format(target="my_kernel", mark=""), artefacts=_FINAL),
    )

    def check_removers(self, change: PassPair) -> Findings:
        """Each such call that the partitioner, or the pass that takes it away, left."""
        name = change.pass_name
        remover = "the partitioner" if name == "spmd-partitioning" else name
        if remover not in _REMOVERS:
            return
        for call in instructions_of(change.after, "custom-call"):
            if MARKERS.get(call.custom_call_target) == remover:
                message = f"{call.custom_call_target} is left by {change.pass_name}"
                yield Finding(call, message, severity=Severity.WARNING)

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Each such call of a final module."""
        if not stage.final or stage.assumed:
            return
        for call in computation.with_opcode("custom-call"):
            target = call.custom_call_target
            remover = "the Shardy partitioner" if target.startswith(SHARDY) else MARKERS.get(target)
            if remover is not None:
                yield Finding(call, f"{target} is left, which {remover} should have removed")
