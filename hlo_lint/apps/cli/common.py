"""The frame of all commands: settings, input, terminal, exit status."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from hlo_lint.analysis.stage import parse_stage
from hlo_lint.apps.settings.load import find_file, read_file
from hlo_lint.apps.settings.settings import LEVELS, OFF, Settings
from hlo_lint.apps.targets import open_paths, piped_dump
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import DumpError, UsageError, nearest, os_errors_as
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from hlo_lint.dumps.compilation import Compilation
    from hlo_lint.dumps.directory import Dump
    from hlo_lint.report.report import Report

_TERMINAL_VARIABLES = frozenset(("FORCE_COLOR", "TTY_COMPATIBLE"))
"""If one of these is set, rich may take any output for a terminal."""

_COLOR = "hlo_lint.color"
"""The key of the value of `--color` in click's context."""

PROGRESS_AFTER = 1.0
"""Seconds of work after which a terminal shows the progress."""
LINE_AFTER = 5.0
"""Seconds after which a slow step is a line where there is no terminal."""


class SharedOptions(NamedTuple):
    """The options that several commands share, as they were given on the command line."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    severity: tuple[str, ...] = ()
    """Each `RULE=LEVEL`."""
    min_severity: str | None = None
    before: str | None = None
    stage: str | None = None
    baseline: Path | None = None
    exclude: tuple[str, ...] = ()
    force_exclude: bool = False
    stdin_filename: str | None = None
    sniff: bool = False
    allow_empty: bool = False
    module: str | None = None
    """The only module whose compilations are looked at."""
    no_cache: bool = False
    config: str | None = None
    isolated: bool = False
    jax: str | None = None
    """The release of jax whose parser `--strict` asks."""


def settings_of(paths: Sequence[str], shared: SharedOptions) -> Settings:
    """The settings for paths, changed by the options.

    Raises:
        ConfigError: for a settings file with something wrong in it.
        UsageError: for a name that neither a rule nor a family has.
    """
    file = settings_file(paths, shared)
    settings = Settings() if file is None else read_file(file)
    settings = settings.reselected(
        names(shared.select), names(shared.ignore) or (), names(shared.extend_select) or ()
    )
    if levels := _levels(shared.severity):
        settings = settings.overridden(severity={**settings.severity, **levels})
    if shared.exclude:
        settings = settings.overridden(exclude=(*settings.exclude, *shared.exclude))
    if shared.jax:
        settings = settings.with_option("parser-refuses", "jax", shared.jax)
    if shared.no_cache:
        settings = settings.overridden(cache=False)
    elif settings.cache is None:
        settings = replace(settings, cache=True)
    settings = settings.restaged(parse_stage(shared.stage) if shared.stage else None)
    if shared.min_severity is not None:
        settings = settings.overridden(min_severity=Severity(shared.min_severity))
    elif settings.min_severity is None:
        settings = replace(settings, min_severity=Severity.WARNING)
    return settings.overridden(
        before=shared.before, baseline=shared.baseline, force_exclude=shared.force_exclude or None
    )


def settings_file(paths: Sequence[str], shared: SharedOptions) -> Path | None:
    """The settings file for paths; None if it is absent, or not to be read."""
    if shared.isolated:
        return None
    if shared.config:
        return Path(shared.config)
    return find_file([shared.stdin_filename] if shared.stdin_filename else paths)


def names(values: Iterable[str]) -> list[str] | None:
    """The names in the values of an option, which may hold several; None if it is empty."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()] or None


def _levels(values: Iterable[str]) -> dict[str, Severity | None]:
    """The severity of each rule, from values `RULE=LEVEL`; None for `off`."""
    levels: dict[str, Severity | None] = {}
    for entry in names(values) or ():
        name, equals, level = entry.partition("=")
        if not equals:
            raise UsageError(f"--severity takes RULE=LEVEL, not {entry}")
        if level not in LEVELS:
            raise UsageError(f"no severity is named {level}: {nearest(level, LEVELS)}")
        levels[name] = None if level == OFF else Severity(level)
    return levels


def open_given(paths: Sequence[str], settings: Settings, shared: SharedOptions) -> Dump:
    """The dump at paths, or on standard input if the path is `-`.

    With `--sniff`, files that hold no HLO are skipped.

    Raises:
        DumpError: for a path that does not exist.
        UsageError: if `-` is one of several paths.
    """
    name = shared.stdin_filename
    if "-" in paths:
        if len(paths) > 1:
            raise UsageError("`-` reads standard input and goes with no other path")
        dump = piped_dump(standard_input(), name)
    elif name:
        raise UsageError("--stdin-filename needs the path `-`, standard input")
    else:
        dump = open_paths(paths, settings)
    if shared.sniff:
        dump.skip_other_files()
    if shared.module is not None:
        from hlo_lint.dumps.selection import only_module

        dump = only_module(dump, shared.module, paths)
    return dump


def standard_input() -> bytes:
    """The bytes on standard input.

    Raises:
        DumpError: if it is closed, or cannot be read.
    """
    if sys.stdin is None:
        raise DumpError("standard input is closed")
    with os_errors_as("standard input: cannot be read"):
        return sys.stdin.buffer.read()


def write_output(content: str | bytes, out: Path | None) -> None:
    """Write to a file; without a path, or for `-`, to standard output."""
    if out is None or str(out) == "-":
        if isinstance(content, str):
            sys.stdout.write(content)
            sys.stdout.flush()
        else:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        return
    from hlo_lint.text.files import write

    write(out, content)


def print_json(**values: object) -> None:
    """Print the answer of a command as JSON, with the version of its fields."""
    import json

    print(json.dumps({"version": 1, **values}, indent=2))


