"""Set up reductions: of a finding in a file or dump, of a crash of XLA, of a change of values.

A `Problem` is a text with the interestingness test; `reduce_problem` makes the text small.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from hlo_lint.analysis.stage import ANY_STAGE
from hlo_lint.apps.api import lint
from hlo_lint.apps.fixes import fix
from hlo_lint.apps.jax.capture.targets import HEALTHY, gpu_description, target_of
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.targets import CheckTarget, as_dump
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.crash import find_crash_site
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.run_records import DebugOptions
from hlo_lint.dumps.selection import FIRST, in_order, main_compilations, modules_of, only_module
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.reduce.interest import (
    LOOSE,
    ONLY_PASSES,
    CrashTest,
    FindingTest,
    Guard,
    InterestTest,
    cause_of,
    is_check,
    opcode_at,
    shape_errors,
    skeleton,
)
from hlo_lint.engine.reduce.search import Reduction, ReductionProgress, Search
from hlo_lint.engine.stages import Stages
from hlo_lint.engine.verifier import Verifier
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.repro import Environment, Repro
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import find_rule
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.text.phrases import listed
from hlo_lint.text.source import shown
from hlo_lint.xla.child import Pool
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.environments import Interpreter
from hlo_lint.xla.parser import XlaParser


@dataclass(frozen=True)
class Problem:
    """A text that shows a problem, and the interestingness test for it."""

    text: str
    test: InterestTest
    path: Path
    """The file with the text."""
    comments: str = ""
    """The stage comment of the text; empty if it needs none."""
    finding: Diagnostic | None = None
    ending: Ending | None = None
    """The end of the crashing compilation."""
    flags: str = ""
    """XLA's flags in that compilation."""
    options: DebugOptions | None = None
    """The flags of the run that wrote the dump."""
    release: str = ""
    """The release of jax that wrote the dump; empty if unknown."""


def reduce_problem(
    problem: Problem,
    progress: ReductionProgress = lambda *_: None,
    *,
    jobs: int = 1,
    repeat: int = 1,
    state: Path | None = None,
) -> Reduction:
    """Find the smallest module that still shows a problem and that XLA's parser accepts.

    A problem of XLA's compiler stays legal: XLA's verifier refuses no more than in the input.
    The other arguments are as in `Search`.

    Raises:
        UsageError: the text does not show the problem.
        DumpError: the state file cannot be read or written.
    """
    allowed = _violated(problem.text) if problem.ending is not None else None
    with parser() as reads:

        def accepts(text: str) -> bool:
            return reads(text) and (allowed is None or _violated(text) <= allowed)

        search = Search(problem.test, accepts, jobs, repeat, progress, state)
        return search.run(problem.comments + problem.text, problem.comments)


def _violated(text: str) -> set[str]:
    """The checks of XLA's verifier that refuse a text."""
    results = (Verifier().violations(module, ANY_STAGE) for module in parse_file(text).modules)
    return {check for violations in results for check in violations.by_check}


@contextmanager
def parser() -> Iterator[Guard]:
    """XLA's parser, if jaxlib is installed here; else the lenient parser and malformed-text."""
    with Pool(XlaParser) as parsers:
        try:
            with parsers.one() as first:
                assert first.release
        except DumpError:
            yield Guard(None)
        else:
            yield Guard(parsers)


# ---- findings


def finding_problem(
    target: CheckTarget, wanted: str | None = None, settings: Settings | None = None
) -> Problem:
    """The problem of a finding, named as `RULE` or `RULE:INSTRUCTION`; by default the first error.

    Raises:
        UsageError: there is no such finding, or it depends on several files.
    """
    settings = replace(settings or Settings(), min_severity=None)
    dump = as_dump(target, settings)
    finding = _chosen(lint(dump, settings=settings).findings, wanted)
    for compilation in dump:
        for member in compilation.dumps:
            if str(member.path) == finding.path:
                return _problem_of(finding, compilation, member, settings)
    raise UsageError(f"{finding.rule} is not about HLO: {finding.path} cannot be reduced")


