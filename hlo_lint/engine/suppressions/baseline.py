"""Baselines: files that list the findings of an earlier run, so that only new findings count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
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


@dataclass(frozen=True, slots=True)
class BaselineEntry:
    """Equal findings, with their number and a message."""

    fingerprint: str
    """The first `IDENTITY_DIGITS` digits of the findings' fingerprint."""
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


class BaselineUpdate(NamedTuple):
    """A baseline that was brought up to date."""

    baseline: Baseline
    """Existing entries keep their message and reason."""
    new: int
    """The number of findings that were not listed."""
    gone: int
    """The number of listed findings that are missing."""


def updated_baseline(
    baseline: Baseline,
    findings: Iterable[Diagnostic],
    not_run: Collection[str] = (),
    *,
    prune: bool = False,
) -> BaselineUpdate:
    """The baseline of findings; entries of rules that did not run are unchanged.

    With `prune` entries only go, and none is added.
    """
    entries: dict[str, BaselineEntry] = {}
    counts, seen = Counter[str](), Counter[str]()
    for entry in baseline.entries:
        first = entries.setdefault(entry.fingerprint, entry)
        counts[entry.fingerprint] += entry.count
        if first.rule in not_run:
            seen[entry.fingerprint] += entry.count
    for finding in findings:
        digits = finding.fingerprint[:IDENTITY_DIGITS]
        seen[digits] += 1
        entries.setdefault(
            digits, BaselineEntry(digits, finding.rule, base_name(finding.module), finding.message)
        )
    kept = seen & counts if prune else seen
    updated = tuple(
        replace(entry, count=kept[digits]) for digits, entry in entries.items() if kept[digits]
    )
    new, gone = (seen - counts).total(), (counts - seen).total()
    return BaselineUpdate(baseline._replace(entries=updated), new, gone)


def _entries(path: Path, text: str, listed: list[Any]) -> Iterable[BaselineEntry]:
    start, lines = 0, Lines(text)
    for number, entry in enumerate(listed, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("fingerprint"), str):
            raise DumpError(f'{path}: finding {number} of the baseline has no "fingerprint"')
        digits = entry["fingerprint"]
        place = text.find(f'"{digits}"', start)  # -1 where it is spelled with escapes
        start = max(start, place)
        line = lines.position(start).line
        wrong = [name for name, value in entry.items() if type(value) is not _FIELDS.get(name)]
        if wrong:
            raise DumpError(
                f"{path}:{line}:1: {shown(wrong[0])} is not a field of a baseline's finding, or "
                f"not of its type; the fields are {', '.join(_FIELDS)}"
            )
        missing = [name for name in ("rule", "module", "message") if name not in entry]
        if missing or entry.get("count", 1) < 1:
            problem = f"has no {' and no '.join(missing)}" if missing else "has a count below 1"
            raise DumpError(f"{path}:{line}:1: this finding of the baseline {problem}")
        yield BaselineEntry(**{**entry, "fingerprint": digits[:IDENTITY_DIGITS]}, line=line)
