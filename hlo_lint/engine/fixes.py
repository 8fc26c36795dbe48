"""Fixes applied in rounds, until a check of the result offers no more."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.findings import Diagnostic, FixedFile
from hlo_lint.engine.fingerprints import nameless
from hlo_lint.engine.limits import Stopwatch
from hlo_lint.engine.reporter import PlannedFix, Reporter, Result
from hlo_lint.engine.runner import Checker, Progress, Task
from hlo_lint.engine.suppressions.allowances import Allowance
from hlo_lint.engine.suppressions.apply import UNUSED, SuppressionResult
from hlo_lint.engine.suppressions.baseline import Baseline
from hlo_lint.engine.suppressions.comments import length_without_comments, lost_comments
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.findings import Severity
from hlo_lint.text.edits import Edit, Fix, Safety, edited
from hlo_lint.text.source import Span, indent_before

if TYPE_CHECKING:  # a proof may need numpy
    from hlo_lint.engine.proof.gate import Gate

MAX_ROUNDS = 10
"""The most rounds of fixes, each of which may uncover another finding."""

IsWanted = Callable[[str, Safety, Iterable[str]], bool]
"""True if fixes of a rule with a safety should be applied to a file with these paths."""


def fix_dump(
    dump: Dump,
    task: Task,
    is_wanted: IsWanted,
    allowances: Sequence[Allowance] = (),
    baseline: Baseline | None = None,
    progress: Progress = lambda _: None,
    gate: Gate | None = None,
) -> tuple[Result, tuple[FixedFile, ...]]:
    """Apply all wanted fixes in memory; return the remaining findings and the changed files.

    A file that was given alone is returned even if it did not change. With a gate, only admitted
    fixes are applied.
    """
    fixed: dict[PassDump, FixedFile] = {}
    result = Result()
    single = len(dump.compilations) == 1 and len(dump.compilations[0].dumps) == 1
    for compilation in dump:
        checker = Checker(task)
        stopwatch = Stopwatch(task.limits.seconds)
        checker.check_compilation(compilation, progress, stopwatch)
        suppressed = checker.suppress(allowances, baseline)
        for _ in range(MAX_ROUNDS):
            plans = _plans_by_file(checker.reporter, suppressed, compilation, is_wanted)
            if gate is not None:
                plans = gate.admit(compilation, plans)
            if not plans:
                break
            before = checker, suppressed
            states = {file: (file.file, file.edited, fixed.get(file)) for file in plans}
            for file, of_file in plans.items():
                fixed[file] = _fix_file(file, of_file, fixed.get(file))
            # Names and places have changed, and a fix may have resolved other findings, too.
            checker = Checker(task)
            checker.check_compilation(compilation, stopwatch=stopwatch)
            refused = _refused(before[0])
            new = [message for key, message in _refused(checker).items() if key not in refused]
            reason = f"XLA would refuse the result: {min(new)}" if new else ""
            if stopwatch.left <= 0:
                reason = "there was no time to check the result (max-seconds)"
            if reason:  # the fixed module may not compile
                for file, (content, edited, earlier) in states.items():
                    file.replace_file(content, edited=edited)
                    fixed.pop(file)
                    if earlier is not None:
                        fixed[file] = earlier
                checker, suppressed = before
                checker.result.skipped += [
                    Skipped(str(file.path), f"not fixed: {reason}") for file in states
                ]
                break
            suppressed = checker.suppress(allowances, baseline)
        result.add(checker.result)
        baseline = suppressed.unused  # an entry used by a compilation covers no other compilation
        if single and not fixed:
            file = compilation.dumps[0]
            fixed[file] = FixedFile(file.file.path, file.file.text, file.file.text, ())
        checker.memo.release(compilation)
    return result, tuple(fixed.values())


def _refused(checker: Checker) -> dict[Hashable, str]:
    """The messages of findings of verifier rules, by rule and place."""
    families = {entry.name: entry.family for entry, _ in checker.rules.chosen}
    return {
        finding_key(diagnostic): diagnostic.message
        for diagnostic in checker.result.diagnostics
        if diagnostic.severity is not Severity.INFO and families.get(diagnostic.rule) == "verifier"
    }


def finding_key(diagnostic: Diagnostic) -> tuple[Hashable, ...]:
    """A key for a finding, without its file and numbers."""
    where = diagnostic.instruction if diagnostic.instruction else nameless(diagnostic.message)
    return diagnostic.rule, diagnostic.computation, where


def _plans_by_file(
    reporter: Reporter, suppressed: SuppressionResult, compilation: Compilation, is_wanted: IsWanted
) -> dict[PassDump, list[PlannedFix]]:
    """The wanted fixes of kept findings, and of unused comments."""
    plans: dict[PassDump, list[PlannedFix]] = {}
    kept = {id(diagnostic) for diagnostic in suppressed.kept}
    for plan in reporter.fixes:
        diagnostic = plan.diagnostic
        paths = {diagnostic.path, str(plan.dump.path)}
        if id(diagnostic) in kept and is_wanted(diagnostic.rule, plan.fix.safety, paths):
            plans.setdefault(plan.dump, []).append(plan)
    files = {str(dump.path): dump for dump in (*compilation.dumps, *compilation.kernels)}
    for diagnostic in suppressed.kept:
        fix = diagnostic.fix
        if diagnostic.rule == UNUSED and fix and is_wanted(UNUSED, fix.safety, {diagnostic.path}):
            file = files[diagnostic.path]
            plans.setdefault(file, []).append(PlannedFix(file, fix, diagnostic))
    return plans


def _fix_file(file: PassDump, plans: Sequence[PlannedFix], earlier: FixedFile | None) -> FixedFile:
    """Change the text of a file; `earlier` is the result of earlier rounds."""
    before = file.file.text
    fixes = [plan.fix for plan in plans]
    edits = applied_edits(before, fixes)
    after = edited(before, edits)
    applied = set(without_overlaps(fixes))
    causes = tuple(plan.diagnostic for plan in plans if plan.fix in applied)
    if earlier is not None:
        before, edits, causes = earlier.before, earlier.edits + edits, earlier.causes + causes
    fixed = FixedFile(file.file.path, before, after, edits, causes)
    file.replace_text(after)
    return fixed


def apply_fixes(text: str | Module, fixes: Iterable[Fix | Diagnostic]) -> str:
    """The text of a file with fixes applied: those given, or those of the findings given.

    Of fixes that overlap the first in the text is applied; lint the outcome to find the others.
    Comments that allow findings stay. `Fix.safety` says if a fix may change a value; here both
    kinds are applied.

    >>> from hlo_lint.text.edits import Safety
    >>> from hlo_lint.text.source import Span
    >>> fix = Fix("name it", (Edit(Span(0, 1), "x"),), Safety.SAFE)
    >>> apply_fixes("a = b", [fix])
    'x = b'
    """
    text = text.file.text if isinstance(text, Module) else text
    chosen = (fix.fix if isinstance(fix, Diagnostic) else fix for fix in fixes)
    return edited(text, applied_edits(text, filter(None, chosen)))


def applied_edits(text: str, fixes: Iterable[Fix]) -> tuple[Edit, ...]:
    """The edits of the fixes that do not overlap, in the order of the text."""
    return tuple(
        _with_comments(edit, text) for fix in without_overlaps(fixes) for edit in sorted(fix.edits)
    )


def without_overlaps(fixes: Iterable[Fix]) -> Iterator[Fix]:
    """A set of fixes that do not overlap, in the order of the text."""
    end = -1
    for fix in sorted(set(fixes), key=lambda fix: fix.edits):
        edits = sorted(fix.edits)
        if edits and edits[0].span.start >= end:
            yield fix
            end = edits[-1].span.end


def _with_comments(edit: Edit, text: str) -> Edit:
    """The edit, changed to keep comments that allow findings.

    Trailing comments of the replaced text stay in place, others move to separate lines.
    """
    start, end = edit.span
    if not lost_comments(text[start:end], edit.text):
        return edit
    end = start + length_without_comments(text[start:end])
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = indent_before(text, start)
    lost = lost_comments(text[start:end], edit.text)
    return Edit(
        Span(start, end), "".join(f"{comment}{newline}{indent}" for comment in lost) + edit.text
    )
