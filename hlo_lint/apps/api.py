"""The whole tool as functions: parse, emit, lint, fix, open_dump."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_lint.analysis.stage import parse_stage
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.dumps.directory import Dump, Skipped, open_dump
from hlo_lint.dumps.file_types import Kind, kind_of
from hlo_lint.dumps.names import parse_name
from hlo_lint.dumps.phases import AUTOTUNERS, PRECONDITIONS
from hlo_lint.dumps.pipeline import PassDump, Pipeline
from hlo_lint.engine.findings import Diagnostic, FixedFile
from hlo_lint.engine.fingerprints import numbered
from hlo_lint.engine.fixes import ROUNDS, apply
from hlo_lint.engine.reporter import PlannedFix, Result
from hlo_lint.engine.runner import Checker
from hlo_lint.engine.suppressions.allowances import Allowance
from hlo_lint.engine.suppressions.apply import UNUSED, Judged, Run
from hlo_lint.engine.suppressions.apply import apply as judge
from hlo_lint.engine.suppressions.baseline import Baseline, read_baseline
from hlo_lint.hlo.ir import HloFile, Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.report import Report
from hlo_lint.rules.base import Form, Rule, Stage
from hlo_lint.rules.findings import Severity
from hlo_lint.text.edits import Edit, Safety
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.text.files import copy_file, is_proto, mirrored, write_atomically
from hlo_lint.text.source import decode

if TYPE_CHECKING:
    pass

Progress = Callable[[int], None]


def parse(text: str | bytes, path: str | Path | None = None, *, strict: bool = False) -> Module:
    """The module that a text spells; of several, the first.

    Bad HLO is no reason to raise: what could not be read is in `module.problems`. With `strict` it
    is, and so is whatever XLA's parser refuses.

    >>> module = parse("HloModule m\\n\\nENTRY e {\\n  ROOT p = f32[8]{0} parameter(0)\\n}\\n")
    >>> module.entry.root.shape.dims
    (8,)

    Raises:
        HloSyntaxError: at the first such place, if `strict`.
    """
    return parse_all(text, path, strict=strict)[0]


def parse_all(
    text: str | bytes, path: str | Path | None = None, *, strict: bool = False
) -> tuple[Module, ...]:
    """Every module of a text.

    Raises:
        HloSyntaxError: at the first place that `hlo_lint.analysis.strict` refuses, if `strict`.
    """
    file = parse_file(text, None if path is None else Path(path))
    if strict:
        from hlo_lint.analysis.strict import check_strict

        check_strict(file)
    return file.modules


def emit(module: Module, dialect: str | Sequence[str] = ()) -> str:
    r"""The text of the file a module came from, every character of it, or the same graph respelled.

    Bytes that are no UTF-8 are surrogate escapes: `encode("utf-8", "surrogateescape")` gives back
    the bytes. `dialect` is one of `hlo_lint.dialects.DIALECTS`, or several, one after the other;
    `hlo_lint.dialects.convert` also says what a dialect has no words for.

    >>> text = "HloModule m\n\nENTRY %e (p: f32[8]) -> f32[8] {\n  ROOT %p = f32[8] parameter(0)\n}"
    >>> print(emit(parse(text), "short"))
    HloModule m
    <BLANKLINE>
    ENTRY e {
      ROOT p = f32[8] parameter(0)
    }

    Raises:
        UsageError: for a dialect that nothing knows.
    """
    names = [dialect] if isinstance(dialect, str) else list(dialect)
    if not names:
        return module.file.text
    from hlo_lint.hlo.dialects import convert

    return convert(module.file, names).text


@dataclass
class FixResult:
    """What `fix` did."""

    files: tuple[FixedFile, ...]
    """The files that change, with their text before and after."""
    remaining: Report
    """What is still found in the fixed texts."""
    skipped: tuple[Skipped, ...] = ()

    @property
    def text(self) -> str:
        """The fixed text of the only file.

        Raises:
            ValueError: where several files were looked at, so that it is not clear which is meant.
        """
        if len(self.files) != 1:
            raise ValueError(f"{len(self.files)} files: see .files")
        return self.files[0].after

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits, in characters of the texts before; file after file."""
        return tuple(edit for file in self.files for edit in file.edits)

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """What is still found."""
        return self.remaining.findings


Target = Any
"""A path, a text, a Module, a Dump, or what jax compiled or lowered."""


