"""GEMM fusions that leave reshape kernels if the autotuner does not choose Triton."""

from __future__ import annotations

from hlo_lint.kernels.rules.autotuning.gemm_breaks_on_backend_flip import DYING, GEMM, ONE_BATCH
from hlo_lint.rules.base import Bad, BeforeAutotuner, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import MeasuredHarm


class GemmSlowsOnBackendFlip(Rule):
    """A Triton GEMM fusion that leaves reshape kernels if the autotuner chooses cuBLASLt.

    ## Why
    From jax 0.10.2 on, the autotuner runs after fusion, and no pass cleans up after it. The
    reshapes that GemmRewriter puts around a call with two batch dimensions then run as separate
    kernels, copies and transposes of whole arrays, which the autotuner did not time. The speed of
    the same program changes from run to run, and neither log nor dump says why.
    `reshape-runs-as-kernel` reports such kernels afterwards.
    """

    severity = Severity.INFO
    mentions = ("__triton_gemm",)
    evidence = (
        MeasuredHarm(
            "XLA:GPU of jax 0.10.2 left the foretold reshapes, and no others, in 934 of 934 "
            "programs.",
            "flips/slows/nothing_moves.before.hlo",
        ),
    )
    examples = (Bad.entry(GEMM.format(layout="{3,2,1,0}")), Good.entry(ONE_BATCH))

    def check(self, before: BeforeAutotuner) -> Findings:
        """Fusions that would leave reshapes, in a release where that is not fatal."""
        from hlo_lint.kernels.autotuning.cublaslt_fission import SwitchOutcome, predict

        may_die = not before.releases or DYING in before.releases
        for flip in predict(before.module):
            moves = flip.outcome is SwitchOutcome.BREAKS
            fatal = moves and may_die
            if fatal or before.releases == (DYING,) or before.was_taken_apart(flip.fusion):
                continue  # fatal, or cleaned up by later passes, or already done
            kind = "a transpose" if moves else "a copy without effect"
            yield Finding(
                flip.fusion,
                f"with cuBLASLt as its backend this fusion leaves {kind} as a kernel: "
                f"{flip.first.operand} to {flip.first.result}",
                notes=(flip.explanation,),
                severity=Severity.WARNING if before.is_stated else None,
            )
