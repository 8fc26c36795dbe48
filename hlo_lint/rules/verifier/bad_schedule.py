"""Instructions before their operands and control predecessors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from hlo_lint.analysis.verifier.checks import on_computation
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.kinds import reading_of
from hlo_lint.hlo.records import attributes_of, name_of, references_of
from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.patterns import late


class BadSchedule(VerifierRule, Rule):
    """An instruction that stands above what it reads, or has to wait for.

    ## Why
    In a scheduled module the order of the text is that of execution, and in every other one XLA's
    parser still wants operands first (`xla/hlo/ir/hlo_schedule.cc`).
    """

    demands: ClassVar[Mapping[str, tuple[str, str]]] = {
        "schedule-operand": ("HloSchedule::Verify", "operands are scheduled first"),
        "schedule-control": ("HloSchedule::Verify", "control predecessors are scheduled first"),
    }
    rows: ClassVar[Mapping[str, Bad]] = {
        "schedule-operand": Bad.entry("""
            p = f32[8] parameter(0)
            r = f32[8] negate(q)  // error
            q = f32[8] sine(p)
            ROOT s = f32[8] add(r, q)
        """),
        "schedule-control": Bad(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8] parameter(0)
              r = f32[8] negate(p), control-predecessors={q}  // error
              q = f32[8] sine(p)
              ROOT s = f32[8] add(r, q)
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8] parameter(0)
              q = f32[8] sine(p)
              r = f32[8] negate(p), control-predecessors={q}
              ROOT s = f32[8] add(r, q)
            }
            """
        ),
    )

    @on_computation
    def order(self, scope: Scope) -> Iterator[Violation]:
        """An instruction follows its operands and its control predecessors.

        XLA's own parser wants operands first in any text.
        """
        computation = scope.computation
        has_control = scope.header.is_scheduled and computation.mentions("control-predecessors=")
        if reading_of(computation).is_sound and not has_control:
            return
        index = computation.index
        seen: set[str] = set()
        are_above = seen.issuperset
        for number, row in enumerate(computation.rows):
            references = references_of(row)
            if not are_above(references):
                early: dict[str, int] = {}
                for place, reference in enumerate(references):
                    name = reference.partition("#")[0]
                    if name in index and name not in seen:
                        early.setdefault(name, place)
                for name, place in early.items():  # a name that is read twice is one error
                    message = f"%{name} is used before it is defined"
                    yield Violation("schedule-operand", computation.at(number), message, place)
            if has_control and (listed := _find_predecessors(attributes_of(row))):
                for name in listed[1].replace("%", "").replace(" ", "").split(","):
                    if name in index and name not in seen:
                        message = f"control predecessor %{name} is scheduled after this"
                        yield Violation("schedule-control", computation.at(number), message)
            seen.add(name_of(row))


_find_predecessors = late(r"control-predecessors=\{([^}]*)\}").search