def lint(
    target: Target,
    select: Sequence[str | type[Rule]] | None = None,
    ignore: Sequence[str] | None = None,
    before: str | None = None,
    *,
    stage: Stage | str | None = None,
    settings: Settings | None = None,
    cured: bool = False,
    allow: Sequence[Allowance] = (),
    baseline: str | Path | None = None,
    progress: Progress = lambda _: None,
) -> Report:
    """Checks a file, a dump directory, a text, a Module, or a `jax.stages.Compiled` or `Lowered`.

    A str is a text if it holds a newline or starts with `HloModule`, else a path. `select` and
    `ignore` name rules or families; a rule of one's own is selected by its class. `before` says
    which pass comes next, where nothing in the dump does. `stage` says where in the pipeline each
    text is, "gpu post-layout"; a comment in the text counts more. What a later pass of the run
    cured is told only of a run that died, where XLA promises that it is never there; with `cured`
    it is told of any run, and what XLA promises nowhere is told as information.

    What a comment in the text allows, one of `allow` or the file `baseline` is found and counts for
    nothing: it is in `Report.allowed`.

    `settings` are what a file would say (`hlo_lint.load_settings` reads one); the other arguments
    count more, and `allow` is added. No file is read where none are given. More processes than one
    check only where `settings.jobs` says so.

    Raises:
        DumpError: for a path that is not there, and for a baseline that is none.
        UsageError: for a rule or a pass that nothing knows.
    """
    told = _settings(settings, select, ignore, before, stage, allow, baseline)
    known = _baseline(told)
    dump = _as_dump(target, told)
    checker = Checker(
        told.chosen_rules(),
        before=known_pass(told.before),
        stage_of=told.stage_of if told.has_stages else None,
        cured=cured,
        notes_files=bool(told.allow or known),
    )
    if (told.jobs or 1) > 1:
        from hlo_lint.engine.parallel import check_in_parallel

        result = check_in_parallel(checker, dump, told.jobs or 1, progress)
    else:
        result = checker.check_dump(dump, progress)
    return _report(result, checker, told, known)


def fix(
    target: Target,
    select: Sequence[str | type[Rule]] | None = None,
    ignore: Sequence[str] | None = None,
    before: str | None = None,
    *,
    stage: Stage | str | None = None,
    settings: Settings | None = None,
    unsafe_fixes: bool | None = None,
    form: Form | str | None = None,
    allow: Sequence[Allowance] = (),
    baseline: str | Path | None = None,
    progress: Progress = lambda _: None,
) -> FixResult:
    """The texts with every finding mended that has a safe fix and is not allowed.

    Takes what `lint` takes, and writes nothing. With `unsafe_fixes` what may change a value or the
    cost is done, too. `form` sets the option `move-as` of reshape-moves-data: "copy" or
    "transpose". By default it is copy if LayoutNormalization is sure to come next, else transpose.

    Raises:
        DumpError: for a path that is not there, and for a baseline that is none.
        UsageError: for a rule, a pass or a form that nothing knows.
    """
    told = _settings(settings, select, ignore, before, stage, allow, baseline)
    told = told.overridden(unsafe_fixes=unsafe_fixes)
    rules, before = _with_form(told.chosen_rules(), form), known_pass(told.before)
    stage_of = told.stage_of if told.has_stages else None
    known = left = _baseline(told)
    dump = _as_dump(target, told)
    texts: dict[PassDump, FixedFile] = {}
    single = len(dump.pipelines) == 1 and len(dump.pipelines[0].dumps) == 1
    result = Result()
    for pipeline in dump:
        checker = Checker(rules, before=before, stage_of=stage_of)
        checker.check_pipeline(pipeline, progress)
        for _ in range(ROUNDS):
            planned = result.fixes_by_file(_wanted(checker, pipeline, told, left))
            if not planned:
                break
            for file, fixes in planned.items():
                old = file.file.text
                new, edits = apply(old, fixes)
                first = texts.get(file)
                texts[file] = FixedFile(
                    file.file.path,
                    first.before if first else old,
                    new,
                    (first.edits if first else ()) + edits,
                )
                file.replace_text(new)
            checker = Checker(rules, before=before, stage_of=stage_of)
            checker.check_pipeline(pipeline)
        result.add(checker.result)
        left = _judged(checker.result, checker, told, left).left
        if single and not texts:
            file = pipeline.dumps[0]
            texts[file] = FixedFile(file.file.path, file.file.text, file.file.text, ())
        pipeline.release_text()
    checker = Checker(rules, before=before, stage_of=stage_of)
    report = _report(result, checker, told, known)
    return FixResult(tuple(texts.values()), report, tuple(dump.skipped))


