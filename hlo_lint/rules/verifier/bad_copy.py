"""Shapes of copies, synchronous or asynchronous."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.shape_inference.types import layout_mismatch
from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import HOST_MEMORY, ArrayShape, part
from hlo_lint.rules.base import Bad, Good
from hlo_lint.rules.verifier import VerifierRule


class BadCopy(VerifierRule):
    """A copy whose source and destination differ in more than their memory space.

    ## Why
    A copy to or from host memory moves bytes unchanged: it cannot transpose when it copies out of
    host memory. `copy-start` returns the destination, the source and a context (`HandleCopyStart`
    in `xla/service/hlo_verifier.cc`).
    """

    table = """
        copy-from-host: ShapeVerifier::HandleCopy
          a copy out of host memory does not transpose; a copy into it keeps the element type
            // hlo-lint: stage post-layout
            ROOT c = f32[8,3]{0,1} copy(f32[8,3]{1,0:S(5)} p)  // error
        copy-start-shape: ShapeVerifier::HandleCopyStart (copy-start)
          copy-start: `(T, T, u32[])`
            s = (f32[9]{0}, f32[8]{0}, u32[]) copy-start(f32[8]{0} p)  // error
            ROOT n = f32[8]{0} negate(p)
        copy-done-shape: ShapeVerifier::HandleCopyDone (copy-done)
          copy-done: source and destination have equal shapes
            ROOT d = f32[8]{0} copy-done((f32[8]{0}, f32[9]{0}, u32[]) p)  // error
    """
    examples = (
        Bad.entry("""
            s = (f32[4,8]{0,1}, f32[4,8]{1,0}, u32[]) copy-start(f32[4,8]{1,0} p)  // error
            ROOT d = f32[4,8]{0,1} copy-done(s)
        """),
        Good.entry("""
            s = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(f32[8]{0:S(5)} p)
            ROOT d = f32[8]{0} copy-done(s)
        """),
    )

    @on("copy-start", option="layouts", local=True)
    def start_layout(self, scope: Scope, start: Instruction) -> Iterator[Violation]:
        """Source and destination have the operand's layout; memory spaces may differ."""
        operand = start.operand_shape(0)
        for index, side in enumerate(("destination", "source")):
            copied = part(start.shape_or_none, (index,))
            if mismatch := layout_mismatch(operand, copied, filled=scope.stage.exact_layouts):
                message = f"the operand and the {side} have different layouts: {mismatch}"
                yield Violation("copy-start-shape", start, message)
                return

    @on("copy", option="layouts", local=True)
    def from_host(self, scope: Scope, copy: Instruction) -> Iterator[Violation]:
        """A copy out of host memory does not transpose; a copy across memories does not convert."""
        before, after = copy.operand_shape(0), copy.shape_or_none
        if not (
            isinstance(before, ArrayShape)
            and isinstance(after, ArrayShape)
            and (before.memory_space == HOST_MEMORY) != (after.memory_space == HOST_MEMORY)
        ):
            return
        if before.dtype != after.dtype:
            message = f"this copy from or to host memory converts {before} to {after}"
            yield Violation("copy-from-host", copy, message)
        elif before.memory_space == HOST_MEMORY and before.minor_to_major != after.minor_to_major:
            message = f"this copy out of host memory transposes {before} to {after}"
            yield Violation("copy-from-host", copy, message)
