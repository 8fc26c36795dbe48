"""`hlo-lint cache`: the findings of earlier runs."""

from __future__ import annotations

import click

from hlo_lint.engine.cache.store import Store, findings_folder
from hlo_lint.text.errors import os_errors_as


@click.command("cache")
@click.argument("action", type=click.Choice(["info", "clear"]))
def command(action: str) -> None:
    """Print where earlier findings are kept, or remove them.

    A file whose content, rules and settings are those of an earlier run is not checked again. The
    folder is HLO_LINT_CACHE_DIR, else the user's.
    """
    store = Store(findings_folder())
    if action == "clear":
        with os_errors_as(f"{store.path}: cannot be removed"):
            store.clear()
        return
    info = store.info()
    click.echo(f"{info.path}: {info.entries} entries, {info.bytes / 1e6:.1f} MB")
