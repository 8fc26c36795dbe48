"""Triton kernels in a module: their payloads and the buffers that XLA hands them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hlo_lint.analysis.buffers import source_of
from hlo_lint.analysis.kinds import instructions_where
from hlo_lint.analysis.walks import chain
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import RowKind

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.triton import AutotunedKernelCall, TritonCall

LEGACY = "triton_kernel_call"

_FILLS = frozenset({"broadcast", "constant", "iota", "bitcast", "reshape", "copy"})


def fused_calls(module: Module) -> Iterator[tuple[Instruction, Instruction]]:
    """Each fusion with each custom call in its body: XLA:GPU wraps calls on slices so."""
    bodies = {
        computation.name: computation
        for computation in module.computations
        if not computation.is_entry and "custom-call" in computation.opcodes
    }
    # Bodies of loops have custom calls as well: only for bodies of fusions is it worth the walk.
    if not bodies or bodies.keys().isdisjoint(module.fusion_computations):
        return
    for computation in module.computations:
        for fusion in computation.with_opcode("fusion"):
            for name in fusion.called_computations:
                if name in bodies:
                    for call in bodies[name].with_opcode("custom-call"):
                        yield fusion, call


def triton_calls(module: Module) -> Iterator[tuple[Instruction, TritonCall]]:
    """The calls whose payload can be read, with it; those in bodies of fusions, too."""
    for call in instructions_where(module, "custom-call", _is_triton):
        if (payload := triton_payload(call)) is not None:
            yield call, payload


def _is_triton(kind: RowKind) -> bool:
    return f'"{LEGACY}' in kind[2]


def autotuned_calls(
    module: Module,
) -> Iterator[tuple[Instruction, TritonCall, AutotunedKernelCall]]:
    """Those of them that tune themselves the first time they run, with what they try."""
    for call, payload in triton_calls(module):
        from hlo_lint.kernels.custom_calls.triton import AutotunedKernelCall

        if isinstance(payload.call, AutotunedKernelCall):
            yield call, payload, payload.call


def triton_payload(call: Instruction) -> TritonCall | None:
    """The payload of a Triton call; None of any other call, and if it cannot be read."""
    from hlo_lint.kernels.custom_calls import PayloadError, decode_payload
    from hlo_lint.kernels.custom_calls.triton import TritonCall

    try:
        payload = decode_payload(call)
    except PayloadError:
        return None
    return payload if isinstance(payload, TritonCall) else None


def tunes_early(payload: TritonCall) -> bool:
    """True if the call autotunes before the first thunk of the execution runs.

    The FFI handler tunes in its Initialize stage, on the real buffers of the execution
    (`triton_kernels.cc:1022`, `custom_call_thunk.cc:502-524`); the legacy target when it executes.
    """
    return payload.target != LEGACY


def fusion_of(call: Instruction, module: Module) -> Instruction | None:
    """The fusion that a call is in; None if XLA runs the call by itself."""
    return next((fusion for fusion, fused in fused_calls(module) if fused is call), None)


def operand_source(call: Instruction, number: int, module: Module) -> Instruction | None:
    """The instruction that computes an operand; of a fused call, the array its slice is part of."""
    source = source_of(call.operand(number))
    fusion = None if call.computation.is_entry else fusion_of(call, module)
    if fusion is None:
        return source
    # The fusion hands the kernel the address of the slice: no buffer of its own is made.
    for whole in chain(source, _sliced):
        source = whole
    if source is None or source.opcode != "parameter":
        return source
    outer = source.parameter_number
    return None if outer is None else source_of(fusion.operand(outer))


def _sliced(part: Instruction) -> Instruction | None:
    is_slice = part.opcode in ("slice", "dynamic-slice")
    return source_of(part.operand(0)) if is_slice else None


def is_entry_parameter(call: Instruction, number: int, module: Module) -> bool:
    """True if an operand is an entry parameter, seen through bitcasts and tuple elements."""
    source = operand_source(call, number, module)
    return source is not None and source.opcode == "parameter" and source.computation.is_entry


def is_fresh_fill(call: Instruction, number: int, module: Module) -> bool:
    """True if an operand holds only constants, put there for the kernel to overwrite."""
    source = operand_source(call, number, module)
    if source is None:
        return False
    if source.opcode in ("broadcast", "constant", "iota"):
        return source.opcode != "broadcast" or _is_constant(source)
    if source.opcode == "fusion":
        bodies = [module.computation(name) for name in source.called_computations]
        # A fusion that computes from constants alone.
        return bool(bodies) and all(body is not None and body.opcodes <= _FILLS for body in bodies)
    return source.opcode == "custom-call" and source.custom_call_target == "AllocateBuffer"


def _is_constant(broadcast: Instruction) -> bool:
    filler = broadcast.operands[0].instruction if broadcast.operands else None
    return filler is not None and filler.opcode == "constant"
