"""Measured time by instruction: the XSpace of a profile, `*.xplane.pb`.

`jax.profiler.trace` writes a file for each host (`tsl/profiler/protobuf/xplane.proto`): planes of
devices and hosts, lines of events in them, and statistics of an event that name the module and the
instruction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hlo_lint.dumps.artefacts.xplane import metadata_id, metadata_name, planes
from hlo_lint.dumps.file_types import PROFILE
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.records import name_of
from hlo_lint.hlo.wire import Field, Reader, int_of, text_of
from hlo_lint.text.errors import DumpError, PayloadError, os_errors_as

_PS: Final = 1e-12
_LINES, _STAT_METADATA = 3, 5
_EVENTS = 4
_METADATA_ID, _DURATION, _EVENT_STATS = 1, 3, 4
_STAT_STRING, _STAT_REFERENCE = 5, 7
_OPS = "XLA Ops"
"""The line of a device's plane with each instruction once; other lines repeat the times."""


@dataclass(frozen=True)
class Measured:
    """The time and the runs of each instruction, by the names of module and instruction."""

    picoseconds: Counter[tuple[str, str]] = field(default_factory=Counter)
    runs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def seconds(self, module: Module) -> dict[str, float]:
        """The seconds of each instruction per run of a module, the longest first."""
        entry = module.entry
        # Instructions of loops run more often, instructions of branches less often.
        names = [name_of(row) for row in entry.rows] if entry is not None else []
        counts = [self.runs[module.name, name] for name in names]
        runs = min(filter(None, counts), default=1)
        return {
            name: time * _PS / runs
            for (owner, name), time in self.picoseconds.most_common()
            if owner == module.name
        }


def find_measured(folder: Path) -> Measured | None:
    """The summed times in all profiles of a folder; None without a profile.

    Raises:
        DumpError: for a profile that cannot be read.
    """
    paths = sorted(folder.rglob(f"*{PROFILE}"))
    if not paths:
        return None
    measured = Measured()
    for path in paths:
        with os_errors_as(f"{path}"):
            data = path.read_bytes()
        try:
            part = read_measured(data)
        except PayloadError as error:
            raise DumpError(f"{path}: not a profile: {error}") from error
        measured.picoseconds.update(part.picoseconds)
        measured.runs.update(part.runs)
    return measured


def read_measured(data: bytes) -> Measured:
    """The times in a profile.

    Raises:
        PayloadError: the bytes are not an XSpace.
    """
    measured = Measured()
    for plane in planes(data):
        reader = plane.reader
        stats = {
            metadata_id(reader, stat): metadata_name(reader, stat)
            for stat in plane.metadata(_STAT_METADATA)
        }
        if "hlo_op" not in stats.values():
            continue
        lines = list(plane.parts(_LINES))
        named = [line for line in lines if metadata_name(reader, line) == _OPS]
        for line in named or lines:
            for event in reader.numbered(_EVENTS, line):
                _read_event(reader, event, stats, measured)
    return measured


def _read_event(reader: Reader, event: Field, stats: dict[int, str], measured: Measured) -> None:
    """Add an event to the measurements; `stats` has the names of statistics and of strings."""
    duration, named = 0, {"hlo_op": "", "hlo_module": ""}
    for part in reader.fields(event):
        if part.number == _DURATION:
            duration = int_of(part)
        elif part.number == _EVENT_STATS:
            stat = {field.number: field for field in reader.fields(part)}
            name = stats.get(int_of(stat[_METADATA_ID]), "") if _METADATA_ID in stat else ""
            if name not in named:
                continue
            if _STAT_STRING in stat:
                named[name] = text_of(stat[_STAT_STRING])
            elif _STAT_REFERENCE in stat:
                named[name] = stats.get(int_of(stat[_STAT_REFERENCE]), "")
    if named["hlo_op"]:
        key = named["hlo_module"], named["hlo_op"].removeprefix("%")
        measured.picoseconds[key] += duration
        measured.runs[key] += 1
