"""Custom calls that the module's backend does not implement."""

from __future__ import annotations

from functools import cache
from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Severity, Stage

_PLATFORMS: Final = {
    "__cublas$": "gpu",
    "__cudnn$": "gpu",
    "__gpu$": "gpu",
    "__onednn$": "cpu",
    "blas_": "cpu",
    "cublas_": "gpu",
    "cudnn_": "gpu",
    "cusolver_": "gpu",
    "cusparse_": "gpu",
    "hipblas_": "gpu",
    "hipsolver_": "gpu",
    "hipsparse_": "gpu",
    "lapack_": "cpu",
    "mosaic_gpu": "gpu",
    "triton_kernel_call": "gpu",
    "cu_lu_pivots_to_permutation": "gpu",
    "cu_threefry2x32": "gpu",
    "tpu_custom_call": "tpu",
    "xla_ffi_partitioned_python_cpu_callback": "cpu",
    "xla_ffi_partitioned_python_gpu_callback": "gpu",
    "xla_ffi_python_cpu_callback": "cpu",
    "xla_ffi_python_gpu_callback": "gpu",
    "xla_python_cpu_callback": "cpu",
    "xla_python_gpu_callback": "gpu",
}
"""The backend of targets, by the start of their names."""
_PROGRAM = """
ROOT c = f32[8,8] custom-call(f32[8,8] p), custom_call_target="{target}"  // error
"""


class ForeignCustomCall(Rule):
    """A custom call that only a different backend implements.

    ## Why
    Each backend has its own custom calls: `lapack_…` on the CPU, `cusolver_…`, `__cudnn$…` and
    Triton on a GPU, `tpu_custom_call` on a TPU. A program lowered for one backend and compiled for
    another, a module exported and loaded elsewhere, or a callback of the wrong platform fails with
    `No FFI handler registered for … on a platform Host` or `No registered implementation for
    untyped custom call`. Computations on the host may use the CPU's calls.

    The finding is an error in the final module of a known backend, and a warning in a module that
    calls libraries of two backends.
    """

    severity = Severity.ERROR
    opcodes = frozenset({"custom-call"})
    evidence = (RefusedByXla("No registered implementation for custom call to lapack_spotrf_ffi"),)
    examples = (
        Bad.final(_PROGRAM.format(target="lapack_spotrf_ffi")),
        Bad.entry("""
            q = f32[8,8]{1,0} custom-call(f32[8,8]{1,0} p), custom_call_target="__cublas$gemm"
            ROOT c = f32[8,8]{1,0} custom-call(p), custom_call_target="lapack_spotrf_ffi"  // error
        """),
        Good.final(_PROGRAM.format(target="cusolver_potrf_ffi")),
        Good.entry(_PROGRAM.format(target="lapack_spotrf_ffi")),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Calls that belong to a different backend than the module."""
        calls = [
            (call, platform)
            for call in instructions_of(module, "custom-call")
            if (platform := _platform(call.custom_call_target))
            and call.computation.thread == "main"
            and "_xla_compute_type" not in call.attributes_text  # else it runs on the host
        ]
        platforms = [platform for _, platform in calls]
        if stage.final and not stage.assumed and stage.backend in ("cpu", "gpu", "tpu"):
            backend, severity = stage.backend, Severity.ERROR
        elif len(set(platforms)) > 1:
            backend, severity = platforms[0], Severity.WARNING
        else:
            return
        for call, platform in calls:
            if platform != backend:
                yield Finding(
                    call,
                    f"{call.custom_call_target} exists only on XLA:{platform.upper()}, but this "
                    f"module is for XLA:{backend.upper()}",
                    severity=severity,
                )


@cache
def _platform(target: str) -> str:
    """The only backend that implements a target; empty if it is unknown or not unique."""
    return next((name for start, name in _PLATFORMS.items() if target.startswith(start)), "")
