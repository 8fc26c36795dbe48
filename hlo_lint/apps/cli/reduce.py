"""`hlo-lint reduce`: the smallest module that still shows a problem."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from hlo_lint.apps.cli import common, parameters
from hlo_lint.apps.reduction import (
    Problem,
    crash_problem,
    finding_problem,
    reduce_problem,
    values_problem,
)
from hlo_lint.dumps.selection import module_at
from hlo_lint.engine.reduce.interest import LOOSE, CommandTest, FindingTest
from hlo_lint.engine.reduce.search import Reduction
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import encode, shown
from hlo_lint.xla.compiler import XlaCompiler
from hlo_lint.xla.environments import Interpreter, environment_of, interpreter_at


class ReduceOptions(NamedTuple):
    """The options of `reduce` and `repro`: the problem to look for, and how to search."""

    xla_crashes: bool
    changes_values: bool
    release: str | None
    python: str | None
    target: str
    flags: str
    passes: str
    inputs: Path | None
    message: str
    state: Path | None
    jobs: int | None
    repeat: int
    timeout: float
    quiet: bool

    def interpreter(self) -> Interpreter:
        """The Python whose XLA compiles."""
        if self.release is not None:
            return environment_of(self.release, partial(click.echo, err=True))
        return interpreter_at(self.python or sys.executable)

    def known_release(self, problem: Problem) -> str:
        """The release of jax to show a problem with: that of the options, else that of the dump."""
        if self.release or (problem.release and not self.python):
            return self.release or problem.release
        return self.interpreter().jax

    def reduced(self, problem: Problem, *, is_slow: bool) -> Reduction:
        """The reduction of a problem, shown on a terminal; a slow test is run on every core."""
        jobs = self.jobs or ((os.cpu_count() or 1) if is_slow else 1)
        with common.status_line(wanted=not self.quiet) as note:
            return reduce_problem(
                problem,
                lambda change, left, _, run: note(f"{change}: {left} instructions, {run} tests"),
                jobs=jobs,
                repeat=self.repeat,
                state=self.state,
            )

    @property
    def of_xla(self) -> bool:
        """True if XLA's compiler shows the problem, False for a finding."""
        return self.xla_crashes or self.changes_values or self.inputs is not None

    @contextmanager
    def problem(self, path: Path, module: str | None) -> Iterator[Problem]:
        """The change of values by a pass of XLA, or the crash of XLA, on a path.

        `module` is the name of the only module to look at.
        """
        interpreter = self.interpreter()
        if self.inputs is not None and not self.changes_values:
            raise UsageError("--inputs goes with --xla-changes-values")
        with XlaCompiler(interpreter.path, timeout=self.timeout) as compiler:
            problem_of = (
                partial(values_problem, inputs=self.inputs)
                if self.changes_values
                else partial(crash_problem, message=self.message)
            )
            with problem_of(
                path,
                interpreter,
                compiler,
                self.target,
                flags=self.flags,
                passes=self.passes,
                module=module,
            ) as problem:
                if not self.quiet and problem.ending is not None:
                    first = problem.ending.message.partition("\n")[0]
                    click.echo(shown(f"{problem.path.name}: {first}"), err=True)
                yield problem


_OPTIONS = (
    click.option(
        "--xla-crashes",
        is_flag=True,
        help="Keep the crash or the error of XLA's compiler, for a GPU that need not be present.",
    ),
    click.option(
        "--xla-changes-values",
        "changes_values",
        is_flag=True,
        help="Keep the change of values by a pass of XLA: the first of a dump, or one of --passes.",
    ),
    parameters.release_option("release"),
    parameters.python_option("python"),
    parameters.target_option(default="h100", show_default=True),
    click.option("--flags", default="", metavar="FLAGS", help="XLA_FLAGS for the compilation."),
    parameters.passes_option,
    parameters.inputs_option,
    click.option(
        "--message", default="", metavar="REGEX", help="A crash counts if its message matches."
    ),
    click.option(
        "--state",
        type=parameters.PATH,
        metavar="FILE",
        help="Keep the smallest module so far in this file; a later run begins with it.",
    ),
    parameters.jobs_option,
    click.option(
        "--repeat",
        type=click.IntRange(1, parameters.MAX_COUNT),
        default=1,
        metavar="N",
        help="Test a module up to N times, for a problem that does not always show.",
    ),
    click.option(
        "--timeout",
        type=parameters.seconds(0.1),
        default=60.0,
        show_default=True,
        metavar="SECONDS",
        envvar="HLO_LINT_XLA_SECONDS",
        help="The time for a command or a compilation: after it a command fails, and a compilation "
        "counts as a crash.",
    ),
    parameters.quiet_option,
)
reduce_options = parameters.gathered("options", ReduceOptions, _OPTIONS)
"""Adds the options; the command gets them as `options`."""


@click.command("reduce")
@click.argument("path", type=parameters.PATH)
@click.option(
    "--finding",
    metavar="RULE[:INSTRUCTION]",
    help="Keep this finding; by default the first error of PATH.",
)
@click.option(
    "--interesting",
    metavar="COMMAND",
    help="Keep a module for which a command ends with status 0; the file is its last argument, or "
    "replaces {}.",
)
@parameters.output_option()
@reduce_options
@parameters.shared_options(parameters.RULES, parameters.FILES, parameters.MODULE)
def command(
    path: Path,
    finding: str | None,
    interesting: str | None,
    out: Path | None,
    options: ReduceOptions,
    shared: common.SharedOptions,
) -> None:
    """Reduce a module that shows a problem.

    PATH is a file or a dump directory. The result is the smallest module that still shows the
    problem; XLA's parser reads it, if it reads PATH.
    """
    given = bool(finding), options.xla_crashes, options.changes_values, bool(interesting)
    if sum(given) > 1:
        raise UsageError(
            "give one of --finding, --xla-crashes, --xla-changes-values and --interesting"
        )
    with _problem(path, finding, interesting, options, shared) as problem:
        reduction = options.reduced(problem, is_slow=any(given[1:]))
    common.write_output(encode(reduction.text), out)
    if isinstance(problem.test, FindingTest) and (name := problem.test.file_name) != LOOSE:
        beside = ", beside the dumps that show its release" if problem.test.release else ""
        click.echo(shown(f"note: the rule finds it in a file named {name}{beside}"), err=True)
    if not options.quiet:
        click.echo(
            f"{reduction.before.size} instructions to {reduction.after.size}, "
            f"{len(problem.text)} characters to {len(reduction.text)}, {reduction.tests} tests",
            err=True,
        )


@contextmanager
def _problem(
    path: Path,
    finding: str | None,
    interesting: str | None,
    options: ReduceOptions,
    shared: common.SharedOptions,
) -> Iterator[Problem]:
    if options.of_xla:
        with options.problem(path, shared.module) as problem:
            yield problem
    elif interesting:
        text = module_at(path, shared.module).text
        test = CommandTest(tuple(shlex.split(interesting)), options.timeout)
        yield Problem(text, test, path)
    else:
        settings = common.settings_of([str(path)], shared)
        dump = common.open_given([str(path)], settings, shared)
        yield finding_problem(dump, finding, settings)
