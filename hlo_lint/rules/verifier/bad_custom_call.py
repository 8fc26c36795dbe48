"""Declared shapes of custom calls."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.shape_inference.types import compatible, describe_mismatch
from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, BufferShape, OpaqueShape, TupleShape
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.phrases import counted


class BadCustomCall(VerifierRule):
    """A custom call whose constraints or types do not match.

    ## Why
    `operand_layout_constraints` has a shape with a layout for each operand, and the result has a
    layout, because a library reads and writes these buffers (`HandleCustomCall` in
    `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "GetRngSeed custom call must",
        "operand layout constraints, … given",
        "must have 0 operands",
        "must return U64 type",
    )
    table = """
        custom-call-constraints: ShapeVerifier::HandleCustomCall
          custom-call: a constraint with the shape of each operand
            ROOT c = f32[8]{0} custom-call(f32[8]{0} p), custom_call_target="f",  // error
                operand_layout_constraints={f32[9]{0}}
        rng-seed: InstructionVerifier::HandleCustomCall
          GetRngSeed: no operands, a u64[]
            ROOT c = u64[] custom-call(f32[8]{0} p), custom_call_target="GetRngSeed"  // error
    """
    examples = (
        Good.entry("""
            s = u64[] custom-call(), custom_call_target="GetRngSeed"
            ROOT c = f32[8]{0} custom-call(f32[8]{0} p), custom_call_target="f",
                operand_layout_constraints={f32[8]{0}}
        """),
    )

    @on("custom-call", word="operand_layout_constraints=")
    def constraints(self, scope: Scope, call: Instruction) -> Iterator[Violation]:
        """Each operand has the shape of its constraint."""
        # `HandleCustomCall` exempts these two.
        if call.custom_call_target in ("LayoutConstraint", "control_dep"):
            return
        constraints = call.attribute_or_none("operand_layout_constraints")
        if not isinstance(constraints, tuple):
            return
        count = len(call.operand_names)
        if len(constraints) != count:
            shapes, operands = counted(len(constraints), "shape"), counted(count, "operand")
            message = f"operand_layout_constraints has {shapes} for {operands}"
            yield Violation("custom-call-constraints", call, message)
            return
        for number, shape in enumerate(constraints):
            operand = call.operand_shape(number)
            if not isinstance(shape, ArrayShape | TupleShape | BufferShape | OpaqueShape):
                return
            if operand is not None and not compatible(operand, shape):
                ours, theirs = describe_mismatch(operand, shape)
                message = f"operand {number} is {ours}, its operand_layout_constraints {theirs}"
                yield Violation("custom-call-constraints", call, message, number)

    @on("custom-call", word="GetRngSeed")
    def rng_seed(self, scope: Scope, call: Instruction) -> Iterator[Violation]:
        """GetRngSeed takes no operands and returns u64[]."""
        if call.custom_call_target != "GetRngSeed":
            return
        shape = call.shape_or_none
        if call.operand_names:
            message = f"GetRngSeed needs 0 operands, got {len(call.operand_names)}"
            yield Violation("rng-seed", call, message)
        elif isinstance(shape, ArrayShape) and (shape.dtype != "u64" or shape.rank):
            yield Violation("rng-seed", call, f"GetRngSeed must return u64[], got {shape}")
