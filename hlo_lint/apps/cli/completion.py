"""`hlo-lint completion`: the script that lets a shell complete its commands."""

from __future__ import annotations

import click

from hlo_lint.apps.cli.main import cli

VARIABLE = "_HLO_LINT_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script with which a shell completes commands.

    It completes options, rules, passes and targets, too.

    In ~/.bashrc (bash 4.4 or later): eval "$(hlo-lint completion bash)". In ~/.zshrc, after
    compinit: eval "$(hlo-lint completion zsh)". In fish: hlo-lint completion fish | source.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "hlo-lint", VARIABLE).source())
