"""Crashes of rules or readers as findings, so that a run can continue."""

from __future__ import annotations

import traceback
from pathlib import Path

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.fingerprints import fingerprint
from hlo_lint.rules.findings import INTERNAL_ERROR, Severity
from hlo_lint.text.edits import Region
from hlo_lint.text.source import Position, shown

PLEASE_REPORT = (
    "this is a defect of hlo-lint or of a plug-in, not of the file; please report it with the "
    "file: https://hlo-lint.readthedocs.io/"
)
MAX_FRAMES = 3
MAX_MESSAGE = 300


def internal_error(name: str, path: Path | str, subject: object, error: Exception) -> Diagnostic:
    """The finding for a crash of a rule or a reader on a subject in a file."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    places = " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames)
    )
    what = f"{type(error).__name__}: {error}".removesuffix(": ")
    start = Position(1, 1)
    return Diagnostic.of_text(
        INTERNAL_ERROR,
        Severity.ERROR,
        f"{name} crashed: {shown(what[:MAX_MESSAGE])}",
        str(path),
        Region(start, start, 1, 1),
        notes=(f"on {subject!r}"[:MAX_MESSAGE], f"at {places}", PLEASE_REPORT),
        fingerprint=fingerprint(INTERNAL_ERROR, f"{name} {type(error).__name__}", "", None, places),
    )
