"""Fixes of findings, with a report of the findings that remain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint.apps.api import as_report, baseline_of, overridden
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.targets import CheckTarget, as_dump
from hlo_lint.dumps.directory import Skipped
from hlo_lint.dumps.pass_lists import known_pass
from hlo_lint.engine.memo import RunMemo
from hlo_lint.engine.runner import Checker, Progress, Task
from hlo_lint.report.report import Report
from hlo_lint.rules.base import Rule, Stage
from hlo_lint.text.edits import Edit, Safety
from hlo_lint.text.phrases import counted

if TYPE_CHECKING:  # loaded with the first finding, proof …
    from hlo_lint.engine.findings import Diagnostic, FixedFile
    from hlo_lint.engine.proof.gate import Verdict
    from hlo_lint.engine.suppressions.allowances import Allowance


@dataclass(repr=False)
class FixResult:
    """The result of `fix`."""

    files: tuple[FixedFile, ...]
    """The changed files, with their text before and after."""
    remaining: Report
    """The findings in the fixed texts."""
    skipped: tuple[Skipped, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    """With `verify`, the verdict on each fix, in the order of the rounds."""

    def __repr__(self) -> str:
        return (
            f"<FixResult: {counted(len(self.fixed), 'finding')} fixed in "
            f"{counted(len(self.files), 'file')}, {len(self.findings)} left>"
        )

    @property
    def text(self) -> str:
        """The fixed text of the only file.

        Raises:
            ValueError: several files were fixed; see `files`.
        """
        if len(self.files) != 1:
            raise ValueError(f"{len(self.files)} files: see .files")
        return self.files[0].after

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits, file by file; positions are characters of the text before."""
        return tuple(edit for file in self.files for edit in file.edits)

    @property
    def fixed(self) -> tuple[Diagnostic, ...]:
        """The findings whose fixes were applied; a defect repeated in several dumps counts once."""
        return tuple(dict.fromkeys(cause for file in self.files for cause in file.causes))

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """The findings that remain."""
        return self.remaining.findings


def fix(
    target: CheckTarget,
    select: Sequence[str | type[Rule]] | None = None,
    ignore: Sequence[str] | None = None,
    before: str | None = None,
    *,
    stage: Stage | str | None = None,
    settings: Settings | None = None,
    unsafe_fixes: bool | None = None,
    form: str | None = None,
    allow: Sequence[Allowance] = (),
    baseline: str | Path | None = None,
    verify: bool = False,
    progress: Progress = lambda _: None,
) -> FixResult:
    """Apply the safe fixes of all findings that are not suppressed. No file is written.

    Takes the arguments of `lint`. With `unsafe_fixes`, fixes that may change values or cost are
    applied too. `form` sets the option `move-as` of reshape-moves-data, "copy" or "transpose"; the
    default is copy if LayoutNormalization is known to come next, else transpose. With `verify`,
    only proven fixes are safe: see `engine/proof/gate.py`.

    Raises:
        DumpError: a path does not exist, or `baseline` is not a baseline.
        UsageError: unknown rule, pass or form.
    """
    settings = overridden(settings, select, ignore, before, stage, allow, baseline)
    settings = settings.overridden(unsafe_fixes=unsafe_fixes)
    if form is not None:
        settings = settings.with_option("reshape-moves-data", "move-as", form)
    rules, before = settings.chosen_rules(), known_pass(settings.before)
    stage_of = settings.stage_of if settings.has_stages else None
    listed = baseline_of(settings)
    dump, task = as_dump(target, settings), Task(rules, before, stage_of, memo=RunMemo())

    def is_wanted(rule: str, safety: Safety, paths: Iterable[str]) -> bool:
        if safety is not Safety.SAFE and not settings.unsafe_fixes:
            return False
        return not any(settings.ignores(rule, path) for path in paths)

    from hlo_lint.engine.fixes import fix_dump

    with ExitStack() as children:
        gate = None
        if verify:
            from hlo_lint.engine.proof.gate import Gate
            from hlo_lint.rules.registry import all_rules
            from hlo_lint.xla.cpu import XlaCpu
            from hlo_lint.xla.parser import XlaParser

            # The gate asks XLA's parser itself, and works without jaxlib, too.
            chosen = {rule.name() for rule in rules} | {"parser-refuses"}
            every = [*rules, *(rule for rule in all_rules() if rule.name() not in chosen)]
            gate = Gate(
                task._replace(rules=every),
                children.enter_context(XlaCpu()),
                children.enter_context(XlaParser()),
                admits_unproven=settings.unsafe_fixes,
            )
        result, files = fix_dump(dump, task, is_wanted, settings.allow, listed, progress, gate)
    result.skipped[:0] = dump.skipped
    report = as_report(result, Checker(task), settings, listed)
    verdicts = tuple(gate.verdicts) if gate is not None else ()
    return FixResult(files, report, tuple(dump.skipped), verdicts)
