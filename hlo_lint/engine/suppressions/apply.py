"""Findings under suppressions: allowed, reported, or about an unused suppression."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from hlo_lint.analysis.grouping import by_key
from hlo_lint.dumps.directory import Skipped
from hlo_lint.engine.findings import Diagnostic, SuppressedBy, SuppressedFinding
from hlo_lint.engine.fingerprints import IDENTITY_DIGITS, base_name, fingerprint, nameless
from hlo_lint.engine.suppressions.allowances import Allowance
from hlo_lint.engine.suppressions.baseline import Baseline, BaselineEntry
from hlo_lint.engine.suppressions.comments import (
    EVERYWHERE,
    STAGE_VERB,
    CheckedFile,
    Comment,
    LineRange,
    without,
)
from hlo_lint.rules.entry import ChosenRules
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import check_names, rule_entries
from hlo_lint.text.edits import Edit, Fix, Region, Safety
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import Position, encode

UNUSED = "unused-allowance"
"""The rule of findings about suppressions."""


@dataclass(frozen=True)
class CheckedRun:
    """The rules and files of a run: a suppression is unused only if the run could have used it."""

    rules: ChosenRules
    files: Sequence[CheckedFile] = ()
    skipped: Sequence[Skipped] = ()
    before: str | None = None
    """The next pass, if the caller gives it."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The rules that ran, and the families whose rules all ran."""
        ran = {
            entry.name
            for entry, _ in self.rules.chosen
            if not entry.demanded_by or self.before in (None, entry.demanded_by)
        }
        families: dict[str, set[str]] = {}
        for entry in rule_entries():
            if entry.enabled_by_default:
                families.setdefault(entry.family, set()).add(entry.name)
        return frozenset(ran | {family for family, names in families.items() if names <= ran})


@dataclass(frozen=True)
class SuppressionResult:
    """Kept findings and suppressed findings."""

    kept: tuple[Diagnostic, ...]
    """These include findings about suppressions, if `unused-allowance` ran."""
    suppressed: tuple[SuppressedFinding, ...]
    unused: Baseline | None
    """The unused entries of the baseline."""


def apply_suppressions(
    findings: Sequence[Diagnostic],
    run: CheckedRun,
    allowances: Sequence[Allowance] = (),
    baseline: Baseline | None = None,
) -> SuppressionResult:
    """Sort findings by suppressions: comments first, then allowances, then the baseline.

    Raises:
        UsageError: an allowance names an unknown rule.
    """
    suppressions = _Suppressions(run, allowances, baseline)
    suppressions.check_names()
    kept, suppressed = suppressions.sorted_out(findings)
    if UNUSED in run.names:
        # Comments may allow findings about comments; allowances also those about allowances.
        for unused in (suppressions.unused_comments, suppressions.unused_entries):
            more_kept, more_suppressed = suppressions.sorted_out(unused())
            kept += more_kept
            suppressed += more_suppressed
        kept.sort(key=lambda diagnostic: (diagnostic.path, diagnostic.start, diagnostic.rule))
    return SuppressionResult(tuple(kept), tuple(suppressed), suppressions.unused_baseline())


