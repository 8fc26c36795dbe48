"""Triton calls in a module, each with its payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hlo_lint.analysis.buffers import source_of
from hlo_lint.analysis.calls import fusions_of, holders
from hlo_lint.analysis.kinds import instructions_where
from hlo_lint.hlo.constants import constant_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import ATTRIBUTES

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.triton import AutotunedKernelCall, TritonCall

LEGACY = "triton_kernel_call"
"""The target before typed FFI, whose target begins with it."""

_FILLS = frozenset({"broadcast", "constant", "iota", "bitcast", "reshape", "copy"})
"""The opcodes of a fusion body that reads no parameter: it computes only from constants."""
_WITHOUT_BUFFER = frozenset({"get-tuple-element", "bitcast", "slice", "dynamic-slice"})
"""The opcodes in a fusion body whose result is an address inside their operand's buffer."""


def fused_calls(module: Module) -> Iterator[tuple[Instruction, Instruction]]:
    """Fusions with the custom calls in their bodies: XLA:GPU wraps calls on slices this way."""
    calling = {computation.name for computation in holders(module).get("custom-call", ())}
    for fusion, body in fusions_of(module, calling & module.fusion_computations):
        for call in body.with_opcode("custom-call"):
            yield fusion, call


def triton_calls(module: Module) -> Iterator[tuple[Instruction, TritonCall]]:
    """Triton calls with a readable payload, and the payload, including fusion bodies."""
    for call in instructions_where(
        module, "custom-call", lambda kind: f'"{LEGACY}' in kind[ATTRIBUTES]
    ):
        if (payload := triton_payload(call)) is not None:
            yield call, payload


def autotuned_calls(
    module: Module,
) -> Iterator[tuple[Instruction, TritonCall, AutotunedKernelCall]]:
    """Triton calls that autotune when they first run, with payload and candidates."""
    for call, payload in triton_calls(module):
        from hlo_lint.kernels.custom_calls.triton import AutotunedKernelCall

        if isinstance(payload.call, AutotunedKernelCall):
            yield call, payload, payload.call


def triton_payload(call: Instruction) -> TritonCall | None:
    """The payload of a Triton call; None for other calls, and if it cannot be read."""
    from hlo_lint.kernels.custom_calls import TritonCall, readable_payload

    payload = readable_payload(call)
    return payload if isinstance(payload, TritonCall) else None


def tunes_early(payload: TritonCall) -> bool:
    """True if the call autotunes before the first thunk of the execution runs.

    The FFI handler tunes in its Initialize stage, on the real buffers of the execution
    (`triton_kernels.cc:1022`, `custom_call_thunk.cc:502-524`); the legacy target when it executes.
    """
    return payload.target != LEGACY


def fusion_of(call: Instruction, module: Module) -> Instruction | None:
    """The fusion that contains a call; None if the call is not fused."""
    return next((fusion for fusion, fused in fused_calls(module) if fused is call), None)


def operand_source(call: Instruction, number: int, module: Module) -> Instruction | None:
    """The instruction that computes an operand; for a fused slice, that of the whole array."""
    fusion = None if call.computation.is_entry else fusion_of(call, module)
    if fusion is None:
        return source_of(call.operand(number))
    # The fusion passes the kernel the slice's address: the slice has no buffer.
    source = source_of(call.operand(number), _WITHOUT_BUFFER)
    if source is None or source.opcode != "parameter":
        return source
    outer = source.parameter_number
    return None if outer is None else source_of(fusion.operand(outer))


def is_entry_parameter(call: Instruction, number: int, module: Module) -> bool:
    """True if an operand is an entry parameter, seen through bitcasts and tuple elements."""
    source = operand_source(call, number, module)
    return source is not None and source.opcode == "parameter" and source.computation.is_entry


def is_fresh_fill(call: Instruction, number: int, module: Module) -> bool:
    """True if an operand holds no computed data: constants, or a new uninitialized buffer."""
    source = operand_source(call, number, module)
    if source is None:
        return False
    if source.opcode == "broadcast":
        return constant_of(source) is not None
    if source.opcode == "fusion":
        bodies = [module.computation(name) for name in source.called_computations]
        return bool(bodies) and all(body is not None and body.opcodes <= _FILLS for body in bodies)
    if source.opcode == "custom-call":
        return source.custom_call_target == "AllocateBuffer"
    return source.opcode in ("constant", "iota")
