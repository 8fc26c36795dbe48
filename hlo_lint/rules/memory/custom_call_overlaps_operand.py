"""Custom calls whose results share memory with operands without declaring it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.analysis.buffers import declared_aliases, memory_of, operand_memory, results
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, PublicReport, Rule

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.dumps.artefacts.buffer_assignment import BufferAssignment

CONCAT_BITCAST = "ConcatBitcast"
"""The call with which XLA's memory-space assignment joins slices of a buffer in place
(`memory_space_assignment.cc`): it computes nothing."""

GEMM = "__cublas$lt$matmul"
MATRIX, PRODUCT = 2, ((), (0,))
"""The operand of a GEMM that beta multiplies, and the result that may take its place
(`nvptx_alias_info.cc`)."""

_CALL = """
x = f32[512] negate(f32[512] p)
ROOT c = f32[512] custom-call(x), custom_call_target="kernel"  // error
"""
_BUFFERS = "-buffer-assignment.txt"
_ASSIGNMENT = """
BufferAssignment:
allocation 0: size 2048, parameter 0, shape |f32[512]| at ShapeIndex {{}}:
 value: <0 p @0> (size=2048,offset=0): f32[512]{{0}}
allocation 1: size 4096, output shape is |f32[512]|, maybe-live-out:
 value: <1 x @0> (size=2048,offset=0): f32[512]{{0}}
 value: <2 c @0> (size=2048,offset={offset}): f32[512]{{0}}
"""
_IN_PLACE = {_BUFFERS: _ASSIGNMENT.format(offset=0)}


class CustomCallOverlapsOperand(Rule):
    """A custom call whose result shares memory with an operand without declaring it.

    ## Why
    The kernel of a custom call may read an operand after it wrote part of a result, unless
    `output_to_operand_aliasing` says that both share a buffer. Buffer assignment separates all
    others. If it did not, the kernel reads values that it has already overwritten, and the numbers
    depend on timing. cuBLASLt may write its result over the matrix that it adds (`beta`), and XLA's
    buffer assignment lets it.
    """

    opcodes = frozenset({"custom-call"})
    evidence = (
        PublicReport("NVIDIA/TransformerEngine#2730", "payloads/shared_with_operand_legacy"),
    )
    examples = (
        Bad.entry(_CALL, artefacts={_BUFFERS: _ASSIGNMENT.format(offset=1024)}),
        Good.entry(_CALL, artefacts={_BUFFERS: _ASSIGNMENT.format(offset=2048)}),
        Good.entry(
            """
            x = f32[512] negate(f32[512] p)
            ROOT c = f32[512] custom-call(x), custom_call_target="kernel",
                output_to_operand_aliasing={{}: (0, {})}
            """,
            artefacts=_IN_PLACE,
        ),
        Good.entry(
            """
            x = f32[512] negate(f32[512] p)
            ROOT c = f32[512] custom-call(p, p, x), custom_call_target="__cublas$lt$matmul",
                backend_config={"gemm_backend_config":{"beta":1}}
            """,
            artefacts=_IN_PLACE,
        ),
        Good.entry(
            """
            x = f32[512] negate(f32[512] p)
            ROOT c = f32[512] custom-call(x), custom_call_target="ConcatBitcast"
            """,
            artefacts=_IN_PLACE,
        ),
    )

    def is_applicable(self, module: Module) -> bool:
        """True if the module has a custom call outside fusions."""
        return any("custom-call" in part.opcodes for part in module.nonfusion_computations)

    def check(self, final: FinalModule, buffers: BufferAssignment) -> Findings:
        """Results and operands that overlap without a declared alias."""
        for computation in final.module.nonfusion_computations:
            for call in computation.with_opcode("custom-call"):
                if call.custom_call_target == CONCAT_BITCAST:
                    continue
                declared = declared_aliases(call)
                for result in results(call):
                    given = memory_of(buffers, call, result.index)
                    for number in range(len(call.operands)):
                        # cuBLASLt may write over the matrix that it adds (`nvptx_alias_info.cc`).
                        if declared.get(result.index) == number or (
                            number == MATRIX and result.index in PRODUCT and _adds_matrix(call)
                        ):
                            continue
                        for taken in operand_memory(buffers, call, number):
                            if any(taken.slice.overlaps(value.slice) for value in given):
                                yield Finding(
                                    call,
                                    f"result {result} of this call shares memory with operand "
                                    f"{number}, but output_to_operand_aliasing does not say so",
                                    notes=(
                                        f"operand %{call.operands[number].name}: {taken.slice}",
                                        f"result {result}: {given[0].slice}",
                                    ),
                                    operand=number,
                                )


def _adds_matrix(call: Instruction) -> bool:
    """True for a cuBLASLt GEMM whose beta is not 0."""
    if call.custom_call_target != GEMM:
        return False
    from hlo_lint.kernels.custom_calls import GemmConfig, readable_payload

    config = readable_payload(call)
    return isinstance(config, GemmConfig) and config.beta != 0
