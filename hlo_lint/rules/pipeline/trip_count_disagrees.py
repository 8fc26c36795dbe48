"""Loops whose annotated trip count is not the one that their counter gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lint.analysis.loops import Counter, Loop, integer_field, loops, read_loop
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.shape import ArrayShape, TupleShape
from hlo_lint.rules.base import Bad, Findings, Good, Rule, Stage
from hlo_lint.rules.findings import Finding, Severity

_PROGRAM = """
HloModule m{scheduled}

body {{
  b = (s32[]) parameter(0)
  i = s32[] get-tuple-element(b), index=0
  step = s32[] constant(2)
  next = s32[] add(i, step)
  ROOT t = (s32[]) tuple(next)
}}

condition {{
  c = (s32[]) parameter(0)
  j = s32[] get-tuple-element(c), index=0
  limit = s32[] constant(10)
  ROOT goes-on = pred[] compare(j, limit), direction=LT
}}

ENTRY e {{
  zero = s32[] constant(0)
  first = (s32[]) tuple(zero)
  ROOT w = (s32[]) while(first), condition=condition, body=body, \
backend_config={{"known_trip_count":{{"n":"{count}"}}{more}}}{mark}
}}
"""
_COUNTS = (
    ',"known_init_step":{"init":"0","step":"%d"},"known_induction_variable":{"tuple_index":"0"}'
)
_NAMED = ',"known_induction_variable":{"tuple_index":"0"}'
_COUNTS_WITH: Final = ("known_induction_variable", "dynamic_variables")
_OTHERS = ',"dynamic_variables":[{"tuple_index":"%d","init":"0","step":"%d"}]'
_MAX_STEP: Final = 1 << 31
"""Larger steps are negative numbers of an unsigned type."""
_BEFORE = "module_0001.m.0001.loops.after_pipeline-start.before_double-buffer.txt"
_AFTER = "module_0001.m.0002.loops.after_double-buffer.before_pipeline-end.txt"


class TripCountDisagrees(Rule):
    """A loop whose `known_trip_count`, `known_init_step` or counter is not what it does.

    ## Why
    WhileLoopTripCountAnnotator writes the trip count once. A pass that unrolls, peels or pipelines
    the loop afterwards has to write it anew. XLA:GPU runs the body as often as the annotation says
    and does not evaluate the condition (service/gpu: WhileThunk), and passes unroll by it: with a
    wrong count, the loop computes wrong values. So do copies of slices in loops, whose addresses
    follow `known_init_step`. It is held against the constants that the counter
    begins with, is raised by and is compared with; a loop without such constants is left alone. An
    element that `known_induction_variable` or `dynamic_variables` names has to be a scalar, and an
    integer that each iteration raises so where a step is given: a pass that takes elements out of
    the state renumbers the rest.
    It is an error in a scheduled module, and a warning after a pass that made the two disagree, or
    in a loose text.

    Reports: openxla/xla#13278 (loop-double-buffer-transformer).
    """

    opcodes = frozenset({"while"})
    examples = (
        Bad(_PROGRAM.format(scheduled=", is_scheduled=true", count=10, more="", mark="  // error")),
        Bad(
            _PROGRAM.format(scheduled="", count=10, more="", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(scheduled="", count=5, more="", mark="")},
        ),
        Bad(
            _PROGRAM.format(
                scheduled=", is_scheduled=true", count=5, more=_COUNTS % 1, mark="  // error"
            )
        ),
        Bad(
            _PROGRAM.format(
                scheduled=", is_scheduled=true", count=5, more=_OTHERS % (1, 2), mark="  // error"
            )
        ),
        Bad(
            _PROGRAM.format(
                scheduled=", is_scheduled=true", count=5, more=_OTHERS % (0, 1), mark="  // error"
            )
        ),
        Good(_PROGRAM.format(scheduled=", is_scheduled=true", count=5, more=_COUNTS % 2, mark="")),
        Good(
            _PROGRAM.format(scheduled=", is_scheduled=true", count=5, more=_NAMED, mark="").replace(
                "s32[]", "f32[]"
            )
        ),
        Good(
            _PROGRAM.format(
                scheduled=", is_scheduled=true", count=5, more=_OTHERS % (0, 2), mark=""
            )
        ),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Each loop of a module that is going to run, or whose place in a run is not known."""
        if stage.scheduled or stage.assumed:
            severity = Severity.ERROR if stage.scheduled else Severity.WARNING
            for loop, counter in _disagreeing(module):
                yield _finding(loop, counter, severity)
            for loop, message in _stale(module):
                yield Finding(loop.instruction, message, severity=severity)

    def check_pass(self, change: PassPair, stage: Stage) -> Findings:
        """Each loop that agreed before a pass; what a program began with is not its fault."""
        if change.after.is_scheduled or stage.assumed:
            return
        stale = list(_stale(change.after))
        was_stale = {loop.instruction.name for loop, _ in (_stale(change.before) if stale else ())}
        for loop, message in stale:
            if loop.instruction.name not in was_stale:
                yield Finding(loop.instruction, message, severity=Severity.WARNING)
        loops_after = list(_disagreeing(change.after))
        if not loops_after:
            return
        before = {loop.instruction.name for loop, _ in _disagreeing(change.before)}
        for loop, counter in loops_after:
            if loop.instruction.name not in before:
                yield _finding(loop, counter, Severity.WARNING)


