"""Device instructions that compute on values in host memory."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.kinds import types_in
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.shape import Shape, arrays
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding, Severity

_HOST: Final = 5
_CARRIES: Final = frozenset(
    "add-dependency after-all async-done async-start async-update bitcast call conditional copy "
    "copy-done copy-start custom-call domain dynamic-slice dynamic-update-slice fusion "
    "get-tuple-element infeed opt-barrier optimization-barrier outfeed parameter recv recv-done "
    "reshape send send-done slice transpose tuple while".split()
)
"""Opcodes that move values between memories or pass them on unchanged."""


class ComputesOnHostMemory(Rule):
    """A device instruction that computes on a value in host memory.

    ## Why
    Host offloading puts values into host memory, `S(5)`, and copies or slices them back before the
    device reads them. If a pass replaces such a copy or its operand, the device computes on host
    memory: XLA:TPU rejects that, and on a GPU each access goes over the bus. A host buffer that is
    filled piece by piece begins as allocated memory, not as zeros written by the device.
    Computations that run on the host (`execution_thread="host"`, `_xla_compute_type="host"`) may
    read host memory. If the result is in host memory too, a pass marked too much as offloaded.

    Reports: openxla/xla#40519.
    """

    messages = (
        "instruction shouldn't change layout memory",
        "Instruction shouldn't have the layout of host memory space",
    )
    severity = Severity.WARNING
    skip_fusion_bodies = False
    mentions = ("S(5)",)
    examples = (
        Bad.entry("""
            p = f32[8]{0:S(5)} parameter(0)
            b = f32[2,4]{1,0:S(5)} bitcast(p)
            ROOT m = f32[2,4]{1,0} multiply(b, b)  // error
        """),
        Bad.entry("""
            p = f32[8]{0:S(5)} parameter(0)
            c = f32[8]{0:S(5)} copy(p)
            ROOT m = f32[8]{0:S(5)} multiply(c, c)  // error
        """),
        Bad.entry("""
            z = f32[] constant(0)
            b = f32[4,8]{1,0:S(5)} broadcast(z), dimensions={}  // error
            p = f32[1,8]{1,0} parameter(0)
            i = s32[] parameter(1)
            ROOT u = f32[4,8]{1,0:S(5)} dynamic-update-slice(b, p, i, i)
        """),
        Good.entry("""
            p = f32[8]{0:S(5)} parameter(0)
            c = f32[8]{0} copy(p)
            ROOT m = f32[8]{0} multiply(c, c)
        """),
    )

    def can_skip(self, module: Module, stage: Stage) -> bool:
        """True if no type of the module is in host memory."""
        return not any("S(5)" in text for text in types_in(module))

    def check(self, computation: Computation) -> Findings:
        """Device instructions that read or write host memory and do more than move it."""
        if not any("S(5)" in text for text in types_of(computation)):
            return
        if computation.thread != "main":
            return
        for instruction in computation.instructions:
            if instruction.opcode in _CARRIES or _is_on_the_host(instruction):
                continue
            for number, operand in enumerate(instruction.operands):
                if _HOST in _memories(operand.shape):
                    yield Finding(
                        instruction,
                        f"this {instruction.opcode} computes on %{operand.name}, which is in host "
                        "memory",
                        operand=number,
                    )
                    break
            else:
                if (
                    _HOST in _memories(instruction.shape_or_none)
                    and instruction.opcode != "constant"
                ):
                    yield Finding(
                        instruction, f"this {instruction.opcode} writes its result to host memory"
                    )


def _memories(shape: Shape | None) -> set[int]:
    """The memory spaces of the arrays of a shape; 0, the device's, without a printed layout."""
    return {0 if array.layout is None else array.layout.memory_space for array in arrays(shape)}


def _is_on_the_host(instruction: Instruction) -> bool:
    """True if an annotation moves the instruction to the host."""
    return "_xla_compute_type" in instruction.attributes_text
