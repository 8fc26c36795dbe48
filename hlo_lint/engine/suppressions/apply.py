"""Which findings may stay, who says so, and which of those who say it speak of nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate

from hlo_lint.dumps.directory import Skipped
from hlo_lint.engine.findings import Diagnostic, SuppressedBy, SuppressedFinding
from hlo_lint.engine.fingerprints import base_name, fingerprint, nameless
from hlo_lint.engine.suppressions.allowances import Allowance
from hlo_lint.engine.suppressions.baseline import Baseline, Entry
from hlo_lint.engine.suppressions.comments import (
    EVERYWHERE,
    STAGE,
    CheckedFile,
    Comment,
    Lines,
    without,
)
from hlo_lint.rules.base import Rule
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import all_rules, check_names
from hlo_lint.text.edits import Edit, Fix, Region, Safety
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import Position, encode

UNUSED = "unused-allowance"
"""The rule that findings about allowances are of."""


@dataclass(frozen=True)
class Run:
    """What a run did, so far as it tells what an allowance could have met."""

    rules: Sequence[Rule]
    files: Sequence[CheckedFile] = ()
    skipped: Sequence[Skipped] = ()
    before: str | None = None
    """The pass that the caller says comes next."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The rules that ran, and the families that ran whole."""
        ran = {
            rule.name()
            for rule in self.rules
            if rule.precondition is None or self.before in (None, rule.precondition.demanded_by)
        }
        asked: dict[str, set[str]] = {}
        for rule in all_rules():
            if rule.enabled_by_default:
                asked.setdefault(rule.family(), set()).add(rule.name())
        return frozenset(ran | {family for family, names in asked.items() if names <= ran})

    @cached_property
    def silent(self) -> frozenset[tuple[str, str]]:
        """Rules that could say nothing of a file, with its path."""
        return frozenset((entry.rule, entry.path) for entry in self.skipped if entry.rule)


@dataclass(frozen=True)
class Judged:
    """Findings, sorted into those that count and those that do not."""

    kept: tuple[Diagnostic, ...]
    """With those about allowances, if their rule ran."""
    allowed: tuple[SuppressedFinding, ...]
    left: Baseline | None
    """What of the baseline was not needed."""


def apply(
    findings: Sequence[Diagnostic],
    run: Run,
    allowances: Sequence[Allowance] = (),
    baseline: Baseline | None = None,
) -> Judged:
    """What of the findings counts, with what is to be said of the allowances themselves.

    A comment goes before what was configured, and that before the baseline.

    Raises:
        UsageError: for an allowance of a rule that nothing knows.
    """
    judge = _Judge(run, allowances, baseline)
    judge.check_names()
    kept, allowed = judge.sorted_out(findings)
    if UNUSED in run.names:
        said, spared = judge.sorted_out(judge.comments_without_use())
        kept, allowed = [*kept, *said], [*allowed, *spared]
        said, spared = judge.sorted_out(judge.others_without_use())
        kept, allowed = [*kept, *said], [*allowed, *spared]
        kept.sort(key=lambda found: (found.path, found.start, found.rule))
    return Judged(tuple(kept), tuple(allowed), judge.left())


