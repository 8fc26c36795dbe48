"""Instructions before their operands and control predecessors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Final

from hlo_lint.analysis.kinds import attributes_in
from hlo_lint.analysis.verifier.checks import on_computation_if
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.records import attributes_of, name_in, name_of, references_of
from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.patterns import late

_PREDECESSORS: Final = "control-predecessors="


def _is_ordered(module: Module) -> bool:
    return module.is_scheduled and _PREDECESSORS in "\n".join(attributes_in(module))


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

    @on_computation_if(names=True)
    def operands(self, scope: Scope) -> Iterator[Violation]:
        """An instruction follows its operands: XLA's own parser wants that in any text."""
        computation = scope.computation
        index = computation.index
        seen: set[str] = set()
        for number, row in enumerate(computation.rows):
            early: dict[str, int] = {}
            for place, reference in enumerate(references_of(row)):
                name = name_in(reference)
                if name in index and name not in seen:
                    early.setdefault(name, place)
            for name, place in early.items():  # a name that is read twice is one error
                message = f"%{name} is used before it is defined"
                yield Violation("schedule-operand", computation.at(number), message, place)
            seen.add(name_of(row))

    @on_computation_if(module=_is_ordered)
    def control(self, scope: Scope) -> Iterable[Violation]:
        """An instruction follows its control predecessors."""
        computation = scope.computation
        return _early_predecessors(computation) if computation.mentions(_PREDECESSORS) else ()


def _early_predecessors(computation: Computation) -> Iterator[Violation]:
    index = computation.index
    seen: set[str] = set()
    for number, row in enumerate(computation.rows):
        if listed := _find_predecessors(attributes_of(row)):
            for name in listed[1].replace("%", "").replace(" ", "").split(","):
                if name in index and name not in seen:
                    message = f"control predecessor %{name} is scheduled after this"
                    yield Violation("schedule-control", computation.at(number), message)
        seen.add(name_of(row))


_find_predecessors = late(r"control-predecessors=\{([^}]*)\}").search
