"""The report of a run: findings, allowed findings, skipped inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lint.dumps.directory import Skipped
from hlo_lint.rules.findings import INTERNAL_ERROR, Severity
from hlo_lint.text.phrases import counted

if TYPE_CHECKING:
    from rich.console import Console

    from hlo_lint.engine.findings import Diagnostic, SuppressedFinding


MAX_SHOWN = 50
"""Findings that a notebook shows."""


@dataclass(eq=False, repr=False)
class Report:
    """The result of `lint`. It prints as the command line prints."""

    findings: tuple[Diagnostic, ...]
    skipped: tuple[Skipped, ...]
    """Inputs that were not checked, with the reason."""
    stats: dict[str, int]
    """`files` and `modules` that were read, `errors`, `warnings`, `infos`; `resolved`, those that
    were seen and are not among the findings, since a later pass resolved them; `hidden`, those less
    severe than the settings ask for."""
    allowed: tuple[SuppressedFinding, ...] = ()
    """Findings that are allowed, with the reason; they do not count."""
    hidden: tuple[Diagnostic, ...] = ()
    """Findings less severe than `Settings.min_severity`; they do not count."""

    @property
    def clean(self) -> bool:
        """True if there is neither an error nor a warning."""
        return not any(f.severity is not Severity.INFO for f in self.findings)

    @property
    def exit_status(self) -> int:
        """2 if something that the caller named was not checked, or not all of it, since a rule
        crashed or a limit was reached; else 0 if it is clean, else 1."""
        if self.unchecked or self.is_incomplete:
            return 2
        return 0 if self.clean else 1

    @property
    def is_incomplete(self) -> bool:
        """True if a rule or a reader crashed, or a limit was reached: findings may be missing."""
        crashed = any(finding.rule == INTERNAL_ERROR for finding in self.findings)
        return crashed or any(entry.cut for entry in self.skipped)

    @property
    def resolved(self) -> tuple[Diagnostic, ...]:
        """The findings that a later pass resolved, which are reported as information."""
        return tuple(finding for finding in self.findings if finding.is_resolved)

    @property
    def unchecked(self) -> tuple[Skipped, ...]:
        """The paths that the caller named and of which nothing was checked."""
        return tuple(entry for entry in self.skipped if entry.given)

    def skipped_by_reason(self, *, minor: bool = True) -> dict[str, list[str]]:
        """The paths that were skipped, by the reason: a rule or a file may have one in common.

        Without `minor`, only the reasons that change what follows from the findings.
        """
        reasons: dict[str, dict[str, None]] = {}
        for entry in self.skipped:
            if entry.minor and not (minor or entry.given):
                continue
            reasons.setdefault(entry.reason, {})[entry.path] = None
        return {reason: list(paths) for reason, paths in reasons.items()}

    def to_json(self) -> str:
        """The report as one JSON object."""
        from hlo_lint.report.formats import render

        return render(self, "json")

    def print(self, console: Console) -> None:
        """Print it for people."""
        from hlo_lint.report.text import print_report

        print_report(console, self)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.findings)

    def __getitem__(self, number: int) -> Diagnostic:
        return self.findings[number]

    def __bool__(self) -> bool:
        return True  # `clean` is the question; a report may be clean and hold information

    def __repr__(self) -> str:
        severities = [counted(self.stats.get(f"{s.value}s", 0), s.value) for s in Severity]
        modules = counted(self.stats.get("modules", 0), "module")
        unchecked = f"; {len(self.unchecked)} not checked" if self.unchecked else ""
        return f"<Report: {', '.join(severities)} in {modules}{unchecked}>"

    def _repr_html_(self) -> str:
        from hlo_lint.text.notebook import folded

        shown = self.findings[:MAX_SHOWN]
        findings = "".join(diagnostic.html() for diagnostic in shown)
        if len(self) > len(shown):
            findings += f"<i>… {len(self) - len(shown):,} more findings</i>"
        return folded(repr(self)[1:-1], findings, is_open=True)

    def __str__(self) -> str:
        from hlo_lint.report.formats import render

        return render(self, "text")