class _Judge:
    def __init__(
        self, run: Run, allowances: Sequence[Allowance], baseline: Baseline | None
    ) -> None:
        self._run = run
        self._allowances = allowances
        self._baseline = baseline
        self._comments = {file.path: _Comments(file) for file in run.files if file.comments}
        self._families = {rule.name(): rule.family() for rule in (*all_rules(), *run.rules)}
        self._counts: Counter[str] = Counter()
        for entry in baseline.entries if baseline else ():
            self._counts[entry.fingerprint] += entry.count
        self._met: set[tuple[Comment, str]] = set()
        self._used: set[int] = set()
        """Positions of allowances."""

    def check_names(self) -> None:
        """Refuses allowances of rules that there are not.

        Raises:
            UsageError: for the first.
        """
        for each in self._allowances:
            message = self._unknown(each.rule)
            if message:
                raise UsageError(f"{each.stated_in}:{each.line}: {message}")

    def sorted_out(
        self, findings: Iterable[Diagnostic]
    ) -> tuple[list[Diagnostic], list[SuppressedFinding]]:
        """Findings that count, in their order, and those that do not."""
        found = list(findings)
        allowed: dict[int, SuppressedFinding] = {}
        for at in sorted(range(len(found)), key=lambda at: (found[at].path, found[at].start)):
            judged = self._judged(found[at])
            if judged is not None:
                allowed[at] = judged
        kept = [each for at, each in enumerate(found) if at not in allowed]
        return kept, [allowed[at] for at in sorted(allowed)]

    def _judged(self, finding: Diagnostic) -> SuppressedFinding | None:
        """Who allows a finding first; all who do have met one."""
        found: list[SuppressedFinding] = []
        names = (finding.rule, self._families.get(finding.rule, ""))
        comments = self._comments.get(finding.path)
        for name in names:
            for comment in comments.about(name, finding) if comments else ():
                self._met.add((comment, name))
                found.append(SuppressedFinding(finding, comment.reason, SuppressedBy.COMMENT))
        for number, allowance in enumerate(self._allowances):
            if allowance.rule in names and allowance.covers(finding):
                self._used.add(number)
                found.append(
                    SuppressedFinding(finding, allowance.reason, SuppressedBy.CONFIGURATION)
                )
        kind = self._baseline.kind_of(finding) if self._baseline else ""
        if self._counts[kind] > 0:
            self._counts[kind] -= 1
            found.append(SuppressedFinding(finding, self._reasons[kind], SuppressedBy.BASELINE))
        return found[0] if found else None

    @cached_property
    def _reasons(self) -> Mapping[str, str]:
        entries = self._baseline.entries if self._baseline else ()
        return {entry.fingerprint: entry.reason for entry in entries}

    # What speaks of nothing

    def comments_without_use(self) -> Iterator[Diagnostic]:
        """Comments that allow nothing, for one reason or another."""
        for file in self._run.files:
            for comment in file.comments:
                found = self._about_comment(comment)
                if found is not None:
                    yield found

    def _about_comment(self, comment: Comment) -> Diagnostic | None:
        if comment.verb == STAGE:
            return _diagnostic(comment, comment.trouble) if comment.trouble else None
        message = comment.trouble or next(filter(None, map(self._unknown, comment.names)), "")
        if message or comment.verb == "allow-end":
            return _diagnostic(comment, message) if message else None
        unused = [
            name
            for name in comment.names
            if (comment, name) not in self._met and name != UNUSED and self._could(comment, name)
        ]
        if not unused:
            return None
        title = "remove the comment"
        if len(unused) < len(comment.names):
            title = f"remove {' and '.join(unused)} from the comment"
        ends = [comment.regions[name][1] for name in unused if name in comment.regions]
        changes = dict.fromkeys(without(each, unused) for each in (comment, *ends))
        edits = tuple(Edit(at.span, text) for at, text in changes)
        where, said = _where(comment.lines_of(unused[0])), " or ".join(unused)
        return replace(
            _diagnostic(comment, f"there is no finding of {said} {where} to allow"),
            fix=Fix(title, edits, Safety.SAFE),
            regions=(comment.at.region, *(at.region for at, _ in changes)),
        )

    def _unknown(self, name: str) -> str:
        """What is wrong with the name of a rule; a caller's own rules are in no list."""
        known = name in self._families or name in self._families.values()
        return "" if known else _refusal(name)

    def _could(self, comment: Comment, name: str) -> bool:
        """True if a comment could have met a finding; one that speaks of nothing never could."""
        if comment.lines_of(name) is None:
            return True
        return name in self._run.names and not self._is_silent(name, comment.path)

    def _is_silent(self, name: str, path: str) -> bool:
        return any(
            where == path and name in (rule, self._families.get(rule, ""))
            for rule, where in self._run.silent
        )

    def others_without_use(self) -> Iterator[Diagnostic]:
        """Configured allowances and parts of the baseline that nothing was found for."""
        for number, allowance in enumerate(self._allowances):
            if number not in self._used and self._was_due(allowance):
                message = f"there is no finding of {allowance} to allow"
                notes = (f"it was allowed because: {allowance.reason}",)
                yield _told(allowance.stated_in, allowance.line, f"{allowance}", message, notes)
        for entry, gone in self._remaining():
            if self._baseline is not None and self._was_looked_for(entry):
                times = f" {gone} of {entry.count} times" if entry.count > 1 else ""
                message = f"what the baseline lists is gone{times}: {entry.rule}: {entry.message}"
                notes = ("`hlo-lint baseline --prune` takes it out",)
                excerpt = f'"fingerprint": "{entry.fingerprint}"'
                yield _told(str(self._baseline.path), entry.line, excerpt, message, notes)

    def _was_due(self, allowance: Allowance) -> bool:
        """True if what it speaks of was looked at: files that were picked out prove nothing."""
        if allowance.rule == UNUSED or allowance.rule not in self._run.names:
            return False
        return any(
            allowance.is_about(file.path, file.modules)
            and (not file.lone or allowance.path is not None)
            and not self._is_silent(allowance.rule, file.path)
            for file in self._run.files
        )

    def _was_looked_for(self, entry: Entry) -> bool:
        return entry.rule in self._run.names and any(
            not self._is_silent(entry.rule, path) for path in self._paths.get(entry.module, ())
        )

    @cached_property
    def _paths(self) -> Mapping[str, Sequence[str]]:
        """The files that were not picked out, by the names of their modules."""
        found: dict[str, list[str]] = {}
        for file in self._run.files if self._baseline else ():
            for name in file.modules if not file.lone else ():
                found.setdefault(base_name(name), []).append(file.path)
        return found

    def left(self) -> Baseline | None:
        """The baseline without what was met."""
        if self._baseline is None:
            return None
        left = tuple(replace(entry, count=count) for entry, count in self._remaining())
        return self._baseline._replace(entries=left)

    def _remaining(self) -> Iterator[tuple[Entry, int]]:
        """The entries that have not met all they list, and how many each has not met."""
        counts = self._counts.copy()
        for entry in self._baseline.entries if self._baseline else ():
            count = min(counts[entry.fingerprint], entry.count)
            counts[entry.fingerprint] -= count
            if count:
                yield entry, count


