"""Sums of floats in an open order: two runs of a program may differ in their last bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.dtypes import is_inexact
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Compilation, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted

_SCATTER: Final = """
HloModule m, is_scheduled=true
op {{ ROOT c = {type}[] {opcode}({type}[] a, {type}[] b) }}
f {{
  ROOT s = {type}[64]{{0}} scatter({type}[64]{{0}} p, s32[16,1]{{1,0}} i, \
{type}[16,1]{{1,0}} u), update_window_dims={{1}}, inserted_window_dims={{}}, \
scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, unique_indices={unique}, \
to_apply=op  // error
}}
ROOT r = {type}[64]{{0}} fusion({type}[64]{{0}} p, s32[16,1]{{1,0}} i, {type}[16,1]{{1,0}} u), \
kind=kInput, calls=f
"""
FIXED_BY: Final = ("xla_gpu_exclude_nondeterministic_ops", "xla_gpu_deterministic_ops")
"""The flags with which XLA:GPU fixes the order of every sum, or refuses the operation."""
SCATTERS_FIXED_BY: Final = (*FIXED_BY, "xla_gpu_enable_scatter_determinism_expander")
_TUNED: Final = ('"triton_gemm_config"', '"block_level_fusion_config"', '"selected_algorithm"')
"""Fields of a configuration that the autotuner fills in."""


class SumOrderVaries(Rule):
    """A sum of floats whose order is not the same in each run or compile on a GPU.

    ## Why
    Rounding depends on the order of a sum. On XLA:GPU three things leave it open. A scatter that
    adds floats at indices not known to be unique uses atomic operations, which run in any order (20
    results in 20 runs on an H100, jax 0.11.2); a select-and-scatter becomes such a scatter. The
    autotuner chooses the tiles of a product by measured time, so another compile may choose others.
    NCCL chooses the algorithm of an
    all-reduce or a reduce-scatter by the machine. `xla_gpu_exclude_nondeterministic_ops` makes
    XLA:GPU fix the order or refuse the operation, `unique_indices=true` states that no two updates
    meet, `xla_gpu_autotune_level=0` or saved results (`xla_gpu_load_autotune_results_from`) fix the
    tiles. XLA:CPU and XLA:TPU add in a fixed order.

    No defect by itself: select it where two runs of a program differ, or must not.
    """

    severity = Severity.INFO
    enabled_by_default = False
    evidence = (Counted("atomic instructions", 1, 0, other=2),)
    examples = (
        Bad.final(_SCATTER.format(type="f32", opcode="add", unique="false")),
        Good.final(_SCATTER.format(type="s32", opcode="add", unique="false")),
        Good.final(_SCATTER.format(type="f32", opcode="maximum", unique="false")),
        Good.final(_SCATTER.format(type="f32", opcode="add", unique="true")),
        Good.final(
            _SCATTER.format(type="f32", opcode="add", unique="false"),
            beside={"module_0001.m.debug_options": "xla_gpu_exclude_nondeterministic_ops: true"},
        ),
    )

    def check(self, compilation: Compilation) -> Findings:
        """The open sums of a final module of XLA:GPU."""
        final = compilation.final
        if final is None or compilation.backend != "gpu":
            return
        file = compilation.dumps.index(final)
        for module in final.file.modules:
            for instruction, reason in _open_sums(module, compilation):
                yield Finding(instruction, reason, file=file)


def _open_sums(module: Module, compilation: Compilation) -> Iterator[tuple[Instruction, str]]:
    if not _is_set(compilation, *SCATTERS_FIXED_BY):
        for scatter in instructions_of(module, "scatter"):
            is_unique = "unique_indices=true" in scatter.attributes_text
            if _adds_floats(scatter, module) and not is_unique:
                yield (
                    scatter,
                    "this scatter adds floats in any order: its indices are not known to be unique",
                )
    for opcode in ("all-reduce", "all-reduce-start", "reduce-scatter"):
        for collective in instructions_of(module, opcode):
            if _adds_floats(collective, module):
                yield collective, f"NCCL chooses the order in which this {opcode} adds floats"
    # At level 0 the autotuner measures nothing, so no choice depends on time.
    if _is_set(compilation, *FIXED_BY) or _values(compilation, "xla_gpu_autotune_level") == ("0",):
        return
    for opcode in ("fusion", "custom-call"):
        for product in instructions_of(module, opcode):
            body = module.callee(product)
            has_sum = body is None or not body.opcodes.isdisjoint(("dot", "convolution"))
            if has_sum and any(field in product.attributes_text for field in _TUNED):
                yield product, f"the autotuner chose by time how this {opcode} adds"


def _adds_floats(instruction: Instruction, module: Module) -> bool:
    array, reducer = operand_array(instruction, 0), module.callee(instruction)
    root = None if reducer is None else reducer.root
    return (
        array is not None
        and is_inexact(array.dtype)
        and root is not None
        and root.opcode in ("add", "multiply")
    )


def _is_set(compilation: Compilation, *names: str) -> bool:
    return any(_values(compilation, name) == ("true",) for name in names)


def _values(compilation: Compilation, name: str) -> tuple[str, ...]:
    return compilation.options.values.get(name, ()) if compilation.options is not None else ()
