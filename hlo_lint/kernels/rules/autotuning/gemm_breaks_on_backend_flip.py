"""GEMM fusions that compile only if the autotuner chooses Triton."""

from __future__ import annotations

from hlo_lint.rules.base import Bad, BeforeAutotuner, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import PublicReport

GEMM = """
HloModule split

gemm {{
  ROOT d = f32[2,8,128,32]{layout} dot(f16[2,8,64,128] a, f16[2,8,32,64] b), \
lhs_batch_dims={{0,1}}, lhs_contracting_dims={{2}}, \
rhs_batch_dims={{0,1}}, rhs_contracting_dims={{3}}
}}

ROOT f = f32[2,8,128,32]{layout} fusion(f16[2,8,64,128] x, f16[2,8,32,64] y), kind=kCustom, \
calls=gemm, backend_config={{"fusion_backend_config":{{"kind":"__triton_gemm"}}}}  // error
"""
"""The result of splitting the contracted dimension: a dot with two batch dimensions."""

ONE_BATCH = """
HloModule whole

gemm {
  ROOT d = f32[16,128,32]{1,2,0} dot(f16[16,64,128]{2,1,0} a, f16[16,32,64]{2,1,0} b), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, rhs_contracting_dims={2}
}

ROOT f = f32[16,128,32]{1,2,0} fusion(f16[16,64,128]{2,1,0} x, f16[16,32,64]{2,1,0} y), kind=kCustom, calls=gemm, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
"""  # noqa: E501

DYING = "gpu-jax0.10.0"
"""The release whose autotuner runs before the last LayoutNormalization, without a safeguard."""


class GemmBreaksOnBackendFlip(Rule):
    """A Triton GEMM fusion that XLA cannot compile if the autotuner chooses cuBLASLt.

    ## Why
    The autotuner picks the fastest backend, and timings are close. If cuBLASLt or hipBLASLt wins a
    fusion whose dot has two batch dimensions, GemmRewriter gives the call a descending layout and
    adds a reshape to the original layout. If that reshape moves bytes, jax 0.10.0 fails in
    LayoutNormalization (see `reshape-moves-data`): the program compiles in most runs and fails in
    some. Later releases only lose time (see `gemm-slows-on-backend-flip`).
    """

    severity = Severity.WARNING
    mentions = ("__triton_gemm",)
    evidence = (PublicReport("ROCm/xla#817", "flips/breaks/result_moves.before.hlo"),)
    examples = (
        Bad.entry(GEMM.format(layout="{2,3,1,0}")),
        Good.entry(GEMM.format(layout="{3,2,1,0}")),
        Good.entry(ONE_BATCH),
    )

    def check(self, before: BeforeAutotuner) -> Findings:
        """Fusions that would leave a reshape that moves bytes, in a release where that is fatal."""
        from hlo_lint.kernels.autotuning.cublaslt_fission import SwitchOutcome, predict

        if before.releases and DYING not in before.releases:
            return
        for flip in predict(before.module):
            if flip.outcome is SwitchOutcome.BREAKS and not before.was_taken_apart(flip.fusion):
                yield Finding(
                    flip.fusion,
                    f"with cuBLASLt as its backend this fusion leaves a reshape that moves bytes: "
                    f"{flip.first.operand} to {flip.first.result}",
                    notes=(
                        flip.explanation,
                        "jax 0.10.0 then fails in layout_normalization; from 0.10.1 on it costs a "
                        "transpose kernel",
                    ),
                    severity=Severity.ERROR if before.is_stated else None,
                )
