"""Loops whose annotated trip count differs from their counter's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lint.analysis.loops import Counter, Loop, integer_field, loops, read_loop
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.shape import ArrayShape, TupleShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, Severity, Stage

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
"""The smallest step that is taken for a negative number of an unsigned type."""
_BEFORE = "module_0001.m.0001.loops.after_pipeline-start.before_double-buffer.txt"
_AFTER = "module_0001.m.0002.loops.after_double-buffer.before_pipeline-end.txt"


class TripCountDisagrees(Rule):
    """A loop whose annotated trip count, init, step or counter is wrong.

    ## Why
    WhileLoopTripCountAnnotator writes the trip count once. A later pass that unrolls, peels or
    pipelines the loop must update it. XLA:GPU runs the body as often as `known_trip_count` says
    without evaluating the condition (service/gpu: WhileThunk), and passes unroll by it: a wrong
    count gives wrong values. So does a wrong `known_init_step`, from which the addresses of copied
    slices are computed. The rule compares the annotations with the constants that the counter
    starts at, adds and is compared with, and skips loops without such constants. The state element
    named by `known_induction_variable` or `dynamic_variables` must be a scalar; with a step, it
    must be an integer to which each iteration adds that step. A pass that removes elements of the
    state must renumber these.

    The finding is an error in a scheduled module, and a warning after the pass that introduced it,
    or in a single file of unknown stage.
    """

    opcodes = frozenset({"while"})
    evidence = (PublicReport("openxla/xla#13278 (loop-double-buffer-transformer)"),)
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
        """Wrong annotations in a scheduled module, or in a module of unknown stage."""
        if stage.scheduled or stage.assumed:
            severity = Severity.ERROR if stage.scheduled else Severity.WARNING
            for loop, counter in _disagreeing(module):
                yield _finding(loop, counter, severity)
            for loop, message in _stale(module):
                yield Finding(loop.instruction, message, severity=severity)

    def check_pass(self, change: PassPair, stage: Stage) -> Findings:
        """Annotations that were right before a pass and wrong after it."""
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
    """Loops whose annotated counter is not a counter, with a message."""
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
        claims += [(_COUNTS_WITH[1], claim, integer_field(claim, "step")) for claim in counted]
        for name, claim, step in claims:
            index = integer_field(claim, "tuple_index")
            if index is None:
                continue
            element = shape.elements[index] if index < len(shape.elements) else None
            # XLA also annotates floating-point counters, but without a step.
            is_integer = bool(step) or name == _COUNTS_WITH[1]
            if (
                not isinstance(element, ArrayShape)
                or element.dims
                or (is_integer and element.dtype[0] not in "su")
            ):
                kind = element or "missing"
                yield loop, f"{name} is element {index} of the state, which is {kind}"
            elif loop.trip_count != 1 and step and loop.step(index) not in (None, step):
                yield (
                    loop,
                    f"{name} is element {index} of the state with step {step}, but each iteration "
                    f"adds {loop.step(index)}",
                )


def _wrong_annotation(loop: Loop, counter: Counter) -> str:
    """A message on a wrong annotation of the counter; empty if it is right or missing."""
    annotated = read_loop(loop.instruction)
    if annotated is None or loop.trip_count == 0:
        return ""
    if annotated.induction_variable is None:
        if not annotated.step:
            return ""  # without a step, init is not annotated either
    elif annotated.induction_variable != counter.index:
        if loop.step(annotated.induction_variable) == annotated.step:
            return ""  # a second counter
        return (
            f"known_induction_variable is element {annotated.induction_variable} of the state, but "
            f"the loop counts with element {counter.index}"
        )
    if (annotated.init, annotated.step) == (counter.first, counter.step):
        return ""
    return (
        f"known_init_step is init {annotated.init}, step {annotated.step}, but the loop counts "
        f"from {counter.first} by {counter.step}"
    )


def _finding(loop: Loop, counter: Counter, severity: Severity) -> Finding:
    message = (
        f"known_trip_count is {loop.declared_trip_count}, but the loop runs "
        f"{counter.trip_count} times"
    )
    if loop.declared_trip_count == counter.trip_count:
        message = _wrong_annotation(loop, counter)
    return Finding(
        loop.instruction,
        message,
        notes=(
            f"the counter starts at {counter.first}, each iteration adds {counter.step}, and the "
            f"loop runs while it is {counter.direction} {counter.limit}",
        ),
        severity=severity,
    )