def _chosen(findings: Sequence[Diagnostic], wanted: str | None) -> Diagnostic:
    rule, _, instruction = (wanted or "").partition(":")
    instruction = instruction.lstrip("%")
    if rule:
        find_rule(rule)
    for diagnostic in sorted(findings, key=lambda finding: finding.severity.rank):
        if rule in ("", diagnostic.rule) and instruction in ("", diagnostic.instruction):
            return diagnostic
    there = dict.fromkeys(
        f"{finding.rule}:{finding.instruction or ''}".rstrip(":") for finding in findings
    )
    raise UsageError(f"no finding {wanted or 'to reduce'}; there is {listed(there) or 'none'}")


def _problem_of(
    finding: Diagnostic, compilation: Compilation, dump: PassDump, settings: Settings
) -> Problem:
    module = next(
        (named for named in modules_of(dump) if named.name == finding.module), dump.module
    )
    rule = next(
        (chosen for chosen in settings.chosen_rules() if chosen.name() == finding.rule), None
    ) or find_rule(finding.rule)
    stages = Stages(compilation, settings.stage_of if settings.has_stages else None)
    stage = stages.of(dump, module)
    comments = "" if stage.assumed or not str(stage) else f"// hlo-lint: stage {stage}\n"
    demanding = rule.precondition.demanded_by if rule.precondition else None
    if comments and demanding and not stage.next_pass:
        comments = f"{comments.rstrip()} before={demanding}\n"
    text, own_name = module.text, dump.path.name
    kind = rule, opcode_at(module, finding), skeleton(finding.message), finding.instruction
    errors = shape_errors(parse_file(text).modules[0])
    for before, name, release in (
        (None, LOOSE, None),
        (demanding, LOOSE, None),
        (demanding, own_name, None),
        (demanding, own_name, compilation.recognition),
    ):
        test = FindingTest(*kind, before, errors, name, release)
        for line in dict.fromkeys((comments, "") if name is LOOSE else ("",)):
            if test(line + text).interesting:
                return Problem(
                    text,
                    test,
                    dump.path,
                    line,
                    finding,
                    options=compilation.options,
                    release=(stage.release or "").partition("-jax")[2],
                )
    raise UsageError(
        f"{finding.rule} does not find it in {dump.path} alone: the finding depends on other "
        "files of the dump, and cannot be reduced"
    )


# ---- crashes


@contextmanager
def crash_problem(
    path: Path,
    interpreter: Interpreter,
    compiler: XlaCompiler,
    target: str,
    *,
    flags: str = "",
    passes: str = "",
    message: str = "",
    module: str | None = None,
) -> Iterator[Problem]:
    """The problem of a crash of XLA, on a file or on the dump of a run that did not finish.

    For a dump, the text is the input of the crashing pass if that pass alone crashes on it, else
    the input of the compiler. `passes` are the only passes to run, `message` is a pattern for the
    error, `module` is the name of the only module to compile.

    Raises:
        UsageError: nothing crashes.
    """
    compilation = _crashed(path, module)
    config = gpu_description(target, compiler)
    endings = []
    problem: Problem | None = None
    for file, given in _attempts(compilation, path, flags, passes):
        text = modules_of(file)[0].text
        test = CrashTest(compiler, config, given, message=message)
        at_rest = test.ending(HEALTHY)
        if at_rest.crashed:  # the flags are at fault, not the module
            endings.append(at_rest)
            continue
        ending = test.ending(text)
        endings.append(ending)
        if not ending.crashed or (message and not test(text).interesting):
            continue
        if problem and problem.ending and cause_of(ending) != cause_of(problem.ending):
            continue
        if ONLY_PASSES in given and problem is None and not (passes or is_check(ending)):
            continue  # the other passes might have made it emittable
        test = replace(test, cause="" if message else cause_of(ending))
        problem = Problem(
            text, test, file.path, ending=ending, flags=given, options=compilation.options
        )
    if problem is None:
        last = endings[-1] if endings else Ending("ok", "")
        ends, reason = f"does not crash on {path} for {target}", shown(last.message)
        if last.crashed:
            ends = f"ends otherwise for {target}, or with any module"
            reason = ": " + reason.partition("\n")[0]
        elif reason:
            reason = f", which its parser refuses: {reason}"
        raise UsageError(f"jax {interpreter.jax} {ends}{reason}")
    yield problem


