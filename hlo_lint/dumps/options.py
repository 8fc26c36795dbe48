"""The two records of a run that lie beside its dumps: debug options, and the passes that ran."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

_option = re.compile(r'^[ \t]*([a-z]\w*):[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s"]+))', re.M)
_pass = re.compile(r"^pass_metadata \{\n(.*?)^\}", re.M | re.S)
_unsafe = re.compile(r"[/\\\[\] ]")


@dataclass(frozen=True)
class DebugOptions:
    """The flags that differ from their defaults, as `*.debug_options` lists them.

    >>> options = read_debug_options('xla_disable_hlo_passes: "reshape-decomposer"\\n')
    >>> options.disabled("reshape-decomposer"), options.disabled("cse")
    (True, False)
    """

    values: dict[str, tuple[str, ...]]
    """Every value of a flag, in order, as text."""

    @property
    def pass_pattern(self) -> str | None:
        """`xla_dump_hlo_pass_re`: which passes were dumped; None where only named dumps were."""
        return self.values.get("xla_dump_hlo_pass_re", (None,))[-1]

    def disabled(self, name: str) -> bool:
        """Whether a pass was switched off by name."""
        only = self.values.get("xla_enable_hlo_passes_only", ())
        return name in self.values.get("xla_disable_hlo_passes", ()) or (
            bool(only) and name not in only
        )


def read_debug_options(text: str) -> DebugOptions:
    """Reads a text proto of DebugOptions, one flag a line; lines it does not know are left out."""
    values: dict[str, tuple[str, ...]] = {}
    for name, string, plain in _option.findall(text):
        values[name] = (*values.get(name, ()), string or plain)
    return DebugOptions(values)


@dataclass(frozen=True, slots=True)
class PassRun:
    """One pass that ran, as `*.metadata.textproto` records it."""

    pipeline: str
    """As dump file names spell it."""
    name: str
    changed: bool
    """Whether it reported a change."""
    dumps: tuple[str, ...]
    """Names of the files written after it, without their folder."""
    microseconds: int | None = None
    """How long it ran, where that is recorded."""


def read_pass_runs(text: str) -> tuple[PassRun, ...]:
    """The passes of `HloModuleMetadataProto` text, in the order of the run."""
    runs = []
    for body in _pass.findall(text):
        fields: dict[str, list[str]] = {}
        for name, string, plain in _option.findall(body):
            fields.setdefault(name, []).append(string or plain)
        if "pass_name" in fields:
            runs.append(
                PassRun(
                    _unsafe.sub("_", fields.get("pipeline_name", [""])[-1]),
                    _unsafe.sub("_", fields["pass_name"][-1]),
                    fields.get("module_changed", [""])[-1] == "true",
                    tuple(PurePosixPath(path).name for path in fields.get("dump_filenames", ())),
                    _microseconds(fields),
                )
            )
    return tuple(runs)


def _microseconds(fields: dict[str, list[str]]) -> int | None:
    begin, end = (fields.get(f"{side}_timestamp_usec", [""])[-1] for side in ("start", "end"))
    return int(end) - int(begin) if begin.isdecimal() and end.isdecimal() else None
