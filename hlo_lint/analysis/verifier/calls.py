"""Agreement of a caller with its computations."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.shape_inference.module import parameter_types
from hlo_lint.analysis.shape_inference.types import layout_mismatch
from hlo_lint.analysis.verifier.scope import Scope, Violation, shape_of
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.records import type_of
from hlo_lint.hlo.shape import Shape


def shapes_differ(scope: Scope, left: Shape | None, right: Shape | None) -> str:
    """The first arrays of two compatible shapes that differ at the stage, or ""."""
    if not scope.stage.layouts:
        return ""
    return layout_mismatch(left, right, exact=scope.stage.exact_layouts)


def parameter_layouts(check: str, scope: Scope, caller: Instruction) -> Iterator[Violation]:
    """Check that operands have the layouts of the parameters."""
    callee = scope.callee(caller)
    if not scope.stage.layouts or callee is None:
        return
    rows, places = caller.computation.rows, map(caller.computation.index.get, caller.operand_names)
    # As they are spelled; "" for an element of a tuple.
    types = tuple(["" if position is None else type_of(rows[position]) for position in places])
    if types == parameter_types(callee):
        return
    for instruction in callee.with_opcode("parameter"):
        number = instruction.parameter_number
        # Equal spellings are equal layouts: most operands are spelled as their parameter.
        if number is None or (number < len(types) and types[number] == instruction.type_text):
            continue
        if mismatch := shapes_differ(scope, caller.operand_shape(number), shape_of(instruction)):
            message = (
                f"operand {number} and parameter {number} of %{callee.name} have different "
                f"layouts: {mismatch}"
            )
            yield Violation(check, caller, message, number)


def branches(scope: Scope, conditional: Instruction) -> tuple[Computation | None, ...]:
    """The computations of a conditional, in the order of its operands."""
    if "true_computation=" in conditional.attributes_text:
        return tuple(
            scope.named(conditional, f"{which}_computation") for which in ("true", "false")
        )
    return scope.called(conditional)


def different_shardings(
    check: str, instruction: Instruction, parts: list[tuple[str, Instruction | None]]
) -> Iterator[Violation]:
    """Check that all parts with a sharding have equal shardings."""
    values = [
        (what, part.attribute_or_none("sharding")) for what, part in parts if part is not None
    ]
    given = [(what, value) for what, value in values if value is not None]
    for what, value in given[1:]:
        if value != given[0][1]:
            yield Violation(
                check, instruction, f"{given[0][0]} and {what} have different shardings"
            )
            return
