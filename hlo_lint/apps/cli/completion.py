"""`hlo-lint completion`: the script that lets a shell complete its commands, and the names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

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

    from hlo_lint.apps.cli.main import cli

    shell_class = get_completion_class(shell)
    assert shell_class is not None
    click.echo(shell_class(cli, {}, "hlo-lint", VARIABLE).source())


def _matching(names: Iterable[str], begun: str, prefix: str = "") -> list[str]:
    return [prefix + name for name in sorted(names) if name.startswith(begun)]


def paths(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Files and folders, by the shell itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


def rules(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The names of rules and families, also after a comma."""
    from hlo_lint.rules.registry import known_names

    done, comma, last = begun.rpartition(",")
    return _matching(known_names(), last, done + comma)


def levels(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """`RULE=LEVEL`."""
    from hlo_lint.apps.settings.settings import LEVELS
    from hlo_lint.rules.registry import known_names

    name, equals, level = begun.partition("=")
    if equals:
        return _matching(LEVELS, level, name + equals)
    return _matching((f"{name}=" for name in known_names()), name)


def pass_names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The passes that a rule binds before."""
    from hlo_lint.dumps.phases import BINDING_PASSES

    return _matching(BINDING_PASSES, begun)


def targets(_: click.Context, __: click.Parameter, begun: str) -> Sequence[str | CompletionItem]:
    """The chips that come with the package; else a file."""
    from hlo_lint.apps.jax.capture.targets import TPUS, target_names

    return _matching((*target_names(), *TPUS), begun) or paths(_, __, begun)
