"""`hlo-lint rules`: lists all rules."""

from __future__ import annotations

import json

import click

from hlo_lint.apps.cli import parameters
from hlo_lint.apps.cli.tables import print_table
from hlo_lint.rules.registry import all_rules


@click.command("rules")
@parameters.output_format("text", "json")
def command(output_format: str) -> None:
    """List every rule with its family, its severity and its finding."""
    if output_format == "json":
        listed = [
            {
                "name": rule.name(),
                "family": rule.family(),
                "severity": rule.severity.value,
                "fixable": rule.fixable(),
                "summary": rule.summary(),
            }
            for rule in all_rules()
        ]
        click.echo(json.dumps(listed, indent=2))
        return
    rows = [("family", "rule", "severity", "fix", "finds")]
    for rule in all_rules():
        severity, fixable = rule.severity.value, "yes" if rule.fixable() else "no"
        rows.append((rule.family(), rule.name(), severity, fixable, rule.summary()))
    print_table(rows)
