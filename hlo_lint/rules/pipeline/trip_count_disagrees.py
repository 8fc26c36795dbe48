"""Loops whose annotated trip count differs from their counter's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lint.analysis.loops import Counter, Loop, integer_field, loops, read_loop
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.shape import ArrayShape, TupleShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import DOUBLE_BUFFER, WrongValues

_LOOP = """
body {
  i = s32[] get-tuple-element((s32[]) b), index=0
  step = s32[] constant(2)
  next = s32[] add(i, step)
  ROOT t = (s32[]) tuple(next)
}
condition {
  j = s32[] get-tuple-element((s32[]) c), index=0
  limit = s32[] constant(10)
  ROOT goes-on = pred[] compare(j, limit), direction=LT
}
  zero = s32[] constant(0)
  first = (s32[]) tuple(zero)
  ROOT w = (s32[]) while(first), condition=condition, body=body, backend_config=  // error
"""
_COUNTS_WITH: Final = ("known_induction_variable", "dynamic_variables")
_MAX_STEP: Final = 1 << 31
"""The smallest step that is taken for a negative number of an unsigned type."""


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
    evidence = (
        WrongValues(
            1, f"--xla_enable_hlo_passes_only=loop-double-buffer-transformer {DOUBLE_BUFFER}"
        ),
    )
    reports = "openxla/xla#13278"
    examples = (
        Bad.entry(_LOOP + '  {"known_trip_count":{"n":"10"}}'),
        Bad.step(
            _LOOP + '- {"known_trip_count":{"n":"5"}}\n+ {"known_trip_count":{"n":"10"}}',
            by="double-buffer",
        ),
        Bad.entry(
            _LOOP + '  {"known_trip_count":{"n":"5"},"known_init_step":{"init":"0","step":"1"}}'
        ),
        Bad.entry("""
            HloModule m, is_scheduled=true
            body { ROOT t = (s32[]) copy((s32[]) b) }
            condition { ROOT goes-on = pred[] custom-call((s32[]) c), custom_call_target="on" }
            ROOT w = (s32[]) while((s32[]) p), condition=condition, body=body,  // error
                backend_config={"dynamic_variables":[{"tuple_index":"1","init":"0","step":"2"}]}
        """),
        Bad.entry(_LOOP + '  {"dynamic_variables":[{"tuple_index":"0","init":"0","step":"1"}]}'),
        Good.entry(
            _LOOP + '  {"known_trip_count":{"n":"5"},"known_init_step":{"init":"0","step":"2"},\n'
            '   "known_induction_variable":{"tuple_index":"0"}}'
        ),
        Good.entry("""
            HloModule m, is_scheduled=true
            body { ROOT t = (f32[]) copy((f32[]) b) }
            condition { ROOT goes-on = pred[] custom-call((f32[]) c), custom_call_target="on" }
            ROOT w = (f32[]) while((f32[]) p), condition=condition, body=body, backend_config={
                "known_trip_count":{"n":"5"},"known_induction_variable":{"tuple_index":"0"}}
        """),
        Good.entry(_LOOP + '  {"dynamic_variables":[{"tuple_index":"0","init":"0","step":"2"}]}'),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Wrong annotations in a scheduled module, or in a module of unknown stage."""
        if stage.scheduled or stage.assumed:
            severity = Severity.ERROR if stage.scheduled else Severity.WARNING
            for loop, message, notes in _wrong(module):
                yield Finding(loop.instruction, message, notes, severity=severity)

    def check_pass(self, pair: PassPair, stage: Stage) -> Findings:
        """Annotations that were right before a pass and wrong after it."""
        # `check` reports the same loop in such a module.
        if pair.after.is_scheduled or stage.assumed:
            return
        wrong = list(_wrong(pair.after))
        earlier = _wrong(pair.before) if wrong else ()
        before = {loop.instruction.name for loop, *_ in earlier}
        for loop, message, notes in wrong:
            if loop.instruction.name not in before:
                yield Finding(loop.instruction, message, notes, severity=Severity.WARNING)


def _wrong(module: Module) -> Iterator[tuple[Loop, str, tuple[str, ...]]]:
    """Loops with a wrong annotation, with a message and notes."""
    for loop in loops(module):
        for message in _stale(loop):
            yield loop, message, ()
        declared, counter = loop.declared_trip_count, loop.counter
        trips = counter.trip_count if counter is not None else None
        if declared is None or counter is None or trips is None or abs(counter.step) >= _MAX_STEP:
            continue
        message = f"known_trip_count is {declared}, but the loop runs {trips} times"
        if message := _wrong_annotation(loop, counter) if trips == declared else message:
            note = (
                f"the counter starts at {counter.first}, each iteration adds {counter.step}, and "
                f"the loop runs while it is {counter.direction} {counter.limit}"
            )
            yield loop, message, (note,)


def _stale(loop: Loop) -> Iterator[str]:
    """Messages about annotated counters that are no counters."""
    shape = loop.instruction.shape_or_none
    is_annotated = any(name in loop.instruction.attributes_text for name in _COUNTS_WITH)
    if not is_annotated or not isinstance(shape, TupleShape):
        return
    config, annotated = loop.instruction.backend_config(), read_loop(loop.instruction)
    variable, others = map(config.get, _COUNTS_WITH)
    counted = others if isinstance(others, Sequence) else ()
    claims = [(_COUNTS_WITH[1], claim, integer_field(claim, "step")) for claim in counted]
    if loop.declared_trip_count is None or loop.counter is None:  # else the counter is compared
        claims.insert(0, (_COUNTS_WITH[0], variable, annotated.step if annotated else None))
    for name, claim, step in claims:
        index = integer_field(claim, "tuple_index")
        if index is None:
            continue
        element = shape.elements[index] if index < len(shape.elements) else None
        # XLA also annotates floating-point counters, but without a step.
        is_integer = bool(step) or name == _COUNTS_WITH[1]
        is_scalar = isinstance(element, ArrayShape) and not element.dims
        if not is_scalar or (is_integer and str(element)[0] not in "su"):
            yield f"{name} is element {index} of the state, which is {element or 'missing'}"
        elif loop.trip_count != 1 and step and loop.step(index) not in (None, step):
            yield (
                f"{name} is element {index} of the state with step {step}, but each iteration adds "
                f"{loop.step(index)}"
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
