"""The Python API: parse, emit, prove, lint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint.analysis.stage import parse_stage
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.targets import CheckTarget, as_dump
from hlo_lint.dumps.pass_lists import known_pass
from hlo_lint.engine.input_size import is_checked_in_parts, is_worth_caching
from hlo_lint.engine.limits import Limits
from hlo_lint.engine.memo import RunMemo
from hlo_lint.engine.reporter import Result
from hlo_lint.engine.runner import Checker, Progress, Task
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.report import Report
from hlo_lint.rules.base import Rule, Stage
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import DumpError, HloSyntaxError

if TYPE_CHECKING:  # loaded with the first finding, proof, cache …
    from hlo_lint.engine.cache.cached_parts import CachedParts
    from hlo_lint.engine.findings import Diagnostic, SuppressedFinding
    from hlo_lint.engine.proof.prove import Proof
    from hlo_lint.engine.suppressions.allowances import Allowance
    from hlo_lint.engine.suppressions.baseline import Baseline


def parse(text: str | bytes, path: str | Path | None = None, *, strict: bool = False) -> Module:
    """Parse HLO text and return its first module.

    Bad HLO does not raise: stretches that cannot be read are in `module.problems`. With `strict`,
    the parser of the installed jaxlib reads the text first, and its errors are raised.

    >>> module = parse("HloModule m\\n\\nENTRY e {\\n  ROOT p = f32[8]{0} parameter(0)\\n}\\n")
    >>> module.entry.root.shape.dims
    (8,)

    Raises:
        HloSyntaxError: at the first error of XLA's parser, if `strict`.
        DumpError: `strict` without jaxlib.
    """
    return parse_all(text, path, strict=strict)[0]


def parse_all(
    text: str | bytes, path: str | Path | None = None, *, strict: bool = False
) -> tuple[Module, ...]:
    """Parse HLO text and return all its modules.

    Raises:
        HloSyntaxError: at the first error of XLA's parser, if `strict`.
        DumpError: `strict` without jaxlib.
        TypeError: the text is neither str nor bytes.
    """
    if not isinstance(text, str | bytes):
        raise TypeError(
            f"parse takes the text of HLO as str or bytes, not {type(text).__name__}; to read a "
            "file: parse(path.read_bytes(), path)"
        )
    file = parse_file(text, None if path is None else Path(path))
    if strict:
        from hlo_lint.engine.parser_judge import judge_of

        verdict = judge_of("").verdict(file)
        for refusal in verdict.refusals:
            message = f"jaxlib {verdict.release} refuses: {refusal.message}"
            raise HloSyntaxError(message, refusal.start, path=file.path, text=file.text)
    return file.modules


def emit(module: Module) -> str:
    r"""The text of the file of a module, every character of it.

    Bytes that are not UTF-8 become surrogate escapes: `encode("utf-8", "surrogateescape")` restores
    them.

    >>> text = "HloModule m\n\nENTRY %e (p: f32[8]) -> f32[8] {\n  ROOT %p = f32[8] parameter(0)\n}"
    >>> emit(parse(text)) == text
    True
    """
    return module.file.text


def prove(before: Module | str, after: Module | str) -> Proof:
    """Prove that two modules compute the same values, as `fix --verify` does for a fix.

    Both modules are compared as terms; if terms do not decide, XLA:CPU runs them on seeded inputs.
    If jaxlib is installed, XLA's parser has to accept `after`. A proof that does not hold has the
    reason, and says if the modules are known to differ.

    >>> text = "HloModule m\\nENTRY e {\\n  p = f32[4] parameter(0)\\n  ROOT r = f32[4] copy(p)\\n}"
    >>> prove(text, text.replace("copy", "reshape"))
    <Proof index maps: 4 elements in 1 data movement: every source is the same>
    """
    old, new = (parse(module) if isinstance(module, str) else module for module in (before, after))
    from hlo_lint.engine.proof.prove import Proof, strongest_proof

    for problem in (*old.problems, *new.problems):
        return Proof(None, False, (f"line {problem.start.line} cannot be read: {problem.message}",))
    refusal = _refusal(new)
    if refusal and not _refusal(old):
        return Proof(None, False, (f"XLA's parser refuses the text: {refusal}",))
    return strongest_proof(old, new)


def _refusal(module: Module) -> str:
    """The error of the installed jaxlib's parser; empty if it accepts the module."""
    from hlo_lint.engine.parser_judge import judge_of

    try:
        refusals = judge_of("").verdict(module.file).refusals
    except DumpError:
        return ""  # jaxlib is not installed
    return f"line {refusals[0].start.line}: {refusals[0].message}" if refusals else ""