class _Comments:
    """The comments of a file, by name and by line."""

    def __init__(self, file: CheckedFile) -> None:
        by_name: dict[str, list[tuple[Lines, int, Comment]]] = {}
        for number, comment in enumerate(file.comments):
            for name in comment.names if not comment.trouble else ():
                lines = comment.lines_of(name)
                if lines is not None:
                    by_name.setdefault(name, []).append((lines, number, comment))
        self._by_name = {name: sorted(found) for name, found in by_name.items()}
        self._reach = {
            name: list(accumulate((lines.last for lines, *_ in found), max))
            for name, found in self._by_name.items()
        }
        """The last line that any comment up to here speaks of."""

    def about(self, name: str, finding: Diagnostic) -> Iterator[Comment]:
        """The comments with that name that speak of a line of a finding, the nearest first."""
        found, reach = self._by_name.get(name, []), self._reach.get(name, [])
        first, last = finding.start.line, finding.end.line
        if finding.end.column == 1 and last > first:
            last -= 1  # it ends with the line before
        at = bisect_right(found, last, key=lambda each: each[0].first)
        while at and reach[at - 1] >= first:
            lines, _, comment = found[at - 1]
            if lines.last >= first:
                yield comment
            at -= 1


@lru_cache
def _refusal(name: str) -> str:
    try:
        check_names([name])
    except UsageError as error:
        return str(error)
    return ""


def _where(lines: Lines | None) -> str:
    if lines is None:
        return "after this comment"
    if lines == EVERYWHERE:
        return "in this file"
    if lines.first == lines.last:
        return f"on line {lines.first}"
    return f"on lines {lines.first} to {lines.last}"


def _diagnostic(comment: Comment, message: str) -> Diagnostic:
    at = comment.at.region
    found = _told(comment.path, at.start.line, comment.excerpt, message, (), comment.module)
    return replace(found, start=at.start, end=at.end, regions=(at,))


def _told(
    path: str,
    line: int,
    excerpt: str,
    message: str,
    notes: tuple[str, ...] = (),
    module: str = "",
) -> Diagnostic:
    """A finding about an allowance; it stands on a line, with what stands there."""
    at = Region(Position(line, 1), Position(line, len(excerpt) + 1), 1, len(encode(excerpt)) + 1)
    return Diagnostic(
        rule=UNUSED,
        severity=Severity.WARNING,
        message=message,
        path=path,
        start=at.start,
        end=at.end,
        module=module,
        computation=None,
        instruction=None,
        pipeline=None,
        step=None,
        introduced_by=None,
        origin=None,
        notes=notes,
        fix=None,
        regions=(at,),
        excerpt=excerpt,
        fingerprint=fingerprint(UNUSED, nameless(message), module, None, excerpt),
        former_fingerprint=fingerprint(UNUSED, nameless(message), module, None, excerpt),
    )
