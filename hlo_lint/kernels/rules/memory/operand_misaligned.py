"""Slices passed to kernels at addresses that are not aligned enough."""

from __future__ import annotations

from hlo_lint.analysis.buffers import source_of
from hlo_lint.analysis.loop_values import LoopValues, in_iteration
from hlo_lint.hlo.ir import Instruction
from hlo_lint.kernels.calls import fused_calls
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule
from hlo_lint.rules.evidence import MeasuredHarm

MOSAIC_ALIGNMENT = 256
"""Mosaic GPU rejects other addresses: "Input buffer 1 is not 256-byte aligned"."""

_PROGRAM = r"""
HloModule reads_a_slice

body {{
  s = f32[512] slice(f32[1024] p), slice={{[{start}:{end}]}}
  ROOT c = f32[512] custom-call(s), custom_call_target="triton_kernel_call_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={{opaque = "x\DA\E3\92\E6b\E7b\CC\16`1\88\12`\94`T`\D4b\E1b\12\10\80\90\00&M\02J"}}  // error
}}

ENTRY e {{ ROOT f = f32[512] fusion(f32[1024] p), kind=kCustom, calls=body }}
"""  # noqa: E501


class OperandMisaligned(Rule):
    """A slice passed to a kernel at an address that is not aligned enough.

    ## Why
    Triton compiles a kernel for a fixed divisibility of its pointers, usually 16, and Mosaic GPU
    for 256 bytes. XLA aligns buffers, but a slice fused with the call is not a buffer: its address
    is that of the array plus an offset. The launcher checks the address at run time and rejects it:
    `Parameter 1 is not divisible by 16`. The rule knows constant offsets, and offsets that follow
    from the trip count and the step of the loop.

    With `--xla_disable_hlo_passes=dynamic-slice-fusion-rewriter-v2`, slices are copied to separate
    buffers.
    """

    opcodes = frozenset({"custom-call"})
    evidence = (
        MeasuredHarm(
            "An H200 with jax 0.11.2 refuses to run two of two such calls: `Parameter 1 is "
            "not divisible by 16`.",
            "payloads/sliced_ffi",
        ),
    )
    examples = (Bad(_PROGRAM.format(start=1, end=513)), Good(_PROGRAM.format(start=4, end=516)))

    def check(self, final: FinalModule) -> Findings:
        """Operands that are slices at an offset that their kernel rejects."""
        values: LoopValues | None = None
        for _, call in fused_calls(final.module):
            for number, divisor in _divisors(call).items():
                source = source_of(call.operand(number))
                # XLA aligns whole buffers: only a slice that is passed in place may be off.
                if source is None or source.opcode not in ("slice", "dynamic-slice"):
                    continue
                base = source_of(source.operand(0))
                if base is None or base.opcode != "parameter":
                    continue
                values = values or LoopValues(final.module)
                for context, offset in values.slice_offsets(source):
                    if offset % divisor:
                        yield Finding(
                            call,
                            f"the kernel requires operand {number} aligned to {divisor} bytes, "
                            f"but %{source.name} starts {offset} bytes into its array"
                            f"{in_iteration(context)}",
                            notes=(
                                "the launcher rejects the call at run time",
                                "--xla_disable_hlo_passes=dynamic-slice-fusion-rewriter-v2 makes "
                                "XLA copy the slice",
                            ),
                            operand=number,
                        )
                        break


def _divisors(call: Instruction) -> dict[int, int]:
    """The divisibility of addresses that a call requires, by operand number."""
    if not any(compiler in call.attributes_text for compiler in ("mosaic", "triton")):
        return {}  # importing the payload readers takes longer than most checks
    from hlo_lint.kernels.custom_calls import MosaicCall, TritonCall, readable_payload
    from hlo_lint.kernels.custom_calls.triton import Array

    payload = readable_payload(call)
    operands = range(len(call.operands))
    if isinstance(payload, MosaicCall):
        return dict.fromkeys(operands, MOSAIC_ALIGNMENT)
    divisors: dict[int, int] = {}
    for kernel_call in payload.kernel_calls if isinstance(payload, TritonCall) else ():
        for number, place in zip(operands, kernel_call.pointers, strict=False):
            parameter = kernel_call.parameters[place]
            if isinstance(parameter, Array) and parameter.ptr_divisibility:
                divisors[number] = max(divisors.get(number, 1), parameter.ptr_divisibility)
    return divisors
