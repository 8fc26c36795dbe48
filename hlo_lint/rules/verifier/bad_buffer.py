"""Buffers that instructions write in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final

from hlo_lint.analysis.layout_mismatches import types_of
from hlo_lint.analysis.shape_inference.types import compatible
from hlo_lint.analysis.verifier.checks import on_computation
from hlo_lint.analysis.verifier.scope import Scope, Violation, operand_shape, target_of, value_of
from hlo_lint.hlo.attributes import Alias
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Shape, leaves
from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import VerifierRule


class BadBuffer(VerifierRule, Rule):
    """A mutable buffer that is made, written or freed in a way that loses track of it.

    ## Why
    A buffer has one writer at a time: each instruction that writes it takes it and gives it back,
    and who pins a value frees it (`VerifyBuffers` in `xla/service/hlo_verifier.cc`).
    """

    demands: ClassVar[Mapping[str, tuple[str, str]]] = {
        "buffer-custom-call": (
            "HloVerifier::RunImpl",
            "Pin, CreateBuffer, Unpin: operands, results, aliasing",
        ),
        "buffer-context": ("HloVerifier::RunImpl", "buffers only where buffers may be"),
        "buffer-alias": ("HloVerifier::RunImpl", "each buffer of a custom call is in one alias"),
        "buffer-writers": ("HloVerifier::RunImpl", "a buffer is written once"),
        "buffer-update": (
            "HloVerifier::RunImpl",
            "dynamic-update-slice of a buffer gives a buffer",
        ),
    }
    rows: ClassVar[Mapping[str, Bad]] = {
        "buffer-custom-call": Bad.entry("""
            p = f32[8]{0} parameter(0)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="CreateBuffer"  // error
            ROOT r = f32[8]{0} negate(p)
        """),
        "buffer-context": Bad.entry("""
            p = b(f32[8]{0}) parameter(0)  // error
            ROOT r = f32[8]{0} custom-call(p), custom_call_target="Unpin"
        """),
        "buffer-alias": Bad.entry("""
            p = f32[8]{0} parameter(0)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="Pin"
            c = b(f32[8]{0}) custom-call(b), custom_call_target="write"  // error
            ROOT r = f32[8]{0} custom-call(c), custom_call_target="Unpin"
        """),
        "buffer-writers": Bad.entry("""
            p = f32[8]{0} parameter(0)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="Pin"
            r = f32[8]{0} custom-call(b), custom_call_target="Unpin"
            s = f32[8]{0} custom-call(b), custom_call_target="Unpin"  // error
            ROOT t = (f32[8]{0}, f32[8]{0}) tuple(r, s)
        """),
        "buffer-update": Bad.entry("""
            p = f32[8]{0} parameter(0)
            u = f32[2]{0} parameter(1)
            i = s32[] parameter(2)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="Pin"
            ROOT d = f32[8]{0} dynamic-update-slice(b, u, i)  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="Pin"
            c = b(f32[8]{0}) custom-call(b), custom_call_target="write",
                output_to_operand_aliasing={{}: (0, {})}
            ROOT r = f32[8]{0} custom-call(c), custom_call_target="Unpin"
        """),
    )

    @on_computation
    def buffers(self, scope: Scope) -> Iterable[Violation]:
        """Buffers are made, written once and freed by the instructions that may do so."""
        return _uses(scope) if "b(" in "".join(types_of(scope.computation)) else ()


_CARRIES: Final = frozenset(
    "custom-call parameter tuple get-tuple-element while call conditional fusion async-start "
    "async-update async-done dynamic-update-slice bitcast opt-barrier collective-permute-start "
    "collective-permute-done".split()
)
"""Opcodes that may have buffers as operands or in their results."""
_TARGETS: Final = ("Pin", "CreateBuffer", "Unpin")


def _buffer_indices(shape: Shape | None) -> set[tuple[int, ...]]:
    if shape is None:
        return set()
    return {index for index, each in leaves(shape) if isinstance(each, BufferShape)}


def _uses(scope: Scope) -> Iterator[Violation]:
    computation = scope.computation
    writers: dict[str, list[Instruction]] = {}
    for number in range(len(computation.rows)):
        instruction = computation.at(number)
        opcode, result = instruction.opcode, instruction.shape_or_none
        names = instruction.operand_names
        shapes = [operand_shape(instruction, place) for place in range(len(names))]
        reads = [place for place, shape in enumerate(shapes) if _buffer_indices(shape)]
        if (reads or _buffer_indices(result)) and opcode not in _CARRIES:
            message = f"{opcode} cannot have buffers as operands or results"
            yield Violation("buffer-context", instruction, message)
            continue
        if opcode == "parameter" and computation.is_entry and _buffer_indices(result):
            message = "a parameter of the entry cannot be a buffer"
            yield Violation("buffer-context", instruction, message)
        if opcode == "custom-call":
            if message := _target_error(instruction, shapes):
                yield Violation("buffer-custom-call", instruction, message)
            yield from _alias_counts(instruction, shapes)
        if opcode == "dynamic-update-slice" and 0 in reads and not _buffer_indices(result):
            message = "dynamic-update-slice of a buffer has to return a buffer"
            yield Violation("buffer-update", instruction, message)
        if opcode in ("custom-call", "dynamic-update-slice"):
            for place in reads:
                if isinstance(shapes[place], BufferShape):
                    writers.setdefault(names[place], []).append(instruction)
    for name, users in writers.items():
        for second in users[1:]:
            message = f"buffer %{name} has more than one writer: %{users[0].name} is the first"
            yield Violation("buffer-writers", second, message)


def _target_error(call: Instruction, shapes: list[Shape | None]) -> str:
    """The error of a custom call that makes or ends a buffer, or ""."""
    target, result, count = target_of(call), call.shape_or_none, len(shapes)
    operand = shapes[0] if shapes else None
    if target == "CreateBuffer":
        if count:
            return f"CreateBuffer takes no operands, not {count}"
        if not isinstance(result, BufferShape):
            return f"CreateBuffer returns a buffer, not {result}"
    if target == "Pin":
        if count != 1 or not isinstance(operand, ArrayShape):
            return "Pin takes one array"
        if not isinstance(result, BufferShape) or not compatible(result.element, operand):
            return f"Pin of {operand} returns a buffer of it, not {result}"
    if target == "Unpin":
        if count != 1 or not isinstance(operand, BufferShape):
            return "Unpin takes one buffer"
        if not isinstance(result, ArrayShape) or not compatible(operand.element, result):
            return f"Unpin of {operand} returns its array, not {result}"
    return ""


def _alias_counts(call: Instruction, shapes: list[Shape | None]) -> Iterator[Violation]:
    """Each buffer operand of a custom call is one of its results, and the other way round."""
    if target_of(call) in _TARGETS:
        return
    outputs = sorted(_buffer_indices(call.shape_or_none))
    operands = [
        (number, index)
        for number, shape in enumerate(shapes)
        for index in sorted(_buffer_indices(shape))
    ]
    if not outputs and not operands:
        return
    aliases = value_of(call, "output_to_operand_aliasing")
    pairs = [a for a in aliases if isinstance(a, Alias)] if isinstance(aliases, tuple) else []
    used = [(alias.operand, alias.operand_index) for alias in pairs]
    made = [alias.output_index for alias in pairs]
    wrong = [operand for operand in operands if used.count(operand) != 1]
    for number, index in wrong:
        times = used.count((number, index))
        message = (
            f"buffer operand {number} is in {times} pairs of output_to_operand_aliasing, not one"
        )
        yield Violation("buffer-alias", call, message, number)
    for index in () if wrong else outputs:
        if made.count(index) != 1:
            times = made.count(index)
            message = f"a result buffer is in {times} pairs of output_to_operand_aliasing, not one"
            yield Violation("buffer-alias", call, message)
