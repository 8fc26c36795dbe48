"""The effect of each pass of a compilation on the module: counts, not graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import Any

from hlo_lint.analysis.calls import callees_of
from hlo_lint.analysis.diff.structural_hash import Structures
from hlo_lint.analysis.opcode_costs import byte_count
from hlo_lint.analysis.walks import reached
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order, modules_of
from hlo_lint.hlo.ir import Computation, Module, cached_analysis
from hlo_lint.hlo.opcodes import NO_BUFFER
from hlo_lint.hlo.records import opcode_of, type_of
from hlo_lint.hlo.shape import shape_or_none


class Effect(Enum):
    """The change of the module since the dump before."""

    FIRST = "first"
    """It is the first dump."""
    NOTHING = "no"
    """The text is unchanged."""
    NAMES = "names"
    """Only the text differs: names, metadata, the order of lines."""
    CHANGED = "yes"
    """The graph differs."""


@dataclass(frozen=True, slots=True)
class PassStats:
    """A dump, and the changes since the previous dump."""

    dump: PassDump
    effect: Effect
    instructions: int
    """The number of instructions, including those in fusions."""
    fusions: int
    bytes: int
    """Bytes of the arrays outside fusions; unknown sizes count as 0."""
    added: dict[str, int] = field(default_factory=dict)
    """The increase in instructions of each opcode."""
    removed: dict[str, int] = field(default_factory=dict)
    """The decrease in instructions of each opcode."""
    bytes_added: int = 0
    """Bytes of the new arrays outside fusions, counted by shape, so that a changed name or opcode
    adds 0. Unknown sizes count as 0."""
    bytes_removed: int = 0
    microseconds: int | None = None
    """The run time of the pass, if the dump directory has it."""

    @property
    def number(self) -> int | None:
        """The step's number; None for a named dump."""
        return self.dump.name.step if self.dump.name else None

    @property
    def pipeline(self) -> str:
        """Empty for a named dump."""
        return self.dump.name.pipeline if self.dump.name else ""

    @property
    def name(self) -> str:
        """The pass, or the name of the dump."""
        name = self.dump.name
        if name is None:
            return self.dump.path.name
        return name.after if name.step is not None else name.label


def passes(compilation: Compilation) -> Iterator[PassStats]:
    """The dumps of a module in the order of the run, each with its changes.

    Raises:
        DumpError: if a dump cannot be read, or holds no HLO.
    """
    times = {name: run.microseconds for run in compilation.pass_runs or () for name in run.dumps}
    if not any(times.values()):
        times = dict(times_between_files(compilation))
    structures = Structures()
    before: Module | None = None
    held = 0
    for dump in in_order(compilation):
        module = modules_of(dump)[0]
        stats = _stats(dump, before, module, held, structures)
        yield replace(stats, microseconds=times.get(dump.path.name))
        before, held = module, stats.bytes


def times_between_files(compilation: Compilation) -> Iterator[tuple[str, int]]:
    """The microseconds from each file of a run to the next, with the time to write it.

    Nothing for a copy of the files: it is written in another order, or in whole seconds.
    """
    dumps = in_order(compilation)
    try:
        times = [dump.path.stat().st_mtime_ns for dump in dumps]
    except OSError:  # in an archive
        return
    # The first file of a run is the last by its name, so that a copy has them in another order.
    is_first = bool(dumps) and dumps[0].path.name.endswith("before_optimizations.txt")
    if is_first and times == sorted(times) and any(time % 10**9 for time in times):
        for dump, (before, after) in zip(dumps[1:], pairwise(times), strict=True):
            yield dump.path.name, (after - before) // 1000


def _stats(
    dump: PassDump, before: Module | None, module: Module, held: int, structures: Structures
) -> PassStats:
    """The counts of a dump's module after another, whose arrays hold some bytes."""
    opcodes = sum(map(_opcodes, module.computations), Counter[str]())
    stats = PassStats(dump, Effect.FIRST, opcodes.total(), opcodes["fusion"], held)
    # Dumps of a directory share repeated pieces, so this compares references first.
    if before is not None and (before.pieces == module.pieces or before.text == module.text):
        return replace(stats, effect=Effect.NOTHING)
    arrays = _change(_running(before) if before is not None else (), _running(module), _arrays)
    moved = [count * byte_count(shape_or_none(shape)) for shape, count in arrays.items()]
    stats = replace(stats, bytes=held + sum(moved))
    if before is None:
        return stats
    difference = _change(before.computations, module.computations, _opcodes)
    effect = Effect.CHANGED
    if not any(difference.values()):
        # Equal counts do not imply equal graphs: operands may have been exchanged.
        structures.keep((before, module))
        if structures.of(before).number == structures.of(module).number:
            effect = Effect.NAMES
    return replace(
        stats,
        effect=effect,
        added={opcode: count for opcode, count in difference.most_common() if count > 0},
        removed={opcode: -count for opcode, count in difference.most_common()[::-1] if count < 0},
        bytes_added=sum(size for size in moved if size > 0),
        bytes_removed=-sum(size for size in moved if size < 0),
    )


@cached_analysis
def _opcodes(computation: Computation) -> Counter[str]:
    return Counter(map(opcode_of, computation.rows))


@cached_analysis
def _arrays(computation: Computation) -> Counter[str]:
    return Counter(
        type_of(row)
        for row in computation.rows
        if opcode_of(row) not in NO_BUFFER and not opcode_of(row).endswith("-done")
    )


def _running(module: Module) -> list[Computation]:
    """The called computations and the entry, without bodies of fusions and what only these call."""
    fused = module.fusion_computations

    def called(computation: Computation) -> Iterator[Computation]:
        return (to for to in callees_of(module, computation) if to.name not in fused)

    run = set(reached(filter(None, [module.entry]), called))
    return [computation for computation in module.computations if computation in run]


def _change(
    before: Iterable[Computation],
    after: Iterable[Computation],
    counts_of: Callable[[Computation], Counter[str]],
) -> Counter[str]:
    """The increase of each count, by the computations that are new or gone."""
    ours, theirs = Counter(before), Counter(after)
    change: Counter[str] = Counter()
    for sign, exchanged in ((1, theirs - ours), (-1, ours - theirs)):
        for computation, times in exchanged.items():
            for name, count in counts_of(computation).items():
                change[name] += sign * times * count
    return change


def stats_as_dict(step: PassStats) -> dict[str, Any]:
    """The statistics as a row of JSON."""
    return {
        "step": step.number,
        "pipeline": step.pipeline or None,
        "pass": step.name,
        "path": str(step.dump.path),
        "changed": step.effect.value,
        "added": step.added,
        "removed": step.removed,
        "bytes_added": step.bytes_added,
        "bytes_removed": step.bytes_removed,
        "bytes": step.bytes,
        "instructions": step.instructions,
        "fusions": step.fusions,
        "microseconds": step.microseconds,
    }