class _Suppressions:
    """All suppressions of a run, and a record of those that were used."""

    def __init__(
        self, run: CheckedRun, allowances: Sequence[Allowance], baseline: Baseline | None
    ) -> None:
        self._run = run
        self._allowances = allowances
        self._baseline = baseline
        self._comments = {file.path: _Comments(file) for file in run.files if file.comments}
        own = (entry for entry, _ in run.rules.chosen)
        self._families = {entry.name: entry.family for entry in (*rule_entries(), *own)}
        self._silent = {
            (name, entry.path)
            for entry in run.skipped
            for name in (entry.rule, self._families.get(entry.rule, ""))
        }
        """Pairs of a rule that could not check a file, or its family, and the file's path."""
        self._entries = baseline.entries if baseline is not None else ()
        self._reasons = {entry.fingerprint: entry.reason for entry in self._entries}
        self._counts: Counter[str] = Counter()
        for entry in self._entries:
            self._counts[entry.fingerprint] += entry.count
        self._used_names: set[tuple[Comment, str]] = set()
        self._used_allowances: set[int] = set()
        """The positions of used allowances."""

    def check_names(self) -> None:
        """Refuse allowances of unknown rules.

        Raises:
            UsageError: a rule is unknown.
        """
        for allowance in self._allowances:
            message = self._unknown(allowance.rule)
            if message:
                raise UsageError(f"{allowance.stated_in}:{allowance.line}: {message}")

    def sorted_out(
        self, findings: Iterable[Diagnostic]
    ) -> tuple[list[Diagnostic], list[SuppressedFinding]]:
        """Kept findings and suppressed findings, each in their order."""
        findings = list(findings)
        suppressed: dict[int, SuppressedFinding] = {}
        # The order of the text decides: a baseline entry covers the first of equal findings.
        places = [(finding.path, finding.start) for finding in findings]
        for number in sorted(range(len(findings)), key=places.__getitem__):
            entry = self._suppressed(findings[number])
            if entry is not None:
                suppressed[number] = entry
        kept = [finding for number, finding in enumerate(findings) if number not in suppressed]
        return kept, [suppressed[number] for number in sorted(suppressed)]

    def _suppressed(self, finding: Diagnostic) -> SuppressedFinding | None:
        """The finding with its first suppression; all that cover it are marked as used."""
        reasons: list[tuple[str, SuppressedBy]] = []
        names = (finding.rule, self._families.get(finding.rule, ""))
        comments = self._comments.get(finding.path)
        for name in names:
            for comment in comments.about(name, finding) if comments else ():
                self._used_names.add((comment, name))
                reasons.append((comment.reason, SuppressedBy.COMMENT))
        for number, allowance in enumerate(self._allowances):
            if allowance.rule in names and allowance.covers(finding):
                self._used_allowances.add(number)
                reasons.append((allowance.reason, SuppressedBy.CONFIGURATION))
        digits = finding.fingerprint[:IDENTITY_DIGITS]
        if self._counts[digits] > 0:
            self._counts[digits] -= 1
            reasons.append((self._reasons[digits], SuppressedBy.BASELINE))
        return SuppressedFinding(finding, *reasons[0]) if reasons else None

    # Unused suppressions

    def unused_comments(self) -> Iterator[Diagnostic]:
        """Findings about comments: unused, unreadable, or of unknown rules."""
        for file in self._run.files:
            for comment in file.comments:
                diagnostic = self._about_comment(comment)
                if diagnostic is not None:
                    yield diagnostic

    def _about_comment(self, comment: Comment) -> Diagnostic | None:
        if comment.verb == STAGE_VERB:
            return _diagnostic(comment, comment.trouble) if comment.trouble else None
        message = comment.trouble or next(filter(None, map(self._unknown, comment.names)), "")
        if message or comment.verb == "allow-end":
            return _diagnostic(comment, message) if message else None
        # A comment is unused if the run could have used it, or if it covers no line.
        unused = [
            name
            for name in comment.names
            if (comment, name) not in self._used_names
            and name != UNUSED
            and (
                comment.lines_of(name) is None
                or (name in self._run.names and (name, comment.path) not in self._silent)
            )
        ]
        if not unused:
            return None
        title = "remove the comment"
        if len(unused) < len(comment.names):
            title = f"remove {' and '.join(unused)} from the comment"
        ends = [comment.regions[name][1] for name in unused if name in comment.regions]
        changes = dict.fromkeys(without(directive, unused) for directive in (comment, *ends))
        edits = tuple(Edit(place.span, text) for place, text in changes)
        where, rules = _where(comment.lines_of(unused[0])), " or ".join(unused)
        return replace(
            _diagnostic(comment, f"there is no finding of {rules} {where} to allow"),
            fix=Fix(title, edits, Safety.SAFE),
            regions=(comment.at.region, *(place.region for place, _ in changes)),
        )

    def _unknown(self, name: str) -> str:
        """The error for an unknown name, else \"\"; a caller's own rules are known, too."""
        if name not in self._families and name not in self._families.values():
            try:
                check_names([name])
            except UsageError as error:
                return str(error)
        return ""

    def unused_entries(self) -> Iterator[Diagnostic]:
        """Findings about unused allowances and unused entries of the baseline."""
        for number, allowance in enumerate(self._allowances):
            if number not in self._used_allowances and self._was_due(allowance):
                message = f"there is no finding of {allowance} to allow"
                notes = (f"it was allowed because: {allowance.reason}",)
                yield _finding_at(
                    allowance.stated_in, allowance.line, f"{allowance}", message, notes
                )
        for entry, gone in self._remaining():
            paths = self._paths.get(entry.module, ()) if entry.rule in self._run.names else ()
            was_looked_for = any((entry.rule, path) not in self._silent for path in paths)
            if self._baseline is not None and was_looked_for:
                times = f" {gone} of {entry.count} times" if entry.count > 1 else ""
                message = f"a finding of the baseline is gone{times}: {entry.rule}: {entry.message}"
                notes = ("`hlo-lint check --prune-baseline FILE` removes it",)
                excerpt = f'"fingerprint": "{entry.fingerprint}"'
                yield _finding_at(str(self._baseline.path), entry.line, excerpt, message, notes)

    def _was_due(self, allowance: Allowance) -> bool:
        """True if the run checked the files of an allowance, which lone files may not include."""
        if allowance.rule == UNUSED or allowance.rule not in self._run.names:
            return False
        return any(
            allowance.is_about(file.path, file.modules)
            and (not file.lone or allowance.path is not None)
            and (allowance.rule, file.path) not in self._silent
            for file in self._run.files
        )

    @cached_property
    def _paths(self) -> Mapping[str, Sequence[str]]:
        """The files that are not lone, by the names of their modules."""
        files = (file for file in self._run.files if not file.lone)
        return by_key((base_name(name), file.path) for file in files for name in file.modules)

    def unused_baseline(self) -> Baseline | None:
        """The baseline without its used entries."""
        if self._baseline is None:
            return None
        entries = tuple(replace(entry, count=count) for entry, count in self._remaining())
        return self._baseline._replace(entries=entries)

    def _remaining(self) -> Iterator[tuple[BaselineEntry, int]]:
        """The entries that are not used up, each with its remaining count."""
        counts = self._counts.copy()
        for entry in self._entries:
            count = min(counts[entry.fingerprint], entry.count)
            counts[entry.fingerprint] -= count
            if count:
                yield entry, count


