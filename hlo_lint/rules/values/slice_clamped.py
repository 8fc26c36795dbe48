"""Accesses out of bounds, which XLA silently clamps or drops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.loop_values import LoopValues, in_iteration
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.constants import INDEX_MAPS, constant_integers, index_rows, indexed_dimensions
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand
from hlo_lint.hlo.opcodes import FIRST_INDEX
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues

_LOOP = """
body {{
  i = s32[] get-tuple-element((s32[], f32[10], f32[4]) b), index=0
  x = f32[10] get-tuple-element(b), index=1
  a = f32[4] get-tuple-element(b), index=2
  d = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={{4}}  // error
  s = f32[4] add(a, d)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[10], f32[4]) tuple(next, x, s)
}}
condition {{
  j = s32[] get-tuple-element((s32[], f32[10], f32[4]) c), index=0
  limit = s32[] constant({count})
  ROOT goes-on = pred[] compare(j, limit), direction=LT
}}
zero = s32[] constant(0)
first = (s32[], f32[10], f32[4]) tuple(zero, f32[10] p, f32[4] q)
ROOT w = (s32[], f32[10], f32[4]) while(first), condition=condition, body=body, \
backend_config={{"known_trip_count":{{"n":"{count}"}},"known_init_step":{{"init":"0","step":"1"}},\
"known_induction_variable":{{"tuple_index":"0"}}}}
"""


class SliceClamped(Rule):
    """A slice, gather or scatter that is out of bounds.

    ## Why
    XLA silently clamps the start of a dynamic-slice, a dynamic-update-slice or a gather so that the
    whole slice is in bounds, and a scatter drops updates out of bounds. A program that counts too
    far reads the wrong elements, or overwrites good elements. The rule evaluates starts that are
    constants or follow from the trip counts of surrounding loops, in iterations 0, 1, 2 and the
    last. It skips slices in branches, which may not be taken.

    A slice as large as its array always starts at 0: a pass that needs the rows at an offset must
    pad the array. Reported if a pass adds such a slice, in a dimension of more than one element, at
    a computed offset; a program may contain them, and expanded gathers and scatters compute offsets
    of 0.
    """

    severity = Severity.WARNING
    opcodes = frozenset((*FIRST_INDEX, *INDEX_MAPS))
    evidence = (WrongValues(),)
    reports = "openxla/xla@0c0461629c"
    examples = (
        Bad.entry("""
            i = s32[] constant(5)
            ROOT d = f32[8]{0} dynamic-slice(f32[10]{0} p, i), dynamic_slice_sizes={8}  // error
        """),
        Bad.entry(
            """
            i = s32[3,1]{1,0} constant({{1}, {9}, {2}})
            ROOT g = f32[3]{0} gather(f32[8]{0} p, i), offset_dims={}, collapsed_slice_dims={0}, \
