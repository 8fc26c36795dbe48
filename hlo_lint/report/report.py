"""The report of a run: findings, allowed findings, skipped inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_lint.dumps.directory import Skipped
from hlo_lint.engine.findings import Diagnostic, SuppressedFinding
from hlo_lint.rules.findings import Severity

if TYPE_CHECKING:
    from rich.console import Console


@dataclass
class Report:
    """The result of `lint`. It prints as the command line prints."""

    findings: tuple[Diagnostic, ...]
    skipped: tuple[Skipped, ...]
    """Inputs that were not checked, with the reason."""
    stats: dict[str, int]
    """`files` and `modules` that were read, `errors`, `warnings`, `infos`."""
    allowed: tuple[SuppressedFinding, ...] = ()
    """Findings that are allowed, with the reason; they do not count."""

    @property
    def clean(self) -> bool:
        """True if there is neither an error nor a warning."""
        return not any(f.severity is not Severity.INFO for f in self.findings)

    @property
    def exit_status(self) -> int:
        """2 if something that the caller named was not checked, else 0 if it is clean, else 1."""
        if self.unchecked:
            return 2
        return 0 if self.clean else 1

    @property
    def unchecked(self) -> tuple[Skipped, ...]:
        """The paths that the caller named and of which nothing was checked."""
        return tuple(entry for entry in self.skipped if entry.given)

    def to_json(self) -> str:
        """The report as one JSON object."""
        from hlo_lint.report.formats import render

        return render(self, "json")

    def print(self, console: Console) -> None:
        """Print it for people."""
        from hlo_lint.report.text import print_report

        print_report(console, self)

    def __str__(self) -> str:
        from hlo_lint.report.formats import render

        return render(self, "text")