class _Comments:
    """The comments of a file, by name and by line."""

    def __init__(self, file: CheckedFile) -> None:
        by_name: dict[str, list[tuple[LineRange, int, Comment]]] = {}
        for number, comment in enumerate(file.comments):
            for name in comment.names if not comment.trouble else ():
                lines = comment.lines_of(name)
                if lines is not None:
                    by_name.setdefault(name, []).append((lines, number, comment))
        self._by_name = {name: sorted(comments) for name, comments in by_name.items()}
        self._reach = {
            name: list(accumulate((lines.last for lines, *_ in comments), max))
            for name, comments in self._by_name.items()
        }
        """The last line that any comment so far covers, which ends the search backwards."""

    def about(self, name: str, finding: Diagnostic) -> Iterator[Comment]:
        """The comments with a name that cover a line of a finding, nearest first."""
        comments, reach = self._by_name.get(name, []), self._reach.get(name, [])
        first, last = finding.start.line, finding.end.line
        if finding.end.column == 1 and last > first:
            last -= 1  # the finding ends with the line before
        position = bisect_right(comments, last, key=lambda entry: entry[0].first)
        while position and reach[position - 1] >= first:
            lines, _, comment = comments[position - 1]
            if lines.last >= first:
                yield comment
            position -= 1


def _where(lines: LineRange | None) -> str:
    if lines is None:
        return "after this comment"
    if lines == EVERYWHERE:
        return "in this file"
    if lines.first == lines.last:
        return f"on line {lines.first}"
    return f"on lines {lines.first} to {lines.last}"


def _diagnostic(comment: Comment, message: str) -> Diagnostic:
    region = comment.at.region
    diagnostic = _finding_at(
        comment.path, region.start.line, comment.excerpt, message, (), comment.module
    )
    return replace(diagnostic, start=region.start, end=region.end, regions=(region,))


def _finding_at(
    path: str, line: int, excerpt: str, message: str, notes: tuple[str, ...] = (), module: str = ""
) -> Diagnostic:
    """A finding about a suppression, at a line with the text `excerpt`."""
    region = Region(
        Position(line, 1), Position(line, len(excerpt) + 1), 1, len(encode(excerpt)) + 1
    )
    return Diagnostic.of_text(
        *(UNUSED, Severity.WARNING, message, path, region),
        notes=notes,
        module=module,
        excerpt=excerpt,
        fingerprint=fingerprint(UNUSED, nameless(message), module, None, excerpt),
    )