def lint(
    target: CheckTarget,
    select: Sequence[str | type[Rule]] | None = None,
    ignore: Sequence[str] | None = None,
    before: str | None = None,
    *,
    stage: Stage | str | None = None,
    settings: Settings | None = None,
    resolved: bool = False,
    allow: Sequence[Allowance] = (),
    baseline: str | Path | None = None,
    executor: str | None = None,
    progress: Progress = lambda _: None,
    memo: RunMemo | None = None,
) -> Report:
    """Check a file, a dump directory, a text, a Module, or a `jax.stages.Compiled` or `Lowered`.

    A str is HLO text if it has a newline or starts with `HloModule`, else a path. `select` and
    `ignore` name rules or families; a rule may also be selected by its class. `before` is the next
    pass, for texts whose names do not show it. `stage` is the pipeline stage of the texts, "gpu
    post-layout"; a stage comment in a text takes precedence. A finding that a later pass resolves
    is reported only if the run crashed and XLA verifies the property between all passes; with
    `resolved` it is always reported, at severity info if XLA makes no such promise.

    Findings suppressed by a comment in the text, by `allow` or by the file `baseline` do not count:
    they are in `Report.allowed`.

    `settings` come from a settings file (`hlo_lint.load_settings`); other arguments take
    precedence, and `allow` is added to those of the file. By default no settings file is read.
    `settings.jobs` is the number of processes, by default 1; `executor` is a cluster,
    `dask://HOST:PORT`. Calls with the same `memo` check a computation that their texts share only
    once.

    Raises:
        DumpError: a path does not exist, or `baseline` is not a baseline.
        UsageError: unknown rule or pass.
    """
    settings = overridden(settings, select, ignore, before, stage, allow, baseline)
    listed = baseline_of(settings)
    dump = as_dump(target, settings)
    task = Task(
        settings.chosen_rules(),
        known_pass(settings.before),
        settings.stage_of if settings.has_stages else None,
        resolved=resolved,
        notes_files=bool(settings.allow or listed),
        limits=Limits(settings.max_megabytes, settings.max_seconds, settings.max_nesting),
        memo=memo or RunMemo(),
    )
    checker = Checker(task)
    jobs = settings.jobs or 1
    cache = _cache(checker, settings) if settings.cache and is_worth_caching(dump) else None
    is_shared = jobs > 1 or executor is not None or cache is not None
    if is_checked_in_parts(dump, is_shared=is_shared):
        from hlo_lint.engine.parallel import check_in_parts

        result = check_in_parts(checker, dump, jobs, progress, executor, cache)
        if cache is not None:
            cache.save()
    else:
        result = checker.check_dump(dump, progress)
    return as_report(result, checker, settings, listed)


def _cache(checker: Checker, settings: Settings) -> CachedParts:
    """The findings of earlier runs of these rules with these settings."""
    from hlo_lint.engine.cache.cached_parts import CachedParts
    from hlo_lint.engine.cache.keys import run_digest
    from hlo_lint.engine.cache.store import Store, findings_folder

    judge = ""
    if checker.rules.named("parser-refuses") is not None:
        from hlo_lint.xla.environments import release_here

        judge = release_here()
    # `repr` of a stage is cut to a line.
    per_path = sorted((path, tuple(stage)) for path, stage in settings.per_path_stages.items())
    stages = settings.stage and tuple(settings.stage), per_path, str(settings.root)
    task = checker.task
    facts = (
        task.before,
        task.resolved,
        task.limits.megabytes,
        task.limits.nesting,
        task.notes_files,
        stages if settings.has_stages else (),
        judge,
    )
    return CachedParts(Store(findings_folder()), run_digest(checker.rules, *facts))


