"""Dimensions of broadcasts."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class UnorderedBroadcast(VerifierRule):
    """A broadcast that also transposes, or maps two dimensions to the same dimension.

    ## Why
    After layout normalization XLA:GPU assumes that a broadcast keeps the order of dimensions
    (`verify_broadcast_dimensions_order` in `xla/service/hlo_verifier.h`). If two dimensions map to
    the same dimension, the result is unspecified.
    """

    messages = (
        "Broadcast dimensions should be ordered, got",
        "Broadcast dimensions order is wrong",
    )

    table = """
        broadcast-order: InstructionVerifier::HandleBroadcast
          broadcast: dimensions in order, on XLA:GPU after layout-normalization
            // hlo-lint: stage gpu normalized
            ROOT b = f32[3,8,2]{2,1,0} broadcast(f32[8,3]{1,0} p), dimensions={1,0}  // error
        broadcast-dimension-repeated:
          broadcast: no repeated dimensions
            ROOT b = f32[8,2]{1,0} broadcast(f32[8,8]{1,0} p), dimensions={0,0}  // error
    """
    examples = (
        Good.entry("""
            // hlo-lint: stage gpu normalized
            ROOT b = f32[8,3,2]{2,1,0} broadcast(f32[8,3]{1,0} p), dimensions={0,1}
        """),
    )

    @on("broadcast", local=True)
    def order(self, scope: Scope, broadcast: Instruction) -> Iterator[Violation]:
        """Broadcast dimensions are distinct and, on normalized XLA:GPU modules, in order."""
        if "," not in (broadcast.attribute_text("dimensions") or ""):
            return
        dimensions = broadcast.attribute_or_none("dimensions")
        if not isinstance(dimensions, tuple) or not all(isinstance(n, int) for n in dimensions):
            return
        if len(set(dimensions)) < len(dimensions):
            message = f"repeated broadcast dimension: {list(dimensions)}"
            yield Violation("broadcast-dimension-repeated", broadcast, message)
        elif scope.stage.ordered_broadcasts and list(dimensions) != sorted(dimensions):
            message = f"the dimensions of this broadcast are not in order: {list(dimensions)}"
            yield Violation("broadcast-order", broadcast, message)
