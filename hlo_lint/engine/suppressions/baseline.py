"""Baselines: files that list the findings of an earlier run, so that only new findings count."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.fingerprints import IDENTITY_DIGITS, base_name
from hlo_lint.text.errors import DumpError
from hlo_lint.text.files import write
from hlo_lint.text.source import Lines, shown

VERSION = 2

_FIELDS: Mapping[str, type] = {
    "fingerprint": str,
    "rule": str,
    "module": str,
    "message": str,
    "count": int,
    "reason": str,
}


_TYPE_NAMES = {str: "text", int: "number"}


@dataclass(frozen=True, slots=True)
class BaselineEntry:
    """Equal findings, with their number and a message."""

    fingerprint: str
    """The first `KIND` digits."""
    rule: str
    module: str
    message: str
    count: int = 1
    reason: str = ""
    line: int = 1
    """The line of the file, counted from 1."""


class Baseline(NamedTuple):
    """The content of a baseline file."""

    path: Path
    entries: tuple[BaselineEntry, ...] = ()


def read_baseline(path: Path) -> Baseline:
    """The baseline in a file.

    Raises:
        DumpError: the file cannot be read, or is not a baseline; then with line and column.
    """
    import json

    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        message = f"{path}: no such baseline; `hlo-lint check --write-baseline FILE` writes it"
        raise DumpError(message) from error
    except OSError as error:
        raise DumpError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DumpError(f"{path}: a baseline is UTF-8, and byte {error.start} is not") from error
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        message = f"{path}:{error.lineno}:{error.colno}: a baseline is JSON: {error.msg}"
        raise DumpError(message) from error
    except RecursionError as error:
        raise DumpError(f"{path}:1:1: this is not a baseline: nested too deeply") from error
    except ValueError as error:  # Python refuses numbers of more than 4300 digits
        raise DumpError(f"{path}:1:1: this is not a baseline: number too long") from error
    if not isinstance(read, dict) or not isinstance(read.get("findings"), list):
        raise DumpError(f'{path}:1:1: a baseline is an object with "version" and "findings"')
    if read.get("version") != VERSION:
        message = f"expected a baseline of version {VERSION}, got {read.get('version')!r}"
        raise DumpError(f"{path}:1:1: {message}")
    return Baseline(path, tuple(_entries(path, text, read["findings"])))


def write_baseline(baseline: Baseline) -> None:
    """Write the file, with sorted entries.

    Raises:
        DumpError: the file cannot be written.
    """
    import json

    ordered = sorted(baseline.entries, key=lambda e: (e.rule, e.module, e.message, e.fingerprint))
    listed = [
        {name: getattr(entry, name) for name in _FIELDS if name != "reason" or entry.reason}
        for entry in ordered
    ]
    whole = {"version": VERSION, "findings": listed}
    write(baseline.path, json.dumps(whole, indent=2) + "\n")


class BaselineComparison(NamedTuple):
    """The differences between a baseline and the findings of a run."""

    new: tuple[Diagnostic, ...]
    """Findings that are not listed."""
    gone: tuple[BaselineEntry, ...]
    """Entries with missing findings; the count of an entry is the number of missing findings."""
    updated: Baseline
    """A baseline of all findings; existing entries keep their message and reason."""
    pruned: Baseline
    """The baseline without the entries in `gone`."""


def compare_with_baseline(
    baseline: Baseline, findings: Sequence[Diagnostic], not_run: Collection[str] = ()
) -> BaselineComparison:
    """Compare a baseline with findings; entries of rules that did not run are unchanged."""
    listed: dict[str, BaselineEntry] = {}
    for entry in baseline.entries:
        same = listed.get(entry.fingerprint)
        count = entry.count + (same.count if same else 0)
        listed[entry.fingerprint] = replace(same or entry, count=count)
    by_digits: dict[str, list[Diagnostic]] = {}
    for finding in findings:
        by_digits.setdefault(finding.fingerprint[:IDENTITY_DIGITS], []).append(finding)
    kept = [entry for entry in listed.values() if entry.rule in not_run]
    new: list[Diagnostic] = []
    updated: list[BaselineEntry] = []
    for digits, alike in by_digits.items():
        rule, module, message = alike[0].rule, base_name(alike[0].module), alike[0].message
        entry = listed.get(digits) or BaselineEntry(digits, rule, module, message)
        updated.append(replace(entry, count=len(alike)))
        new += alike[entry.count if digits in listed else 0 :]
    gone: list[BaselineEntry] = []
    pruned: list[BaselineEntry] = []
    for digits, entry in listed.items():
        there = entry.count if entry.rule in not_run else len(by_digits.get(digits, ()))
        if there:
            pruned.append(replace(entry, count=min(there, entry.count)))
        if there < entry.count:
            gone.append(replace(entry, count=entry.count - there))
    updated += kept
    return BaselineComparison(
        tuple(new),
        tuple(gone),
        baseline._replace(entries=tuple(updated)),
        baseline._replace(entries=tuple(pruned)),
    )


def _entries(path: Path, text: str, listed: list[Any]) -> Iterable[BaselineEntry]:
    start, lines = 0, Lines(text)
    for number, entry in enumerate(listed, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("fingerprint"), str):
            raise DumpError(f'{path}: finding {number} of the baseline has no "fingerprint"')
        digits = entry["fingerprint"]
        place = text.find(f'"{digits}"', start)  # -1 where it is spelled with escapes
        start = max(start, place)
        line = lines.position(start).line
        for name, value in entry.items():
            field_type = _FIELDS.get(name)
            if field_type is None or not isinstance(value, field_type) or isinstance(value, bool):
                fields = ", ".join(_FIELDS)
                problem = (
                    f"{shown(name)} is not a field"
                    if field_type is None
                    else f"{name} is not a {_TYPE_NAMES[field_type]}"
                )
                raise DumpError(
                    f"{path}:{line}:1: {problem} of a baseline's finding; it has {fields}"
                )
        missing = [name for name in ("rule", "module", "message") if name not in entry]
        if missing or entry.get("count", 1) < 1:
            problem = f"has no {' and no '.join(missing)}" if missing else "has a count below 1"
            raise DumpError(f"{path}:{line}:1: this finding of the baseline {problem}")
        yield BaselineEntry(**{**entry, "fingerprint": digits[:IDENTITY_DIGITS]}, line=line)
