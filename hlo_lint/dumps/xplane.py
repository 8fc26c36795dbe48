"""Profiles, `*.xplane.pb`: an XSpace, with measured time by instruction and the programs that ran.

`jax.profiler.trace` writes one for each host (`tsl/profiler/protobuf/xplane.proto`): planes of
devices and hosts, lines of events in them, and statistics of an event that say which instruction of
which module ran. The metadata of events have the programs, each an HloProto.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hlo_lint.dumps.file_types import PROFILE
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.records import name_of
from hlo_lint.hlo.wire import DELIMITED, Field, Reader, bytes_of, int_of, text_of
from hlo_lint.text.errors import DumpError, PayloadError, os_errors_as

MAX_FIELDS: Final = 1 << 24
"""In a file with all that are in it: an event has about ten."""
_PS: Final = 1e-12
_PLANES = 1
_NAME, _LINES, _EVENT_METADATA, _STAT_METADATA = 2, 3, 4, 5
_EVENTS, _LINE_NAME = 4, 2
_METADATA_ID, _DURATION, _EVENT_STATS = 1, 3, 4
_KEY, _VALUE, _METADATA_NAME = 1, 2, 2
_STAT_STRING, _STAT_BYTES, _STAT_REFERENCE = 5, 6, 7
_METADATA_STATS = 5
_HLO_PROTO = "Hlo Proto"
_OPS = "XLA Ops"
"""The line of a device's plane that holds each instruction once; others repeat the times."""


@dataclass(frozen=True)
class Measured:
    """The time and the runs of each instruction, by the names of its module and its own."""

    picoseconds: Counter[tuple[str, str]] = field(default_factory=Counter)
    runs: Counter[tuple[str, str]] = field(default_factory=Counter)

    def seconds(self, module: Module) -> dict[str, float]:
        """The seconds of each instruction in one run of a module, the longest first."""
        entry = module.entry
        # Instructions of loops run more often, those of branches less.
        names = [name_of(row) for row in entry.rows] if entry is not None else []
        counts = [self.runs[module.name, name] for name in names]
        runs = min(filter(None, counts), default=1)
        return {
            name: time * _PS / runs
            for (owner, name), time in self.picoseconds.most_common()
            if owner == module.name
        }


def find_measured(folder: Path) -> Measured | None:
    """The times in all profiles of a folder together; None if there is none in it.

    Raises:
        DumpError: for a profile that cannot be read.
    """
    if not folder.is_dir():
        return None
    paths = sorted(folder.rglob(f"*{PROFILE}"))
    if not paths:
        return None
    measured = Measured()
    for path in paths:
        with os_errors_as(f"{path}"):
            data = path.read_bytes()
        try:
            _read(data, measured)
        except PayloadError as error:
            raise DumpError(f"{path}: not a profile: {error}") from error
    return measured


def read_measured(data: bytes) -> Measured:
    """The times in one profile.

    Raises:
        PayloadError: the bytes are no XSpace.
    """
    measured = Measured()
    _read(data, measured)
    return measured


def programs(data: bytes) -> list[bytes]:
    """The programs that ran, each a serialized HloProto.

    Raises:
        PayloadError: the bytes are not an XSpace, or no program is in it.
    """
    reader, protos = Reader(data, MAX_FIELDS), []
    for plane in _planes(reader):
        parts = reader.fields(plane)
        names = _names(reader, parts, _STAT_METADATA)
        is_proto = {number for number, name in names if name == _HLO_PROTO}
        if not is_proto:
            continue
        for entry in (part for part in parts if part.number == _EVENT_METADATA):
            for event in _inner(reader, entry, _VALUE):
                for message in _inner(reader, event, _METADATA_STATS):
                    stat = {part.number: part for part in reader.iterate(message)}
                    if _STAT_BYTES in stat and int_of(stat[_METADATA_ID]) in is_proto:
                        protos.append(bytes_of(stat[_STAT_BYTES]))
    if not protos:
        raise PayloadError("no program is in this profile (ProfileOptions.enable_hlo_proto)")
    return protos


def _inner(reader: Reader, message: Field, number: int) -> Iterator[Field]:
    return (part for part in reader.iterate(message) if part.number == number)


def _planes(reader: Reader) -> Iterator[Field]:
    for plane in reader.iterate():
        if plane.number == _PLANES and plane.wire_type == DELIMITED:
            yield plane


def _read(data: bytes, measured: Measured) -> None:
    reader = Reader(data, MAX_FIELDS)
    for plane in _planes(reader):
        _read_plane(reader, plane, measured)


def _read_plane(reader: Reader, plane: Field, measured: Measured) -> None:
    parts = reader.fields(plane)
    stats = dict(_names(reader, parts, _STAT_METADATA))
    wanted = {number: name for number, name in stats.items() if name in ("hlo_op", "hlo_module")}
    if not wanted:
        return
    lines = [reader.fields(part) for part in parts if part.number == _LINES]
    # Lines that are derived from others repeat their events: one of them holds all instructions.
    for line in [line for line in lines if _line_name(line) == _OPS] or lines:
        for event in line:
            if event.number == _EVENTS:
                _read_event(reader, event, wanted, stats, measured)


def _line_name(line: tuple[Field, ...]) -> str:
    return next((text_of(part) for part in line if part.number == _LINE_NAME), "")


def _names(reader: Reader, parts: tuple[Field, ...], number: int) -> Iterator[tuple[int, str]]:
    """The entries of a map from ids to metadata with a name."""
    for part in parts:
        if part.number != number:
            continue
        entry = {field.number: field for field in reader.fields(part)}
        if _VALUE not in entry:
            continue
        key = int_of(entry[_KEY]) if _KEY in entry else 0
        for field_ in reader.fields(entry[_VALUE]):
            if field_.number == _METADATA_NAME:
                yield key, text_of(field_)


def _read_event(
    reader: Reader,
    event: Field,
    wanted: dict[int, str],
    stats: dict[int, str],
    measured: Measured,
) -> None:
    duration, named = 0, {"hlo_op": "", "hlo_module": ""}
    for part in reader.fields(event):
        if part.number == _DURATION:
            duration = int_of(part)
        elif part.number == _EVENT_STATS:
            stat = {field.number: field for field in reader.fields(part)}
            name = wanted.get(int_of(stat[_METADATA_ID])) if _METADATA_ID in stat else None
            if name is None:
                continue
            if _STAT_STRING in stat:
                named[name] = text_of(stat[_STAT_STRING])
            elif _STAT_REFERENCE in stat:
                named[name] = stats.get(int_of(stat[_STAT_REFERENCE]), "")
    if named["hlo_op"]:
        key = named["hlo_module"], named["hlo_op"].removeprefix("%")
        measured.picoseconds[key] += duration
        measured.runs[key] += 1
