"""Two runs of the compiler over the same program: the first pass after which modules differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from heapq import merge
from itertools import repeat

from hlo_lint.analysis.diff.difference import Difference, compare
from hlo_lint.analysis.diff.structural_hash import Structures
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pass_lists import unnumbered
from hlo_lint.dumps.selection import in_order, modules_of


@dataclass(frozen=True, slots=True)
class BisectionStep:
    """A pass that left a dump in either run."""

    pipeline: str
    """Empty for a named dump, `before_optimizations`, and for a dump from inside a pass."""
    name: str
    before: PassDump | None
    """The dump in the first run, if any."""
    after: PassDump | None

    stage: str = ""
    """The state of the pass, if the dump is from inside it."""

    @property
    def title(self) -> str:
        """`cse of simplification`, or the name of the dump."""
        where = f" of {self.pipeline}" if self.pipeline else ""
        return f"{self.name}{where}" + (f", after {self.stage}" if self.stage else "")


@dataclass(frozen=True, slots=True)
class Bisection:
    """The outcome of a walk along two runs in parallel."""

    before: Compilation
    after: Compilation
    steps: int
    """The number of steps after which the modules were compared and equal."""
    first: BisectionStep | None
    """The first pass after which they differ, if any."""
    difference: Difference | None
    """The differences after that pass, between the last dump of each run."""
    compared: tuple[PassDump, PassDump] | None
    """The two dumps."""
    ends_differ: bool | None
    """True if the final modules differ; None if a run lacks its final module."""
    notes: tuple[str, ...]
    """Possible reasons, and doubts about the result."""

    @property
    def same(self) -> bool:
        """True if the modules never differ."""
        return self.first is None


def bisect(before: Compilation, after: Compilation) -> Bisection:
    """Walk the dumps of two runs of the same program until the modules differ structurally.

    The dumps are aligned by the names of pipelines and passes. A pass that left a dump in only one
    run, because it is disabled in the other or changed nothing there, is compared with the other
    run's latest dump at that point.

    Raises:
        DumpError: if a dump cannot be read, or holds no HLO.
    """
    structures = Structures()
    walked = 0
    left: PassDump | None = None
    right: PassDump | None = None
    first: BisectionStep | None = None
    difference: Difference | None = None
    for step in aligned_steps(before, after):
        left, right = step.before or left, step.after or right
        if left is None or right is None:
            continue  # the other run has no dump yet
        if not (here := _difference(left, right, structures)).same:
            first, difference = step, here
            break
        walked += 1
    compared = None if left is None or right is None else (left, right)
    differ = None
    if before.final is not None and after.final is not None:
        differ = not _difference(before.final, after.final, structures).same
    notes = tuple(_notes(first, before, after))
    return Bisection(before, after, walked, first, difference, compared, differ, notes)


def _difference(left: PassDump, right: PassDump, structures: Structures) -> Difference:
    before, after = modules_of(left)[0], modules_of(right)[0]
    # Most steps change nothing: they need no structures.
    if before.text == after.text:
        return Difference(before, after)
    structures.keep((before, after))
    return compare(structures.of(before), structures.of(after))


def aligned_steps(before: Compilation, after: Compilation) -> Iterator[BisectionStep]:
    """The steps of two runs of a program in a common order; a step of both runs has two dumps."""
    ours, theirs = before.dumps, after.dumps
    if before.steps and after.steps:
        ours, theirs = in_order(before), in_order(after)

    def place(step: BisectionStep) -> int:
        """The place of a pass in the release's list; first if it is unknown."""
        key = step.pipeline, step.name
        for release in (*before.releases, *after.releases):
            if key in release.passes:
                return release.passes.index(key)
        return -1

    matcher = SequenceMatcher(None, list(map(_key, ours)), list(map(_key, theirs)), autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag == "equal":
            yield from map(_step, ours[start:end], theirs[first:last])
        else:
            alone = (
                map(_step, ours[start:end], repeat(None)),
                map(_step, repeat(None), theirs[first:last]),
            )
            yield from merge(*alone, key=place)


def _step(before: PassDump | None, after: PassDump | None) -> BisectionStep:
    dump = before or after
    assert dump is not None
    pipeline, name = _key(dump)
    if dump.name is not None and dump.name.step is not None and not dump.name.before:
        return BisectionStep("", pipeline, before, after, name)
    return BisectionStep(pipeline, name, before, after)


def _key(dump: PassDump) -> tuple[str, str]:
    """Pipeline and pass; for a named dump, its name."""
    name = dump.name
    if name is None:
        return "", dump.path.name
    if name.step is None:
        return "", name.label
    return name.pipeline, unnumbered(name.after)


def _notes(first: BisectionStep | None, before: Compilation, after: Compilation) -> Iterator[str]:
    if first is not None:
        for dump, side, compilation in ((first.before, "A", before), (first.after, "B", after)):
            if dump is not None:
                continue
            options, names = compilation.options, filter(None, (first.name, first.pipeline))
            disabled = [name for name in names if options is not None and options.disabled(name)]
            if disabled:
                yield f"{side} disables {disabled[0]}"
            else:
                yield f"{side} has no dump of it: the pass did not run there, or changed nothing"
        is_pass = bool(first.pipeline or first.stage)
        if is_pass and first.before is not None and first.after is not None:
            yield "it ran in both on the same module, with different results"
    for side, compilation in (("A", before), ("B", after)):
        if not compilation.steps:
            yield f"{side} has no dumps of passes; XLA_FLAGS=--xla_dump_hlo_pass_re=.* makes them"
        elif not compilation.records_every_change:
            yield f"{side} may not have dumped every pass: the cause may lie between two dumps"
    yield from flag_differences(before, after)


def flag_differences(before: Compilation, after: Compilation) -> Iterator[str]:
    """The flags in which the two runs differ, except those about dumps."""
    if before.options is None or after.options is None:
        return
    ours, theirs = before.options.values, after.options.values
    for flag in sorted({*ours, *theirs}):
        if ours.get(flag) != theirs.get(flag) and not flag.startswith("xla_dump"):
            given = [", ".join(values.get(flag, ())) or "unset" for values in (ours, theirs)]
            yield f"{flag}: {given[0]} in A, {given[1]} in B"