def payload_text(path: Path, instruction: str) -> str:
    """What an instruction of a file carries, readably: the first of that name, `%` or not.

    Raises:
        DumpError: where the file or the payload cannot be read.
        UsageError: for an instruction that is not there or carries nothing.
    """
    from hlo_lint.kernels.custom_calls import PayloadError, decode, render

    name = instruction.removeprefix("%")
    carriers = []
    for pipeline in open_dump(path):
        for dump in pipeline.dumps:
            for found in (each for module in _modules(dump) for each in module.instructions()):
                try:
                    read = decode(found)
                except PayloadError as error:
                    if found.name == name:
                        raise DumpError(f"{dump.path}: %{name}: {error}") from error
                    continue
                if read is None:
                    continue
                if found.name == name:
                    return render(read).rstrip("\n") + "\n"
                carriers.append(f"%{found.name}")
    known = ", ".join(dict.fromkeys(carriers)) or "none of its instructions carries one"
    raise UsageError(f"{path}: %{name} carries no payload; {known}")


def _modules(dump: PassDump) -> tuple[Module, ...]:
    try:
        return dump.file.modules
    except OSError as error:
        raise DumpError(f"{dump.path}: {error.strerror or error}") from error


def write_fixed(result: FixResult, inputs: Sequence[Path], out: Path | None) -> Iterator[Path]:
    """Writes the fixed files: in place, or to `out`, and yields what was written.

    For one input file `out` is a file, else a folder that mirrors the inputs; a fixed protocol
    buffer is written there as text.

    Raises:
        DumpError: where something cannot be written; what cannot be right is not begun.
    """
    changed = {file.path: file for file in result.files if file.path is not None}
    if out is None:
        for path, file in changed.items():
            if file.edits and is_proto(path.name):
                raise DumpError(f"{path}: a protocol buffer cannot be fixed in place; give -o OUT")
        targets = {path: path for path, file in changed.items() if file.edits}
    elif len(inputs) == 1 and inputs[0].is_file():
        targets = dict.fromkeys(changed, out)
    else:
        targets = {
            path: target.with_name(target.name.partition(".hlo.pb")[0] + ".txt")
            if path in changed and is_proto(path.name)
            else target
            for path, target in mirrored(inputs, out).items()
        }
    if len(set(targets.values())) < len(targets):
        raise DumpError(f"{out}: two of the inputs would be the same file there")
    for path, target in targets.items():
        if path in changed:
            write_atomically(target, changed[path].after)
            yield target
        else:
            copy_file(path, target)


def _settings(
    settings: Settings | None,
    select: Sequence[str | type[Rule]] | None,
    ignore: Sequence[str] | None,
    before: str | None,
    stage: Stage | str | None,
    allow: Sequence[Allowance],
    baseline: str | Path | None,
) -> Settings:
    """Settings, with what a caller says besides."""
    told = settings or Settings()
    return told.reselected(select, ignore or ()).overridden(
        before=before,
        stage=parse_stage(stage) if isinstance(stage, str) else stage,
        allow=(*told.allow, *allow) or None,
        baseline=None if baseline is None else Path(baseline),
    )


def _baseline(told: Settings) -> Baseline | None:
    if told.baseline is None:
        return None
    from hlo_lint.apps.settings.toml_locations import displayed

    return read_baseline(displayed(told.baseline))


def _report(result: Result, checker: Checker, told: Settings, baseline: Baseline | None) -> Report:
    judged = _judged(result, checker, told, baseline)
    every = numbered([*judged.kept, *(each.finding for each in judged.allowed)])
    spared = every[len(judged.kept) :]
    found = tuple(
        told.judged(each)
        for each in every[: len(judged.kept)]
        if not told.ignores(each.rule, each.path)
    )
    allowed = tuple(
        replace(each, finding=told.judged(finding))
        for each, finding in zip(judged.allowed, spared, strict=True)
    )
    stats = {"files": result.files, "modules": result.modules}
    for severity in Severity:
        stats[f"{severity.value}s"] = sum(f.severity is severity for f in found)
    return Report(found, tuple(result.skipped), stats, allowed)


