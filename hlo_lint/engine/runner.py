"""A run of rules over a dump, in which each defect becomes a single finding.

A defect is reported if it remains at the end of its run, or if XLA's invariants exclude it between
any two passes. It is followed back to the pass that introduced it, and on to the pass that resolved
it; `views.py` has the details for each view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import hlo_lint
from hlo_lint.analysis.grouping import by_key
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.engine.limits import NO_LIMITS, Limits, OutOfTimeError, Stopwatch
from hlo_lint.engine.memo import RunMemo
from hlo_lint.engine.reporter import Reporter, Result
from hlo_lint.engine.stages import StageOf
from hlo_lint.engine.timeline import Timeline, has_cycle
from hlo_lint.engine.views import ARTEFACT_TYPES, VIEWS, Run, WhenAllIsRead, WholeRun, checks_of
from hlo_lint.rules.base import Rule
from hlo_lint.rules.checks import STAGE, UNMET, Check
from hlo_lint.rules.entry import ChosenRule, ChosenRules, Contents, contents_of
from hlo_lint.text.errors import DumpError, HloLintError, RuleError

if TYPE_CHECKING:
    from hlo_lint.engine.suppressions.allowances import Allowance
    from hlo_lint.engine.suppressions.apply import SuppressionResult
    from hlo_lint.engine.suppressions.baseline import Baseline

_CYCLIC: Final = "it has a cycle: only rules about the form of the text checked it"

Progress = Callable[[int], None]
"""Called with the number of files read since the last call, also before each rule. An exception
from it ends the run."""


class Task(NamedTuple):
    """The input that the checks of all compilations share, here and in other processes."""

    rules: Iterable[Rule]
    before: str | None = None
    """The next pass, if the caller gives it."""
    stage_of: StageOf | None = None
    resolved: bool = False
    """True to report defects that a later pass resolved."""
    notes_files: bool = True
    """True if `Result.checked` includes files without comments, which allowances need."""
    limits: Limits = NO_LIMITS
    memo: RunMemo | None = None
    """A shared memo; None gives each checker an empty memo."""
    version: str = hlo_lint.__version__


class Checker:
    """Checks the files of a call with rules, and collects their findings."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.rules = ChosenRules.of(task.rules)
        self.reporter = Reporter(self.rules, task.before, resolved=task.resolved)
        self.memo = task.memo or RunMemo()
        self._stopwatch = Stopwatch(None)
        self.logs: list[PassDump] = []
        """Logs of the autotuner, in the order they were read."""
        self._asking: dict[frozenset[str], list[ChosenRule]] = {}
        """The rules with a check of these views."""
        self._watched: dict[str, list[Check]] = {}
        """The checks of a rule, which report crashes here."""
        self._path = Path()
        """The file in which a crash is reported if its subject names no file."""
        for entry, rule in self.rules.chosen:
            if rule is not None or not entry.is_own:
                checks_of(rule or entry.load())  # raises if a check asks for an unknown type

    @property
    def result(self) -> Result:
        """The findings so far."""
        return self.reporter.result

    def check_dump(self, dump: Dump, progress: Progress = lambda _: None) -> Result:
        """Check every compilation, and release its text afterwards."""
        for compilation in dump:
            self.check_compilation(compilation, progress)
            self.memo.release(compilation)
        self.check_folders(dump.compilations)
        return self.conclude(dump.skipped)

    def check_compilation(
        self,
        compilation: Compilation,
        progress: Progress = lambda _: None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        """Check the dumps of a module within the remaining time."""
        self.memo.free()
        dumps = []
        for dump in compilation.dumps:
            progress(1)
            if too_large := self._size_error(dump):
                self.result.skipped.append(Skipped(str(dump.path), too_large, cut=True))
                continue
            try:
                self.result.modules += len(dump.file.modules)
            except (OSError, DumpError) as error:
                reason = str(error).removeprefix(f"{dump.path}: ")
                self.result.skipped.append(Skipped(str(dump.path), reason, given=compilation.lone))
                continue
            except Exception as error:
                self.reporter.add_crash("the parser", dump.path, dump.path.name, error)
                continue
            levels = self.task.limits.nesting
            if levels is not None:
                from hlo_lint.hlo.parser.tokens import nests_deeper  # only with a limit

                if nests_deeper(dump.file.text, levels):
                    reason = f"brackets nest deeper than {levels} (max-nesting)"
                    self.result.skipped.append(Skipped(str(dump.path), reason, cut=True))
                    continue
            self.result.files += 1
            if dump.file_type is FileType.AUTOTUNE_LOG:
                self.logs.append(dump)
            dumps.append(dump)
        files = [*dumps, *compilation.kernels]
        for file in files:
            if self.task.notes_files or file.may_have_directives:
                from hlo_lint.engine.suppressions.comments import checked_file

                self.result.checked.append(checked_file(file, lone=compilation.lone))
        texts = [dump for dump in dumps if dump.file_type is FileType.HLO]
        cyclic = list(filter(has_cycle, texts))
        self.result.skipped += [Skipped(str(dump.path), _CYCLIC, minor=True) for dump in cyclic]
        self._path = (dumps or compilation.dumps)[-1].path
        self._stopwatch = stopwatch or Stopwatch(self.task.limits.seconds)
        timeline = Timeline(compilation, texts, self.memo, self.task.stage_of)
        run = form = Run(timeline, files, self.reporter)
        if cyclic:
            texts = [dump for dump in texts if dump not in cyclic]
            timeline = Timeline(compilation, texts, self.memo, self.task.stage_of)
            run = Run(timeline, files, self.reporter)
        runs = (run, form) if cyclic else (run,)
        views = {STAGE, UNMET} | {
            name for name, view in VIEWS.items() if any(map(view.has_subject, runs))
        }
        views.update(filter(run.may_need, ARTEFACT_TYPES))
        try:
            with self._stopwatch.interrupting():
                contents: Contents | None = None  # of PTX: any rule may apply
                if not any(file.file_type is FileType.PTX for file in files):
                    contents = contents_of(module for file in files for module in file.file.modules)
                for check in self._checks(views, contents):
                    progress(0)
                    of_check = form if check.rule.family() == "form" else run
                    self._reporting_crashes(check, VIEWS[check.view].check, of_check)
        except OutOfTimeError:
            self._cut_short()

    def _size_error(self, dump: PassDump) -> str:
        """The reason why a file is too large to read; empty if it is not."""
        most = self.task.limits.megabytes
        if most is None or dump.is_read:
            return ""
        try:
            size = dump.path.stat().st_size
        except OSError:
            return ""
        megabytes = f"{size / 1e6:.0f} MB, more than {most} (max-megabytes)"
        return megabytes if size > most * 1_000_000 else ""

    def _reporting_crashes(
        self, check: Check, call: Callable[..., None], *arguments: object
    ) -> None:
        """Run a check; report exceptions of a rule in its fix, or of its view in a reader."""
        try:
            call(check, *arguments)
        except OutOfTimeError:
            self._cut_short()
        except Exception as error:
            if isinstance(error, HloLintError) and not isinstance(error, RuleError):
                raise
            self._report_crash(check.rule, check.view, error)

    def _cut_short(self) -> None:
        reason = f"not every rule was checked in {self.task.limits.seconds} s (max-seconds)"
        cut = Skipped(str(self._path), reason, cut=True)
        if cut not in self.result.skipped:
            self.result.skipped.append(cut)

    def _report_crash(self, rule: Rule, subject: object, error: Exception) -> None:
        path = getattr(getattr(subject, "module", subject), "path", None)
        self.reporter.add_crash(rule.name(), path or self._path, subject, error)

    def _checks(self, views: set[str], contents: Contents | None) -> Iterator[Check]:
        """The checks with these views, of the rules that apply to the contents."""
        # A dump has thousands of modules, and few sets of views.
        key = frozenset(views)
        if key not in self._asking:
            self._asking[key] = [
                chosen
                for chosen in self.rules.chosen
                if any(map(key.issuperset, chosen.entry.asks))
            ]
        for chosen in self._asking[key]:
            if not chosen.entry.applies(contents):
                continue
            checks = self._watched.get(chosen.entry.name)
            if checks is None:
                checks = self._watched[chosen.entry.name] = [
                    replace(
                        check,
                        on_crash=self._report_crash,
                        before_each=lambda: self._stopwatch.check(),
                    )
                    for check in checks_of(chosen.rule)
                ]
            yield from (check for check in checks if check.view in views)

    def suppress(
        self,
        allowances: Sequence[Allowance],
        baseline: Baseline | None,
        result: Result | None = None,
    ) -> SuppressionResult:
        """The findings so far, or of another result of the same rules, sorted by suppression."""
        from hlo_lint.engine.suppressions.apply import CheckedRun, apply_suppressions

        result = result or self.result
        run = CheckedRun(self.rules, result.checked, result.skipped, self.task.before)
        return apply_suppressions(result.diagnostics, run, allowances, baseline)

    def check_folders(self, compilations: Iterable[Compilation]) -> None:
        """Run the checks over all compilations of each folder."""
        folders = by_key((run.dumps[0].path.parent, run) for run in compilations)
        self._check_all(WholeRun(folders, ()))

    def conclude(self, skipped: Sequence[Skipped]) -> Result:
        """Check the logs of the autotuner together, and sort the findings.

        `skipped` are the files of the dump that were not read.
        """
        self.result.skipped[:0] = skipped
        self._check_all(WholeRun({}, self.logs))
        self.result.diagnostics.sort(
            key=lambda diagnostic: (diagnostic.path, diagnostic.start, diagnostic.rule)
        )
        return self.result

    def _check_all(self, whole: WholeRun) -> None:
        views = {
            name: view
            for name, view in VIEWS.items()
            if isinstance(view, WhenAllIsRead) and view.has_any(whole)
        }
        self._stopwatch = Stopwatch(self.task.limits.seconds)
        try:
            with self._stopwatch.interrupting():
                for check in self._checks({STAGE, *views}, None):
                    self._reporting_crashes(
                        check, views[check.view].check_all, whole, self.reporter
                    )
        except OutOfTimeError:
            self._cut_short()
