"""Entries of a report: findings of a rule with the same cause are a group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import listed
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from hlo_lint.engine.findings import Diagnostic

MAX_PLACES = 3
"""The number of further places that an entry names."""

_replace_names = late(r"%[\w.\-]+").sub


class Group(NamedTuple):
    """The findings of a rule with the same cause."""

    first: Diagnostic
    rest: tuple[Diagnostic, ...] = ()

    def elsewhere(self) -> str:
        """The places of further findings; empty if the first is the only finding.

        `lines 12, 18, 24 and 3 more (--verbose lists all)`, `b.hlo:4:3, c.hlo:7:3`
        """
        if not self.rest:
            return ""
        if all(finding.path == self.first.path for finding in self.rest):
            places = f"line{'s' * (len(self.rest) > 1)} "
            places += listed((finding.line for finding in self.rest), MAX_PLACES)
        else:
            others = (f"{finding.path}:{finding.line}:{finding.column}" for finding in self.rest)
            places = listed(map(shown, others), MAX_PLACES)
        return places + " (--verbose lists all)" * (len(self.rest) > MAX_PLACES)


def grouped(findings: Iterable[Diagnostic]) -> list[Group]:
    """Groups in the order of their first findings.

    Two findings of a rule have the same cause if they come from the same line of Python, the same
    pass introduced them and the same resolved them, and their messages differ only in names. All
    findings of a group have one severity, and fixes of one title and safety.
    """
    groups: dict[tuple[object, ...], list[Diagnostic]] = {}
    for finding in findings:
        introduced, resolved = finding.introduced_by, finding.resolved_by
        key = (
            finding.rule,
            finding.severity,
            _replace_names("%", finding.message),
            finding.origin,
            introduced and (introduced.pass_name, introduced.pipeline),
            resolved and (resolved.pass_name, resolved.pipeline),
            finding.fix and (finding.fix.title, finding.fix.safety),
        )
        groups.setdefault(key, []).append(finding)
    return [Group(members[0], tuple(members[1:])) for members in groups.values()]