DUMP_EACH_PASS: Final = (
    "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.*' writes it, "
    "as each pass left it"
)


def without_errors(report: Report, shared: SharedOptions) -> Report:
    """The report without the paths that `exit_status` prints as errors, each with its reason."""
    if shared.allow_empty:
        return report
    return replace(report, skipped=tuple(entry for entry in report.skipped if not entry.given))


def exit_status(report: Report, shared: SharedOptions, *, exit_zero: bool = False) -> int:
    """The exit status after a report; 2 after printing the named paths that were not checked.

    So does a crash of a rule, and a limit that was reached.
    """
    if report.unchecked and not shared.allow_empty:
        for entry in report.unchecked:
            place = shown(f"{entry.path}: {entry.reason}")
            advice = f" ({DUMP_EACH_PASS})" if Path(entry.path).is_dir() else ""
            print(f"Error: nothing checked: {place}{advice}", file=sys.stderr)
        return 2
    if report.is_incomplete:
        return 2
    return 0 if exit_zero or report.clean else 1


def choose_color(ctx: click.Context, _: click.Parameter, value: str) -> str:
    """Keep the value of `--color` for `console` and for `click.echo`, also of inner commands."""
    ctx.meta[_COLOR] = value
    is_forced = None
    if os.environ.get("NO_COLOR"):
        is_forced = False
    elif os.environ.get("FORCE_COLOR"):
        is_forced = True
    ctx.color = {"always": True, "never": False}.get(value, is_forced)
    return value


def _color() -> str:
    ctx = click.get_current_context(silent=True)
    return "auto" if ctx is None else ctx.meta.get(_COLOR, "auto")


def is_plain() -> bool:
    """True if a console shows neither colours nor folded lines: rich need not be imported."""
    color = _color()
    if color == "always" or sys.stdout.isatty():
        return False
    return color == "never" or _TERMINAL_VARIABLES.isdisjoint(os.environ)


def console(*, stderr: bool = False) -> Console:
    """Standard output or standard error, with colours as `--color` says."""
    from rich.console import Console

    choices: dict[str, dict[str, Any]] = {
        "always": {"force_terminal": True, "no_color": False, "color_system": "standard"},
        "never": {"color_system": None},
    }
    return Console(stderr=stderr, highlight=False, **choices.get(_color(), {}))


@contextmanager
def progress_bar(dump: Dump, *, wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with numbers of files; a terminal shows them if it takes long."""
    total, done = sum(len(compilation.dumps) for compilation in dump), 0
    with status_line(wanted=wanted, after=PROGRESS_AFTER) as note:

        def advance(files: int) -> None:
            nonlocal done
            done += files
            note(f"checking: {done} of {total} files")

        yield advance


@contextmanager
def status_line(
    *, wanted: bool = True, after: float = 0, line_after: float = inf
) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each step of a slow command; a terminal shows the last step.

    In the first `after` seconds nothing is shown: importing rich takes as long as a check. Without
    a terminal, a step that takes more than `line_after` seconds is printed as a line.
    """
    if not wanted or not sys.stderr.isatty():
        with _slow_steps(line_after if wanted else inf) as note:
            yield note
        return
    begun = time.monotonic()
    status: Status | None = None

    def show(text: str) -> None:
        nonlocal status
        if status is None and time.monotonic() - begun >= after:
            status = console(stderr=True).status("")
            status.start()
        if status is not None:
            from rich.text import Text

            status.update(Text(text))

    try:
        yield show
    finally:
        if status is not None:
            status.stop()


@contextmanager
def _slow_steps(seconds: float) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each step; prints those that take more than `seconds`."""
    timer: threading.Timer | None = None

    def note(text: str) -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        if seconds < inf:
            timer = threading.Timer(seconds, print, (f"{text} …",), {"file": sys.stderr})
            timer.daemon = True
            timer.start()

    try:
        yield note
    finally:
        if timer is not None:
            timer.cancel()


def paired(
    sides: Sequence[Mapping[str, Sequence[Compilation]]], paths: Sequence[object]
) -> list[tuple[Compilation, Compilation]]:
    """The pairs of runs of two directories that compiled modules of equal names.

    Raises:
        UsageError: if there are none.
    """
    pairs = [
        pair
        for name, ours in sides[0].items()
        for pair in zip(ours, sides[1].get(name, []), strict=False)
    ]
    if not pairs:
        ours, theirs = (", ".join(side) or "none" for side in sides)
        raise UsageError(f"no module is in both: {ours} in {paths[0]}, {theirs} in {paths[1]}")
    return pairs


def runs_by_module(folder: Path, module: str | None) -> dict[str, list[Compilation]]:
    """The compilations in a directory by module, or only those of the named module.

    Raises:
        UsageError: none has the given name.
    """
    from hlo_lint.dumps.directory import open_dump
    from hlo_lint.dumps.selection import by_module, only_module

    return by_module(only_module(open_dump(folder), module, [folder]))


def pairs_of(
    before: Path, after: Path, module: str | None
) -> list[tuple[Compilation, Compilation]]:
    """The modules of equal names in two directories; the first of A with the first of B.

    Raises:
        UsageError: no module is in both, or none has the given name.
    """
    sides = [runs_by_module(folder, module) for folder in (before, after)]
    pairs = paired(sides, (before, after))
    for name in sorted({*sides[0], *sides[1]}):
        numbers = [len(side.get(name, ())) for side in sides]
        if numbers[0] != numbers[1]:
            note = f"note: {name}: {numbers[0]} in {before}, {numbers[1]} in {after}"
            print(shown(note), file=sys.stderr)
    return pairs
