"""Slices in loops whose dynamic_slice_config contradicts their operands."""

from __future__ import annotations

import re
from itertools import chain

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.loop_values import Context, LoopValues, loops_around
from hlo_lint.analysis.loops import SliceDescriptor, read_loop, slice_descriptor
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import PublicReport
from hlo_lint.text.edits import Fix

_PROGRAM = """
HloModule reads_backwards

body {
  i = s32[] get-tuple-element((s32[], f32[8,64]{1,0}, f32[1,64]{1,0}) p), index=0
  x = f32[8,64]{1,0} get-tuple-element(p), index=1
  seven = s32[] constant(7)
  zero = s32[] constant(0)
  at = s32[] subtract(seven, i)
  row = f32[1,64]{1,0} dynamic-slice(x, at, zero), dynamic_slice_sizes={1,64}, backend_config={"dynamic_slice_config":{CONFIG}}  // error
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[8,64]{1,0}, f32[1,64]{1,0}) tuple(next, x, row)
}

condition {
  i = s32[] get-tuple-element((s32[], f32[8,64]{1,0}, f32[1,64]{1,0}) p), index=0
  eight = s32[] constant(8)
  ROOT less = pred[] compare(i, eight), direction=LT
}

zero = s32[] constant(0)
t = (s32[], f32[8,64]{1,0}, f32[1,64]{1,0}) tuple(zero, f32[8,64]{1,0} x, f32[1,64]{1,0} row)
ROOT w = (s32[], f32[8,64]{1,0}, f32[1,64]{1,0}) while(t), condition=condition, body=body, backend_config={"known_trip_count":{"n":"8"},"known_init_step":{"init":"0","step":"1"},"known_induction_variable":{"tuple_index":"0"}}
"""  # noqa: E501

_CONFIG = re.compile(r'("dynamic_slice_config"\s*:\s*)\{(?:[^{}]|\{[^{}]*\})*\}')


def _linear(offset: int, stride: int) -> str:
    return f'"loop_index":"0","byte_offset":"{offset}","byte_stride":"{stride}"'


def _nested(offset: int, stride: int) -> str:
    # XLA of jax 0.12 has separate fields for two forms, and prints the former fields as zeros.
    fields = f'{{"byte_offset":"{offset}","byte_stride":"{stride}"}}'
    return f'"byte_offset":"0","byte_stride":"0","linear":{fields},"loop_index":"0"'


def _reads(config: str) -> str:
    return _PROGRAM.replace("CONFIG", config)


class DynamicSliceConfigDisagrees(Rule):
    """A slice in a loop whose dynamic_slice_config states a wrong offset.

    ## Why
    XLA:GPU turns slices in loops into plain copies whose offset is not computed on the device:
    `dynamic-slice-annotator` derives `byte_offset + iteration * byte_stride` from the index and
    writes it to the `backend_config`, and the loop uses only that. If the offset is wrong, the copy
    silently reads or writes the wrong row. In openxla/xla#46231 (jax 0.10.2 and 0.11.0), if the
    index passes through an async-start, the analysis mistakes an expression of the induction
    variable for the variable itself: the gradients of a scan with offloaded residuals are wrong.

    The rule evaluates the index operands in iterations 0, 1, 2 and the last of the loop, through
    fusions, calls, async starts and loop state. It skips offsets that are clamped or depend on
    data.

    ## Fix
    Rewrites the descriptor to match the operands. When compiling,
    `--xla_disable_hlo_passes=dynamic-slice-annotator` avoids the copies.
    """

    opcodes = frozenset({"dynamic-slice", "dynamic-update-slice"})
    evidence = (PublicReport("openxla/xla#46231", "races/offloaded_scan"),)
    examples = (
        Bad.entry(_reads(_linear(0, 256)), fixed=_reads(_linear(1792, -256))),
        Bad.entry(_reads(_nested(0, 256)), fixed=_reads(_nested(1792, -256))),
        Good.entry(_reads(_linear(1792, -256))),
        Good.entry(_reads(_nested(1792, -256))),
        Good.entry(_reads('"table":{"offsets":["0"]},"loop_index":"0"')),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Slices whose descriptor disagrees with their operands in an evaluated iteration."""
        # A single file may be from before the pass that turns descriptors into copies.
        severity = Severity.ERROR if stage.exact_layouts else Severity.WARNING
        values: LoopValues | None = None
        slices = (instructions_of(module, opcode) for opcode in sorted(self.opcodes))
        for instruction in chain.from_iterable(slices):  # including fusion bodies
            if (descriptor := slice_descriptor(instruction)) is None:
                continue
            values = values or LoopValues(module)
            for context, offset in values.slice_offsets(instruction):
                claimed = _claimed(descriptor, context)
                if offset in claimed:
                    continue
                yield Finding(
                    instruction,
                    f"{_place(descriptor, context)} the operands give byte offset {offset}, but "
                    f"the dynamic_slice_config gives {claimed[0]}",
                    notes=(
                        f"the copy follows the dynamic_slice_config: {_spelled(descriptor)}",
                        "--xla_disable_hlo_passes=dynamic-slice-annotator avoids it",
                    ),
                    severity=severity,
                )
                break

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Write the offset and stride of the operands, if they are the same for all callers."""
        config = instruction.attributes.get("backend_config", "")
        first: dict[int, int] = {}
        for context, offset in LoopValues(module).slice_offsets(instruction):
            loops = loops_around(context)
            if len(loops) != 1 or first.setdefault(loops[0].iteration, offset) != offset:
                return None
        base = first.get(0)
        if base is None:
            return None
        stride = first.get(1, base) - base
        if any(base + iteration * stride != offset for iteration, offset in first.items()):
            return None
        former = _CONFIG.search(config)
        is_nested = former is not None and former[0].count("{") > 1
        fields = (_nested if is_nested else _linear)(base, stride)
        text = _CONFIG.sub(rf"\g<1>{{{fields}}}", config)
        rewrite = Rewrite(module)
        rewrite.set_attribute(instruction, "backend_config", text)
        return rewrite.fix("derive the dynamic_slice_config from the operands")


def _claimed(descriptor: SliceDescriptor, context: Context | None) -> list[int]:
    """The offsets that a descriptor may mean in an iteration.

    In nested loops, loop 0 may be the innermost or the outermost.
    """
    offset, stride, loop = descriptor.byte_offset, descriptor.byte_stride, descriptor.loop_index
    iterations = [inner.iteration for inner in loops_around(context)]
    depths = () if loop is None else (loop, len(iterations) - 1 - loop)
    return [
        offset + iterations[depth] * stride for depth in depths if 0 <= depth < len(iterations)
    ] or [offset]


def _place(descriptor: SliceDescriptor, context: Context | None) -> str:
    loops = loops_around(context)
    if not loops:
        return "here"
    depth = descriptor.loop_index or 0
    inner = loops[depth] if 0 <= depth < len(loops) else loops[0]
    loop = read_loop(inner.call)
    count = "" if loop is None else f" of {loop.trip_count}"
    return f"in iteration {inner.iteration}{count} of %{inner.call.name}"


def _spelled(descriptor: SliceDescriptor) -> str:
    if descriptor.loop_index is None:
        return f"{descriptor.byte_offset}"
    return f"{descriptor.byte_offset} + iteration * {descriptor.byte_stride}"
