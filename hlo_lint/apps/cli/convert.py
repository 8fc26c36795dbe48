"""`hlo-lint convert`: HLO as another release prints it, or in another format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hlo_lint.apps.cli import common, completing, options, parameters
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from hlo_lint.apps.converted_files import Written


@click.command("convert")
@parameters.paths_argument
@click.option(
    "--to",
    "dialects",
    multiple=True,
    metavar="DIALECT",
    shell_complete=completing.dialects,
    help="A dialect (repeatable, one after the other); `hlo-lint dialects` lists them.",
)
@options.written_to(
    "OUT",
    "Write here: a file for one file, else a folder. `.hlo.pb`, `.pbtxt`, `.hlo_snapshot.pb`, "
    "also with `.gz`, are protocol buffers. By default a text goes to standard output.",
)
def command(paths: tuple[str, ...], dialects: tuple[str, ...], out: Path | None) -> None:
    """Write HLO as another release prints it, or in another format.

    PATH is a file, text or protocol buffer, `-` for standard input, or a directory of which the HLO
    texts are converted and the rest copied. Without --to the text stays as it is.
    """
    from hlo_lint.apps.converted_files import convert_file, convert_text, convert_tree, in_format
    from hlo_lint.text.errors import UsageError

    names = common.names(dialects) or []
    if "-" in paths and len(paths) > 1:
        raise UsageError("`-` reads standard input and goes with no other path")
    given = [Path(path) for path in paths]
    if paths != ("-",) and (len(given) > 1 or given[0].is_dir()):
        if out is None or str(out) == "-":
            raise UsageError("several files need an output folder: -o OUT")
        _report_conversion(list(convert_tree(given, out, names)), out)
        return
    if paths == ("-",):
        converted = convert_text(common.standard_input(), names)
    else:
        converted = convert_file(given[0], names)
    target = out or Path("-")
    if target.is_dir() and paths != ("-",):
        target /= given[0].name
    common.write_output(in_format(converted.text, target), target)
    _print_notes(converted.notes)


def _report_conversion(written: Sequence[Written], out: Path) -> None:
    from hlo_lint.apps.converted_files import summed_notes

    copied = [file.source for file in written if file.notes is None]
    done = len(written) - len(copied)
    line = f"converted {counted(done, 'file')} to {out}"
    if copied:
        kinds = sorted({path.suffix.removeprefix(".") or path.name for path in copied})
        line += f"; copied {len(copied)} without HLO text ({', '.join(kinds)})"
    click.echo(shown(line), err=True)
    _print_notes(summed_notes(written))


def _print_notes(notes: Mapping[str, int]) -> None:
    for note, count in notes.items():
        times = f" ({count} times)" if count > 1 else ""
        click.echo(shown(f"note: {note}{times}"), err=True)
