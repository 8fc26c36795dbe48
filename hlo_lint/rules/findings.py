"""What a rule says, and what the reader of a report gets to see of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from hlo_lint.hlo.ir import Instruction
from hlo_lint.text.source import Lines, Position, Span, encode


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """XLA dies, or the numbers are wrong."""
    WARNING = "warning"
    """It may be an error, or it costs."""
    INFO = "info"
    """Something to know; it does not count as a finding for the exit status."""


class Safety(Enum):
    """What a fix may change besides what it mends."""

    SAFE = "safe"
    """The values stay the same bit for bit, and the cost is the one that was there anyway."""
    UNSAFE = "unsafe"
    """A value or the cost may change."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Text in place of a stretch of a file."""

    span: Span
    """In characters of the file."""
    text: str


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of a file as other programs count it."""

    start: Position
    end: Position
    """Exclusive."""
    start_byte: int
    """The column in bytes of UTF-8, counted from 1."""
    end_byte: int
    """Exclusive."""

    @classmethod
    def of(cls, span: Span, lines: Lines) -> Region:
        """Where a stretch of a text is."""
        start, end = lines.position(span.start), lines.position(span.end)
        return cls(
            start,
            end,
            _bytes_before(span.start, start.column, lines.text) + 1,
            _bytes_before(span.end, end.column, lines.text) + 1,
        )


def _bytes_before(offset: int, column: int, text: str) -> int:
    """How many bytes of its line stand before a place."""
    return column - 1 if text.isascii() else len(encode(text[offset - column + 1 : offset]))


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of the text that mends a finding."""

    title: str
    """A verb first: "spell the move out as copy and bitcast"."""
    edits: tuple[Edit, ...]
    safety: Safety


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule yields."""

    at: Instruction | Span
    """An instruction, or a stretch of the file."""
    message: str
    """The fact with its numbers; no full stop at the end."""
    notes: tuple[str, ...] = ()
    operand: int | None = None
    """Which operand the caret stands under; None for the whole instruction."""
    severity: Severity | None = None
    """Where it differs from the rule's own."""
    fixable: bool = True
    """Whether the rule's fix mends this; a rule may find two things at one instruction."""
    file: int = 0
    """Which file `at` is in, where the rule looks at several."""
    fix: Fix | None = None
    """The fix, where the finding is in a text that is no HLO; else the rule's method makes it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The line of Python an instruction comes from."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Introduction:
    """The pass after which a finding is there for the first time, or is there no more."""

    pass_name: str
    """Empty where the pass that cured it left no dump of its own."""
    pipeline: str
    step: int | None
    """The number of the dump behind it; None for the last dump of a run."""
    path: str


@dataclass(frozen=True, slots=True)
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
    computation: str | None
    instruction: str | None
    pipeline: str | None
    step: int | None
    introduced_by: Introduction | None
    """None where it was there from the start, or came by a pass that left no dump."""
    origin: Origin | None
    notes: tuple[str, ...]
    fix: Fix | None
    cured_by: Introduction | None = None
    """None where it is there at the end of the run, too."""
    seen_in: int | None = None
    """How many dumps of its module have it; None where the rule looks at one of them only."""
    regions: tuple[Region, ...] = field(default=(), compare=False)
    """Where it stands, and behind that each edit of its fix, in their order."""
    excerpt: str = field(default="", compare=False)
    """The line it stands on."""
    op_name: str | None = None
    """What the instruction's metadata names: `jit(step)/jvp(Model)/add`."""
    fingerprint: str = ""
    """Hexadecimal; equal for the same finding in another dump of the same program."""

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


class AllowedBy(Enum):
    """Who says that a finding may stay."""

    COMMENT = "comment"
    """A comment in the text itself."""
    CONFIGURATION = "configuration"
    """An allowance that was configured, or given by a caller."""
    BASELINE = "baseline"
    """A list of what was there before."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A finding that counts for nothing, and why."""

    finding: Diagnostic
    reason: str
    """As somebody gave it; empty where a baseline has none."""
    by: AllowedBy


@dataclass(frozen=True, slots=True)
class Applied:
    """One file that a fix changes."""

    path: Path | None
    before: str
    after: str
    edits: tuple[Edit, ...]
    """All edits, in characters of `before` where one round was enough."""
