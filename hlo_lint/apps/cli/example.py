"""`hlo-lint example`: a real dump to try the commands on."""

from __future__ import annotations

from pathlib import Path

import click

from hlo_lint.apps.cli import parameters
from hlo_lint.apps.examples import EXAMPLES, write_example_dump
from hlo_lint.text.errors import UsageError, os_errors_as
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown


@click.command("example")
@click.argument("name", type=click.Choice(tuple(EXAMPLES)), required=False, metavar="[NAME]")
@parameters.output_option()
def command(name: str | None, out: Path | None) -> None:
    """Write a real dump, to try the commands on.

    Without a NAME they are listed. The folder is NAME, or that of -o: empty, or a new one.

    Exit status: 0 done, 2 wrong use.
    """
    if name is None:
        for example, about in EXAMPLES.items():
            click.echo(f"{example:9} {about}")
        return
    folder = Path(name) if out is None else out
    with os_errors_as(shown(str(folder))):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists and is not an empty folder: name another with -o")
        write_example_dump(name, folder)
        number = sum(path.is_file() for path in folder.rglob("*"))
    click.echo(shown(f"{folder}: {counted(number, 'file')}"), err=True)
