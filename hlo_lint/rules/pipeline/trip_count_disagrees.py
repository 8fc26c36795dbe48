"""Loops whose annotated trip count is not the one that their counter gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.loops import Counter, Loop, loops, read_loop
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.ir import Module
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
    begins with, is raised by and is compared with; a loop without such constants is left alone.
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
        Good(_PROGRAM.format(scheduled=", is_scheduled=true", count=5, more=_COUNTS % 2, mark="")),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Each loop of a module that is going to run, or whose place in a run is not known."""
        if stage.scheduled or stage.assumed:
            severity = Severity.ERROR if stage.scheduled else Severity.WARNING
            for loop, counter in _disagreeing(module):
                yield _finding(loop, counter, severity)

    def check_pass(self, change: PassPair, stage: Stage) -> Findings:
        """Each loop that agreed before a pass; what a program began with is not its fault."""
        if change.after.is_scheduled or stage.assumed:
            return
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


def _wrong_annotation(loop: Loop, counter: Counter) -> str:
    """The annotation of the counter that is not true of it; empty where there is none."""
    annotated = read_loop(loop.instruction)
    if annotated is None or annotated.induction_variable is None or loop.trip_count == 0:
        return ""
    if annotated.induction_variable != counter.index:
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
