"""FFI calls that autotune before the program has run, on memory that the program needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.analysis.buffers import (
    ResultArray,
    declared_aliases,
    memory_of,
    operand_memory,
    results,
    source_of,
)
from hlo_lint.analysis.rewrite import NewInstruction, Rewrite
from hlo_lint.analysis.verifier.scope import parameter
from hlo_lint.hlo.dtypes import zero_literal
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.kernels.aliases import fusion_index
from hlo_lint.kernels.calls import autotuned_calls, fusion_of, is_entry_parameter, tunes_early
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.text.edits import Fix, Safety
from hlo_lint.text.phrases import sized

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.dumps.artefacts.buffer_assignment import AssignedValue, BufferAssignment
    from hlo_lint.kernels.custom_calls.triton import InputOutputAlias, TritonCall

_PROGRAM = r"""
HloModule doubles, is_scheduled=true

ROOT c = f32[512]{0} custom-call(f32[512]{0} x), custom_call_target="triton_kernel_call_ffi", api_version=API_VERSION_TYPED_FFI, backend_config={opaque = "x\9C\13\92\E1b\CC\16\12\E7\12\E6b\062\04\18%\18\15\18\B5\98\B8\18@X\88\01\00(1\027"}  // error
"""  # noqa: E501
_DONATED = """
BufferAssignment:
allocation 0: size 2048, parameter 0, shape |f32[512]| at ShapeIndex {}, maybe-live-out:
 value: <0 x @0> (size=2048,offset=0): f32[512]{0}
 value: <1 c @0> (size=2048,offset=0): f32[512]{0}
"""
_APART = """
BufferAssignment:
allocation 0: size 2048, parameter 0, shape |f32[512]| at ShapeIndex {}:
 value: <0 x @0> (size=2048,offset=0): f32[512]{0}
allocation 1: size 2048, output shape is |f32[512]|, maybe-live-out:
 value: <1 c @0> (size=2048,offset=0): f32[512]{0}
"""

_FIXED = r"""
HloModule doubles, is_scheduled=true

c.fill.computation {
  c.fill.zero = f32[] constant(0)
  ROOT c.fill.zeros = f32[512]{0} broadcast(c.fill.zero), dimensions={}
}

c.fill = f32[512]{0} fusion(), kind=kLoop, calls=c.fill.computation
ROOT c = f32[512]{0} custom-call(f32[512]{0} x, c.fill), custom_call_target="triton_kernel_call_ffi", api_version=API_VERSION_TYPED_FFI, output_to_operand_aliasing={{}: (1, {})}, backend_config={opaque = "x\9C\13R\E5b\CC\16\12\E7\12\E6b\062\04\18%\18\15\18\B5\98\B8\18@X\88A\8A\9D\83Q\80I\A2A\00\00@\86\03$"}
"""  # noqa: E501


class AutotuningRunsEarly(Rule):
    """An autotuned FFI call whose trials run before the program uses the buffers.

    ## Why
    XLA initializes FFI calls with the real buffers before the first thunk of an execution runs, and
    jaxlib autotunes a `triton_kernel_call_ffi` at that point. If a result is in the buffer of a
    donated parameter, the trials overwrite the parameter before the program reads it. Computed
    operands still hold garbage; if they are indices, the kernel accesses wild addresses. The legacy
    target `triton_kernel_call` tunes when it executes and has neither problem.

    ## Fix
    Adds a zero-filled operand for each result, and declares that the result aliases it, also in the
    payload's list. The launcher passes buffers to pointers in order and ignores the rest, so the
    kernel gets the same buffers. It costs a fill of each result in every run, and must be applied
    before buffer assignment. There is no fix for a call that already declares aliases, or whose
    kernel takes a different number of pointers.
    """

    opcodes = frozenset({"custom-call"})
    evidence = (
        MeasuredHarm(
            "An H200 with jax 0.11.2 computes wrong numbers in the first run.",
            "payloads/donated_ffi",
        ),
    )
    examples = (
        Bad.entry(_PROGRAM, fixed=_FIXED, artefacts={"-buffer-assignment.txt": _DONATED}),
        Good.entry(_PROGRAM, artefacts={"-buffer-assignment.txt": _APART}),
    )

    def is_applicable(self, module: Module) -> bool:
        """True if the module has an autotuned FFI call."""
        return any(tunes_early(payload) for _, payload, _ in autotuned_calls(module))

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Allocate the results before the call and alias them."""
        for call, payload, _ in autotuned_calls(module):
            if call is instruction:
                return _preallocated(call, payload, module)
        return None

    def check(self, final: FinalModule, buffers: BufferAssignment) -> Findings:
        """Calls with results in donated parameters, or with operands that are not computed yet."""
        module = final.module
        for call, payload, autotuned in autotuned_calls(module):
            if not tunes_early(payload):
                continue
            memory = _Memory(call, module, buffers)
            for result in results(call) if memory.is_of_this_call else ():
                given = memory.of_result(result)
                number = _parameter_of(buffers, given)
                if number is None or not _is_read(module, number):
                    continue
                if any(memory.is_saved(pair, given) for pair in autotuned.input_output_aliases):
                    continue
                yield Finding(
                    call,
                    f"the trials of this call overwrite parameter {number} before the program "
                    f"reads it: result {result} has its buffer",
                    notes=(
                        f"{given[0].slice}, which the caller donated",
                        "without the donation, or with the target triton_kernel_call, it is right",
                    ),
                )
            computed = [
                number
                for number in range(len(call.operands))
                if not is_entry_parameter(call, number, module)
            ]
            if computed:
                verb = "is" if len(computed) == 1 else "are"
                names = ", ".join(f"%{call.operands[number].name}" for number in computed)
                yield Finding(
                    call,
                    f"the trials of this call run before {names} {verb} computed",
                    notes=(
                        "they read uninitialized memory: indices in it would be wild addresses",
                    ),
                    operand=computed[0],
                    severity=Severity.WARNING,
                    fixable=False,
                )


