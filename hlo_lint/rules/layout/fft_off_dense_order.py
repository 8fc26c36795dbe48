"""Fourier transforms of arrays in an order that FFT libraries cannot read."""

from __future__ import annotations

from hlo_lint.analysis.kinds import judged
from hlo_lint.analysis.layout_mismatches import is_descending
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import RefusedByXla


class FftOffDenseOrder(Rule):
    """A Fourier transform whose operand or result has no descending layout.

    ## Why
    DUCC and cuFFT read arrays in row-major order: the last dimension varies fastest. Layout
    assignment of XLA:GPU gives the operand and the result of an fft this order. That of XLA:CPU
    takes the order of what is around the fft, such as a collective of columns, and the run stops at
    `LayoutUtil::IsMonotonicWithDim0Major`. Where no check exists, the numbers are wrong.
    """

    opcodes = frozenset({"fft"})
    evidence = (RefusedByXla("LayoutUtil::IsMonotonicWithDim0Major", by="cpu 0.10.2"),)
    reports = "jax-ml/jax#22484"
    examples = (
        Bad("""
            HloModule sharded, replica_count=4

            // hlo-lint: stage cpu post-layout
            ENTRY e {
              p = c64[16,4]{1,0} parameter(0)
              g = c64[16,16]{0,1} all-gather(p), replica_groups={{0,1,2,3}}, dimensions={1}
              f = c64[16,16]{0,1} fft(g), fft_type=FFT, fft_length={16,16}  // error
              s = c64[16,4]{0,1} slice(f), slice={[0:16], [0:4]}
              ROOT h = c64[16,16]{0,1} all-gather(s), replica_groups={{0,1,2,3}}, dimensions={1}
            }
        """),
        Good.final("ROOT f = c64[4,16]{1,0} fft(c64[4,16]{1,0} p), fft_type=FFT, fft_length={16}"),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Transforms off the descending order, after layout assignment."""
        is_placed = stage.scheduled if stage.assumed else stage.layouts
        # A text of unknown stage may be from before layout-assignment, unless it is scheduled.
        if not is_placed or stage.backend == "tpu":
            return
        for fft, shape in judged(module, "fft", _off_order):
            yield Finding(
                fft,
                f"this fft is on {shape}, but FFT libraries read only descending layouts",
                severity=Severity.WARNING if stage.assumed else None,
            )


def _off_order(fft: Instruction) -> ArrayShape | None:
    for shape in (operand_array(fft, 0), result_array(fft)):
        if shape is not None and not is_descending(shape):
            return shape
    return None
