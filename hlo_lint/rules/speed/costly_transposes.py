"""Transposes that move many bytes in a final module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hlo_lint.analysis.data_movement import Move, moves, strided_reads
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Bad, Compilation, FinalModule, Findings, Good, Rule
from hlo_lint.rules.evidence import Counted
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized

SHOWN: Final = 3


class CostlyTransposes(Rule):
    """Unfused transposes that move many megabytes.

    ## Why
    An unfused transpose, or copy to a different layout, reads and writes its whole array. It exists
    because its producer and its users require different layouts: a GEMM or a convolution, the
    entry's layout, or a custom call. A different layout on either side removes it. A fusion of loop
    kind that reads an operand across its layout moves as much, without the tiles of a transpose
    kernel. There is a single finding per module, at the largest transpose, with the total.

    In an unfinished run, only transposes added since the first dump count: fusion may still absorb
    those of the program itself.
    """

    severity = Severity.INFO
    min_bytes = Option(
        1 << 24,
        "Smallest reported traffic, in bytes; 16 MiB take a few µs on a large GPU.",
        least=0,
    )
    opcodes = frozenset({"copy", "fusion", "transpose"})
    evidence = (Counted("bytes accessed", 33554432, 1048576),)
    reports = "openxla/xla#46013, tensorflow/tensorflow#58950"
    examples = (
        Bad.final(
            "ROOT t = f32[2048,2048] transpose(f32[2048,2048] p), dimensions={1,0}  // error"
        ),
        Bad.final("""
            loop {
              c = f32[2048,2048]{0,1} copy(f32[2048,2048]{1,0} q)
              ROOT n = f32[2048,2048]{0,1} tanh(c)
            }
            p = f32[2048,2048]{1,0} parameter(0)
            ROOT f = f32[2048,2048]{0,1} fusion(p), kind=kLoop, calls=loop  // error
        """),
        Good.final("ROOT t = f32[2048,64]{1,0} transpose(f32[64,2048]{1,0} p), dimensions={1,0}"),
        Bad.step("""
            - ROOT n = f32[2048,2048]{1,0} negate(f32[2048,2048]{1,0} p)
            + ROOT t = f32[2048,2048]{1,0} transpose(p), dimensions={1,0}  // error
        """),
        Good.step("""
            - ROOT s = f32[2048,2048]{1,0} transpose(f32[2048,2048]{1,0} p), dimensions={1,0}
            + ROOT t = f32[2048,2048]{1,0} transpose(p), dimensions={1,0}
        """),
    )

    def check(self, final: FinalModule) -> Findings:
        """The total of all transposes of a final or scheduled module, if it reaches the limit."""
        if final.is_final or final.module.is_scheduled:
            yield from self._judge(final.module, _costly(final.module))

    def check_unfinished(self, compilation: Compilation) -> Findings:
        """Transposes that passes added in an unfinished run, before scheduling."""
        dumps = compilation.dumps
        first, last = dumps[0], dumps[-1]
        # `check` judges a final or scheduled module by all of its transposes.
        if compilation.final is not None or last.module.is_scheduled:
            return
        orders = [_order(move) for move in _costly(first.module)]
        added = []
        for move in _costly(last.module):
            if _order(move) in orders:
                orders.remove(_order(move))
            else:
                added.append(move)
        yield from self._judge(last.module, added, len(dumps) - 1)

    def _judge(self, module: Module, moved: Iterable[Move], file: int = 0) -> Findings:
        costly = sorted((move for move in moved if move.steps), key=lambda move: -move.byte_count)
        total = sum(move.byte_count for move in costly)
        if not costly or total < self.min_bytes:
            return
        largest = costly[0]
        others = f"; {len(costly)} transposes move {sized(total)}" if len(costly) > 1 else ""
        notes = tuple(
            f"%{move.kernel.name} moves {sized(move.byte_count)}: {move}"
            for move in costly[1 : SHOWN + 1]
        )
        is_read = largest.kernel.opcode == "fusion" and largest in strided_reads(module)
        what = "fusion reads across its layout and moves" if is_read else "transpose moves"
        yield Finding(
            largest.kernel,
            f"this {what} {sized(largest.byte_count)} each time it runs: {largest}{others}",
            notes,
            file=file,
        )


def _costly(module: Module) -> tuple[Move, ...]:
    return (*moves(module), *strided_reads(module))


def _order(move: Move) -> tuple[object, ...]:
    return move.before.dtype, move.steps
