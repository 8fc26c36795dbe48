"""Kernels that move an array without changing its bytes."""

from __future__ import annotations

from hlo_lint.analysis.data_movement import moves, source_of_move
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized


class NeedlessTranspose(Rule):
    """A transpose or copy kernel that a bitcast could replace.

    ## Why
    A transpose or copy that moves only dimensions of size 1, or that undoes an earlier transpose,
    reads and writes the whole array but does not change its bytes. A bitcast is free. Such
    transposes come from passes that chose different layouts, and from layers written for different
    layouts; no pass after fusion looks for them. Copies to the same layout are not reported: XLA
    makes them where a value needs a second buffer.
    """

    severity = Severity.WARNING
    min_bytes = Option(
        1 << 20,
        "Smallest reported traffic of a kernel, in bytes: 1 MiB takes 0.3 µs of an H100's "
        "memory (3.35 TB/s) and 1.3 µs of a TPU v5e's, and each kernel a few µs to launch.",
        least=0,
    )
    opcodes = frozenset({"copy", "fusion", "transpose"})
    evidence = (Counted("bytes accessed", 8388608, 0),)
    examples = (
        Bad.final("""
            p = f32[1024,1,1024]{2,1,0} parameter(0)
            ROOT t = f32[1024,1024,1]{2,1,0} transpose(p), dimensions={0,2,1}  // error
        """),
        Bad.final("""
            one { ROOT u = f32[1024,512]{1,0} transpose(f32[512,1024]{1,0} q), dimensions={1,0} }
            two {
              u.1 = f32[512,1024]{1,0} transpose(f32[1024,512]{1,0} q.1), dimensions={1,0}
              ROOT b.1 = f32[64,8,1024]{2,1,0} bitcast(u.1)
            }
            there = f32[1024,512]{1,0} fusion(f32[512,1024]{1,0} p), kind=kInput, calls=one
            ROOT back = f32[64,8,1024]{2,1,0} fusion(there), kind=kInput, calls=two  // error
        """),
        Good.final("ROOT t = f32[1024,1024,1]{2,1,0} bitcast(f32[1024,1,1024]{2,1,0} p)"),
        Good.final("""
            t = f32[128,64,64]{2,1,0} transpose(f32[64,64,128]{2,1,0} p), dimensions={2,0,1}
            u = f32[64,128,64]{2,1,0} transpose(t), dimensions={2,0,1}
            ROOT c = f32[64,128,64]{2,1,0} copy(u)
        """),
    )

    def check(self, final: FinalModule) -> Findings:
        """Kernels of a final module that move an array without changing its bytes."""
        # Until fusion, algsimp merges such a pair.
        if not final.is_final:
            return
        transposes = moves(final.module)
        by_kernel = {move.kernel: move for move in transposes}
        for move in transposes:
            if move.byte_count < self.min_bytes:
                continue
            if not move.steps and not move.is_duplicate:
                yield Finding(
                    move.kernel,
                    f"this kernel moves {sized(move.byte_count)} without changing them: "
                    f"{move.before} and {move.after} are the same bytes",
                )
            if not move.steps:
                continue
            first = source_of_move(move, by_kernel)
            if first is None or move.before.element_bits != first.after.element_bits:
                continue
            if move.undoes(first):
                yield Finding(
                    move.kernel,
                    f"this kernel moves {sized(move.byte_count)} to undo the transpose "
                    f"%{first.kernel.name}",
                    notes=(f"%{first.kernel.name} reads the same bytes that this kernel writes",),
                )
