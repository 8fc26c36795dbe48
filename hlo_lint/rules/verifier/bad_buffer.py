"""Buffers that instructions write in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from hlo_lint.analysis.buffers import operand_position, origins
from hlo_lint.analysis.shape_inference.types import compatible, flags
from hlo_lint.analysis.verifier.checks import on, on_computation
from hlo_lint.analysis.verifier.scope import Scope, Violation, parameter
from hlo_lint.hlo.attributes.plain import Alias
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.kinds import TYPE, reading_of
from hlo_lint.hlo.opcodes import SAME_MEMORY, TUPLES
from hlo_lint.hlo.shape import ArrayShape, BufferShape, Index, Shape, leaves, part
from hlo_lint.rules.base import Bad, Good
from hlo_lint.rules.verifier import VerifierRule


class BadBuffer(VerifierRule):
    """A mutable buffer that is created, written or freed incorrectly.

    ## Why
    A buffer has a single writer at a time: each instruction that writes it takes it and returns it,
    and each Pin has an Unpin (`VerifyBuffers` in `xla/service/hlo_verifier.cc`).
    """

    messages = (
        "Seen buffers while buffers aren't allowed in this context",
        "buffer value has more than one writers",
        "buffer is used in operands but not in results",
        "custom-call to Unpin must have one output-to-operand aliasing",
        "buffer is used in results multiple times",
    )
    opcodes = frozenset({"custom-call"})
    mentions = ("b(",)
    table = """
        buffer-custom-call: HloVerifier::RunImpl
          Pin, CreateBuffer, Unpin: operands, results, aliasing
            b = b(f32[8]{0}) custom-call(f32[8]{0} p), custom_call_target="CreateBuffer"  // error
            ROOT r = f32[8]{0} negate(p)
        buffer-context: HloVerifier::RunImpl
          only some opcodes may have buffers
            p = b(f32[8]{0}) parameter(0)  // error
            ROOT r = f32[8]{0} custom-call(p), custom_call_target="Unpin",
                output_to_operand_aliasing={{}: (0, {})}
        buffer-alias: HloVerifier::RunImpl
          each buffer of a custom call is in one alias
            b = b(f32[8]{0}) custom-call(f32[8]{0} p), custom_call_target="Pin",
                output_to_operand_aliasing={{}: (0, {})}
            c = b(f32[8]{0}) custom-call(b), custom_call_target="write"  // error
            ROOT r = f32[8]{0} custom-call(c), custom_call_target="Unpin",
                output_to_operand_aliasing={{}: (0, {})}
        buffer-writers: HloVerifier::RunImpl
          each buffer is written once
            b = b(f32[8]{0}) custom-call(f32[8]{0} p), custom_call_target="Pin",
                output_to_operand_aliasing={{}: (0, {})}
            r = f32[8]{0} custom-call(b), custom_call_target="Unpin",
                output_to_operand_aliasing={{}: (0, {})}
            s = f32[8]{0} custom-call(b), custom_call_target="Unpin",  // error
                output_to_operand_aliasing={{}: (0, {})}
            ROOT t = (f32[8]{0}, f32[8]{0}) tuple(r, s)
        buffer-update: HloVerifier::RunImpl
          dynamic-update-slice of a buffer returns a buffer
            b = b(f32[8]{0}) custom-call(f32[8]{0} p), custom_call_target="Pin",
                output_to_operand_aliasing={{}: (0, {})}
            ROOT d = f32[8]{0} dynamic-update-slice(b, f32[2]{0} u, s32[] i)  // error
    """
    examples = (
        Bad.entry("""
            p = f32[8] parameter(0)
            ROOT c = f32[8] custom-call(), custom_call_target="CreateBuffer"  // error
        """),
        Bad.entry("""
            b = b(f32[8]) custom-call(f32[8] p), custom_call_target="Pin",
                output_to_operand_aliasing={{}: (0, {})}
            t = (b(f32[8]), f32[8]) tuple(b, p)
            w = (b(f32[8])) custom-call(t), custom_call_target="writer",
                output_to_operand_aliasing={{0}: (0, {0})}
            ROOT u = f32[8] custom-call(b), custom_call_target="Unpin",  // error
                output_to_operand_aliasing={{}: (0, {})}
        """),
        Good.entry("""
            b = b(f32[8]{0}) custom-call(f32[8]{0} p), custom_call_target="Pin",
                output_to_operand_aliasing={{}: (0, {})}
            c = b(f32[8]{0}) custom-call(b), custom_call_target="write",
                output_to_operand_aliasing={{}: (0, {})}
            ROOT r = f32[8]{0} custom-call(c), custom_call_target="Unpin",
                output_to_operand_aliasing={{}: (0, {})}
        """),
    )

    @on("while")
    def loops(self, scope: Scope, loop: Instruction) -> Iterator[Violation]:
        """A loop body does not return a buffer that it has overwritten."""
        body = scope.named(loop, "body")
        if body is None or body.root is None or not _buffer_indices(body.root.shape_or_none):
            return
        writers = writers_of(scope, body)
        for name in body.root.operand_names if body.root.opcode == "tuple" else ():
            if users := writers.get((name, ())):
                message = f"the body returns %{name}, which %{users[0].name} has overwritten"
                yield Violation("buffer-writers", loop, message)

    @on_computation
    def buffers(self, scope: Scope) -> Iterator[Violation]:
        """Buffers are created, written once and freed by instructions that may do so."""
        if "b(" in "".join([kind[TYPE] for kind in reading_of(scope.computation).kinds]):
            yield from _uses(scope)
            return
        for call in scope.computation.with_opcode("custom-call"):
            if message := _target_error(call):
                yield Violation("buffer-custom-call", call, message)


_CARRIES: Final = frozenset(
    "bitcast call conditional custom-call dynamic-update-slice fusion get-tuple-element "
    "opt-barrier parameter tuple while".split()
)
"""Opcodes that may have buffers as operands or in their results, beside asynchronous ones."""
_TARGETS: Final = ("Pin", "CreateBuffer", "Unpin")


def _buffer_indices(shape: Shape | None) -> set[tuple[int, ...]]:
    if shape is None:
        return set()
    return {index for index, leaf in leaves(shape) if isinstance(leaf, BufferShape)}


def _uses(scope: Scope) -> Iterator[Violation]:
    computation = scope.computation
    for number in range(len(computation.rows)):
        instruction = computation.at(number)
        opcode, result = instruction.opcode, instruction.shape_or_none
        shapes = [operand.shape for operand in instruction.operands]
        reads = [place for place, shape in enumerate(shapes) if _buffer_indices(shape)]
        if (reads or _buffer_indices(result)) and not (
            opcode in _CARRIES or opcode.endswith(("-start", "-update", "-done"))
        ):
            message = f"{opcode} cannot have buffers as operands or results"
            yield Violation("buffer-context", instruction, message)
            continue
        if opcode == "parameter" and computation.is_entry and _buffer_indices(result):
            message = "a parameter of the entry cannot be a buffer"
            yield Violation("buffer-context", instruction, message)
        if opcode == "custom-call" and (message := _target_error(instruction)):
            yield Violation("buffer-custom-call", instruction, message)
        if opcode in ("custom-call", "custom-call-start"):
            output = part(result, (1,)) if opcode.endswith("-start") else result
            yield from _alias_counts(instruction, shapes, output)
        if opcode == "dynamic-update-slice" and 0 in reads and not _buffer_indices(result):
            message = "dynamic-update-slice of a buffer must return a buffer"
            yield Violation("buffer-update", instruction, message)
    for (name, _), users in writers_of(scope, computation).items():
        for second in users[1:]:
            message = f"buffer %{name} has more than one writer: %{users[0].name} is the first"
            yield Violation("buffer-writers", second, message)


_Value = tuple[str, Index]
"""A buffer: the name of the instruction that creates it, and the index in its result."""


def writers_of(scope: Scope, computation: Computation) -> Mapping[_Value, list[Instruction]]:
    """The instructions that write or free each buffer of a computation.

    A loop writes a buffer if its body does. If a body writes a buffer and also returns it, the next
    iteration reads it again, so the root counts as a writer.
    """
    writers: dict[_Value, list[Instruction]] = {}
    for number in range(len(computation.rows)):
        instruction = computation.at(number)
        if instruction.opcode in SAME_MEMORY | TUPLES:
            continue
        for place in range(len(instruction.operand_names)):
            if (given := operand_position(instruction, place, ())) is None:
                continue
            for index, value in _buffers_of(*given):
                if _writes(scope, instruction, place, index):
                    writers.setdefault(value, []).append(instruction)
    if (root := computation.root) is not None:
        for _, value in _buffers_of(root, ()):
            maker = computation.instruction(value[0])
            if value in writers and maker is not None and maker.opcode == "parameter":
                writers[value].append(root)
    return writers


def _buffers_of(instruction: Instruction, index: Index) -> Iterator[tuple[Index, _Value]]:
    """The buffers in a part of a result, by index; texts may leave out types of elements."""
    *_, (source, at) = origins(instruction, index, SAME_MEMORY)
    for inner in _buffer_indices(part(source.shape_or_none, at)):
        *_, (maker, place) = origins(source, (*at, *inner), SAME_MEMORY)
        yield inner, (maker.name, place)


def _writes(scope: Scope, user: Instruction, place: int, index: tuple[int, ...]) -> bool:
    if user.opcode == "custom-call":
        return True
    if user.opcode == "dynamic-update-slice":
        return not index
    callee = scope.named(user, "body") if user.opcode == "while" else None
    if user.opcode == "call":
        callee = scope.callee(user)
    argument = parameter(callee, place)
    if callee is None or argument is None or callee is scope.computation:
        return False
    return (argument.name, index) in writers_of(scope, callee)


def _target_error(call: Instruction) -> str:
    """The error of a custom call that creates or frees a buffer; empty if it is correct."""
    target = call.custom_call_target
    if target not in _TARGETS:
        return ""
    result, operand, count = call.shape_or_none, call.operand_shape(0), len(call.operand_names)
    if target == "CreateBuffer":
        if count:
            return f"CreateBuffer needs 0 operands, got {count}"
        if not isinstance(result, BufferShape):
            return f"CreateBuffer must return a buffer, got {result}"
    if target in ("Pin", "Unpin"):
        aliases = call.attribute_or_none("output_to_operand_aliasing")
        if not isinstance(aliases, tuple) or len(aliases) != 1:
            return f"{target} needs a single pair in output_to_operand_aliasing"
    if target == "Pin":
        if count != 1 or not isinstance(operand, ArrayShape):
            return "Pin needs a single operand, an array"
        if not isinstance(result, BufferShape) or not _are_same(result.element, operand):
            return f"Pin of {operand} must return a buffer of it, got {result}"
    if target == "Unpin":
        if count != 1 or not isinstance(operand, BufferShape):
            return "Unpin needs a single operand, a buffer"
        if not isinstance(result, ArrayShape) or not _are_same(operand.element, result):
            return f"Unpin of {operand} must return its array, got {result}"
    return ""


def _are_same(left: ArrayShape, right: ArrayShape) -> bool:
    return compatible(left, right) and flags(left) == flags(right)


def _alias_counts(
    call: Instruction, shapes: list[Shape | None], result: Shape | None
) -> Iterator[Violation]:
    """Each buffer among operands and results of a custom call is in exactly one alias."""
    if call.custom_call_target in _TARGETS:
        return
    aliases = call.attribute_or_none("output_to_operand_aliasing")
    pairs = [a for a in aliases if isinstance(a, Alias)] if isinstance(aliases, tuple) else []
    used = [(alias.operand, alias.operand_index) for alias in pairs]
    aliased = [alias.output_index for alias in pairs]
    counts: list[tuple[int | None, int]] = [
        (number, used.count((number, index)))
        for number, shape in enumerate(shapes)
        for index in sorted(_buffer_indices(shape))
    ]
    if all(times == 1 for _, times in counts):
        counts = [(None, aliased.count(index)) for index in sorted(_buffer_indices(result))]
    for number, times in counts:
        if times != 1:
            buffer = "a result buffer" if number is None else f"buffer operand {number}"
            message = f"{buffer} is in {times} pairs of output_to_operand_aliasing, expected 1"
            yield Violation("buffer-alias", call, message, number)