# ---- values


@contextmanager
def values_problem(
    path: Path,
    interpreter: Interpreter,
    compiler: XlaCompiler,
    target: str,
    *,
    flags: str = "",
    passes: str = "",
    module: str | None = None,
    inputs: Path | None = None,
) -> Iterator[Problem]:
    """The problem of a pass that changes the values a module computes.

    For a dump directory it is the first such pass; the text is the input of that pass. `inputs` is
    a file with values of parameters, by default what `exec --record-inputs` left beside the dumps.

    Raises:
        UsageError: no pass changes values, or the pass of this release does not.
    """
    from hlo_lint.engine.reduce.values import ValuesTest
    from hlo_lint.engine.values.given import inputs_for
    from hlo_lint.engine.values.inputs import leaves_of
    from hlo_lint.engine.values.validate import validate_dumps
    from hlo_lint.xla.cpu import XlaCpu

    compilation = _crashed(path, module)
    file, name = compilation.dumps[0], passes
    arrays = inputs_for(compilation, inputs)
    names = [leaf for leaf, _ in leaves_of(modules_of(file)[0])]
    if path.is_dir():
        with XlaCpu() as xla:
            changes = validate_dumps(
                compilation.title, in_order(compilation), xla, given=arrays
            ).changes
        wanted = [
            change for change in changes if change.after.name and passes in change.after.name.after
        ]
        if not wanted or wanted[0].after.name is None:
            raise UsageError(f"{path}: no pass changes the values of {compilation.title}")
        file, name = wanted[0].before, wanted[0].after.name.after
    elif not passes:
        raise UsageError("--xla-changes-values needs a dump directory, or one pass in --passes")
    given = _without_disabled(flags or flags_of(compilation.options))
    by_name = {names[leaf]: array for leaf, array in arrays.items()}
    with ValuesTest(compiler, gpu_description(target, compiler), given, name, by_name) as test:
        text = modules_of(file)[0].text
        change = test.change(text)
        if change is None:
            raise UsageError(
                f"{name} of jax {interpreter.jax} does not change the values of {file.path}"
            )
        ending = Ending("changed", f"{name} changes the values: {change.comparison.difference}")
        yield Problem(text, test, file.path, ending=ending, flags=given)


def _crashed(path: Path, module: str | None) -> Compilation:
    dump = only_module(as_dump(path), module, [path])
    if not path.is_dir():
        return dump.compilations[0]
    compilations = main_compilations(dump)
    crashed = [compilation for compilation in compilations if compilation.crashed] or compilations
    if not crashed:
        raise UsageError(f"{path}: no compiler's dumps are in it")
    return crashed[0]


def _attempts(
    compilation: Compilation, path: Path, flags: str, passes: str
) -> Iterator[tuple[PassDump, str]]:
    """The texts to compile, with flags; the last crashing text is the best."""
    only = f" --{ONLY_PASSES}={passes}" if passes else ""
    if not path.is_dir():
        yield compilation.dumps[0], (flags + only).strip()
        return
    given = flags or flags_of(compilation.options)
    first = next(
        (
            member
            for member in compilation.dumps
            if member.name and member.name.rest.startswith(FIRST)
        ),
        None,
    )
    if first is not None and not passes:
        yield first, given
    site = find_crash_site(compilation)
    if passes:
        yield site.dump, (given + only).strip()
        return
    for name in dict.fromkeys(name for _, name in site.suspects):
        yield site.dump, f"{_without_disabled(given)} --{ONLY_PASSES}={name}".strip()


