"""Mutable buffers, `b(f32[8])`: who makes, writes and frees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hlo_lint.analysis.layout_mismatches import types_of
from hlo_lint.analysis.shape_inference.types import compatible
from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    operand_shape,
    text_of,
    value_of,
)
from hlo_lint.hlo.attributes import Alias
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.records import opcode_of, references_of
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Shape, leaves

_CARRIES: Final = frozenset(
    "custom-call parameter tuple get-tuple-element while call conditional fusion async-start "
    "async-update async-done dynamic-update-slice bitcast opt-barrier collective-permute-start "
    "collective-permute-done".split()
)
"""What may read a buffer or give one."""


def _buffer_indices(shape: Shape | None) -> set[tuple[int, ...]]:
    if shape is None:
        return set()
    return {index for index, each in leaves(shape) if isinstance(each, BufferShape)}


def _special(call: Instruction) -> Iterator[Violation]:
    target = (text_of(call, "custom_call_target") or "").strip('"')
    result, count = call.shape_or_none, len(call.operand_names)
    operand = operand_shape(call, 0)
    if target == "CreateBuffer":
        if count:
            yield Violation("M-50", call, f"CreateBuffer reads nothing, and has {count} operands")
        elif not isinstance(result, BufferShape):
            yield Violation("M-50", call, f"CreateBuffer gives a buffer, and not {result}")
    elif target == "Pin":
        if count != 1 or not isinstance(operand, ArrayShape):
            yield Violation("M-50", call, "Pin takes one array")
        elif not isinstance(result, BufferShape) or not compatible(result.element, operand):
            yield Violation(
                "M-50", call, f"Pin of {operand} gives a buffer of it, and not {result}"
            )
    elif target == "Unpin":
        if count != 1 or not isinstance(operand, BufferShape):
            yield Violation("M-50", call, "Unpin takes one buffer")
        elif not isinstance(result, ArrayShape) or not compatible(operand.element, result):
            yield Violation("M-50", call, f"Unpin of {operand} gives its array, and not {result}")


def _paired(call: Instruction) -> Iterator[Violation]:
    """Each buffer that a custom call takes is one that it gives, and the other way round."""
    target = (text_of(call, "custom_call_target") or "").strip('"')
    if target in ("Pin", "CreateBuffer", "Unpin"):
        return
    given = {((), index) for index in _buffer_indices(call.shape_or_none)}
    taken = {
        (number, index)
        for number in range(len(call.operand_names))
        for index in _buffer_indices(operand_shape(call, number))
    }
    if not given and not taken:
        return
    aliases = value_of(call, "output_to_operand_aliasing")
    pairs = (
        [each for each in aliases if isinstance(each, Alias)] if isinstance(aliases, tuple) else []
    )
    used = [(alias.operand, alias.operand_index) for alias in pairs]
    made = [alias.output_index for alias in pairs]
    found = False
    for number, index in sorted(taken):
        if used.count((number, index)) != 1:
            times = used.count((number, index))
            message = (
                f"the buffer that is operand {number} is {times} times in the aliasing, not once"
            )
            yield Violation("M-52", call, message, operand=number)
            found = True
    for _, index in () if found else sorted(given):
        if made.count(index) != 1:
            message = (
                f"a buffer of the result is {made.count(index)} times in the aliasing, not once"
            )
            yield Violation("M-52", call, message)


def _buffers(scope: Scope) -> Iterable[Violation]:
    return _written(scope) if "b(" in "".join(types_of(scope.computation)) else ()


def _written(scope: Scope) -> Iterator[Violation]:
    computation = scope.computation
    writers: dict[str, list[Instruction]] = {}
    for number, row in enumerate(computation.rows):
        instruction = computation.at(number)
        result = instruction.shape_or_none
        reads = [
            n
            for n in range(len(references_of(row)))
            if _buffer_indices(operand_shape(instruction, n))
        ]
        if (reads or _buffer_indices(result)) and opcode_of(row) not in _CARRIES:
            yield Violation(
                "M-51", instruction, f"{opcode_of(row)} neither reads nor gives a buffer"
            )
            continue
        if opcode_of(row) == "parameter" and computation.is_entry and _buffer_indices(result):
            yield Violation("M-51", instruction, "a program takes no buffer as its parameter")
        if opcode_of(row) == "custom-call":
            yield from _special(instruction)
            yield from _paired(instruction)
        if opcode_of(row) == "dynamic-update-slice" and 0 in reads and not _buffer_indices(result):
            yield Violation("M-54", instruction, "dynamic-update-slice of a buffer gives a buffer")
        if opcode_of(row) in ("custom-call", "dynamic-update-slice"):
            for place in reads:
                if isinstance(operand_shape(instruction, place), BufferShape):
                    writers.setdefault(references_of(row)[place], []).append(instruction)
    for name, found in writers.items():
        for second in found[1:]:
            message = f"%{found[0].name} writes or frees the buffer %{name} already"
            yield Violation("M-53", second, message)


CHECKS: Checks = {}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = (_buffers,)
OF_MODULES = ()
