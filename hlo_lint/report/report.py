"""The report of a run: what was found, what may stay, what was not looked at."""

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
    """What `lint` found. It prints as the command line prints."""

    findings: tuple[Diagnostic, ...]
    skipped: tuple[Skipped, ...]
    """What was not looked at, and why."""
    stats: dict[str, int]
    """`files` and `modules` that were read, `errors`, `warnings`, `infos`."""
    allowed: tuple[SuppressedFinding, ...] = ()
    """What was found and may stay, with the reason; it counts for nothing."""

    @property
    def clean(self) -> bool:
        """True if there is neither an error nor a warning."""
        return not any(f.severity is not Severity.INFO for f in self.findings)

    @property
    def exit_status(self) -> int:
        """0 where it is clean, else 1."""
        return 0 if self.clean else 1

    def to_json(self) -> str:
        """The report as one JSON object."""
        from hlo_lint.report.formats import render

        return render(self, "json")

    def print(self, console: Console) -> None:
        """Prints it for people."""
        from hlo_lint.report.text import print_report

        print_report(console, self)

    def __str__(self) -> str:
        from hlo_lint.report.formats import render

        return render(self, "text")
