"""Copies of loop state in each iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hlo_lint.analysis.buffers import ResultPart, handed_on, operand_position
from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.data_movement import moves
from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.loops import Loop, loops
from hlo_lint.analysis.sequential_calls import Calls, sequential_calls
from hlo_lint.analysis.walks import chain, reached
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import SAME_ELEMENTS
from hlo_lint.hlo.shape import ArrayShape, Index, spelled_index
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized

_LOOP = """
HloModule m, is_scheduled=true
negated {{ ROOT r = f32[1024,1024] negate(f32[1024,1024] n) }}
body {{
  i = s32[] get-tuple-element((s32[], f32[1024,1024]) b), index=0
  x = f32[1024,1024] get-tuple-element(b), index=1
  {y}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], f32[1024,1024]) tuple(next, y)
}}
condition {{
  j = s32[] get-tuple-element((s32[], f32[1024,1024]) c), index=0
  limit = s32[] constant(1000)
  ROOT goes-on = pred[] compare(j, limit), direction=LT
}}
zero = s32[] constant(0)
first = (s32[], f32[1024,1024]) tuple(zero, f32[1024,1024] p)
ROOT w = (s32[], f32[1024,1024]) while(first), condition=condition, body=body
"""


class CopiedLoopState(Rule):
    """A loop that copies a whole array of its state in each iteration.

    ## Why
    An array in a loop's state keeps its buffer in all iterations and is updated in place. Copy
    insertion adds a copy where two values of the array would be live at the same time: a
    conditional in which one branch passes its operand through and another does not, a read after
    the update, a second result. The copy reads and writes the whole array in each iteration,
    however little of it changes. If the array is loop-invariant, the copy belongs before the loop.
    """

    severity = Severity.WARNING
    min_bytes = Option(
        1 << 30,
        "Smallest reported traffic of all iterations, in bytes; of a single iteration if the trip "
        "count is unknown.",
        least=0,
    )
    opcodes = frozenset({"while"})
    evidence = (Counted("bytes accessed", 16777268, 8388661),)
    reports = "openxla/xla#46314, jax-ml/jax#5986, jax-ml/jax#16661, jax-ml/jax#38145"
    examples = (
        Bad.entry(
            _LOOP.format(
                y="k = f32[1024,1024] copy(x)  // error\n"
                "  y = f32[1024,1024] fusion(k), kind=kLoop, calls=negated"
            )
        ),
        Good.entry(_LOOP.format(y="y = f32[1024,1024] fusion(x), kind=kLoop, calls=negated")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Copies of loop state, in a final or scheduled module."""
        if not final.is_final and not final.module.is_scheduled:
            return
        for copied in _carried_copies(final.module, self.min_bytes):
            yield Finding(copied.copy, _message(copied), _notes(copied))


def _message(copied: _CarriedCopy) -> str:
    trips = copied.loop.trip_count
    often = "each iteration" if trips is None else f"each of {trips} iterations"
    element = f"part {spelled_index(copied.element)} of the state"
    return f"this copies {copied.shape}, {element} of %{copied.loop.instruction.name}, in {often}"


def _notes(copied: _CarriedCopy) -> tuple[str, ...]:
    notes = [
        f"each iteration reads and writes {sized(copied.byte_count)}, "
        f"{sized(copied.total_bytes)} in total"
    ]
    element = copied.element
    if len(element) == 1 and copied.loop.is_invariant(element[0]):
        notes.append("the array is loop-invariant: copy it before the loop")
    return tuple(notes)


class _CarriedCopy(NamedTuple):
    """A copy of an element of a loop's state, in the body or in its callees."""

    copy: Instruction
    loop: Loop
    element: Index
    shape: ArrayShape

    @property
    def byte_count(self) -> int:
        """Bytes that the copy reads and writes each time."""
        return 2 * (self.shape.byte_size or 0)

    @property
    def total_bytes(self) -> int:
        """Bytes over all iterations; over a single iteration if their number is unknown."""
        trips = self.loop.trip_count
        return self.byte_count * (1 if trips is None else trips)


def _carried_copies(module: Module, least: int) -> Iterator[_CarriedCopy]:
    """The copies of whole elements of loop states that move `least` bytes or more, by loop."""
    kernels = {move.kernel for move in moves(module)}
    moved = by_key((kernel.computation, kernel.number) for kernel in kernels)
    calls = sequential_calls(module)
    for loop in loops(module):
        for computation in _run_in_each_iteration(loop, calls):
            places = {*moved.get(computation, ()), *computation.positions("copy-start")}
            for instruction in map(computation.at, sorted(places)):
                shape = instruction.operand_shape(0)
                if not isinstance(shape, ArrayShape):
                    continue
                copied = _CarriedCopy(instruction, loop, (), shape)
                if copied.total_bytes < least:
                    continue
                element = _carried(instruction, loop, calls, kernels)
                if element is not None:
                    yield copied._replace(element=element)


def _run_in_each_iteration(loop: Loop, calls: Calls) -> Iterator[Computation]:
    """The body and its callees, without bodies of inner loops, which have their own state."""

    def callees(computation: Computation) -> Iterator[Computation]:
        for caller in with_opcodes(computation, ("call", "conditional")):
            yield from calls.callees(caller)

    return reached([loop.body], callees)


def _carried(
    copy: Instruction, loop: Loop, calls: Calls, kernels: set[Instruction]
) -> Index | None:
    """The index of the element of the loop's state that a copy reads whole, if it does."""
    position = operand_position(copy, 0, ())
    for instruction, index in chain(position, lambda place: _source(*place, calls, kernels)):
        if instruction.opcode == "parameter" and instruction.computation is loop.body:
            return index
    return None


def _source(
    instruction: Instruction, index: Index, calls: Calls, kernels: set[Instruction]
) -> ResultPart | None:
    """The place that a part of a value comes from unchanged; None if it is computed."""
    if instruction.opcode == "parameter":
        callers = calls.callers(instruction.computation)
        argument = calls.argument(callers[0], instruction) if len(callers) == 1 else None
        return None if argument is None else (argument[0], (*argument[1], *index))
    if instruction.opcode == "copy-start":
        # The result is a tuple of the copy, the source and a context.
        return operand_position(instruction, 0, ())
    return (
        operand_position(instruction, 0, index)
        if instruction in kernels
        else handed_on(instruction, index, SAME_ELEMENTS)
    )
