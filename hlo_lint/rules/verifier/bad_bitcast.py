"""Bitcasts that change the size or the memory space of a value."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.kinds import OPERAND_TYPES, TYPE
from hlo_lint.hlo.layouts import reshape_is_bitcast
from hlo_lint.hlo.shape import HOST_MEMORY, ArrayShape
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadBitcast(VerifierRule):
    """A bitcast that changes the number of bytes or the memory space.

    ## Why
    A bitcast is a different view of the same bytes: no kernel runs. If it has more bytes than its
    operand, its users read past the end of the buffer; from host to device memory it is a pointer
    that the device may not access (`HandleBitcast` in `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "Bitcast cannot have different shape sizes of output",
        "Bitcast cannot have different memory spaces of output",
    )

    table = """
        bitcast-size: ShapeVerifier::HandleBitcast (bitcast)
          bitcast: operand and result sizes match
            ROOT b = f32[9]{0} bitcast(f32[8]{0} p)  // error
        reshape-option: InstructionVerifier::HandleReshape
          with an option: a reshape outside fusions is a bitcast at any stage
        bitcast-memory-space: ShapeVerifier::HandleBitcast
          bitcast: host memory remains host memory
            ROOT b = f32[2,4]{1,0} bitcast(f32[8]{0:S(5)} p)  // error
    """
    examples = (
        Good.entry("""
            b = f32[2,4]{1,0:S(5)} bitcast(f32[8]{0:S(5)} p)
            ROOT c = f32[2,4]{1,0} copy(b)
        """),
    )

    @on("reshape", option="reshape_is_bitcast")
    def reshape(self, scope: Scope, reshape: Instruction) -> Iterator[Violation]:
        """With the option, a reshape outside fusions is a bitcast."""
        if not scope.stage.layouts:
            return
        before, after = reshape.operand_shape(0), reshape.shape_or_none
        if not isinstance(before, ArrayShape) or not isinstance(after, ArrayShape):
            return
        is_fused = scope.computation.name in scope.module.fusion_computations
        if is_fused or reshape_is_bitcast(before, after):
            return
        message = f"this reshape is not a bitcast: {before} to {after}"
        yield Violation("reshape-option", reshape, message)

    @on(
        "bitcast",
        option="layouts",
        concerns=lambda kind: any(
            text and "S(5)" in text for text in (kind[TYPE], *kind[OPERAND_TYPES])
        ),
    )
    def memory_space(self, scope: Scope, bitcast: Instruction) -> Iterator[Violation]:
        """A bitcast does not move into or out of host memory, unless its operand is a constant."""
        before, after = bitcast.operand_shape(0), bitcast.shape_or_none
        origin = bitcast.producer()
        if origin is not None and origin.opcode == "copy":
            origin = origin.producer()
        if (
            isinstance(before, ArrayShape)
            and isinstance(after, ArrayShape)
            and (before.memory_space == HOST_MEMORY) != (after.memory_space == HOST_MEMORY)
            and (origin is None or origin.opcode != "constant")
        ):
            spaces = f"{before.memory_space} to {after.memory_space}"
            message = f"this bitcast changes the memory space: {spaces}"
            yield Violation("bitcast-memory-space", bitcast, message, 0)
