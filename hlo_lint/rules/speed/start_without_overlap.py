"""Asynchronous operations that overlap with no other work."""

from __future__ import annotations

from hlo_lint.analysis.async_chains import has_async, is_done, starts
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import NO_KERNEL
from hlo_lint.hlo.shape import arrays
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized


class StartWithoutOverlap(Rule):
    """An asynchronous operation whose done comes right after its start.

    ## Why
    A copy or a collective is split into a start and a done so that other work hides its latency. If
    nothing runs in between, the program waits for the whole operation and also pays for the second
    stream. The latency-hiding scheduler leaves such pairs if there is no independent work, if
    memory is short, or if its cost estimates are wrong.
    """

    severity = Severity.INFO
    min_bytes = Option(1 << 20, "Smallest reported input of the operation, in bytes.", least=0)
    mentions = ("-start",)
    evidence = (
        MeasuredHarm(
            "Three operations in dumps of an H200 with jax 0.11.2 end right after their start.",
            "races/other_stream",
        ),
    )
    examples = (
        Bad.entry("""
            HloModule m, is_scheduled=true
            s = (f32[1048576], f32[2097152]) all-gather-start(f32[1048576] p),  // error
                dimensions={0}, replica_groups={{0,1}}
            d = f32[2097152] all-gather-done(s)
            y = f32[1048576] sine(p)
            ROOT t = (f32[2097152], f32[1048576]) tuple(d, y)
        """),
        Good.entry("""
            HloModule m, is_scheduled=true
            s = (f32[1048576], f32[2097152]) all-gather-start(f32[1048576] p),
                dimensions={0}, replica_groups={{0,1}}
            y = f32[1048576] sine(p)
            d = f32[2097152] all-gather-done(s)
            ROOT t = (f32[2097152], f32[1048576]) tuple(d, y)
        """),
    )

    def check(self, final: FinalModule) -> Findings:
        """Starts of a scheduled module that are awaited at once."""
        module = final.module
        if not module.is_scheduled or not has_async(module):
            return
        for computation in module.nonfusion_computations:
            for start in filter(_is_awaited_at_once, starts(computation)):
                shapes = (operand.shape for operand in start.operands)
                size = sum(array.byte_size or 0 for shape in shapes for array in arrays(shape))
                if size >= self.min_bytes:
                    message = f"nothing overlaps with this {start.opcode} of {sized(size)}"
                    yield Finding(start, message)


def _is_awaited_at_once(start: Instruction) -> bool:
    computation = start.computation
    for instruction in map(computation.at, range(start.number + 1, len(computation))):
        if is_done(instruction):
            return start.name in instruction.operand_names
        # A bitcast or a constant between the two hides no latency.
        if instruction.opcode not in NO_KERNEL:
            return False
    return False
