"""Who calls a computation, with what, and how both are spread over devices and threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.shape_inference.verdict import inference_of
from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    callee_name,
    operand_shape,
    parameter_number,
    parameter_types,
    text_of,
    value_of,
)
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Instruction
from hlo_lint.hlo.records import attributes_of, opcode_of, type_of
from hlo_lint.hlo.shape import ArrayShape, Shape, leaves, spelled_index

CALLERS: Final = frozenset(
    "all-reduce all-reduce-start async-start async-update async-done call conditional custom-call "
    "fusion map reduce reduce-scatter reduce-window scan scatter select-and-scatter sort topk "
    "while".split()
)
"""What may call a computation."""
_calls = re.compile(rf"\b(?:{'|'.join(CALLING_ATTRIBUTES)})=").search


def order_apart(left: Shape | None, right: Shape | None) -> str:
    """Where two shapes of one value lie in memory in different orders; else empty."""
    if left is None or right is None:
        return ""
    theirs = dict(leaves(right))
    for index, ours in leaves(left):
        other = theirs.get(index)
        if (
            isinstance(ours, ArrayShape)
            and isinstance(other, ArrayShape)
            and ours.layout is not None
            and other.layout is not None
            and ours.rank == other.rank
            and ours.minor_to_major != other.minor_to_major
        ):
            place = f" at index {spelled_index(index)}" if index else ""
            return f"{ours}{place} and {other}"
    return ""


def _parameter(computation: Computation | None, number: int) -> Instruction | None:
    for parameter in computation.with_opcode("parameter") if computation is not None else ():
        if parameter_number(parameter) == number:
            return parameter
    return None


def _reads(caller: Instruction, number: int) -> str:
    """The type of an operand as it is spelled; empty where it is an element of something."""
    references = caller.operand_names
    at = caller.computation.index.get(references[number]) if number < len(references) else None
    return "" if at is None else type_of(caller.computation.rows[at])


def _types(caller: Instruction) -> tuple[str, ...]:
    """The types of all operands as they are spelled."""
    rows, index = caller.computation.rows, caller.computation.index
    places = map(index.get, caller.operand_names)
    return tuple(["" if at is None else type_of(rows[at]) for at in places])


def _shape(instruction: Instruction | None) -> Shape | None:
    return None if instruction is None else instruction.shape_or_none


def passed_as_they_lie(scope: Scope, caller: Instruction) -> Iterator[Violation]:
    """Checks that what is passed lies in memory as the parameters do."""
    if not scope.demands.layouts:
        return
    (callee, *_) = scope.called(caller) or (None,)
    if callee is None:
        return
    row = {"fusion": "S-79", "call": "S-81", "async-start": "S-97"}[caller.opcode]
    if _types(caller) == parameter_types(callee):
        return
    for parameter in callee.with_opcode("parameter"):
        number = parameter_number(parameter)
        if number is None or _reads(caller, number) == parameter.type_text:
            continue
        apart = order_apart(operand_shape(caller, number), _shape(parameter))
        if apart:
            message = (
                f"operand {number} and parameter {number} of %{callee.name} lie apart: {apart}"
            )
            yield Violation(row, caller, message, operand=number)


def _carried_as_it_lies(scope: Scope, loop: Instruction) -> Iterator[Violation]:
    if not scope.demands.layouts:
        return
    carried = operand_shape(loop, 0)
    for name in ("condition", "body"):
        part = scope.callees.get(callee_name(loop, name) or "")
        apart = order_apart(carried, _shape(_parameter(part, 0)))
        if apart and part is not None:
            message = f"what is carried and the parameter of %{part.name} lie apart: {apart}"
            yield Violation("S-85", loop, message, operand=0)
        if name == "body" and part is not None:
            apart = order_apart(carried, _shape(part.root))
            if apart:
                message = f"what is carried and the result of %{part.name} lie apart: {apart}"
                yield Violation("S-85", loop, message, operand=0)


def _branches_as_they_lie(scope: Scope, conditional: Instruction) -> Iterator[Violation]:
    if not scope.demands.layouts:
        return
    for number, branch in enumerate(_branches(scope, conditional), 1):
        if branch is None:
            continue
        apart = order_apart(operand_shape(conditional, number), _shape(_parameter(branch, 0)))
        if apart:
            message = f"operand {number} and the parameter of %{branch.name} lie apart: {apart}"
            yield Violation("S-86", conditional, message, operand=number)
        apart = order_apart(conditional.shape_or_none, _shape(branch.root))
        if apart:
            message = f"the result and that of %{branch.name} lie apart: {apart}"
            yield Violation("S-86", conditional, message)


def _branches(scope: Scope, conditional: Instruction) -> tuple[Computation | None, ...]:
    """In the order of the operands."""
    if "true_computation=" in conditional.attributes_text:
        names = [callee_name(conditional, f"{which}_computation") for which in ("true", "false")]
        return tuple(scope.callees.get(name or "") for name in names)
    return scope.called(conditional)


def _composite(scope: Scope, call: Instruction) -> Iterator[Violation]:
    if text_of(call, "is_composite") != "true":
        return
    attributes = value_of(call, "frontend_attributes")
    name = attributes.get("composite.name", "") if isinstance(attributes, dict) else ""
    if not isinstance(name, str) or not name.strip('"'):
        yield Violation("S-81c", call, "a composite call has to say its composite.name")


def _own_results(scope: Scope, call: Instruction) -> Iterator[Violation]:
    if text_of(call, "output_to_operand_aliasing") not in (None, "{}"):
        yield Violation("I-11", call, "a call may say no output_to_operand_aliasing")


def _sharding_of_loop(scope: Scope, loop: Instruction) -> Iterator[Violation]:
    """What a loop carries is spread over the devices in one way."""
    parts = [("the loop", loop)]
    body = scope.callees.get(callee_name(loop, "body") or "")
    condition = scope.callees.get(callee_name(loop, "condition") or "")
    candidates = (
        ("the result of its body", None if body is None else body.root),
        ("the parameter of its body", _parameter(body, 0)),
        ("the parameter of its condition", _parameter(condition, 0)),
    )
    parts += [(what, part) for what, part in candidates if part is not None]
    yield from _same_sharding("I-08", loop, parts)


def _sharding_of_branches(scope: Scope, conditional: Instruction) -> Iterator[Violation]:
    parts = [("the conditional", conditional)]
    parts += [
        (f"the result of %{branch.name}", branch.root)
        for branch in _branches(scope, conditional)
        if branch is not None and branch.root is not None
    ]
    yield from _same_sharding("I-12", conditional, parts)


def _same_sharding(
    row: str, at: Instruction, parts: list[tuple[str, Instruction]]
) -> Iterator[Violation]:
    given = [(what, value_of(part, "sharding")) for what, part in parts]
    said_by = [(what, value) for what, value in given if value is not None]
    for what, value in said_by[1:]:
        if value != said_by[0][1]:
            message = f"{said_by[0][0]} and {what} have different shardings"
            yield Violation(row, at, message)
            return


def called_for_nothing(scope: Scope, number: int) -> Iterator[Violation]:
    """Checks that only some opcodes call a computation."""
    row = scope.computation.rows[number]
    if opcode_of(row) in CALLERS or opcode_of(row).endswith(("-start", "-update", "-done")):
        return
    if _calls(attributes_of(row)) and inference_of(opcode_of(row)) is not None:
        instruction = scope.computation.at(number)
        if any(name in CALLING_ATTRIBUTES for name in instruction.attributes):
            yield Violation("S-03", instruction, f"{opcode_of(row)} calls no computation")


CHECKS: Checks = {
    "call": (passed_as_they_lie, _composite, _own_results),
    "while": (_carried_as_it_lies, _sharding_of_loop),
    "conditional": (_branches_as_they_lie, _sharding_of_branches),
}
OF_ROWS: RowChecks = {called_for_nothing: ("calls=", "to_apply=", "body=")}
OF_COMPUTATIONS = ()
OF_MODULES = ()
