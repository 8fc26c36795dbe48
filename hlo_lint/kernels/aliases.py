"""Results of custom calls that alias an operand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from hlo_lint.analysis.buffers import (
    ResultArray,
    ResultPart,
    declared_aliases,
    operand_position,
    origins,
    results,
    source_of,
)
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import Index
from hlo_lint.kernels.calls import triton_payload

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.triton import KernelCall
    from hlo_lint.kernels.ptx.global_accesses import GlobalAccesses


def aliased_results(call: Instruction) -> Iterator[tuple[ResultArray, int]]:
    """The results of a call that alias an operand, each with the operand's number."""
    aliases = declared_aliases(call)
    for result in results(call) if aliases else ():
        if (number := aliases.get(result.index)) is not None:
            yield result, number


def need_of_alias(call: Instruction, result: ResultArray) -> str | None:
    """The reason that a call needs a result to alias its operand.

    Empty if it overwrites the whole result without reading it; None if that is unknown.
    """
    payload = triton_payload(call)
    if payload is None:
        return None
    buffer = len(call.operands) + result.number
    needs = [_need(kernel_call, buffer, result) for kernel_call in payload.kernel_calls]
    return next((need for need in needs if need), None if None in needs else "")


def _need(call: KernelCall, buffer: int, result: ResultArray) -> str | None:
    from hlo_lint.kernels.custom_calls.triton import Array

    if buffer >= len(call.pointers):
        return "the kernel has no pointer to its result: it writes through the operand"
    number = call.pointers[buffer]
    parameter = call.parameters[number]
    if not isinstance(parameter, Array) or not call.kernel.ptx:
        return None
    if parameter.bytes_to_zero:
        return ""  # the launcher clears it, so its old contents do not matter
    accesses = _accesses(call.kernel.ptx, call.pointers)
    if accesses is None:
        return None
    if number in accesses.reads_first:
        return f"the kernel reads result {result} before it writes it"
    stored, size = accesses.may_store(number), result.shape.byte_size
    if stored is None or size is None:
        return None
    written = stored * prod(call.grid) * (call.kernel.num_ctas or 1)
    return f"the kernel writes at most {written} of its {size} bytes" if written < size else ""


# The dumps of one module repeat their payloads.
@lru_cache(maxsize=32)
def _accesses(ptx: str, pointers: tuple[int, ...]) -> GlobalAccesses | None:
    from hlo_lint.kernels.ptx.global_accesses import global_accesses
    from hlo_lint.kernels.ptx.reader import read_ptx

    return global_accesses(read_ptx(ptx), pointers)


# ---- in fusions


def alias_is_lost(fusion: Instruction, call: Instruction, result: ResultArray, number: int) -> bool:
    """True if the fusion certainly gives the result a different buffer than the operand's."""
    source = source_of(call.operand(number))
    if source is None:
        return False
    index = fusion_index(call, result)
    if source.opcode == "parameter":
        declared = declared_aliases(fusion)
        return index is not None and declared.get(index) != source.parameter_number
    if source.opcode not in ("slice", "dynamic-slice"):
        return False
    if index is not None:
        return True  # the result is the fusion's, but the operand is a part of another buffer
    update = _update_of(call, result)
    return update is not None and update.producer() is not source_of(source.operand(0))


def fusion_index(call: Instruction, result: ResultArray) -> Index | None:
    """The index of a call's result in its fusion's result; None if it is not returned."""
    root = call.computation.root
    if root is None:
        return None
    if root is call:
        return result.index
    for place in range(len(root.operands)) if root.opcode == "tuple" else ():
        if _is_result(operand_position(root, place, ()), call, result):
            return (place,)
    return () if _is_result((root, ()), call, result) else None


def _is_result(part: ResultPart | None, call: Instruction, result: ResultArray) -> bool:
    """True if a value is this result of the call, seen through bitcasts and tuple elements."""
    return part is not None and (call, result.index) in origins(*part, ("bitcast", "reshape"))


def _update_of(call: Instruction, result: ResultArray) -> Instruction | None:
    """The dynamic-update-slice whose update is a result of the call."""
    for update in call.computation.with_opcode("dynamic-update-slice"):
        if _is_result(operand_position(update, 1, ()), call, result):
            return update
    return None
