"""Merge findings of several rules about the same mistake into a single finding with notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hlo_lint.analysis.grouping import by_key
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.rules.entry import ChosenRules


def without_subsumed(
    findings: Sequence[Diagnostic], suppressed: Iterable[Diagnostic], rules: ChosenRules
) -> tuple[Diagnostic, ...]:
    """The findings without those that another rule's finding at the same place subsumes.

    A finding that stays has the highest severity of those that it subsumes, and their messages as
    notes. A finding subsumed by a suppressed one is suppressed with it. No rule may subsume itself
    by way of others.
    """
    both = (*findings, *suppressed)
    by_place = by_key(((finding.path, finding.line), finding) for finding in both)
    subsumed_by: dict[int, Diagnostic] = {}
    for group in by_place.values():
        names = {finding.rule for finding in group}
        if len(names) > 1:
            subsumed_by.update(_subsumed_in(group, {name: _parts(name, rules) for name in names}))
    if not subsumed_by:
        return tuple(findings)
    merged: dict[int, list[Diagnostic]] = {}
    for finding in findings:
        top = finding
        while id(top) in subsumed_by:
            top = subsumed_by[id(top)]
        merged.setdefault(id(top), []).append(finding)
    return tuple(
        _with_notes(finding, merged[id(finding)])
        for finding in findings
        if id(finding) not in subsumed_by
    )


def _parts(name: str, rules: ChosenRules) -> frozenset[str]:
    """The chosen rules that a rule subsumes."""
    chosen = rules.named(name)
    subsumed = frozenset[str]() if chosen is None else chosen.rule.subsumes
    if not subsumed:
        return subsumed
    entries = (chosen.entry for chosen in rules.chosen)
    return frozenset(
        entry.name
        for entry in entries
        if entry.name != name and not subsumed.isdisjoint((entry.name, entry.family))
    )


def _subsumed_in(
    group: Sequence[Diagnostic], parts: Mapping[str, frozenset[str]]
) -> Iterable[tuple[int, Diagnostic]]:
    """The subsumed findings of a line, by identity, each with a finding that subsumes it."""
    for finding in group:
        for whole in group:
            is_part = finding.rule in parts[whole.rule]
            loses_fix = finding.fix is not None and whole.fix is None
            places = {(part.computation, part.instruction) for part in (finding, whole)}
            # A finding about the text has no instruction: it concerns each instruction of the line.
            if is_part and not loses_fix and len(places - {(None, None)}) < 2:
                yield id(finding), whole
                break


def _with_notes(finding: Diagnostic, group: Sequence[Diagnostic]) -> Diagnostic:
    notes = dict.fromkeys(finding.notes)
    for part in group:
        if part is finding:
            continue
        said, more = finding.message.lower(), part.message.lower()
        if more not in said and said not in more:
            notes[f"{part.rule}: {part.message}"] = None
        notes.update(dict.fromkeys(part.notes))
    severity = min((part.severity for part in group), key=lambda severity: severity.rank)
    return replace(finding, notes=tuple(notes), severity=severity)
