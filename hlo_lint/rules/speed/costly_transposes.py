"""Transposes that move many bytes in what is going to run."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.data_movement import moves
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.options import Option

SHOWN: Final = 3

_FINAL = {".ir-no-opt.ll": ""}
_PROGRAM = """
HloModule m

ENTRY e {
  p = f32[%d,2048]{1,0} parameter(0)
  ROOT t = f32[2048,%d]{1,0} transpose(p), dimensions={1,0}%s
}
"""


class CostlyTransposes(Rule):
    """Transposes that move many megabytes and compute nothing.

    ## Why
    A transpose, or a copy into another order, that was fused with nothing reads and writes its
    whole array. It is there because the two sides of it want different orders: what a GEMM or a
    convolution demands, what the program's entry is told, what a custom call asks for. Another
    order of one side saves all of it. One report a module tells the sum, and stands at the largest.
    """

    severity = Severity.INFO
    min_bytes = Option(
        1 << 24,
        "Bytes read and written that make a report; 16 MiB take a few µs on a large GPU.",
        least=0,
    )
    opcodes = frozenset({"copy", "fusion", "transpose"})
    examples = (
        Bad(_PROGRAM % (2048, 2048, "  // error"), artefacts=_FINAL),
        Good(_PROGRAM % (64, 64, ""), artefacts=_FINAL),
    )

    def check(self, final: FinalModule) -> Findings:
        """The sum over all moves into another order, where it is large."""
        if not final.is_final:
            return
        costly = sorted(
            (move for move in moves(final.module) if move.steps),
            key=lambda move: -move.byte_count,
        )
        total = sum(move.byte_count for move in costly)
        if total < self.min_bytes:
            return
        largest = costly[0]
        others = f"; {len(costly)} of them move {total} bytes" if len(costly) > 1 else ""
        notes = tuple(
            f"%{move.kernel.name} moves {move.byte_count} bytes: {move.before} to {move.after}"
            for move in costly[1 : SHOWN + 1]
        )
        yield Finding(
            largest.kernel,
            f"this transpose moves {largest.byte_count} bytes each time it runs: {largest.before} "
            f"to {largest.after}{others}",
            notes,
        )
