"""`hlo-lint dialects`: what `convert --to` takes."""

from __future__ import annotations

import click


@click.command("dialects")
def command() -> None:
    """List the dialects that `convert --to` takes."""
    from hlo_lint.hlo.dialects import DIALECTS

    width = max(map(len, DIALECTS))
    for name, (meaning, _) in DIALECTS.items():
        click.echo(f"{name.ljust(width)}  {meaning}")
