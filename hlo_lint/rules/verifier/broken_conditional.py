"""Conditionals, which must match their branches."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.verifier.calls import branches, different_shardings, shapes_differ
from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation, parameter, shape_of
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BrokenConditional(VerifierRule):
    """A conditional whose branches do not match its operands or its result.

    ## Why
    Each branch takes its operand after the selector as its only parameter, and all branches return
    the same type and layout, since their results share a buffer (`HandleConditional` in
    `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "The first operand must be a scalar",
        "first operand of indexed conditional must be a scalar of S32",
        "first operand of conditional must be a scalar",
        "shape does not match parameter",
    )
    table = """
        conditional-shapes: ShapeVerifier::HandleConditional (conditional)
          conditional: a selector, an operand for each branch, equal results
            yes { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            no { ROOT c = f32[8]{0} copy(f32[8]{0} b) }
            ROOT r = f32[8]{0} conditional(f32[] i, f32[8]{0} p, p), true_computation=yes,  // error
                false_computation=no
        conditional-sharding: InstructionVerifier::HandleConditional
          conditional: equal shardings
            yes { ROOT n = f32[8]{0} negate(f32[8]{0} a), sharding={replicated} }
            no { ROOT c = f32[8]{0} copy(f32[8]{0} b) }
            ROOT r = f32[8]{0} conditional(pred[] i, f32[8]{0} p, p),  // error
                true_computation=yes, false_computation=no, sharding={maximal device=0}
    """
    examples = (
        Good.entry("""
            yes { ROOT n = f32[8]{0} negate(f32[8]{0} a) }
            no { ROOT c = f32[8]{0} copy(f32[8]{0} b) }
            i = pred[] parameter(0)
            p = f32[8]{0} parameter(1)
            ROOT r = f32[8]{0} conditional(i, p, p), true_computation=yes, false_computation=no
        """),
    )

    @on("conditional", option="layouts")
    def shapes(self, scope: Scope, conditional: Instruction) -> Iterator[Violation]:
        """Operands and result have the layouts of the branches."""
        for number, branch in enumerate(branches(scope, conditional), 1):
            if branch is None:
                continue
            given = conditional.operand_shape(number)
            if mismatch := shapes_differ(scope, given, shape_of(parameter(branch, 0))):
                message = (
                    f"operand {number} and the parameter of %{branch.name} have different layouts: "
                )
                yield Violation("conditional-shapes", conditional, message + mismatch, number)
            if mismatch := shapes_differ(scope, conditional.shape_or_none, shape_of(branch.root)):
                message = f"the result and the root of %{branch.name} have different layouts: "
                yield Violation("conditional-shapes", conditional, message + mismatch)

    @on("conditional")
    def sharding(self, scope: Scope, conditional: Instruction) -> Iterator[Violation]:
        """The result has the sharding of the branches' results."""
        parts: list[tuple[str, Instruction | None]] = [("the conditional", conditional)]
        parts += [
            (f"the result of %{branch.name}", branch.root)
            for branch in branches(scope, conditional)
            if branch is not None
        ]
        yield from different_shardings("conditional-sharding", conditional, parts)
