"""The states in which a run leaves a defect, each with its level in the report.

| the defect | its rule | reported |
|---|---|---|
| is in the last dump, or in a dump without a known position | any | as it is |
| is over, in a file that the user named | any | as it is |
| is over | `always_reported`: the harm stays | as it is |
| is over | `checked_between_passes`, and the run crashed, or `--resolved` | as it is |
| is over | any other | as information, with `--resolved` |

A defect is over if a pass resolved it, or if it remains at a stage where the rule allows it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.rules.base import Rule

if TYPE_CHECKING:
    from hlo_lint.engine.findings import PassRef


class ReportLevel(Enum):
    """The ways to report a defect."""

    FULL = "as it is"
    INFO = "as information"
    NONE = "not at all"


class DefectEnd(NamedTuple):
    """The end of a defect before the end of its run."""

    resolved_by: PassRef | None
    """None if the next dump still has it, at a stage where the rule allows it."""
    notes: tuple[str, ...] = ()


def level_of(
    end: DefectEnd | None, rule: Rule, compilation: Compilation, *, asked: bool
) -> ReportLevel:
    """The level at which a defect is reported.

    Args:
        end: the end of the defect; None if the last dump still has it.
        rule: the rule that found it.
        compilation: the run; it is `lone` if the user named a single file.
        asked: True to report defects that are over, too: `check --resolved`.
    """
    if end is None or compilation.lone or rule.always_reported:
        return ReportLevel.FULL
    if rule.checked_between_passes and (asked or compilation.crashed):
        return ReportLevel.FULL
    return ReportLevel.INFO if asked else ReportLevel.NONE


def may_report_ended(rule: Rule, compilation: Compilation, *, asked: bool) -> bool:
    """True if a defect that is over may be reported; else only the end of the run matters."""
    return asked or compilation.lone or compilation.crashed or rule.always_reported
