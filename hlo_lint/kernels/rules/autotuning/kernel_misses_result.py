"""Results of Triton calls that the kernel never writes."""

from __future__ import annotations

from hlo_lint.analysis.buffers import declared_aliases, results
from hlo_lint.kernels.aliases import aliased_results
from hlo_lint.kernels.calls import triton_calls
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, MeasuredHarm, Rule

_PROGRAM = r"""
HloModule two_results

ROOT c = (f32[512], f32[512]) custom-call(f32[512] x), custom_call_target="triton_kernel_call", backend_config="{payload}"  // error
"""  # noqa: E501
# Two minimal payloads: a kernel of two pointers, and one of three.
_TWO = r"x\234\343\022\346b\346b\314\026`\224`T`\324b\342b\000a\000\020\023\001X"
_THREE = r"x\234\343\022\347b\346b\314\026`\224`T`\324b\342b\200a\000\026\225\001\222"


class KernelMissesResult(Rule):
    """A result of a Triton call for which its kernel has no pointer.

    ## Why
    The launcher passes the buffers of a call, operands first and then results, to the kernel's
    pointers in order, and ignores the rest. A result after the last pointer is never written,
    unless it aliases an operand that has a pointer. Its users read uninitialized memory.
    """

    opcodes = frozenset({"custom-call"})
    evidence = (
        MeasuredHarm(
            "An H200 with jax 0.11.2 leaves the second result zero in each run.",
            "payloads/partial_ffi",
        ),
    )
    examples = (
        Bad.entry(_PROGRAM.format(payload=_TWO)),
        Good.entry(_PROGRAM.format(payload=_THREE)),
    )

    def check(self, final: FinalModule) -> Findings:
        """Results after the last pointer that do not alias an operand."""
        for call, payload in triton_calls(final.module):
            aliases, operands = declared_aliases(call), len(call.operands)
            for result in results(call):
                buffer = operands + result.number
                # The kernel writes an aliased result through the pointer to its operand.
                if result.index in aliases or buffer < payload.pointer_count:
                    continue
                twice = [
                    f"pointer {operands + aliased.number} is result {aliased}, which aliases "
                    f"operand {operand}: its buffer is passed twice"
                    for aliased, operand in aliased_results(call)
                    if operands + aliased.number < payload.pointer_count
                ]
                yield Finding(
                    call,
                    f"the kernel has no pointer to result {result}: it takes "
                    f"{payload.pointer_count} buffers, and this is buffer {buffer + 1}",
                    notes=tuple(twice),
                )
