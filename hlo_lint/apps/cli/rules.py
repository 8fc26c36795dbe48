"""`hlo-lint rules`: lists all rules."""

from __future__ import annotations

import click


@click.command("rules")
def command() -> None:
    """List every rule: family, name, severity, and what it reports."""
    from hlo_lint.rules.registry import all_rules

    rows = [("family", "rule", "severity", "fix", "finds")]
    for rule in all_rules():
        severity, fixable = rule.severity.value, "yes" if rule.fixable() else "no"
        rows.append((rule.family(), rule.name(), severity, fixable, rule.summary()))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
