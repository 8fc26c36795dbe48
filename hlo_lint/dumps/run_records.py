"""The records of a run beside its dumps: debug options, the passes that ran, settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from hlo_lint.dumps.compilation import Compilation
    from hlo_lint.hlo.text_format import Message

RECORDS = (".debug_options", ".config.pbtxt", ".gpu_target_config.pbtxt")
"""Endings of the files with the configuration and the target of a compilation."""

CHANGED_PASSES = ".*"
"""The value of `xla_dump_hlo_pass_re` with which a pass leaves a dump if it changed the module."""

EVERY_PASS = ".+"
"""The value with which each pass leaves a dump, even without a change."""

_OF_THE_RUN = ("xla_dump", "xla_gpu_dump", "entry_computation_layout")
"""Settings without effect on the program, or that belong to the program."""

_unsafe = late(r"[/\\\[\] ]")


class DebugOptions(NamedTuple):
    """The flags that differ from their defaults, as `*.debug_options` lists them.

    >>> options = read_debug_options('xla_disable_hlo_passes: "reshape-decomposer"\\n')
    >>> options.disabled("reshape-decomposer"), options.disabled("cse")
    (True, False)
    """

    values: dict[str, tuple[str, ...]]
    """Every value of a flag, in order, as text."""

    @property
    def pass_pattern(self) -> str | None:
        """`xla_dump_hlo_pass_re`, the passes that were dumped; None for only named dumps."""
        return self.values.get("xla_dump_hlo_pass_re", (None,))[-1]

    @property
    def records_every_change(self) -> bool:
        """True if every pass of every pipeline was dumped, at least if it changed the module."""
        if "xla_dump_hlo_pipeline_re" in self.values:
            return False
        return self.pass_pattern in (CHANGED_PASSES, EVERY_PASS)

    @property
    def shows_metadata(self) -> bool:
        """False if the text leaves out metadata, so that changes of metadata are invisible."""
        return "true" not in self.values.get("xla_dump_disable_metadata", ())

    def disabled(self, name: str) -> bool:
        """True if a flag disables the pass by name."""
        if name in ("pipeline-start", "pipeline-end"):
            return False
        off = self.values.get("xla_disable_hlo_passes", ())
        only = self.values.get("xla_enable_hlo_passes_only", ())
        return name in off or (bool(only) and name not in only)


def read_debug_options(text: str) -> DebugOptions:
    """Read the text proto of DebugOptions; unreadable parts are left out."""
    return DebugOptions(_values(text))


def _values(text: str) -> dict[str, tuple[str, ...]]:
    """The values of each scalar of a text proto, by its path."""
    from hlo_lint.hlo.text_format import read_text_proto

    message, _ = read_text_proto(text)
    values: dict[str, list[str]] = {}
    for name, value in _flat(message, ""):
        values.setdefault(name, []).append(value)
    return {name: tuple(listed) for name, listed in values.items()}


class PassRun(NamedTuple):
    """A pass that ran, from `*.metadata.textproto`."""

    pipeline: str
    """As in dump file names."""
    name: str
    changed: bool
    """True if it reported a change."""
    dumps: tuple[str, ...]
    """The names of the files written after it, without their folder."""
    microseconds: int | None = None
    """Its duration, if that is recorded."""


def read_pass_runs(text: str) -> tuple[PassRun, ...]:
    """The passes of `HloModuleMetadataProto` text, in the order of the run."""
    printed = _find_records(text)
    records: Iterable[tuple[str, str, Sequence[str], object, int, int]] = (
        (name, pipeline, dumps.split('"')[1::2], changed, int(begin or 0), int(end or 0))
        for name, pipeline, dumps, changed, begin, end in printed
    )
    if len(printed) != text.count("pass_metadata"):  # not spelled as XLA prints it
        records = _records(text)
    return tuple(
        [
            PassRun(
                _unsafe.sub("_", pipeline),  # as in dump file names
                _unsafe.sub("_", name),
                bool(changed),
                tuple([path.rpartition("/")[2] for path in dumps]),
                # proto3 leaves out 0: a pass without times has an unknown duration, not 0
                # microseconds.
                end - begin if begin and end else None,
            )
            for name, pipeline, dumps, changed, begin, end in records
            if name
        ]
    )


_find_records = late(
    r"""pass_metadata \{
(?:  pass_id: \d+
)?  pass_name: "([^"\\\n]+)"
(?:  pipeline_name: "([^"\\\n]*)"
)?((?:  dump_filenames: "[^"\\\n]*"
)*)(?:  module_changed: (true)
)?(?:  module_id: \d+
)?(?:  module_group_module_ids: \d+
)*(?:  start_timestamp_usec: ([1-9]\d*)
)?(?:  end_timestamp_usec: ([1-9]\d*)
)?\}
"""
).findall


def _records(text: str) -> Iterator[tuple[str, str, Sequence[str], object, int, int]]:
    """The records of text in any spelling."""
    from hlo_lint.hlo.text_format import read_text_proto

    for ran in read_text_proto(text)[0].messages("pass_metadata"):
        yield (
            ran.text("pass_name"),
            ran.text("pipeline_name"),
            ran.texts("dump_filenames"),
            ran.flag("module_changed"),
            ran.number("start_timestamp_usec"),
            ran.number("end_timestamp_usec"),
        )


class OptionDifference(NamedTuple):
    """A setting that differs between two runs."""

    record: str
    """The record: `debug_options`, `config.pbtxt`, `gpu_target_config.pbtxt`."""
    name: str
    """The setting; a field of a message follows a dot."""
    before: tuple[str, ...]
    """Its values in the first run; empty if the record does not name it, as for a default."""
    after: tuple[str, ...]
    """Its values in the second run."""


def differences(before: Compilation, after: Compilation) -> tuple[OptionDifference, ...]:
    """The settings that differ between two compilations, by the records that both of them have.

    Flags about dumps are left out, and so are the shapes of the entry computation. The
    configuration repeats all debug options: a flag is reported once.
    """
    by_name: dict[str, OptionDifference] = {}
    for ending in RECORDS:
        texts = before.artefact(ending), after.artefact(ending)
        if texts[0] is None or texts[1] is None:
            continue
        ours, theirs = (_values(text) for text in texts if text is not None)
        record = ending.removeprefix(".")
        for name in dict.fromkeys([*ours, *theirs]):
            # config.pbtxt repeats the debug options.
            bare = name.removeprefix("debug_options.")
            values = ours.get(name, ()), theirs.get(name, ())
            if values[0] != values[1] and not bare.startswith(_OF_THE_RUN):
                by_name.setdefault(bare, OptionDifference(record, bare, *values))
    return tuple(by_name.values())


def settings_of_run(compilation: Compilation) -> dict[str, tuple[str, ...]]:
    """The settings that a compilation records, without those about dumps and shapes."""
    return {
        bare: values
        for ending in reversed(RECORDS)
        for name, values in _values(compilation.artefact(ending) or "").items()
        if not (bare := name.removeprefix("debug_options.")).startswith(_OF_THE_RUN)
    }


def _flat(message: Message, prefix: str) -> Iterator[tuple[str, str]]:
    """Every scalar of a message, by its path."""
    for field in message.fields:
        if isinstance(field.value, str):
            yield prefix + field.name, field.value
        else:
            yield from _flat(field.value, f"{prefix}{field.name}.")
