"""`validate`: find the first pass that changes the values a module computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.targets import CheckTarget, as_dump
from hlo_lint.dumps.directory import Skipped
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.selection import by_module, in_order, main_compilations, names_of, only_module
from hlo_lint.engine.fingerprints import numbered
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.text.phrases import short_repr

if TYPE_CHECKING:
    from hlo_lint.dumps.compilation import Compilation
    from hlo_lint.engine.values.validate import Validation

Note = Callable[[str], None]
"""Callback for the current activity, in a few words."""


@dataclass(repr=False)
class ValidationResult:
    """The result of `validate`."""

    report: Report
    """A finding for each step that changed values; `skipped` lists the steps not compared."""
    validations: tuple[Validation, ...]
    """The verdict on each compilation with at least two dumps."""

    __repr__ = short_repr


def validate(
    target: CheckTarget,
    *,
    against: CheckTarget | None = None,
    module: str | None = None,
    inputs: Path | None = None,
    seeds: int = 2,
    all_steps: bool = False,
    seconds: float | None = None,
    memory: int = 8 << 30,
    jobs: int = 1,
    settings: Settings | None = None,
    note: Note = lambda _: None,
) -> ValidationResult:
    """Find the first pass that changes the values a module computes.

    XLA:CPU of the installed jaxlib runs each compilation of a dump directory, step by step, in
    child processes. A finding of the rule `values-changed` names the pass and the instruction;
    `report.skipped` lists the steps that were not compared.

    Args:
        target: an input as for `lint`; a compilation needs at least two dumps.
        against: the dump of another run of the same programs (another release, another flag), to
            be compared after each step that both have.
        module: the name of the only module to run: `jit_step`, `module_0001.jit_step`.
        inputs: a .npz file with parameter values by name, number or path, for the first set of
            inputs; the other parameters are drawn at random. By default it is the file that `exec
            --record-inputs` left beside the dumps.
        seeds: the number of sets of inputs.
        all_steps: True to run every step; by default bisection finds the first change.
        seconds: time limit for the whole run; `report.skipped` counts the steps that did not fit.
            A single program has `HLO_LINT_XLA_SECONDS`, by default 60, to compile and to run.
        memory: bytes that a child process may map.
        jobs: the number of child processes at a time.

    Raises:
        DumpError: a path does not exist; numpy or jaxlib is missing.
        UsageError: the dump has no module of this name; `inputs` do not fit, or the dump has
            several modules.
    """
    with _needing_xla():
        from hlo_lint.engine.values.findings import diagnostic_of
        from hlo_lint.engine.values.given import inputs_for
        from hlo_lint.engine.values.validate import validate_dumps, validate_runs
        from hlo_lint.xla.cpu import xla_cpus
        from hlo_lint.xla.limits import Deadline
    deadline = Deadline(inf if seconds is None else seconds)
    settings = settings or Settings()
    dump = only_module(as_dump(target, settings), module, ["the dump"])
    compilations = [
        compilation
        for compilation in dump
        if len(compilation.dumps) > 1
        and all(step.file_type is FileType.HLO for step in compilation.dumps)
    ]
    other_runs: dict[Compilation, Compilation] = {}
    if against is not None:
        others = by_module(as_dump(against, settings))
        for compilation in main_compilations(dump):
            if runs := others.get(names_of(compilation)[-1]):
                other_runs[compilation] = runs.pop(0)
        compilations = list(other_runs)
    if inputs is not None and len(compilations) != 1:
        raise UsageError("the inputs are for a single module: name it with --module")

    def validated(compilation: Compilation) -> Validation:
        given = inputs_for(compilation, inputs)
        with children.one() as xla:
            validate_steps = (
                partial(validate_runs, compilation, other_runs[compilation])
                if compilation in other_runs
                else partial(validate_dumps, compilation.title, in_order(compilation))
            )
            return validate_steps(
                xla,
                seeds=range(seeds),
                all_steps=all_steps,
                jobs=max(1, jobs // len(compilations)),
                progress=note,
                given=given,
            )

    with (
        xla_cpus(memory=memory, deadline=deadline) as children,
        ThreadPoolExecutor(jobs) as threads,
    ):
        try:
            validations = list(threads.map(validated, compilations))
        except BaseException:  # an interrupt: do not wait for the rest
            deadline.end_now()
            raise
    diagnostics = [
        diagnostic_of(change, [step.dump for step in validation.steps])
        for validation in validations
        for change in validation.changes
    ]
    findings = settings.reported(numbered(diagnostics))
    skipped = [
        Skipped(validation.title, note, "values-changed")
        for validation in validations
        for note in validation.notes
    ]
    stats = {
        "files": sum(len(validation.steps) for validation in validations),
        "modules": sum(len(validation.steps) for validation in validations),
        **{f"{level.value}s": sum(f.severity is level for f in findings) for level in Severity},
    }
    return ValidationResult(Report(findings, tuple(skipped), stats), tuple(validations))


def compare_values(
    ours: Compilation,
    theirs: Compilation,
    *,
    inputs: Path | None = None,
    note: Note = lambda _: None,
) -> Validation:
    """Run the final modules of two compilations of a program on the same inputs.

    Where they cannot be compared, the modules before optimization run instead.

    Args:
        ours: a compilation, whose parameters `inputs` name.
        theirs: another, of the same program.
        inputs: as for `validate`.
        note: callback for the current activity.

    Raises:
        DumpError: numpy or jaxlib is missing.
        UsageError: `inputs` do not fit.
    """
    with _needing_xla():
        from hlo_lint.engine.values.given import inputs_for
        from hlo_lint.engine.values.validate import validate_dumps
        from hlo_lint.xla.cpu import XlaCpu
    given = inputs_for(ours, inputs)
    with XlaCpu() as xla:
        for place in (-1, 0):
            pair = [in_order(side)[place] for side in (ours, theirs)]
            title = " and ".join(str(dump.path) for dump in pair)
            validation = validate_dumps(title, pair, xla, progress=note, given=given)
            if validation.compared:
                break
    return validation


@contextmanager
def _needing_xla() -> Iterator[None]:
    """Say what to install where imports of numpy or jaxlib fail."""
    try:
        import numpy  # noqa: F401

        yield
    except ImportError as error:
        raise DumpError(f"pip install 'hlo-lint[xla]' to run modules: {error}") from error
