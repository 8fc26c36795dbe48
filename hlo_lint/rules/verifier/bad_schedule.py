"""Instructions placed before their operands or control predecessors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.verifier.checks import on_computation, on_computation_if
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.kinds import ATTRIBUTES, reading_of
from hlo_lint.hlo.records import attributes_of, name_in, references_of
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule

_PREDECESSORS: Final = "control-predecessors="


class BadSchedule(VerifierRule):
    """An instruction placed before its operands or control predecessors.

    ## Why
    In a scheduled module, text order is execution order. In any other module, XLA's parser still
    requires operands and control predecessors first (`xla/hlo/ir/hlo_schedule.cc`). A cycle has no
    such order.
    """

    messages = (
        "is not scheduled after its operand",
        "is not scheduled after its control predecessor",
        "missing from HLO schedule",
    )
    table = """
        schedule-operand: HloSchedule::Verify
          operands are scheduled first
            r = f32[8] negate(q)  // error
            q = f32[8] sine(f32[8] p)
            ROOT s = f32[8] add(r, q)
        schedule-control: HloSchedule::Verify
          control predecessors are scheduled first
            r = f32[8] negate(f32[8] p), control-predecessors={q}  // error
            q = f32[8] sine(p), control-predecessors={r}
            ROOT s = f32[8] add(r, q)
    """
    examples = (
        Good.entry("""
            HloModule m, is_scheduled=true
            q = f32[8] sine(f32[8] p)
            r = f32[8] negate(p), control-predecessors={q}
            ROOT s = f32[8] add(r, q)
        """),
    )

    @on_computation_if(names=True)
    def operands(self, scope: Scope) -> Iterator[Violation]:
        """Instructions follow their operands, as XLA's parser requires in any text."""
        computation = scope.computation
        position = computation.index.get
        for number, row in enumerate(computation.rows):
            early: dict[str, int] = {}
            for place, name in enumerate(map(name_in, references_of(row))):
                if position(name, -1) >= number:
                    early.setdefault(name, place)
            for name, place in early.items():  # report a name once, even if it is read twice
                message = f"%{name} is used before it is defined"
                yield Violation("schedule-operand", computation.at(number), message, place)

    @on_computation
    def control(self, scope: Scope) -> Iterator[Violation]:
        """Instructions follow their control predecessors, which excludes cycles of them."""
        computation = scope.computation
        reading, position = reading_of(computation), computation.index.get
        waiting = {
            place for place, kind in enumerate(reading.kinds) if _PREDECESSORS in kind[ATTRIBUTES]
        }
        if not waiting:
            return
        for number, kind in enumerate(reading.kind_of):
            if kind in waiting:
                for name in control_predecessors(attributes_of(computation.rows[number])):
                    if position(name, -1) >= number:
                        message = f"control predecessor %{name} is not defined before"
                        yield Violation("schedule-control", computation.at(number), message)
