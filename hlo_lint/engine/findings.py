"""Findings with their places and their history, as reports show them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from hlo_lint.rules.findings import Severity
from hlo_lint.text.edits import Edit, Fix, Region
from hlo_lint.text.source import Position


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The line of Python an instruction comes from."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """`model.py:40 in attention`"""
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


@dataclass(frozen=True, slots=True)
class PassRef:
    """The pass that introduced a finding, or resolved it."""

    pass_name: str
    """Empty if the pass that resolved it left no dump of its own."""
    pipeline: str
    step: int | None
    """The number of the dump after it; None for the last dump of a run."""
    path: str
    previous: int | None = field(default=None, compare=False)
    """The number of the dump before it, if it is the start of a pipeline and not a pass: the change
    between the two is that of a pass that left no dump."""


@dataclass(frozen=True, slots=True, repr=False)
class Diagnostic:
    """A finding with its place: the fields of the JSON report, as attributes."""

    rule: str
    severity: Severity
    message: str
    path: str
    start: Position
    end: Position
    """Exclusive."""
    module: str
    computation: str | None = None
    instruction: str | None = None
    pipeline: str | None = None
    step: int | None = None
    introduced_by: PassRef | None = None
    """None if it was there from the start, or came by a pass that left no dump."""
    origin: SourceLine | None = None
    notes: tuple[str, ...] = ()
    fix: Fix | None = None
    resolved_by: PassRef | None = None
    """The pass that resolved it; None if it is there at the end of the run."""
    seen_in: int | None = None
    """The number of dumps of its module that have it; None if the rule looks at one only."""
    regions: tuple[Region, ...] = field(default=(), compare=False)
    """Its place, then that of each edit of its fix, in their order."""
    excerpt: str = field(default="", compare=False)
    """The line it stands on."""
    error_map: tuple[str, ...] = field(default=(), compare=False)
    """The errors in the last two dimensions of a result, row by row: `.` where elements are equal,
    `9` for the largest, a digit less for each factor of ten; of `values-changed` alone."""
    op_name: str | None = None
    """The `op_name` of the instruction's metadata: `jit(step)/jvp(Model)/add`."""
    fingerprint: str = ""
    """Hexadecimal; equal for the same finding in another dump of the same program."""
    first_path: str = field(default="", compare=False)
    """The first dump that has it; empty if that is `path`."""
    first_start: Position | None = field(default=None, compare=False)
    """Its place in the first dump; None if that is `path`."""

    @classmethod
    def of_text(
        cls,
        rule: str,
        severity: Severity,
        message: str,
        path: str,
        at: Region,
        *,
        fingerprint: str,
        notes: tuple[str, ...] = (),
        module: str = "",
        excerpt: str = "",
    ) -> Diagnostic:
        """A finding about a text as such, at no instruction."""
        return cls(
            *(rule, severity, message, path, at.start, at.end, module),
            notes=notes,
            regions=(at,),
            excerpt=excerpt,
            fingerprint=fingerprint,
        )

    def relocated(self, path_of: Callable[[str], str]) -> Diagnostic:
        """The finding where each file has another path."""
        introduced, resolved = (
            ref and replace(ref, path=path_of(ref.path))
            for ref in (self.introduced_by, self.resolved_by)
        )
        return replace(
            self,
            path=path_of(self.path),
            introduced_by=introduced,
            resolved_by=resolved,
            first_path=path_of(self.first_path),
        )

    @property
    def line(self) -> int:
        """Counted from 1."""
        return self.start.line

    @property
    def column(self) -> int:
        """Counted from 1, in characters."""
        return self.start.column

    @property
    def end_line(self) -> int:
        """Counted from 1."""
        return self.end.line

    @property
    def end_column(self) -> int:
        """Counted from 1, in characters, exclusive."""
        return self.end.column

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}"
        return f"{place}: {self.severity.value}[{self.rule}]: {self.message}"

    def __repr__(self) -> str:
        return f"<Diagnostic {self}>"

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """The finding for a notebook: its message, its line, its notes."""
        from html import escape

        from hlo_lint.text.notebook import excerpt

        end = self.end_column if self.end_line == self.line else len(self.excerpt) + 1
        code = excerpt(self.excerpt, self.column - 1, end - 1) if self.excerpt else ""
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<div><b>{escape(str(self))}</b>{code}{f'<ul>{notes}</ul>' if notes else ''}</div>"


class SuppressedBy(Enum):
    """The place of a suppression."""

    COMMENT = "comment"
    """A comment in the text itself."""
    CONFIGURATION = "configuration"
    """An allowance that was configured, or given by a caller."""
    BASELINE = "baseline"
    """An entry in a list of earlier findings."""


@dataclass(frozen=True, slots=True)
class SuppressedFinding:
    """A finding that does not count, and the reason."""

    finding: Diagnostic
    reason: str
    """As it was given; empty if a baseline has none."""
    by: SuppressedBy


@dataclass(frozen=True, slots=True)
class FixedFile:
    """One file that a fix changes."""

    path: Path | None
    before: str
    after: str
    edits: tuple[Edit, ...]
    """All edits, in characters of `before` where one round was enough."""
    causes: tuple[Diagnostic, ...] = ()
    """The findings whose fixes these are, but for those that overlap others."""
