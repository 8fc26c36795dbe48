"""`hlo-lint explain`: the page of a rule."""

from __future__ import annotations

import click

from hlo_lint.apps.cli import completion
from hlo_lint.report.page import render_page
from hlo_lint.rules.registry import find_rule


@click.command("explain")
@click.argument("rule", shell_complete=completion.rules)
def command(rule: str) -> None:
    """Print why RULE matters, with a bad and a good example."""
    click.echo(render_page(find_rule(rule)), nl=False)