def _disagreeing(module: Module) -> Iterator[tuple[Loop, Counter]]:
    for loop in loops(module):
        declared = loop.declared_trip_count
        counter = loop.counter if declared is not None else None
        if counter is not None and abs(counter.step) < _MAX_STEP:
            trips = counter.trip_count
            if trips is not None and (trips != declared or _wrong_annotation(loop, counter)):
                yield loop, counter


def _stale(module: Module) -> Iterator[tuple[Loop, str]]:
    """The loops that are said to count with an element of their state which does not, and why."""
    for loop in loops(module):
        if not any(name in loop.instruction.attributes_text for name in _COUNTS_WITH):
            continue
        shape = loop.instruction.shape_or_none
        has_counter = loop.declared_trip_count is not None and loop.counter is not None
        if not isinstance(shape, TupleShape):
            continue
        config = loop.instruction.backend_config()
        others = config.get(_COUNTS_WITH[1])
        annotated = read_loop(loop.instruction)
        claims: list[tuple[str, object, int | None]] = []
        if not has_counter:  # else it is compared with the annotation
            step = annotated.step if annotated else None
            claims.append((_COUNTS_WITH[0], config.get(_COUNTS_WITH[0]), step))
        counted = others if isinstance(others, Sequence) else ()
        claims += [(_COUNTS_WITH[1], other, integer_field(other, "step")) for other in counted]
        for name, claim, step in claims:
            index = integer_field(claim, "tuple_index")
            if index is None:
                continue
            element = shape.elements[index] if index < len(shape.elements) else None
            # XLA names a float that a loop counts with, too, and gives no step of it.
            is_integer = bool(step) or name == _COUNTS_WITH[1]
            if (
                not isinstance(element, ArrayShape)
                or element.dims
                or (is_integer and element.dtype[0] not in "su")
            ):
                yield loop, f"{name} is element {index} of the state, which is {element or 'none'}"
            elif loop.trip_count != 1 and step and loop.step(index) not in (None, step):
                yield (
                    loop,
                    f"{name} is element {index} of the state, by {step}, and each iteration adds "
                    f"{loop.step(index)}",
                )


def _wrong_annotation(loop: Loop, counter: Counter) -> str:
    """The annotation of the counter that is not true of it; empty where there is none."""
    annotated = read_loop(loop.instruction)
    if annotated is None or loop.trip_count == 0:
        return ""
    if annotated.induction_variable is None:
        if not annotated.step:
            return ""  # not annotated with it
    elif annotated.induction_variable != counter.index:
        if loop.step(annotated.induction_variable) == annotated.step:
            return ""  # another element that counts
        return (
            f"known_induction_variable is element {annotated.induction_variable} of the state, and "
            f"the loop counts with element {counter.index}"
        )
    if (annotated.init, annotated.step) == (counter.first, counter.step):
        return ""
    return (
        f"known_init_step says from {annotated.init} by {annotated.step}, and the loop counts from "
        f"{counter.first} by {counter.step}"
    )


def _finding(loop: Loop, counter: Counter, severity: Severity) -> Finding:
    message = (
        f"known_trip_count is {loop.declared_trip_count}, and the loop runs "
        f"{counter.trip_count} times"
    )
    if loop.declared_trip_count == counter.trip_count:
        message = _wrong_annotation(loop, counter)
    return Finding(
        loop.instruction,
        message,
        notes=(
            f"the counter starts at {counter.first}, each iteration adds {counter.step}, and the "
            f"loop goes on while it is {counter.direction} {counter.limit}",
        ),
        severity=severity,
    )
