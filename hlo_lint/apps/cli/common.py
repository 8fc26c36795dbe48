"""What several commands share: options, settings, the input, the terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.dumps.directory import Dump
    from hlo_lint.dumps.pipeline import Pipeline
    from hlo_lint.rules.findings import Severity

PROGRESS_AFTER = 1.0
"""Seconds of work before a terminal sees a progress bar."""

LEVELS = ("error", "warning", "info", "off")

Command = TypeVar("Command", bound=Callable[..., object])

paths_argument = click.argument("paths", nargs=-1, required=True, metavar="PATH…")
before_option = click.option(
    "--before",
    metavar="PASS",
    help="The pass that comes next, where the dump does not say: layout_normalization, autotuner.",
)


def _leave_plugins_out(ctx: click.Context, _: click.Parameter, wanted: bool) -> bool:
    """In the environment, so that processes of `--jobs` do as this one."""
    from hlo_lint.rules.plugins import ISOLATED, is_isolated

    if wanted and not is_isolated():
        os.environ[ISOLATED] = "1"
        ctx.call_on_close(lambda: os.environ.pop(ISOLATED))
    return wanted


_files = (
    click.option("--config", metavar="FILE", help="The settings file, instead of looking for one."),
    click.option(
        "--isolated",
        is_flag=True,
        callback=_leave_plugins_out,
        help="Read no settings file, and run no rules of other packages.",
    ),
)
_choice = (
    click.option(
        "--select", multiple=True, metavar="RULE", help="Only these rules or families (repeatable)."
    ),
    click.option(
        "--ignore", multiple=True, metavar="RULE", help="Not these rules or families (repeatable)."
    ),
    click.option(
        "--extend-select", multiple=True, metavar="RULE", help="These besides those selected."
    ),
    click.option(
        "--extend-ignore", multiple=True, metavar="RULE", help="Not these, besides those ignored."
    ),
    click.option(
        "--severity",
        multiple=True,
        metavar="RULE=LEVEL",
        help=f"How bad a finding of a rule or a family is: {', '.join(LEVELS)} (repeatable).",
    ),
    before_option,
    click.option(
        "--baseline",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Findings that are known and not told again.",
    ),
)
_input = (
    click.option(
        "--exclude",
        multiple=True,
        metavar="GLOB",
        help="Files and folders to pass by (repeatable).",
    ),
    click.option(
        "--force-exclude", is_flag=True, help="Pass by files that are given by name, too."
    ),
    click.option(
        "--stdin-filename", metavar="NAME", help="What the text on standard input is a file of."
    ),
    click.option(
        "--sniff", is_flag=True, help="Skip a file that holds no HLO, whatever its name; say so."
    ),
)
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colours; auto obeys NO_COLOR, FORCE_COLOR and whether there is a terminal.",
)


def settings_options(command: Command) -> Command:
    """The options that change settings, and those that say what is looked at."""
    for option in reversed((*_choice, *_input, *_files)):
        command = option(command)
    return command


def rule_options(command: Command) -> Command:
    """The options that change settings, for what is no file of the caller's."""
    for option in reversed((*_choice, *_files)):
        command = option(command)
    return command


def file_options(command: Command) -> Command:
    """The options that say which settings file is read."""
    for option in reversed(_files):
        command = option(command)
    return command


def settings_of(paths: Sequence[str], given: Mapping[str, Any]) -> Settings:
    """The settings for paths, with what the options of `settings_options` change.

    Raises:
        ConfigError: for a settings file with something wrong in it.
        UsageError: for a name that neither a rule nor a family has.
    """
    from hlo_lint.apps.settings.load import read
    from hlo_lint.apps.settings.settings import Settings

    file = settings_file(paths, given)
    settings = Settings() if file is None else read(file)
    settings = settings.reselected(
        names(given.get("select", ())),
        names(given.get("ignore", ())) or (),
        names(given.get("extend_select", ())) or (),
        names(given.get("extend_ignore", ())) or (),
    )
    if levels := _levels(given.get("severity", ())):
        settings = settings.overridden(severity={**settings.severity, **levels})
    if exclude := given.get("exclude"):
        settings = settings.overridden(exclude=(*settings.exclude, *exclude))
    return settings.overridden(
        before=given.get("before"),
        baseline=given.get("baseline"),
        force_exclude=given.get("force_exclude") or None,
    )


