"""The passes in which an unfinished compilation may have stopped.

A pass that fails leaves no dump, so the last dump is its input, or the input of an earlier pass
that changed nothing. XLA writes a dump if the pass that ran, or the next pass of the pipeline,
matches `xla_dump_hlo_pass_re`; with `.*` only if the module changed, and at the start of each
pipeline. The first missing dump bounds the suspects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.file_types import LOG_ENDINGS
from hlo_lint.dumps.messages import find_sources
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pass_lists import PassName
from hlo_lint.dumps.run_records import CHANGED_PASSES, EVERY_PASS, DebugOptions
from hlo_lint.dumps.upcoming import upcoming_passes
from hlo_lint.text.errors import DumpError
from hlo_lint.text.patterns import late
from hlo_lint.text.source import decode
from hlo_lint.text.stored import read_stored

MAX_LOG_BYTES = 16 << 20
"""Bytes of a log that are read."""

VERIFIER = "hlo-verifier"
"""The checker of invariants, which runs after each pass and at the start of a pipeline."""

_find_failures = late(
    r"(?:RET_CHECK failure \((?:[^()\s]*/)?|\b)(\w+\.cc:\d+)(?:\) ?|\] Check failed: )([^\n]*)"
).finditer


class Failure(NamedTuple):
    """A failed check that a log beside a dump names."""

    log: str
    """The name of the log."""
    source: str
    """`reduce_decomposer.cc:95`"""
    text: str
    """The condition that failed, and what XLA says of it."""

    def __str__(self) -> str:
        return f"{self.source}: {self.text}" if self.text else self.source

    @property
    def pass_names(self) -> frozenset[str]:
        """The passes that the source file is of, with dashes: `reduce-decomposer`."""
        # Of files of one name the words choose.
        sources = find_sources(f"{self.source}] {self.text}")
        return frozenset(_dashed(name) for source in sources for name in source.passes)


class CrashSite(NamedTuple):
    """The end of a compilation that has no final dump."""

    dump: PassDump
    """The last dump: the input of the failing pass."""
    suspects: tuple[PassName, ...]
    """The passes that may have failed, in the order of the run; empty if unknown."""
    why: str
    """The evidence for them."""
    is_complete: bool
    """True if the failing pass is certainly among them."""
    failure: Failure | None = None
    """The failed check, if a log beside the dump has one."""

    @property
    def pass_name(self) -> str:
        """The pass that failed; empty if it may have been one of several."""
        return self.suspects[0][1] if self.is_complete and len(self.suspects) == 1 else ""

    @property
    def is_named(self) -> bool:
        """True if the log names the pass that failed."""
        return self.failure is not None and _dashed(self.pass_name) in self.failure.pass_names


def find_crash_site(compilation: Compilation) -> CrashSite:
    """The passes that may have ended a compilation, or the pass that a log names.

    The pipeline has crashed.
    """
    site = _site_by_dumps(compilation)
    failures = list(_failures(compilation))
    # A log may be of several compilations.
    for failure in failures:
        names = failure.pass_names
        named = tuple(entry for entry in site.suspects if _dashed(entry[1]) in names)
        if named:
            why = f"{failure.log} names {failure.source}"
            return CrashSite(site.dump, named[:1], why, True, failure)
    return site._replace(failure=failures[0] if failures else None)


def _failures(compilation: Compilation) -> Iterator[Failure]:
    for path in compilation.artefacts:
        if path.name.endswith(LOG_ENDINGS):
            try:
                log = decode(read_stored(path, MAX_LOG_BYTES))
            except (OSError, DumpError):
                continue
            for match in _find_failures(log):
                yield Failure(path.name, match[1], match[2].strip())


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _site_by_dumps(compilation: Compilation) -> CrashSite:
    dump = (compilation.steps or compilation.dumps)[-1]
    name = dump.name
    if name is None or name.step is None:
        return CrashSite(dump, (), "no pass was dumped", False)
    options = compilation.options
    release, passes = upcoming_passes(compilation, dump)
    # Without the flags it is unknown which passes leave dumps; without the list, which run.
    if release is None or options is None or not compilation.is_of_known_release:
        has_next = bool(name.before) and name.before != "pipeline-end"
        following = ((name.pipeline, name.before),) if has_next else ()
        if name.before and options is not None and options.pass_pattern == EVERY_PASS:
            why = "each pass that ends leaves a dump"
            return CrashSite(dump, following or ((name.pipeline, VERIFIER),), why, has_next)
        why = "the last dump names the pass that is next in the list"
        return CrashSite(dump, following, why, False)
    # A pass that certainly leaves a dump has ended if its dump exists. So the failing pass is among
    # those up to the first that certainly leaves a dump.
    left = [entry for entry in passes if not options.disabled(entry[1])]
    suspects = tuple(_until_dumped(left, _leaves_dump(options)))
    return CrashSite(dump, suspects, compilation.release_title, bool(suspects))


_Leaves = Callable[[PassName, PassName | None], bool]
"""True if a pass certainly leaves a dump, given the pass that follows it."""


def _leaves_dump(options: DebugOptions) -> _Leaves:
    pattern = options.pass_pattern
    if pattern is None or "xla_dump_hlo_pipeline_re" in options.values:
        return lambda _, __: False
    if pattern == CHANGED_PASSES:
        return lambda entry, _: entry[1] == "pipeline-start"
    try:
        matches = re.compile(pattern).search
    except re.error:  # RE2 accepts spellings that Python does not
        return lambda _, __: False
    return lambda entry, after: bool(
        matches(entry[1]) or (after and after[0] == entry[0] and matches(after[1]))
    )


def _until_dumped(passes: Sequence[PassName], leaves: _Leaves) -> list[PassName]:
    """The passes up to the first that leaves a dump; the verifier if that is the start of a
    pipeline and no pass precedes it."""
    suspects: list[PassName] = []
    for number, entry in enumerate(passes):
        pipeline, name = entry
        after = passes[number + 1] if number + 1 < len(passes) else None
        # The outer pass of a nested pipeline is listed after its parts, which are the suspects.
        nested = number > 0 and passes[number - 1] == (name, "pipeline-end")
        if name == "pipeline-start":
            if leaves(entry, after):
                return suspects or [(pipeline, VERIFIER)]
        elif name != "pipeline-end" and not nested:
            suspects.append(entry)
            if leaves(entry, after):
                return suspects
    return suspects
