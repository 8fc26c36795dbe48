"""Baselines as files, which `check --write-baseline` writes, or prunes with `--prune-baseline`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.settings.toml_locations import displayed
from hlo_lint.engine.suppressions.baseline import (
    Baseline,
    read_baseline,
    updated_baseline,
    write_baseline,
)
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown


def listing_all(settings: Settings) -> Settings:
    """The settings of a check whose findings go into a baseline: all are reported."""
    return replace(settings, baseline=None, min_severity=Severity.INFO, max_findings=None)


def update_baseline(path: Path, report: Report, settings: Settings, *, prune: bool) -> None:
    """Write the findings of a report to a baseline, and print how many there are.

    Reasons in the file are kept, and so are entries of rules that did not run. With `prune`,
    entries without a finding are removed and no entry is added.

    Raises:
        DumpError: the file is not a baseline, or cannot be written.
    """
    path = displayed(path)
    is_new = not prune and not path.is_file()
    baseline = Baseline(path) if is_new else read_baseline(path)
    ran = {rule.name() for rule in settings.chosen_rules()}
    not_run = {rule.name() for rule in all_rules()} - ran
    updated, new, gone = updated_baseline(baseline, report.findings, not_run, prune=prune)
    write_baseline(updated)
    findings = counted(sum(entry.count for entry in updated.entries), "finding")
    click.echo(shown(f"{path}: {findings}, {'' if prune else f'{new} new, '}{gone} gone"))
