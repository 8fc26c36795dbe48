"""Cycles of operands or calls."""

from __future__ import annotations

from hlo_lint.analysis.cycles import Cycles
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule


class DependencyCycle(Rule):
    """A value that is computed from itself, or a computation that calls itself.

    ## Why
    XLA's parser only knows names defined earlier: it rejects such an operand with "instruction does
    not exist", and such a callee with "computation does not exist". Graphs in XLA have no cycles,
    so only rules of the family form check such a module.
    """

    messages = ("A cycle is detected while visiting instruction",)
    always_reported = True
    skip_fusion_bodies = False
    subsumes = frozenset({"malformed-text"})
    evidence = (RefusedByXla("cannot parse as an instruction name", by="parser 0.12.0.1"),)
    examples = (
        Bad.entry("ROOT t = (f32[8], f32[8]) tuple(f32[8] p, t)  // error"),
        Bad.entry("""
            a = f32[8] add(f32[8] p, b)  // error
            b = f32[8] negate(a)
            ROOT c = f32[8] negate(b)
        """),
        Bad.entry("""
            f { ROOT d = f32[8] call(f32[8] q), to_apply=f  // error }
            ROOT c = f32[8] call(f32[8] p), to_apply=f
        """),
        Good.entry("ROOT t = (f32[8], f32[8]) tuple(f32[8] p, p)"),
    )

    def check(self, cycles: Cycles) -> Findings:
        """Instructions that close a cycle of operands, and calls on a cycle of computations."""
        for instruction in cycles.operands:
            message = f"%{instruction.name} is computed from itself"
            yield Finding(instruction, f"{message}: XLA's parser rejects the module")
        for call in cycles.calls:
            message = f"%{call.computation.name} calls itself here, directly or indirectly"
            yield Finding(call, f"{message}: XLA's parser rejects the module")
