"""Origins of values in the program before optimization."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.verifier.checks import on_attribute
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.attributes.origin import Origin, OriginalArray
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import Shape, TupleShape
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class OriginDisagrees(VerifierRule):
    """An instruction whose origin does not have the tuple structure of its value.

    ## Why
    `origin`, formerly `original_value`, names an array of the unoptimized program for each array of
    a value. If it has too few, tools that compare values read past its end (`VerifyOriginalValues`
    in `xla/service/hlo_verifier.cc`).
    """

    messages = ("Mismatched tuple structure in shape and original value",)

    table = """
        original-value: VerifyOriginalValue
          an origin has the tuple structure of its value
            p = (f32[8]{0}, s32[]) parameter(0), origin={{"p"}}  // error
            ROOT g = f32[8]{0} get-tuple-element(p), index=0
    """
    examples = (
        Good.entry("""
            p = (f32[8]{0}, s32[]) parameter(0), origin={({"p" {0}}, {"p" {1}})}
            ROOT g = f32[8]{0} get-tuple-element(p), index=0
        """),
    )

    @on_attribute("origin={", "original_value={")
    def origin(self, scope: Scope, instruction: Instruction) -> Iterator[Violation]:
        """The origin of a value has its tuple structure."""
        shape = instruction.shape_or_none
        for name in ("origin", "original_value"):
            value = instruction.attribute_or_none(name)
            # XLA writes and reads a synthetic call without the tree of its value.
            if not isinstance(value, Origin) or value.is_synthetic_call or shape is None:
                continue
            if not _same_tree(value.tree, shape):
                message = f"{name} does not have the tuple structure of {shape}"
                yield Violation("original-value", instruction, message)


def _same_tree(tree: object, shape: Shape) -> bool:
    if tree is None or isinstance(tree, OriginalArray):
        return not isinstance(shape, TupleShape)
    if not isinstance(tree, tuple) or not isinstance(shape, TupleShape):
        return False
    return len(tree) == len(shape.elements) and all(map(_same_tree, tree, shape.elements))
