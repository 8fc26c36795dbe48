"""Printed shapes that do not follow from what an instruction reads."""

from __future__ import annotations

from hlo_lint.findings import Finding
from hlo_lint.rule import Bad, FinalModule, Findings, Good, Rule


class ImpossibleShape(Rule):
    """The printed shape is not what XLA would infer.

    ## Why
    XLA's parser takes any shape for most instructions, and a release build verifies almost nothing
    between passes. A shape that does not follow from the operands, the attributes and what is
    called was edited by hand, or left behind by a pass that changed one side only: the compiler
    dies passes later, or a kernel reads beyond its buffer.

    Precisions of floats may mix, as XLA allows it. What XLA itself cannot infer (a reshape, a
    broadcast, a bitcast …) is held to what it demands of it: as many elements, sizes that match.
    Of the dumps of one module the last is looked at.
    """

    examples = (
        Bad(
            """
            HloModule gemm

            ENTRY e {
              p = f32[64,32]{1,0} parameter(0)
              q = f32[32,16]{1,0} parameter(1)
              d = f32[64,32]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}  // error
              ROOT r = f32[32,64]{1,0} transpose(d), dimensions={1,0}
            }
            """  # noqa: E501
        ),
        Bad(
            """
            HloModule called

            sum {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b)
            }

            ENTRY e {
              p = s32[8,4]{1,0} parameter(0)
              zero = s32[] constant(0)
              ROOT r = s32[8]{0} reduce(p, zero), dimensions={1}, to_apply=sum  // error
            }
            """
        ),
        Good(
            """
            HloModule gemm

            ENTRY e {
              p = bf16[64,32]{1,0} parameter(0)
              q = bf16[32,16]{1,0} parameter(1)
              d = f32[64,16]{1,0} dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
              ROOT r = f32[16,64]{1,0} transpose(d), dimensions={1,0}
            }
            """
        ),
    )

    def check(self, final: FinalModule) -> Findings:
        """Every instruction of the module, bodies of fusions too."""
        from hlo_lint.analysis.shape_inference import ShapeInference

        inference = ShapeInference(final.module.computations)
        for computation in final.module.computations:
            for calls in (False, True):
                for instruction, message in inference.complaints(
                    computation, calls=calls, layouts=final.is_final
                ):
                    yield Finding(instruction, message)
