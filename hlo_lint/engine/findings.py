"""Findings in the form that reports show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from hlo_lint.rules.findings import Severity
from hlo_lint.text.edits import Edit, Fix, Region
from hlo_lint.text.phrases import in_a_line, short_repr
from hlo_lint.text.source import Position


@dataclass(frozen=True, slots=True)
class SourceLine:
    """The line of Python that an instruction comes from."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """The line in the form `model.py:40 in attention`."""
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
    """The number of the dump before the start of a pipeline, if this is such a start.

    The change between the two comes from a pass that left no dump."""


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
    """None if the finding was there from the start, or its pass left no dump."""
    origin: SourceLine | None = None
    notes: tuple[str, ...] = ()
    fix: Fix | None = None
    resolved_by: PassRef | None = None
    """The pass that resolved it; None if it remains at the end of the run."""
    seen_in: int | None = None
    """The number of dumps of its module that have it; None if the rule checks a single dump."""
    regions: tuple[Region, ...] = field(default=(), compare=False)
    """Its place, then that of each edit of its fix, in their order."""
    excerpt: str = field(default="", compare=False)
    """The line of the finding."""
    error_map: tuple[str, ...] = field(default=(), compare=False)
    """The errors in the last two dimensions of a result, row by row, for `values-changed` only.

    `.` marks equal elements, `9` the largest error; each factor of ten is a digit less."""
    op_name: str | None = None
    """The `op_name` of the instruction's metadata, such as `jit(step)/jvp(Model)/add`."""
    fingerprint: str = ""
    """Hexadecimal; equal for the same finding in another dump of the same program."""
    first_path: str = field(default="", compare=False)
    """The first dump that has it; empty if that is `path`."""
    first_start: Position | None = field(default=None, compare=False)
    """The start of the finding in the first dump; None if that is `path`."""

    @classmethod
    def of_text(
        cls,
        rule: str,
        severity: Severity,
        message: str,
        path: str,
        region: Region,
        *,
        fingerprint: str,
        notes: tuple[str, ...] = (),
        module: str = "",
        excerpt: str = "",
    ) -> Diagnostic:
        """A finding about a text rather than an instruction."""
        return cls(
            *(rule, severity, message, path, region.start, region.end, module),
            notes=notes,
            regions=(region,),
            excerpt=excerpt,
            fingerprint=fingerprint,
        )

    @property
    def is_resolved(self) -> bool:
        """True for information about a defect that a later pass resolved."""
        return self.severity is Severity.INFO and self.resolved_by is not None

    def relocated(self, path_of: Callable[[str], str]) -> Diagnostic:
        """The finding with new paths for its files."""
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
        """The first line, counted from 1."""
        return self.start.line

    @property
    def column(self) -> int:
        """The first column in characters, counted from 1."""
        return self.start.column

    @property
    def end_line(self) -> int:
        """The last line, counted from 1."""
        return self.end.line

    @property
    def end_column(self) -> int:
        """The end column in characters, counted from 1, exclusive."""
        return self.end.column

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}"
        return f"{place}: {self.severity.value}[{self.rule}]: {self.message}"

    def __repr__(self) -> str:
        return in_a_line(f"<Diagnostic {self}>")

    def _repr_html_(self) -> str:
        return self.html()

    def html(self) -> str:
        """The finding for a notebook: its message, line and notes."""
        from html import escape

        from hlo_lint.text.notebook import excerpt

        end = self.end_column if self.end_line == self.line else len(self.excerpt) + 1
        code = excerpt(self.excerpt, self.column - 1, end - 1) if self.excerpt else ""
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<div><b>{escape(str(self))}</b>{code}{f'<ul>{notes}</ul>' if notes else ''}</div>"


class SuppressedBy(Enum):
    """The kind of a suppression."""

    COMMENT = "comment"
    """A comment in the text itself."""
    CONFIGURATION = "configuration"
    """An allowance in the settings, or given by a caller."""
    BASELINE = "baseline"
    """An entry in a list of earlier findings."""


@dataclass(frozen=True, slots=True, repr=False)
class SuppressedFinding:
    """A finding that is suppressed, and the reason."""

    finding: Diagnostic
    reason: str
    """The stated reason; empty if a baseline entry gives no reason."""
    by: SuppressedBy

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, repr=False)
class FixedFile:
    """A file that fixes changed."""

    path: Path | None
    before: str
    after: str
    edits: tuple[Edit, ...]
    """All edits; their spans refer to `before` if a single round was enough."""
    causes: tuple[Diagnostic, ...] = ()
    """The findings whose fixes were applied."""

    __repr__ = short_repr
