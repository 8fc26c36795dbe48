"""The command line: each command calls one function of `hlo_lint.api`, imported when it runs."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlo_lint import __version__

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lint.api import FixResult, Report
    from hlo_lint.conversion import Written
    from hlo_lint.dumps.directory import Dump
    from hlo_lint.findings import Applied

PROGRESS_AFTER = 1.0
"""Seconds of work before a terminal sees a progress bar."""

_paths = click.argument("paths", nargs=-1, required=True, metavar="PATH…")
_select = click.option(
    "--select", multiple=True, metavar="RULE", help="Only these rules or families (repeatable)."
)
_ignore = click.option(
    "--ignore", multiple=True, metavar="RULE", help="Not these rules or families (repeatable)."
)
_before = click.option(
    "--before",
    metavar="PASS",
    help="The pass that comes next, where the dump does not say: layout_normalization, autotuner.",
)


LATE = ("bisect", "config-diff", "diff", "match", "passes", "server")
"""Commands with a module of their own in `hlo_lint.commands`, imported when asked for."""


class _Commands(click.Group):
    """Imports a command late; what is raised on purpose becomes one line and exit status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *LATE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in LATE:
            module = import_module(f"hlo_lint.commands.{cmd_name.replace('-', '_')}")
            found: click.Command = module.command
            return found
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        from hlo_lint.errors import HloLintError

        try:
            return super().invoke(ctx)
        except HloLintError as error:
            raise _Stop(str(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if os.environ.get("HLO_LINT_TRACEBACK"):
                raise
            raise _Stop(
                f"internal error: {type(error).__name__}: {error}\n"
                "This is a defect of hlo-lint. HLO_LINT_TRACEBACK=1 shows where; please report it "
                "with the file."
            ) from error


class _Stop(click.ClickException):
    exit_code = 2


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hlo-lint")
def cli() -> None:
    """Finds what one XLA pass broke for another, in dumped HLO, and fixes it.

    Exit status: 0 clean, 1 at least one error or warning, 2 wrong use or internal error.
    """


@cli.command()
@_paths
@_select
@_ignore
@_before
@click.option(
    "--output-format",
    type=click.Choice(["text", "concise", "json"]),
    default="text",
    show_default=True,
    envvar="HLO_LINT_OUTPUT_FORMAT",
)
@click.option(
    "--cured", is_flag=True, help="Look at every step: tell what a later pass cured, too."
)
@click.pass_context
def check(
    ctx: click.Context,
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    before: str | None,
    output_format: str,
    cured: bool,
) -> None:
    """Check dump directories and files of HLO; `-` is standard input."""
    from hlo_lint.api import lint

    dump = _dump(paths)
    with _progress(dump) as progress:
        report = lint(dump, _names(select), _names(ignore), before, cured=cured, progress=progress)
    _print_report(report, output_format)
    ctx.exit(report.exit_status)


@cli.command()
@click.argument("path")
@click.argument("rule", required=False)
@_before
@click.option("--json", "as_json", is_flag=True, help="The report of `check`, as JSON.")
@click.pass_context
def blame(
    ctx: click.Context, path: str, rule: str | None, before: str | None, as_json: bool
) -> None:
    """Say of each finding in PATH, or of RULE's, which pass it came with and which cured it.

    Exit status: 1 where `check` has it too, else 0.
    """
    from hlo_lint.api import lint
    from hlo_lint.report.lives import print_lives

    dump = _dump((path,))
    with _progress(dump) as progress:
        report = lint(dump, rule and [rule], None, before, cured=True, progress=progress)
    if as_json:
        click.echo(report.to_json(), nl=False)
    else:
        print_lives(_console(), report.findings)
    ctx.exit(report.exit_status)


@cli.command()
@_paths
@_select
@_ignore
@_before
@click.option("--diff", is_flag=True, help="Print what would change; write nothing.")
@click.option(
    "--form",
    type=click.Choice(["copy", "transpose"]),
    help="How a move of bytes is spelled; by default as copy where layout_normalization comes "
    "next, else as transpose.",
)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Write here instead of in place: a file for one file, else a folder.",
)
@click.pass_context
def fix(
    ctx: click.Context,
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    before: str | None,
    diff: bool,
    form: str | None,
    out: Path | None,
) -> None:
    """Mend what has a fix, in place unless told otherwise; the rest of each file stays as it is.

    Exit status: 0 when nothing is left, 1 otherwise.
    """
    from hlo_lint.api import fix as fix_all
    from hlo_lint.api import write_fixed

    dump = _dump(paths)
    with _progress(dump) as progress:
        result = fix_all(dump, _names(select), _names(ignore), before, form=form, progress=progress)
    errors = _console(stderr=True)
    if diff:
        for file in result.files:
            _print_diff(file)
    elif "-" in paths or str(out) == "-":
        _write_piped(result, None if str(out) == "-" else out)
    else:
        written = list(write_fixed(result, [Path(path) for path in paths], out))
        errors.print(_fixed(result, written), highlight=False, markup=False, soft_wrap=True)
    result.remaining.print(errors)
    ctx.exit(result.remaining.exit_status)


@cli.command()
@_paths
@click.option(
    "--to",
    "dialects",
    multiple=True,
    metavar="DIALECT",
    help="A dialect (repeatable, one after the other); `hlo-lint dialects` lists them.",
)
@click.option(
    "-o",
    "--output",
    "out",
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Write here: a file for one file, else a folder. `.hlo.pb`, `.pbtxt`, `.hlo_snapshot.pb`, "
    "also with `.gz`, are protocol buffers. By default a text goes to standard output.",
)
def convert(paths: tuple[str, ...], dialects: tuple[str, ...], out: Path | None) -> None:
    """Spell HLO as another release prints it, or write it in another format.

    PATH is a file, text or protocol buffer, `-` for standard input, or a directory of which the HLO
    texts are converted and the rest copied. Without --to the text stays as it is.
    """
    from hlo_lint.conversion import convert_file, convert_text, convert_tree, in_format
    from hlo_lint.errors import UsageError
    from hlo_lint.writing import write_atomically

    names = _names(dialects) or []
    if "-" in paths and len(paths) > 1:
        raise UsageError("`-` reads standard input and goes with no other path")
    given = [Path(path) for path in paths]
    if paths != ("-",) and (len(given) > 1 or given[0].is_dir()):
        if out is None or str(out) == "-":
            raise UsageError("several files need a folder to go to: -o OUT")
        _report_conversion(list(convert_tree(given, out, names)), out)
        return
    if paths == ("-",):
        converted = convert_text(sys.stdin.buffer.read(), names)
    else:
        converted = convert_file(given[0], names)
    if out is None or str(out) == "-":
        sys.stdout.buffer.write(in_format(converted.text, Path("-")))
        sys.stdout.buffer.flush()
    else:
        target = out / given[0].name if out.is_dir() and paths != ("-",) else out
        write_atomically(target, in_format(converted.text, target))
    _print_notes(converted.notes)


@cli.command()
def dialects() -> None:
    """List the dialects that `convert --to` takes."""
    from hlo_lint.dialects import DIALECTS

    width = max(map(len, DIALECTS))
    for name, (meaning, _) in DIALECTS.items():
        click.echo(f"{name.ljust(width)}  {meaning}")


@cli.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("instruction")
def payload(path: Path, instruction: str) -> None:
    """Print what INSTRUCTION of the HLO in PATH carries: a kernel, its launch, its tuning."""
    from hlo_lint.api import payload_text

    click.echo(payload_text(path, instruction), nl=False)


@cli.command()
def rules() -> None:
    """List every rule: family, name, what it says."""
    from hlo_lint.registry import all_rules

    rows = [("family", "rule", "severity", "fix", "finds")]
    for rule in all_rules():
        severity, fixable = rule.severity.value, "yes" if rule.fixable() else "no"
        rows.append((rule.family(), rule.name(), severity, fixable, rule.summary()))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


@cli.command()
@click.argument("rule")
def explain(rule: str) -> None:
    """Say why RULE matters, with a bad and a good example."""
    from hlo_lint.registry import find_rule
    from hlo_lint.report.page import render_page

    click.echo(render_page(find_rule(rule)), nl=False)


def main() -> None:
    """The `hlo-lint` program."""
    gc.disable()  # one short run: what is read lives until the report, and nothing makes cycles
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        cli(prog_name="hlo-lint")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)