def _is_read(module: Module, number: int) -> bool:
    """True if the program reads an entry parameter."""
    given = parameter(module.entry, number)
    return given is not None and (bool(given.users) or given.is_root)


class _Memory:
    """The memory of a call's buffers; for a fused call, that of its fusion."""

    def __init__(self, call: Instruction, module: Module, buffers: BufferAssignment) -> None:
        self._call = call
        self._fusion = None if call.computation.is_entry else fusion_of(call, module)
        self._buffers = buffers

    @property
    def is_of_this_call(self) -> bool:
        """False if the assignment is older than a fix that added operands to the call."""
        aliased = declared_aliases(self._call).values()
        return self._fusion is not None or all(self._of_operand(number) for number in aliased)

    def of_result(self, result: ResultArray) -> tuple[AssignedValue, ...]:
        """The memory of a result."""
        if self._fusion is None:
            return memory_of(self._buffers, self._call, result.index)
        index = fusion_index(self._call, result)
        return () if index is None else memory_of(self._buffers, self._fusion, index)

    def is_saved(self, pair: InputOutputAlias, given: tuple[AssignedValue, ...]) -> bool:
        """True if the launcher saves this memory: both buffers of the pair occupy it."""
        slices = {value.slice for value in given}
        return all(
            slices & {value.slice for value in self._of_buffer(buffer)} for buffer in pair[:2]
        ) and pair.size_bytes >= max(slice.size for slice in slices)

    def _of_buffer(self, number: int) -> tuple[AssignedValue, ...]:
        # The launcher counts buffers through operands, then results (jaxlib/gpu/triton_kernels.cc).
        operands = len(self._call.operands)
        if number < operands:
            return self._of_operand(number)
        outputs = results(self._call)
        place = number - operands
        return self.of_result(outputs[place]) if place < len(outputs) else ()

    def _of_operand(self, number: int) -> tuple[AssignedValue, ...]:
        if self._fusion is None:
            return operand_memory(self._buffers, self._call, number)
        source = source_of(self._call.operands[number])
        place = None if source is None else source.parameter_number
        return () if place is None else operand_memory(self._buffers, self._fusion, place)


def _parameter_of(buffers: BufferAssignment, given: tuple[AssignedValue, ...]) -> int | None:
    """The number of the entry parameter whose memory holds a result; None if there is none."""
    parameters = (buffers.by_index[value.slice.allocation].parameter for value in given)
    return next((number for number in parameters if number is not None), None)


def _preallocated(call: Instruction, payload: TritonCall, module: Module) -> Fix | None:
    from hlo_lint.kernels.custom_calls import encode_payload
    from hlo_lint.kernels.custom_calls.triton import InputOutputAlias, with_aliases

    given, outputs = len(call.operands), results(call)
    buffers = given + len(outputs)
    sizes = [size for result in outputs if (size := result.shape.byte_size) is not None]
    # The new pairs number the buffers of a kernel that has a pointer to each and no alias yet.
    if declared_aliases(call) or payload.pointer_count != buffers or len(sizes) < len(outputs):
        return None
    pairs = [InputOutputAlias(given + i, buffers + i, size) for i, size in enumerate(sizes)]
    config = encode_payload(call, with_aliases(payload, pairs))
    rewrite = Rewrite(module)
    rewrite.set_attribute(call, "backend_config", config)
    for result in outputs:
        rewrite.append_operand(call, _fill(call, result.shape, module, rewrite))
    aliases = ", ".join(f"{result}: ({given + result.number}, {{}})" for result in outputs)
    rewrite.set_attribute(call, "output_to_operand_aliasing", f"{{{aliases}}}")
    constraints = call.attributes.get("operand_layout_constraints")
    if constraints is not None:
        # The new operands share the memory of the results, so they have the same layouts.
        parts = [constraints[1:-1], *(str(result.shape) for result in outputs)]
        rewrite.set_attribute(
            call, "operand_layout_constraints", f"{{{', '.join(filter(None, parts))}}}"
        )
    title = f"allocate the result before the call (costs a fill of {sized(sum(sizes))} per run)"
    return rewrite.fix(title, Safety.UNSAFE)


def _fill(
    reader: Instruction, shape: ArrayShape, module: Module, rewrite: Rewrite
) -> NewInstruction:
    """Insert an array of zeros right before an instruction.

    With fusions or a schedule it is a fusion: after FusionWrapper a broadcast has no kernel.
    """
    literal = zero_literal(shape.dtype)
    is_fused = module.is_scheduled or any(body.with_opcode("fusion") for body in module)
    name = rewrite.fresh_name(f"{reader.name}.fill")
    if not is_fused:
        zero = rewrite.insert_before(
            reader, "constant", f"{shape.dtype}[]", literal, name=f"{name}.zero"
        )
        return rewrite.insert_before(reader, "broadcast", shape, [zero], name=name, dimensions=())
    percent = "%" if reader.text.removeprefix("ROOT ").startswith("%") else ""
    inner, zeros, body = (f"{percent}{name}.{part}" for part in ("zero", "zeros", "computation"))
    signature = f" () -> {shape.with_layout(None)}" if percent else ""
    computation = rewrite.add_computation(
        f"{body}{signature} {{\n"
        f"  {inner} = {shape.dtype}[] constant({literal})\n"
        f"  ROOT {zeros} = {shape} broadcast({inner}), dimensions={{}}\n}}"
    )
    return rewrite.insert_before(
        reader, "fusion", shape, name=name, kind="kLoop", calls=computation
    )