def _without_disabled(flags: str) -> str:
    """The flags without disabled passes: XLA accepts them or a list of enabled ones, not both."""
    return re.sub(r"--xla_disable_hlo_passes=\S+ ?", "", flags)


def flags_of(options: DebugOptions | None) -> str:
    """The flags of a run in the syntax of `XLA_FLAGS`, without flags that name files."""
    if options is None:
        return ""
    return " ".join(
        f"--{name}={','.join(values)}"
        for name, values in options.values.items()
        if not name.startswith(("xla_dump", "xla_gpu_dump"))
        and name not in _NO_FLAGS
        and not name.endswith(("_from", "_to", "_path", "_dir"))
    )


_NO_FLAGS = frozenset(
    {"xla_pjrt_allow_auto_layout_in_hlo", "xla_detailed_logging", "xla_cpu_enable_fast_min_max"}
)
"""Options that jax sets in every run."""


# ---- the repro for a maintainer


def _failing_step(test: CrashTest, text: str) -> tuple[str, tuple[str, ...]]:
    """The pass that ends a compilation, or that writes an illegal module; empty if unknown.

    Of the latter also the modules before and after it.
    """
    with tempfile.TemporaryDirectory(prefix="hlo_lint_") as folder:
        every = "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.+ --xla_dump_to="
        test.compiler.compile(text, test.target_config, f"{test.flags} {every}{folder}")
        dump = open_dump(folder)
        errors = [
            f for f in lint(dump).findings if f.severity is Severity.ERROR and f.introduced_by
        ]
        wrong = {finding.path for finding in errors}
        for compilation in main_compilations(dump):
            for before, after in pairwise(in_order(compilation)):
                if after.name and f"{after.path}" in wrong:
                    return after.name.after, (before.module.text, after.module.text)
            if compilation.crashed:
                return find_crash_site(compilation).pass_name, ()
    return "", ()


def repro_of(problem: Problem, reduction: Reduction, release: str, target: str) -> Repro:
    """The contents of the repro directory for a reduced problem."""
    from hlo_lint.engine.reduce.values import ValuesTest
    from hlo_lint.rules.pipeline.values_changed import ValuesChanged

    test, finding = problem.test, problem.finding
    run_flags = flags_of(problem.options)
    sizes = reduction.before.size, reduction.after.size
    if not isinstance(test, FindingTest) or finding is None:
        assert isinstance(test, CrashTest | ValuesTest)
        assert problem.ending is not None
        changed = ValuesChanged() if isinstance(test, ValuesTest) else None
        given = Environment(release, test.target_config, test.flags, run_flags)
        message = problem.ending.message
        name, step = "", tuple[str, ...]()
        if isinstance(test, CrashTest):
            name, step = _failing_step(test, reduction.text)
        elif change := test.change(reduction.text):
            step = change.before.module.text, change.after.module.text
        return Repro(
            reduction.text, message, sizes, given, rule=changed, failing_pass=name, step=step
        )
    demand = test.rule.precondition
    flags = f"--{ONLY_PASSES}={demand.demanded_by}" if demand else ""
    given = Environment(release, target_of(target).description, flags, run_flags)
    diagnostics = [diagnostic for _, diagnostic in test.findings(reduction.text)]
    reduced = next(
        diagnostic for diagnostic in diagnostics if skeleton(diagnostic.message) == test.message
    )
    result = fix(reduction.text, [test.rule.name()], None, test.before, unsafe_fixes=True)
    fixed = result.text if result.edits and not result.findings else None
    return Repro(
        reduction.text,
        reduced.message,
        sizes,
        given,
        finding,
        reduced,
        test.rule,
        test.before,
        fixed,
        test.file_name,
    )