def _names(given: Iterable[str]) -> list[str] | None:
    names = [name.strip() for entry in given for name in entry.split(",") if name.strip()]
    return names or None


def _dump(paths: Sequence[str]) -> Dump:
    from hlo_lint.api import piped_dump
    from hlo_lint.dumps.directory import open_dump
    from hlo_lint.errors import UsageError

    if "-" not in paths:
        return open_dump(paths)
    if len(paths) > 1:
        raise UsageError("`-` reads standard input and goes with no other path")
    return piped_dump(sys.stdin.buffer.read())


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def _print_report(report: Report, output_format: str) -> None:
    match output_format:
        case "json":
            click.echo(report.to_json(), nl=False)
        case "concise":
            from hlo_lint.report.text import render_concise

            for finding in report.findings:
                click.echo(render_concise(finding))
        case _:
            report.print(_console())


def _fixed(result: FixResult, written: Sequence[Path]) -> str:
    edits = len(result.edits)
    if not edits:
        return "nothing to fix"
    where = str(written[0]) if len(written) == 1 else f"{len(written)} files"
    return f"fixed {edits} instruction{'' if edits == 1 else 's'} in {where}"


def _report_conversion(written: Sequence[Written], out: Path) -> None:
    from hlo_lint.conversion import summed_notes

    copied = [each.source for each in written if each.notes is None]
    done = len(written) - len(copied)
    line = f"converted {done} file{'' if done == 1 else 's'} to {out}"
    if copied:
        kinds = sorted({path.suffix.removeprefix(".") or path.name for path in copied})
        line += f"; copied {len(copied)} without HLO text ({', '.join(kinds)})"
    click.echo(line, err=True)
    _print_notes(summed_notes(written))


def _print_notes(notes: Mapping[str, int]) -> None:
    for note, count in notes.items():
        times = f" ({count} times)" if count > 1 else ""
        click.echo(f"note: {note}{times}", err=True)


def _write_piped(result: FixResult, out: Path | None) -> None:
    from hlo_lint.source import encode
    from hlo_lint.writing import write_atomically

    if out is not None:
        write_atomically(out, result.text)
        return
    sys.stdout.buffer.write(encode(result.text))
    sys.stdout.buffer.flush()


def _print_diff(file: Applied) -> None:
    from difflib import unified_diff

    from hlo_lint.source import encode

    name = str(file.path)
    before, after = (_lines(text) for text in (file.before, file.after))
    for line in unified_diff(before, after, name, name, n=2):
        end = "" if line.endswith("\n") else "\n\\ No newline at end of file\n"
        sys.stdout.buffer.write(encode(line + end))
    sys.stdout.buffer.flush()


def _lines(text: str) -> list[str]:
    """The lines with their ends; only a line feed ends one, as for `diff` and `patch`."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


@contextmanager
def _progress(dump: Dump) -> Iterator[Any]:
    """A function to call with numbers of files; on a terminal a bar appears when it takes long."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import Progress

    total = sum(len(pipeline.dumps) for pipeline in dump)
    begun = time.monotonic()
    bar = Progress(console=_console(stderr=True), transient=True)
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
