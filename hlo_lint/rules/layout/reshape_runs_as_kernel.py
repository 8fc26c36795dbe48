"""Reshapes at top level that were wrapped into kernels."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis import match as m
from hlo_lint.analysis.calls import fusions_of, holders
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.layouts import packs_alike, reshape_is_bitcast
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.rules.options import Option
from hlo_lint.text.edits import Fix
from hlo_lint.text.phrases import sized

LOOP_FUSION = m.fusion(m.any()).attr(kind="kLoop")
ONE_RESHAPE = m.reshape(m.parameter())

_PROGRAM = """
HloModule left_behind, is_scheduled=true
wrapped {{ ROOT s = f16[16,4096]{{1,0}} reshape(f16[2,8,4096]{layout} q) }}
ROOT r = f16[16,4096]{{1,0}} fusion(f16[2,8,4096]{layout} p), kind=kLoop, calls=wrapped  // error
"""
_FREE = """
HloModule left_behind, is_scheduled=true
ROOT r = f16[16,4096]{1,0} bitcast(f16[2,8,4096]{2,1,0} p)
"""


class ReshapeRunsAsKernel(Rule):
    """A reshape that runs as a kernel of its own.

    ## Why
    From jax 0.10.2 on, the autotuner runs after fusion. If it replaces a Triton GEMM because
    cuBLASLt was faster, the reshapes around the new call stay at top level, and no later pass
    removes them: each becomes a kernel that reads and writes the whole array. Some of these move no
    data at all. No pass of XLA reports this, and the autotuner did not include their time.

    ## Fix
    Replaces a kernel that moves no byte by a `bitcast`. Where bytes move, the kernel is a
    transpose; only a different layout or backend avoids it.
    """

    severity = Severity.WARNING
    min_bytes = Option(
        1 << 16,
        "Smallest reported result of such a kernel, in bytes: smaller ones take no longer than the "
        "launch.",
        least=0,
    )
    opcodes = frozenset({"reshape"})
    evidence = (
        MeasuredHarm(
            "XLA:GPU of jax 0.10.2 and 0.11.2 leaves such kernels when the autotuner "
            "chooses cuBLASLt.",
            "dumps/gpu-jax0.10.2/cublaslt_fission",
        ),
    )
    examples = (
        Bad.entry(_PROGRAM.format(layout="{2,1,0}"), fixed=_FREE),
        Bad.entry(_PROGRAM.format(layout="{2,0,1}")),
        Good.entry(_FREE),
    )

    def check(self, final: FinalModule) -> Findings:
        """Fusions that consist of a single reshape."""
        for fusion, operand, result in _all_wrapped(final.module):
            size = result.byte_size
            if size is not None and size < self.min_bytes:
                continue
            moved = sized(size) if size is not None else "an array"
            arrays = f"{operand} and {result}"
            message = (
                f"this kernel copies {moved} for a reshape that moves nothing: {arrays} are the "
                "same bytes"
                if _is_free(operand, result)
                else f"this reshape is a transpose kernel over {moved}: {arrays} read memory in "
                "different orders"
            )
            yield Finding(fusion, message, operand=0)

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Replace a kernel that moves no data by a bitcast."""
        shapes = _wrapped(instruction, module)
        if shapes is None or not _is_free(*shapes):
            return None
        rewrite = Rewrite(module)
        bitcast = rewrite.insert_before(instruction, "bitcast", shapes[1], instruction.operands)
        rewrite.replace(instruction, bitcast)
        return rewrite.fix("put a bitcast in place of the kernel")


def _all_wrapped(module: Module) -> Iterator[tuple[Instruction, ArrayShape, ArrayShape]]:
    """Loop fusions of a single reshape, with the shapes of its operand and result."""
    bodies = {
        body.name
        for body in holders(module).get("reshape", ())
        if len(body.rows) == 2 and body.name in module.fusion_computations
    }
    for fusion, _ in fusions_of(module, bodies):
        is_loop = next(m.find(LOOP_FUSION, fusion), None) is not None
        if is_loop and (shapes := _wrapped(fusion, module)) is not None:
            yield fusion, *shapes


def _wrapped(fusion: Instruction, module: Module) -> tuple[ArrayShape, ArrayShape] | None:
    """The operand and result shapes of a loop fusion that only reshapes."""
    body = module.callee(fusion)
    if body is None or len(body.rows) != 2 or next(m.find(ONE_RESHAPE, body), None) is None:
        return None
    match fusion.operand_shape(0), fusion.shape_or_none:
        case ArrayShape() as before, ArrayShape() as after if (
            before.has_places and after.has_places
        ):
            return before, after
    return None


def _is_free(operand: ArrayShape, result: ArrayShape) -> bool:
    return reshape_is_bitcast(operand, result) and packs_alike(operand, result)
