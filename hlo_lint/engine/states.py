"""The states in which a run leaves a defect, and what is reported in each.

| the defect | its rule | reported |
|---|---|---|
| is in the last dump, or in one without a known place | any | as it is |
| is over, in a file that was picked out by name | any | as it is |
| is over | `always_reported`: the harm stays | as it is |
| is over | `checked_between_passes`, and the run died of it, or it is asked for | as it is |
| is over | any other | as information, where it is asked for |

It is over where a pass resolved it, and where it is still there, at a stage that the rule allows.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.rules.base import Rule

if TYPE_CHECKING:
    from hlo_lint.engine.findings import PassRef


class ReportLevel(Enum):
    """The ways to report a defect."""

    FULL = "as it is"
    INFO = "as information"
    NONE = "not at all"


class DefectEnd(NamedTuple):
    """The end of a defect before that of its run."""

    resolved_by: PassRef | None
    """None where the next dump still has it, at a stage that the rule allows."""
    notes: tuple[str, ...] = ()


def level_of(end: DefectEnd | None, rule: Rule, pipeline: Pipeline, *, asked: bool) -> ReportLevel:
    """The level at which a defect is reported.

    Args:
        end: the end of the defect; None where the last dump still has it.
        rule: the rule that found it.
        pipeline: the run; `lone` is one of a single file that was picked out by name.
        asked: if defects that are over are to be reported, too: `check --resolved`.
    """
    if end is None or pipeline.lone or rule.always_reported:
        return ReportLevel.FULL
    if rule.checked_between_passes and (asked or pipeline.crashed):
        return ReportLevel.FULL
    return ReportLevel.INFO if asked else ReportLevel.NONE


def may_report_ended(rule: Rule, pipeline: Pipeline, *, asked: bool) -> bool:
    """True if a defect that is over may be reported; else the end of the run is all that counts."""
    return asked or pipeline.lone or pipeline.crashed or rule.always_reported
