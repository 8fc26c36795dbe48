"""Types with malformed layouts or unsupported dimensions."""

from __future__ import annotations

from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class InvalidLayout(VerifierRule):
    """A type with a malformed layout, an unbounded dimension, or invalid packing.

    ## Why
    A layout must name each dimension exactly once, so that addresses can be computed. XLA:CPU and
    XLA:GPU do not support unbounded dimensions or packed elements of 8 bits or more
    (`xla/service/cpu_gpu_shape_verifier.cc`).
    """

    messages = (
        "layout minor_to_major field contains … elements, but shape has",
        "Unbounded dynamism is disabled",
        "expected a DimLevelType abbreviation",
    )
    table = """
        unbounded-dimension: ShapeVerifier::Preprocess
          no dimension is unbounded
            p = f32[?] parameter(0)  // error
            ROOT n = f32[8] constant({...})
        layout-rank: ShapeVerifier::Preprocess
          a layout names each dimension once
            p = f32[8,3]{1,1} parameter(0)  // error
            ROOT n = f32[8] constant({...})
        element-size: CpuGpuShapeVerifier::Preprocess
          elements of 8 bits or more are not packed
            p = f32[8]{0:E(4)} parameter(0)  // error
            ROOT n = f32[8] constant({...})
    """
    examples = (
        Good.entry("""
            p = f32[8,<=3]{0,1} parameter(0)
            q = s4[8]{0:E(4)} parameter(1)
            ROOT n = f32[8] constant({...})
        """),
    )