def overridden(
    settings: Settings | None,
    select: Sequence[str | type[Rule]] | None,
    ignore: Sequence[str] | None,
    before: str | None,
    stage: Stage | str | None,
    allow: Sequence[Allowance],
    baseline: str | Path | None,
) -> Settings:
    """The settings, overridden by the other arguments of a call."""
    settings = settings or Settings()
    select = [select] if isinstance(select, str) else select
    ignore = [ignore] if isinstance(ignore, str) else ignore
    settings = settings.restaged(parse_stage(stage) if isinstance(stage, str) else stage)
    return settings.reselected(select, ignore or ()).overridden(
        before=before,
        allow=(*settings.allow, *allow) or None,
        baseline=None if baseline is None else Path(baseline),
    )


def baseline_of(settings: Settings) -> Baseline | None:
    """Read the baseline that the settings name.

    Raises:
        DumpError: the file is not a baseline.
    """
    if settings.baseline is None:
        return None
    from hlo_lint.apps.settings.toml_locations import displayed
    from hlo_lint.engine.suppressions.baseline import read_baseline

    return read_baseline(displayed(settings.baseline))


def as_report(
    result: Result, checker: Checker, settings: Settings, baseline: Baseline | None
) -> Report:
    """Make a report: apply the settings, the baseline and the suppression comments to a result."""
    findings: tuple[Diagnostic, ...] = ()
    allowed: tuple[SuppressedFinding, ...] = ()
    has_comments = any(file.comments for file in result.checked)
    if result.diagnostics or settings.allow or baseline or has_comments:
        findings, allowed = _judged(result, checker, settings, baseline)
    findings += tuple(result.internal_errors)
    hidden: tuple[Diagnostic, ...] = ()
    if (least := settings.min_severity) is not None:

        def is_shown(finding: Diagnostic) -> bool:
            # Resolved findings are here only if the caller asked for them.
            return finding.severity.rank <= least.rank or finding.resolved_by is not None

        hidden = tuple(filterfalse(is_shown, findings))
        findings = tuple(filter(is_shown, findings))
    stats = {"files": result.files, "modules": result.modules}
    for severity in Severity:
        stats[f"{severity.value}s"] = sum(f.severity is severity for f in findings)
    stats["resolved"] = result.resolved
    stats["hidden"] = len(hidden)
    skipped = tuple(result.skipped)
    if settings.max_findings is not None and len(findings) > settings.max_findings:
        from hlo_lint.engine.limits import within_limit

        findings, left_out = within_limit(findings, settings.max_findings)
        skipped += tuple(left_out)
    return Report(findings, skipped, stats, allowed, hidden)


def _judged(
    result: Result, checker: Checker, settings: Settings, baseline: Baseline | None
) -> tuple[tuple[Diagnostic, ...], tuple[SuppressedFinding, ...]]:
    """Split findings into reported and suppressed ones."""
    from hlo_lint.engine.fingerprints import numbered
    from hlo_lint.engine.subsumption import without_subsumed

    suppressed = checker.suppress(settings.allow, baseline, result)
    # Numbered together: a finding keeps its fingerprint when another of its kind is suppressed.
    every = numbered([*suppressed.kept, *(entry.finding for entry in suppressed.suppressed)])
    count = len(suppressed.kept)
    findings = without_subsumed(settings.reported(every[:count]), every[count:], checker.rules)
    allowed = tuple(
        replace(entry, finding=settings.judged(diagnostic))
        for entry, diagnostic in zip(suppressed.suppressed, every[count:], strict=True)
    )
    return findings, allowed
