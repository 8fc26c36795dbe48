"""Loop state, of the same shape in operand, condition, body, result."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.verifier.calls import different_shardings, shapes_differ
from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation, parameter, shape_of
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BrokenWhile(VerifierRule):
    """A loop whose operand, condition, body and result have different types.

    ## Why
    A loop's operand, its result, and the parameters of condition and body share a buffer: XLA
    assumes equal types, layouts and shardings (`HandleWhile` in `xla/service/hlo_verifier.cc`).
    """

    messages = ("Conditional computation shape does not lead to a scalar predicate shape",)

    table = """
        while-parameters: CheckParameterCount
          condition and body have a single parameter
            body { ROOT b = f32[8]{0} copy(f32[8]{0} q) }
            condition {
              ROOT c = pred[] custom-call(f32[8]{0} q.1), custom_call_target="goes_on"
              q.2 = s32[] parameter(1)
            }
            ROOT w = f32[8]{0} while(f32[8]{0} p), condition=condition, body=body  // error
        while-shapes: ShapeVerifier::HandleWhile (while)
          while: operand, condition and body have equal shapes; the condition returns a pred[]
            body { ROOT b = f32[8]{0} copy(f32[8]{0} q) }
            condition { ROOT n = f32[8]{0} negate(f32[8]{0} q.1) }
            ROOT w = f32[8]{0} while(f32[8]{0} p), condition=condition, body=body  // error
        while-sharding: InstructionVerifier::HandleWhile
          while: equal shardings
            body { ROOT b = f32[8]{0} copy(f32[8]{0} q), sharding={maximal device=0} }
            condition { ROOT c = pred[] custom-call(f32[8]{0} q.1), custom_call_target="goes_on" }
            ROOT w = f32[8]{0} while(f32[8]{0} p), condition=condition, body=body,  // error
                sharding={replicated}
    """
    examples = (
        Good.entry("""
            body { ROOT b = f32[8]{0} copy(f32[8]{0} q) }
            condition { ROOT c = pred[] custom-call(f32[8]{0} q.1), custom_call_target="goes_on" }
            ROOT w = f32[8]{0} while(f32[8]{0} p), condition=condition, body=body
        """),
    )

    @on("while", option="layouts")
    def shapes(self, scope: Scope, loop: Instruction) -> Iterator[Violation]:
        """Operand, condition and body of a loop have equal layouts."""
        carried = loop.operand_shape(0)
        for name in ("condition", "body"):
            callee = scope.named(loop, name)
            if callee is None:
                continue
            parts = [("parameter", parameter(callee, 0))]
            parts += [("result", callee.root)] if name == "body" else []
            for title, part in parts:
                if mismatch := shapes_differ(scope, carried, shape_of(part)):
                    message = (
                        f"the operand and the {title} of %{callee.name} have different layouts: "
                    )
                    yield Violation("while-shapes", loop, message + mismatch, 0)

    @on("while")
    def sharding(self, scope: Scope, loop: Instruction) -> Iterator[Violation]:
        """Loop, condition and body have equal shardings."""
        body, condition = scope.named(loop, "body"), scope.named(loop, "condition")
        parts = [
            ("the loop", loop),
            ("the result of its body", None if body is None else body.root),
            ("the parameter of its body", parameter(body, 0)),
            ("the parameter of its condition", parameter(condition, 0)),
        ]
        yield from different_shardings("while-sharding", loop, parts)
