"""Device instructions that compute on values in host memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.opcodes import wrapped_opcode
from hlo_lint.hlo.shape import HOST_MEMORY, Shape, arrays
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import RefusedByXla

_CARRIES: Final = frozenset(
    "add-dependency after-all async-done async-start async-update bitcast call conditional copy "
    "copy-done copy-start custom-call domain dynamic-slice dynamic-update-slice fusion "
    "get-tuple-element infeed opt-barrier optimization-barrier outfeed parameter recv recv-done "
    "reshape send send-done slice transpose tuple while".split()
)
"""Opcodes that move values between memories or pass them on unchanged."""
_SAME_MEMORY: Final = ("bitcast", "copy", "dynamic-slice", "reshape", "slice", "transpose")
"""Opcodes whose result is in the memory of their operand, until the host-offloader has run."""
_ON_HOST: Final = ("pinned_host", "unpinned_host", "MoveToHost")


class ComputesOnHostMemory(Rule):
    """A device instruction that computes on a value in host memory.

    ## Why
    Host offloading puts values into host memory, `S(5)`, and copies or slices them back before the
    device reads them. If a pass replaces such a copy or its operand, the device computes on host
    memory: XLA:TPU rejects that, and on a GPU each access goes over the bus. A host buffer that is
    filled piece by piece begins as allocated memory, not as zeros written by the device. An update
    in place keeps the memory of its array.
    Computations that run on the host (`execution_thread="host"`, `_xla_compute_type="host"`) may
    read host memory. If the result is in host memory too, a pass marked too much as offloaded.

    Before layouts are assigned, the layout of the entry and the annotations of jax say which values
    are in host memory. A program that computes on them runs that part on the host, or does not
    compile: bring the value to the device with `jax.device_put` first.
    """

    messages = (
        "which does device compute in host memory space",
        "instruction shouldn't change layout memory",
        "Instruction shouldn't have the layout of host memory space",
    )
    severity = Severity.WARNING
    skip_fusion_bodies = False
    mentions = ("S(5)", *_ON_HOST)
    evidence = (RefusedByXla("CompileTimeHostOffloadOutputLocationMismatch", example=4),)
    reports = "openxla/xla#40519, openxla/xla#25767, openxla/xla#34565"
    examples = (
        Bad.entry("""
            b = f32[2,4]{1,0:S(5)} bitcast(f32[8]{0:S(5)} p)
            ROOT m = f32[2,4]{1,0} multiply(b, b)  // error
        """),
        Bad.entry("""
            c = f32[8]{0:S(5)} copy(f32[8]{0:S(5)} p)
            ROOT m = f32[8]{0:S(5)} multiply(c, c)  // error
        """),
        Bad.entry("""
            z = f32[] constant(0)
            b = f32[4,8]{1,0:S(5)} broadcast(z), dimensions={}  // error
            ROOT u = f32[4,8]{1,0:S(5)} dynamic-update-slice(b, f32[1,8]{1,0} p, s32[] i, i)
        """),
        Bad.entry("""
            b = f32[4,8]{1,0} custom-call(), custom_call_target="AllocateBuffer"
            ROOT u = f32[4,8]{1,0:S(5)} dynamic-update-slice(b, f32[1,8]{1,0} p,  // error
                s32[] i, i)
        """),
        Bad.entry("""
            h = f32[8] custom-call(f32[8] p), custom_call_target="annotate_device_placement", \
custom_call_has_side_effect=true, frontend_attributes={_xla_buffer_placement="pinned_host"}
            r = f32[2,4] reshape(h)
            ROOT m = f32[2,4] negate(r)  // error
        """),
        Good.entry("""
            c = f32[8]{0} copy(f32[8]{0:S(5)} p)
            ROOT m = f32[8]{0} multiply(c, c)
        """),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Device instructions that read or write host memory and do more than move it."""
        for computation in module.computations:
            if computation.thread == "main" and any("S(5)" in t for t in types_of(computation)):
                yield from self._check_typed(computation)
        # XLA:CPU drops the annotations: the host is the device.
        if stage.backend != "cpu" and not stage.layouts:
            yield from self._check_annotated(module)

    def _check_typed(self, computation: Computation) -> Findings:
        for instruction in computation.instructions:
            if instruction.opcode == "dynamic-update-slice":
                yield from _updated_elsewhere(instruction)
            # An instruction with `_xla_compute_type="host"` runs on the host, next to that memory.
            if _carries(instruction) or _is_on_the_host(instruction):
                continue
            for number, operand in enumerate(instruction.operands):
                if HOST_MEMORY in _memories(operand.shape):
                    yield Finding(
                        instruction,
                        f"this {instruction.opcode} computes on %{operand.name}, which is in host "
                        "memory",
                        operand=number,
                    )
                    break
            else:
                is_on_host = HOST_MEMORY in _memories(instruction.shape_or_none)
                if is_on_host and instruction.opcode != "constant":
                    yield Finding(
                        instruction, f"this {instruction.opcode} writes its result to host memory"
                    )

    def _check_annotated(self, module: Module) -> Findings:
        annotated = (
            value for value in _annotated(module) if HOST_MEMORY not in _memories(value.shape)
        )
        values = reached(
            annotated, lambda value: [user for user in value.users if user.opcode in _SAME_MEMORY]
        )
        seen = set()
        for value in values:
            for user in value.users:
                if user not in seen and not _carries(user) and not _is_on_the_host(user):
                    seen.add(user)
                    yield Finding(
                        user,
                        f"this {user.opcode} computes on %{value.name}, which is in host memory",
                        operand=user.operand_names.index(value.name),
                    )


def _updated_elsewhere(update: Instruction) -> Findings:
    """A finding if an update in host memory begins as an array in device memory."""
    for array in update.operands[:1]:
        if HOST_MEMORY in _memories(update.shape_or_none) - _memories(array.shape):
            yield Finding(
                update,
                f"this dynamic-update-slice is in host memory, but %{array.name}, the array that "
                "it updates, is not",
                operand=0,
            )


def _annotated(module: Module) -> Iterator[Instruction]:
    """The values that the entry's layout or an annotation puts into host memory."""
    stated = module.attribute_or_none("entry_computation_layout") if module.header else None
    parameters = module.entry.parameters if module.entry is not None else ()
    if isinstance(stated, ProgramShape):
        for parameter, shape in zip(parameters, stated.parameters, strict=False):
            if _memories(shape) == {HOST_MEMORY}:
                yield parameter
    for call in instructions_of(module, "custom-call"):
        if any(f'"{name}"' in call.attributes_text for name in _ON_HOST):
            yield call


def _carries(instruction: Instruction) -> bool:
    return (wrapped_opcode(instruction.opcode) or instruction.opcode) in _CARRIES


def _memories(shape: Shape | None) -> set[int]:
    """The memory spaces of the arrays of a shape; 0, the device's, without a printed layout."""
    return {array.memory_space for array in arrays(shape)}


def _is_on_the_host(instruction: Instruction) -> bool:
    """True if an annotation moves the instruction to the host."""
    return "_xla_compute_type" in instruction.attributes_text