start_index_map={0}, index_vector_dim=1, slice_sizes={1}  // error
            """
        ),
        Bad.entry(_LOOP.format(count=10)),
        Good.entry(_LOOP.format(count=7)),
        Good.entry("""
            i = s32[] constant(2)
            ROOT d = f32[8]{0} dynamic-slice(f32[10]{0} p, i), dynamic_slice_sizes={8}
        """),
        Bad.entry("""
            i = s32[] constant(10)
            ROOT d = f32[10]{0} dynamic-update-slice(f32[10]{0} p, f32[1]{0} u, i)  // error
        """),
        Good.entry("""
            i = s32[] constant(10)
            fits = pred[] constant(false)
            old = f32[1]{0} slice(f32[10]{0} p), slice={[9:10]}
            new = f32[1]{0} select(fits, f32[1]{0} u, old)
            ROOT d = f32[10]{0} dynamic-update-slice(p, new, i)
        """),
        Bad.step("""
            - ROOT r = f32[16] add(f32[16] p, f32[16] u)
            + ROOT r = f32[16] dynamic-update-slice(p, u, s32[] i)  // error
        """),
        Good.step("""
            - ROOT s = f32[16] dynamic-update-slice(f32[16] p, f32[16] u, s32[] i)
            + ROOT r = f32[16] dynamic-update-slice(p, u, i)
        """),
        Good.step("""
            -second { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }
            - ROOT r = f32[16] scatter(f32[16] p, s32[] i, f32[16] u), to_apply=second,
            -     update_window_dims={0}, inserted_window_dims={}, scatter_dims_to_operand_dims={0},
            -     index_vector_dim=0
            + ROOT r = f32[16] dynamic-update-slice(f32[16] p, f32[16] u, s32[] i)
        """),
    )

    def check(self, final: FinalModule) -> Findings:
        """Slices, gathers and scatters out of bounds, including fusion bodies."""
        for opcode in INDEX_MAPS:
            yield from filter(None, map(_outside, instructions_of(final.module, opcode)))
        values: LoopValues | None = None
        for opcode, first in FIRST_INDEX.items():
            for instruction in instructions_of(final.module, opcode):
                # `x.at[i].set(v, mode="drop")` out of bounds writes the last row back as it was.
                if first == 2 and _writes_back(instruction, final.module):
                    continue
                values = values or LoopValues(final.module)
                if finding := _clamped(instruction, first, values):
                    yield finding

    def check_new(self, pair: PassPair) -> Findings:
        """New slices and updates of whole arrays, if the module had none before the pass."""
        new = [whole for computation in pair.added for whole in _whole(computation)]
        # The program itself may update whole arrays, and a pass rename the update.
        if not new or any(any(_whole(computation)) for computation in pair.before.computations):
            return
        before, after = (
            sum(len(list(instructions_of(module, opcode))) for opcode in INDEX_MAPS)
            for module in (pair.before, pair.after)
        )
        # It replaces a scatter or a gather, whose offset had as little effect.
        if before > after:
            return
        for whole in new:
            yield Finding(
                whole,
                f"{pair.pass_name} made a {whole.opcode} as large as its array, "
                f"{operand_array(whole, 0)}: its offset has no effect",
            )


def _whole(computation: Computation) -> Iterator[Instruction]:
    """Slices and updates as large as their array, at an offset that is not constant."""
    for opcode, first in FIRST_INDEX.items():
        for instruction in computation.with_opcode(opcode):
            starts = list(_starts(instruction, first))
            moved = [start.instruction for _, start, size, _ in starts if size > 1]
            is_whole = all(size == taken for *_, size, taken in starts)
            if is_whole and any(start and constant_integers(start) is None for start in moved):
                yield instruction


def _outside(instruction: Instruction) -> Finding | None:
    """A finding for the first constant index of a gather or scatter that is out of bounds."""
    rows, whole = index_rows(instruction), operand_array(instruction, 0)
    if not rows or whole is None:
        return None
    sizes: Any = instruction.attribute_or_none("slice_sizes") or (1,) * len(whole.dims)
    if len(sizes) != len(whole.dims):
        return None
    effect = "clamps it" if instruction.opcode == "gather" else "drops the update"
    for row in rows:
        for dimension, index in zip(indexed_dimensions(instruction), row, strict=True):
            if not 0 <= index <= whole.dims[dimension] - sizes[dimension]:
                return Finding(
                    instruction,
                    f"this {instruction.opcode} has index {index} in dimension {dimension} of "
                    f"{whole.dims[dimension]} elements: XLA {effect}",
                    operand=1,
                )
    return None


def _writes_back(update: Instruction, module: Module) -> bool:
    """True if the update may be a slice of the array itself, so that clamping is harmless.

    `x.at[i].set(v, mode="drop")` lowers to this: it reads the old elements and selects.
    """
    array, written = update.producer(0), update.producer(1)
    if array is None or written is None:
        return False
    for value in reached([written], _chosen):
        if value.opcode in ("slice", "dynamic-slice"):
            if value.operand_names[:1] == (array.name,):
                return True
        elif value.opcode == "fusion" and array.name in value.operand_names:
            body = module.callee(value)
            root = None if body is None else body.root
            if root is not None and root.opcode in ("slice", "dynamic-slice"):
                return True
    return False


def _chosen(value: Instruction) -> Iterator[Instruction]:
    """The operands that may be the value unchanged."""
    numbers = {"select": (1, 2)}.get(value.opcode, (0,))
    if value.opcode in ("bitcast", "copy", "reshape", "select"):
        yield from filter(None, map(value.producer, numbers))


def _clamped(instruction: Instruction, first: int, values: LoopValues) -> Finding | None:
    starts = [start for start in _starts(instruction, first) if 0 < start[3] < start[2]]
    if not starts:
        return None
    for context in values.contexts(instruction.computation):
        for dimension, operand, size, taken in starts:
            index = values.value(operand, context)
            if index is not None and not 0 <= index <= size - taken:
                used = min(max(index, 0), size - taken)
                return Finding(
                    instruction,
                    f"this {instruction.opcode} starts at {index} in dimension {dimension}"
                    f"{in_iteration(context)}, but XLA clamps the start to {used}: "
                    f"it takes {taken} of {size} elements",
                )
    return None


def _starts(instruction: Instruction, first: int) -> Iterator[tuple[int, Operand, int, int]]:
    """Each dimension with its start, its size, and the size of the slice."""
    operands, whole = instruction.operands, instruction.operand_shape(0)
    part = instruction.operand_shape(1) if first == 2 else instruction.shape_or_none
    if not isinstance(whole, ArrayShape) or not isinstance(part, ArrayShape):
        return
    if len(operands) != first + len(whole.dims) or len(whole.dims) != len(part.dims):
        return  # the starts are not a scalar per dimension
    for number, (size, taken) in enumerate(zip(whole.dims, part.dims, strict=True)):
        yield number, operands[first + number], size, taken