def _judged(result: Result, checker: Checker, told: Settings, baseline: Baseline | None) -> Judged:
    run = Run(checker.rules, result.checked, result.skipped, checker.reporter.before)
    return judge(result.diagnostics, run, told.allow, baseline)


def _wanted(
    checker: Checker, pipeline: Pipeline, told: Settings, baseline: Baseline | None
) -> Iterator[PlannedFix]:
    """The fixes that may be done, of what is not allowed, and of comments that allow nothing."""
    judged = _judged(checker.result, checker, told, baseline)
    kept = {id(each) for each in judged.kept}
    files = {str(dump.path): dump for dump in (*pipeline.dumps, *pipeline.kernels)}
    for plan in checker.result.fixes:
        rule, paths = plan.diagnostic.rule, {plan.diagnostic.path, str(plan.dump.path)}
        safe = plan.fix.safety is Safety.SAFE or told.unsafe_fixes
        ignored = any(told.ignores(rule, path) for path in paths)
        if safe and not ignored and id(plan.diagnostic) in kept:
            yield plan
    for each in judged.kept:
        if each.rule == UNUSED and each.fix is not None and not told.ignores(UNUSED, each.path):
            yield PlannedFix(files[each.path], each.fix, each)


def known_pass(name: str | None) -> str | None:
    """The name, if a rule binds before a pass of that name.

    Raises:
        UsageError: naming the passes there are.
    """
    demanding = dict.fromkeys(demand.demanded_by for demand in PRECONDITIONS)
    known = [*demanding, *AUTOTUNERS]
    if name is not None and name not in known:
        raise UsageError(f"no rule binds before a pass named {name}; there is {', '.join(known)}")
    return name


def _with_form(rules: Sequence[Rule], form: Form | str | None) -> list[Rule]:
    """The rules, with the option `move-as` set where a rule has it."""
    if form is None:
        return list(rules)
    told = {"move-as": form.value if isinstance(form, Form) else form}
    return [rule.with_options(told) if "move-as" in rule.options() else rule for rule in rules]


def _as_dump(target: Target, settings: Settings | None = None) -> Dump:
    match target:
        case Dump():
            return target
        case Module():
            return _text_dump(target.file)
        case HloFile():
            return _text_dump(target)
        case Path():
            return open_paths(target, settings)
        case bytes():
            return _text_dump(parse_file(target))
        case str() if "\n" in target or target.lstrip().startswith("HloModule"):
            return _text_dump(parse_file(target))
        case str():
            return open_paths(target, settings)
        case list() | tuple():
            return open_paths(target, settings)
        case _ if hasattr(target, "as_text"):
            return _jax_dump(target)
        case _:
            kind = type(target).__name__
            raise UsageError(
                f"cannot lint a {kind}: give a path, HLO text, a Module, or what jax lowered or "
                "compiled"
            )


def open_paths(paths: str | Path | Sequence[str | Path], settings: Settings | None = None) -> Dump:
    """The dumps under paths, without what the settings exclude.

    Raises:
        DumpError: for a path that is not there.
    """
    told = settings or Settings()
    return open_dump(paths, told.excludes, exclude_given=told.force_exclude)


def _text_dump(file: HloFile) -> Dump:
    path = Path("<text>") if file.path is None else file.path
    kind = Kind.HLO
    if not any(module.header or module.computations for module in file.modules):
        kind = kind_of(path.name, file.text)
    return Dump([Pipeline([PassDump.of(file, path, kind)], [], lone=True)])


def _jax_dump(stage: Any) -> Dump:
    """What `jax.jit(f).lower(…)` or `.compile()` gave, named for where in a run it stands."""
    if hasattr(stage, "compile"):
        path, text = Path("<lowered>.before_optimizations.txt"), stage.as_text(dialect="hlo")
    else:
        path, text = Path("<compiled>.after_optimizations.txt"), stage.as_text()
    return _text_dump(parse_file(text, path))


def piped_dump(data: bytes, name: str | None = None) -> Dump:
    """A text that came through a pipe, read as a file of that name would be."""
    if name is None:
        return _text_dump(parse_file(data, Path("<stdin>")))
    path = Path(name)
    text = decode(data)
    kind = Kind.HLO if path.suffix == ".hlo" else kind_of(path.name, text)
    file = parse_file(text, path) if kind is Kind.HLO else HloFile.of_text(text, path)
    found = PassDump(path, parse_name(path.name), _file=file, kind=kind)
    return Dump([Pipeline([found], [], lone=True)])
