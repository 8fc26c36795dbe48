"""The use that a kernel makes of a result that shares the memory of an operand."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from hlo_lint.analysis.buffers import Result
from hlo_lint.hlo.ir import Instruction

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.triton import KernelCall
    from hlo_lint.kernels.ptx.global_accesses import GlobalAccesses


def need_of_alias(call: Instruction, result: Result) -> str | None:
    """The reason why a call computes wrong numbers if a result does not hold its operand.

    Empty if it overwrites the result without a look at it; None if that is unknown.
    """
    from hlo_lint.kernels.custom_calls import PayloadError, TritonCall, decode

    try:
        payload = decode(call)
    except PayloadError:
        return None
    if not isinstance(payload, TritonCall):
        return None
    buffer = len(call.operands) + result.number
    needs = [_need(kernel_call, buffer, result) for kernel_call in payload.kernel_calls]
    return next((need for need in needs if need), None if None in needs else "")


def _need(call: KernelCall, buffer: int, result: Result) -> str | None:
    from hlo_lint.kernels.custom_calls.triton import Array

    if buffer >= call.pointer_count:
        return "the kernel is not handed its result: it writes through the operand"
    number = call.pointers[buffer]
    parameter = call.parameters[number]
    if not isinstance(parameter, Array) or not call.kernel.ptx:
        return None
    if parameter.bytes_to_zero:
        return ""  # the launcher clears it, so what it held does not matter
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
