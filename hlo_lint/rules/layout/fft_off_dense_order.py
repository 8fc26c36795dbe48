"""Fourier transforms of arrays in an order that FFT libraries cannot read."""

from __future__ import annotations

from hlo_lint.analysis.kinds import judged
from hlo_lint.analysis.layout_mismatches import is_descending
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import MeasuredHarm

_PROGRAM = """
ROOT f = c64[4,16]{{{order}}} fft(c64[4,16]{{{order}}} p), fft_type=FFT, fft_length={{16}}  // error
"""


class FftOffDenseOrder(Rule):
    """A Fourier transform whose operand or result has no descending layout.

    ## Why
    DUCC and cuFFT read arrays in row-major order: the last dimension varies fastest. Layout
    assignment of XLA:CPU and XLA:GPU gives the operand and the result of an fft this order. If a
    later pass or a custom call changes it, XLA:CPU stops at `LayoutUtil::IsMonotonicWithDim0Major`;
    where no check exists, the numbers are wrong.
    """

    opcodes = frozenset({"fft"})
    evidence = (MeasuredHarm("XLA:CPU ended at `IsMonotonicWithDim0Major`."),)
    reports = "jax-ml/jax#22484"
    examples = (Bad.final(_PROGRAM.format(order="0,1")), Good.final(_PROGRAM.format(order="1,0")))

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
