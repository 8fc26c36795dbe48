"""Two runs of the compiler over the same program: the first pass after which modules differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

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
    return _AlignedRuns(before, after).bisection()


def aligned_steps(before: Compilation, after: Compilation) -> list[BisectionStep]:
    """The steps of two runs of a program in a common order; a step of both runs has two dumps."""
    return list(_AlignedRuns(before, after).steps())


class _AlignedRuns:
    """Two runs of the same program, and the structures of their modules."""

    def __init__(self, before: Compilation, after: Compilation) -> None:
        self.before, self.after = before, after
        self.ours, self.theirs = before.dumps, after.dumps
        if before.steps and after.steps:
            self.ours, self.theirs = in_order(before), in_order(after)
        self.structures = Structures()

    def bisection(self) -> Bisection:
        walked = 0
        dumps: tuple[PassDump, PassDump] | None = None
        for step in self.steps():
            left = step.before or (dumps and dumps[0])
            right = step.after or (dumps and dumps[1])
            if left is None or right is None:
                continue  # the other run has no dump yet
            dumps = left, right
            difference = self._difference(left, right)
            if not difference.same:
                return self._result(walked, step, difference, dumps)
            walked += 1
        return self._result(walked, None, None, dumps)

    def _result(
        self,
        walked: int,
        first: BisectionStep | None,
        difference: Difference | None,
        dumps: tuple[PassDump, PassDump] | None,
    ) -> Bisection:
        ends = self.before.final, self.after.final
        differ = None
        if ends[0] is not None and ends[1] is not None:
            differ = not self._difference(ends[0], ends[1]).same
        notes = tuple(_notes(first, self.before, self.after))
        return Bisection(self.before, self.after, walked, first, difference, dumps, differ, notes)

    def _difference(self, left: PassDump, right: PassDump) -> Difference:
        before, after = modules_of(left)[0], modules_of(right)[0]
        # Most steps change nothing: they need no structures.
        if before.text == after.text:
            return Difference(before, after)
        self.structures.keep((before, after))
        return compare(self.structures.of(before), self.structures.of(after))

    def steps(self) -> Iterator[BisectionStep]:
        """The steps of both runs in a common order."""
        i = j = 0
        while i < len(self.ours) or j < len(self.theirs):
            takes_left, takes_right = self._next(i, j)
            yield _step(
                self.ours[i] if takes_left else None, self.theirs[j] if takes_right else None
            )
            i, j = i + takes_left, j + takes_right

    def _next(self, i: int, j: int) -> tuple[bool, bool]:
        """The runs whose dump comes next: the first, the second, or both."""
        if i == len(self.ours) or j == len(self.theirs):
            return i < len(self.ours), j < len(self.theirs)
        left, right = _key(self.ours[i]), _key(self.theirs[j])
        if left == right:
            return True, True
        # A pass that one run disables has no partner: it is ours alone.
        if any(_disables(self.after, name) for name in left):
            return True, False
        if any(_disables(self.before, name) for name in right):
            return False, True
        remaining = list(map(_key, self.ours[i:])), list(map(_key, self.theirs[j:]))
        comes_back = left in remaining[1], right in remaining[0]
        if comes_back == (True, True):  # a repeated pipeline: the fewest edits
            edit = SequenceMatcher(None, *remaining, autojunk=False).get_opcodes()[0][0]
            is_ours = edit != "insert"
        elif any(comes_back):
            is_ours = comes_back[1]
        else:
            is_ours = self._place(left) <= self._place(right)
        return is_ours, not is_ours

    def _place(self, key: tuple[str, str]) -> int:
        """The place of a pass in the release's list; first if it is unknown."""
        for release in (*self.before.releases, *self.after.releases):
            if key in release.passes:
                return release.passes.index(key)
        return -1


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
        return "", name.rest.rpartition(".")[0]
    return name.pipeline, unnumbered(name.after)


def _disables(compilation: Compilation, name: str) -> bool:
    """True if a run was told to leave out a pass, or a pipeline."""
    return compilation.options is not None and bool(name) and compilation.options.disabled(name)


def _notes(first: BisectionStep | None, before: Compilation, after: Compilation) -> Iterator[str]:
    if first is not None:
        for dump, side, compilation in ((first.before, "A", before), (first.after, "B", after)):
            if dump is not None:
                continue
            disabled = [
                name for name in (first.name, first.pipeline) if _disables(compilation, name)
            ]
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
