"""Shards of a dump, which jobs of a batch system check without knowing of each other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hlo_lint
from hlo_lint.dumps.directory import Skipped
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.cache.values import from_json, to_json
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.parts import DIGEST_BYTES, signature
from hlo_lint.engine.reporter import Part, Result
from hlo_lint.engine.runner import Checker
from hlo_lint.hlo.ir import HloFile
from hlo_lint.text.digests import blake2b
from hlo_lint.text.errors import DumpError, UsageError, os_errors_as

VERSION: Final = 1
READ_COST: Final = 0.05
"""The time to compare a file with an equal one, as a share of the time to check it."""


@dataclass(frozen=True, order=True)
class Shard:
    """One of several shards."""

    number: int
    """From 1."""
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def parse_shard(text: str) -> Shard:
    """The shard that is spelled `2/8`.

    Raises:
        UsageError: it is not one.
    """
    number, _, count = text.partition("/")
    if number.isdecimal() and count.isdecimal() and text.isascii():
        shard = Shard(int(number), int(count))
        if 1 <= shard.number <= shard.count:
            return shard
    raise UsageError(f"--shard takes I/N with I from 1 to N, not {text}")


def positions_in(shard: Shard, pipelines: Sequence[Pipeline]) -> list[int]:
    """The positions of the pipelines of a shard: every job finds the same ones.

    Pipelines that may be equal are kept together in as few shards as is fair, since a shard checks
    equal ones once.
    """
    alike: dict[tuple[object, ...], list[int]] = {}
    for at, pipeline in enumerate(pipelines):
        alike.setdefault(signature(pipeline), []).append(at)
    units: list[tuple[float, list[int]]] = []
    for group in alike.values():
        length = -(-len(group) // shard.count)
        size = pipelines[group[0]].size
        for start in range(0, len(group), length):
            unit = group[start : start + length]
            units.append((size * (1 + READ_COST * (len(unit) - 1)), unit))
    loads = [0.0] * shard.count
    chosen: list[int] = []
    for weight, unit in sorted(units, key=lambda entry: (-entry[0], entry[1])):
        least = loads.index(min(loads))
        loads[least] += weight + 1
        if least == shard.number - 1:
            chosen += unit
    return sorted(chosen)


@dataclass(frozen=True)
class ShardReport:
    """The outcome of one shard, as a file."""

    shard: Shard
    program: str
    """The version of the program."""
    listing: str
    """A digest of all files that there are, in every shard the same."""
    arguments: Any
    """The values that the caller needs to report the whole, as JSON."""
    skipped: tuple[Skipped, ...]
    """Files of the whole dump that were not read."""
    parts: tuple[tuple[int, Part], ...]
    """By the position of the pipeline."""
    logs: tuple[tuple[str, str], ...]
    """The path and the text of each log of the autotuner, in the order of the parts."""
    of_folders: tuple[Diagnostic, ...]
    """Findings in all pipelines of a folder together."""

    def to_json(self) -> str:
        """The file."""
        value = {"version": VERSION, "shard_report": to_json(self)}
        return json.dumps(value, separators=(",", ":")) + "\n"

    @classmethod
    def read(cls, path: Path) -> ShardReport:
        """The report in a file.

        Raises:
            DumpError: it cannot be read, is not one, or is of another version.
        """
        try:
            with os_errors_as(f"{path}: cannot be read"):
                value = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise DumpError(f"{path}: not a report of `hlo-lint check --shard`") from error
        version = value.get("version") if isinstance(value, dict) else None
        if version is None or "shard_report" not in value:
            raise DumpError(f"{path}: not a report of `hlo-lint check --shard`")
        try:
            if version != VERSION:
                raise ValueError(version)
            report: ShardReport = from_json(cls, value["shard_report"])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DumpError(f"{path}: a report of another version of hlo-lint") from error
        if report.program != hlo_lint.__version__:
            ours = hlo_lint.__version__
            raise DumpError(f"{path}: a report of hlo-lint {report.program}, not {ours}")
        return report


def report_of(
    shard: Shard,
    arguments: Any,
    checker: Checker,
    pipelines: Sequence[Pipeline],
    skipped: Sequence[Skipped],
    parts: Mapping[int, Part],
) -> ShardReport:
    """The report of a shard, with what the folders that fall to it show; the parts are its own."""
    logs = []
    for at, part in sorted(parts.items()):
        for log in part.logs:
            dump = pipelines[at].dumps[log]
            logs.append((str(dump.path), dump.file.text))
    checker.check_folders(pipelines, lambda number: number % shard.count == shard.number - 1)
    return ShardReport(
        shard,
        hlo_lint.__version__,
        _listing(pipelines),
        arguments,
        tuple(skipped),
        tuple(sorted(parts.items())),
        tuple(logs),
        tuple(checker.result.diagnostics),
    )


def _listing(pipelines: Sequence[Pipeline]) -> str:
    digest = blake2b(digest_size=DIGEST_BYTES)
    for pipeline in pipelines:
        entry = repr((pipeline.title, signature(pipeline)))
        digest.update(entry.encode(errors="surrogateescape"))
    return digest.hexdigest()


def merge(reports: Sequence[ShardReport], checker: Checker) -> Result:
    """The result of a checker over the whole dump.

    Raises:
        DumpError: the reports are not all shards of one run.
    """
    _require_one_run(reports)
    entries = [entry for report in reports for entry in _entries(report)]
    for _, part, logs in sorted(entries, key=lambda entry: entry[0]):
        checker.reporter.add_part(part)
        checker.logs += logs
    for report in sorted(reports, key=lambda report: report.shard):
        checker.result.diagnostics += report.of_folders
    return checker.conclude(reports[0].skipped)


def _entries(report: ShardReport) -> Iterator[tuple[int, Part, list[PassDump]]]:
    texts = iter(report.logs)
    for at, part in report.parts:
        logs = []
        for _, (name, text) in zip(part.logs, texts, strict=False):
            path = Path(name)
            logs.append(PassDump.of(HloFile.of_text(text, path), path, FileType.AUTOTUNE_LOG))
        yield at, part, logs


def _require_one_run(reports: Sequence[ShardReport]) -> None:
    count = reports[0].shard.count
    reasons = {"listing": "the files had changed", "arguments": "the arguments differ"}
    for name, reason in reasons.items():
        if len({json.dumps(to_json(getattr(report, name))) for report in reports}) > 1:
            raise DumpError(f"not shards of one run: {reason} between them")
    numbers = sorted(report.shard.number for report in reports)
    if any(report.shard.count != count for report in reports):
        raise DumpError("not shards of one run: their counts differ")
    for number in range(1, count + 1):
        if numbers.count(number) != 1:
            state = "is missing" if number not in numbers else "is given twice"
            raise DumpError(f"shard {Shard(number, count)} {state}")
