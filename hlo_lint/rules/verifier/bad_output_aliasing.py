"""Results that share memory with operands."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.shape_inference.types import (
    compatible,
    layout_mismatch,
    without_memory_space,
)
from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation, parameter, shape_of
from hlo_lint.hlo.attributes.plain import Alias
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Shape, part, spelled_index
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.phrases import counted


class BadOutputAliasing(VerifierRule):
    """An instruction whose `output_to_operand_aliasing` is invalid.

    ## Why
    `output_to_operand_aliasing` states that a part of the result shares the buffer of a part of an
    operand. If size or layout differ, the kernel overwrites values that are still read
    (`HandleFusion`, `HandleCustomCall` in `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "Invalid operand number in",
        "Negative operand number in aliasing config",
        "Output index should not be empty",
        "Invalid aliasing output shape index",
        "Different aliasing shapes",
    )
    table = """
        fusion-aliasing: ShapeVerifier::HandleFusion
          aliasing of a fusion names parts that exist and have equal shapes
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            ROOT r = f32[8]{0} fusion(f32[8]{0} p), kind=kCustom,  // error
                output_to_operand_aliasing={{}: (1, {})}, calls=wrapped
        custom-call-aliasing: ShapeVerifier::HandleCustomCall
          aliasing of a custom-call names parts that exist and have equal shapes
            ROOT c = f32[9]{0} custom-call(f32[8]{0} p), custom_call_target="f",  // error
                output_to_operand_aliasing={{}: (0, {})}
        async-start-aliasing: ShapeVerifier::HandleAsyncStart
          aliasing of an async-start names parts that exist and have equal shapes
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p),  // error
                output_to_operand_aliasing={{}: (0, {})}, calls=wrapped
            ROOT d = f32[8]{0} async-done(s)
        async-update-aliasing: ShapeVerifier::HandleAsyncUpdate
          aliasing of an async-update names the context of operand 0
            wrapped { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(f32[8]{0} p), calls=wrapped
            u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s),  // error
                output_to_operand_aliasing={{2}: (1, {2})}
            ROOT d = f32[8]{0} async-done(u)
    """
    examples = (
        Good.entry("""
            ROOT c = f32[8]{0} custom-call(f32[8]{0} p), custom_call_target="f",
                output_to_operand_aliasing={{}: (0, {})}
        """),
    )

    @on(*"async-start async-update custom-call fusion".split(), word="output_to_operand_aliasing=")
    def aliasing(self, scope: Scope, instruction: Instruction) -> Iterator[Violation]:
        """`output_to_operand_aliasing` names parts that exist and have equal shapes."""
        is_call = instruction.opcode == "custom-call"
        if is_call and "xla_skip_custom_call_alias_shape_check" in instruction.attributes_text:
            return
        aliases = instruction.attribute_or_none("output_to_operand_aliasing")
        result = instruction.shape_or_none
        if not isinstance(aliases, tuple) or result is None:
            return
        for alias in aliases:
            if not isinstance(alias, Alias):
                return
            if error := _error(scope, instruction, alias, result):
                yield Violation(f"{instruction.opcode}-aliasing", instruction, error)


def _error(scope: Scope, instruction: Instruction, alias: Alias, result: Shape) -> str:
    count, callee = len(instruction.operand_names), None
    if instruction.opcode == "async-start" and (callee := scope.callee(instruction)):
        count = max(count, len(callee.parameters))  # a later update may bind operands
    if instruction.opcode == "async-update" and alias.operand != 0:
        return f"the aliasing of async-update names operand {alias.operand}, expected operand 0"
    if instruction.opcode == "async-start" and not alias.output_index:
        return "the aliasing of async-start names the whole output, expected a part"
    if not 0 <= alias.operand < count:
        return f"the aliasing names operand {alias.operand} of {counted(count, 'operand')}"
    if alias.operand < len(instruction.operand_names):
        operand = instruction.operand_shape(alias.operand)
    else:
        operand = shape_of(parameter(callee, alias.operand))
    if operand is None:
        return ""
    theirs = part(operand, alias.operand_index)
    if theirs is None:
        return f"operand {alias.operand} has no index {spelled_index(alias.operand_index)}"
    ours = part(result, alias.output_index)
    if ours is None:
        return f"the output has no index {spelled_index(alias.output_index)}"
    if instruction.opcode == "custom-call" and instruction.custom_call_target in ("Pin", "Unpin"):
        ours, theirs = _content(ours), _content(theirs)
    if not compatible(ours, theirs):
        return (
            f"the output aliases operand {alias.operand}: {ours} and {theirs} are different shapes"
        )
    # HandleFusion compares without tiles and memory spaces, HandleCustomCall ignores the memory
    # space of a single element.
    if isinstance(theirs, ArrayShape) and theirs.elements == 1:
        ours, theirs = without_memory_space(ours), without_memory_space(theirs)
    filled = scope.stage.exact_layouts
    exact = filled and instruction.opcode == "custom-call"
    mismatch = layout_mismatch(ours, theirs, exact=exact, filled=filled)
    if scope.stage.layouts and mismatch:
        return f"the output aliases operand {alias.operand} but has a different layout: {mismatch}"
    return ""


def _content(shape: Shape) -> Shape:
    """The array in a buffer; other shapes unchanged."""
    return shape.element if isinstance(shape, BufferShape) else shape
