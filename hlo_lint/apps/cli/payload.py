"""`hlo-lint payload`: what a custom call carries."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("payload")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("instruction")
def command(path: Path, instruction: str) -> None:
    """Print the payload of INSTRUCTION in the HLO in PATH: a kernel, its launch, its tuning."""
    from hlo_lint.apps.api import payload_text

    click.echo(payload_text(path, instruction), nl=False)