def settings_file(paths: Sequence[str], given: Mapping[str, Any]) -> Path | None:
    """The settings file that holds for paths; None where there is none, or none is wanted."""
    from hlo_lint.apps.settings.load import find

    if given.get("isolated"):
        return None
    if given.get("config"):
        return Path(given["config"])
    name = given.get("stdin_filename")
    return find([name] if name else paths)


def names(given: Iterable[str]) -> list[str] | None:
    """Names that were given one by one or with commas between; None where none was."""
    names = [name.strip() for entry in given for name in entry.split(",") if name.strip()]
    return names or None


def _levels(given: Iterable[str]) -> dict[str, Severity | None]:
    """What `RULE=LEVEL` says, for each rule."""
    from hlo_lint.rules.findings import Severity
    from hlo_lint.text.errors import UsageError, nearest

    levels: dict[str, Severity | None] = {}
    for entry in names(given) or ():
        name, equals, level = entry.partition("=")
        if not equals:
            raise UsageError(f"--severity takes RULE=LEVEL, not {entry}")
        if level not in LEVELS:
            raise UsageError(f"no severity is named {level}: {nearest(level, LEVELS)}")
        levels[name] = None if level == "off" else Severity(level)
    return levels


def open_given(
    paths: Sequence[str], settings: Settings | None = None, given: Mapping[str, Any] | None = None
) -> Dump:
    """What lies under paths, or came through a pipe where `-` is the path.

    With `sniff` among the options files that hold something else are skipped.

    Raises:
        DumpError: for a path that is not there.
        UsageError: where `-` is one of several.
    """
    from hlo_lint.apps.api import open_paths, piped_dump
    from hlo_lint.text.errors import UsageError

    said = given or {}
    name = said.get("stdin_filename")
    if "-" in paths:
        if len(paths) > 1:
            raise UsageError("`-` reads standard input and goes with no other path")
        dump = piped_dump(sys.stdin.buffer.read(), name)
    elif name:
        raise UsageError("--stdin-filename names what is read where the path is `-`")
    else:
        dump = open_paths(paths, settings)
    if said.get("sniff"):
        from hlo_lint.dumps.sniffing import skip_others

        skip_others(dump)
    return dump


def console(*, stderr: bool = False, color: str = "auto") -> Console:
    """Standard output or standard error, with colours where there is a terminal."""
    from rich.console import Console

    match color:
        case "always":
            return Console(
                stderr=stderr,
                highlight=False,
                force_terminal=True,
                no_color=False,
                color_system="standard",
            )
        case "never":
            return Console(stderr=stderr, highlight=False, color_system=None)
        case _:
            return Console(stderr=stderr, highlight=False)


@contextmanager
def progress_bar(dump: Dump, *, wanted: bool = True) -> Iterator[Any]:
    """A function to call with numbers of files; on a terminal a bar appears when it takes long."""
    if not wanted or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress

    total = sum(len(pipeline.dumps) for pipeline in dump)
    begun = time.monotonic()
    bar = Progress(console=console(stderr=True), transient=True)
    task = bar.add_task("checking", total=total)
    started = False

    def advance(files: int) -> None:
        nonlocal started
        bar.advance(task, files)
        if not started and time.monotonic() - begun > PROGRESS_AFTER:
            started = True
            bar.start()

    try:
        yield advance
    finally:
        if started:
            bar.stop()


def paired(
    sides: Sequence[Mapping[str, Sequence[Pipeline]]], paths: Sequence[object]
) -> list[tuple[Pipeline, Pipeline]]:
    """The runs of two directories that are of one module, by its name.

    Raises:
        UsageError: where there are none.
    """
    from hlo_lint.text.errors import UsageError

    pairs = [
        pair
        for name, ours in sides[0].items()
        for pair in zip(ours, sides[1].get(name, []), strict=False)
    ]
    if not pairs:
        ours, theirs = (", ".join(each) or "none" for each in sides)
        raise UsageError(f"no module is in both: {ours} in {paths[0]}, {theirs} in {paths[1]}")
    return pairs
