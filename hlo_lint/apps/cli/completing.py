"""The names that a shell completes; each table is loaded when a shell asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

Complete = Callable[["click.Context", "click.Parameter", str], "list[CompletionItem]"]


def _matching(names: Iterable[str], begun: str, prefix: str = "") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(prefix + name) for name in sorted(names) if name.startswith(begun)]


def paths(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Files and folders, by the shell itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="file")]


def rules(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """The names of rules and families, also after a comma."""
    from hlo_lint.rules.registry import known_names

    done, comma, last = begun.rpartition(",")
    return _matching(known_names(), last, done + comma)


def levels(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """`RULE=LEVEL`."""
    from hlo_lint.apps.cli.common import LEVELS
    from hlo_lint.rules.registry import known_names

    name, equals, level = begun.partition("=")
    if equals:
        return _matching(LEVELS, level, name + equals)
    return _matching((f"{name}=" for name in known_names()), name)


def passes(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """The passes that a rule binds before."""
    from hlo_lint.engine.preconditions import binding_passes

    return _matching(binding_passes(), begun)


def targets(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """The chips that come with the package; else a file."""
    from hlo_lint.apps.jax.capture.targets import TPUS, target_names

    return _matching((*target_names(), *TPUS), begun) or paths(_, __, begun)
