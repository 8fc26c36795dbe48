"""The history of a defect, from the pass that introduced it to the pass that resolved it.

A defect is identified by its message, computation and instruction. A pass that renames or moves an
instruction seems to resolve a defect and to introduce another with the same message at the same
opcode: the two are joined to a single history, so that the pass is not blamed.

The `Timeline` has the dumps of a run in order; dumps without a known position come last, from
`timeline.length` on. A `ModuleRef` is the position of a dump and the number of a module in its
file, an `Occurrence` is a finding with its `ModuleRef`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hlo_lint.dumps.selection import outer_pass
from hlo_lint.engine.timeline import ModuleRef, Occurrence, Timeline
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.records import InstructionRecord, name_of, opcode_of, operands_of, type_of
from hlo_lint.rules.findings import Finding
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from hlo_lint.engine.findings import PassRef

DefectKey = tuple[int, str, str, str, int | None, int]
"""The module's number in its file, computation, instruction (or text), message, operand, and a
number that tells otherwise equal defects apart."""

_NUMBERS = late(r"\d+")
_CLONE = ".clone"
_NAMES = late(r"%[\w.\-]+|(?<=[A-Za-z_)-])\.\d+")


@dataclass(eq=False, repr=False)
class FindingHistory:
    """A defect in consecutive dumps, from the first to the last."""

    key: DefectKey
    """The key in its last dump."""
    seen: list[Occurrence]
    """The occurrence in each dump, in the order of the run."""
    timeline: Timeline
    beside: list[Occurrence] = field(default_factory=list)
    """Occurrences in dumps without a known position."""
    original: FindingHistory | None = None
    """The defect of the computation that a pass cloned."""

    @property
    def first(self) -> int:
        """The position of the first dump."""
        return self.seen[0].ref.position

    @property
    def last(self) -> int:
        """The position of the last dump."""
        return self.seen[-1].ref.position

    def introduction(self, *, unless_established: bool = False) -> PassRef | None:
        """The pass after which the defect first appears; None if unknown.

        A defect of the first dump may be older, unless earlier passes would have removed it
        (`unless_established`). A defect at the start of a pipeline came from the pass that runs the
        pipeline, or from outside these dumps. A pass that only annotated other instructions did not
        introduce the defect but revealed it; one that cloned its computation repeated it.
        """
        if self.original is not None:
            return self.original.introduction(unless_established=unless_established)
        timeline, position = self.timeline, self.first
        if position >= timeline.length or (position == 0 and not unless_established):
            return None
        dump = timeline.dumps[position]
        name = dump.name
        if name is None or name.step is None:
            return None
        pass_name = outer_pass(timeline.dumps, position) or name.after
        if pass_name == "pipeline-start" or (position and self._only_shows()):
            return None
        from hlo_lint.engine.findings import PassRef

        return PassRef(pass_name, name.pipeline, name.step, str(dump.path))

    def _only_shows(self) -> bool:
        """True if the instruction was there before, and only attributes of others changed."""
        (finding, ref), timeline = self.seen[0], self.timeline
        modules = timeline.dumps[ref.position - 1].file.modules
        if not isinstance(finding.at, Instruction) or ref.number >= len(modules):
            return False
        before, after = modules[ref.number], timeline.module(ref)
        computation = before.computation(finding.at.computation.name)
        as_it_was = computation.instruction(finding.at.name) if computation else None
        return (
            as_it_was is not None
            and as_it_was.row == finding.at.row
            and before.pieces is not after.pieces  # else only the stage changed
            and before.text != after.text
            and len(before.computations) == len(after.computations)
            and all(
                old is new or list(map(_computed, old.rows)) == list(map(_computed, new.rows))
                for old, new in zip(before.computations, after.computations, strict=True)
            )
        )

    def resolving_pass(self) -> PassRef | None:
        """The pass that resolved the defect after its last dump; None at the end of the run.

        The name of the pass is empty if it left no dump of its own.
        """
        timeline, after = self.timeline, self.last + 1
        if after >= timeline.length:
            return None
        from hlo_lint.engine.findings import PassRef

        dump = timeline.dumps[after]
        name = dump.name
        if name is None:
            return PassRef("", "", None, str(dump.path))
        is_named = name.step is not None and name.after != "pipeline-start"
        return PassRef(name.after if is_named else "", name.pipeline, name.step, str(dump.path))


def _computed(row: InstructionRecord) -> tuple[object, ...]:
    """An instruction without its attributes; the operands of a constant hold its value."""
    return name_of(row), opcode_of(row), type_of(row), operands_of(row)


def histories_of(occurrences: Iterable[Occurrence], timeline: Timeline) -> list[FindingHistory]:
    """The defects, each with the last unbroken stretch of dumps that have it."""
    by_key: dict[DefectKey, dict[int, Occurrence]] = {}
    keys: dict[tuple[int, int], DefectKey] = {}  # a finding may be in a hundred dumps
    repeats: dict[tuple[DefectKey, int], int] = {}
    for occurrence in occurrences:
        same = id(occurrence.finding), occurrence.ref.number
        key = keys.get(same)
        if key is None:
            key = keys[same] = _key(occurrence, timeline)
        position = occurrence.ref.position
        seen = by_key.setdefault(key, {})
        if position in seen:  # two equal findings in a dump
            number = repeats[key, position] = repeats.get((key, position), 0) + 1
            seen = by_key.setdefault((*key[:-1], number), {})
        seen[position] = occurrence
    stretches = [
        stretch for key, seen in by_key.items() for stretch in _stretches(key, seen, timeline)
    ]
    # A defect that went away and came back has a single history: the last stretch.
    last: dict[DefectKey, FindingHistory] = {}
    for history in _joined(stretches, timeline):
        older = last.pop(history.key, None)
        if older is not None:
            history.beside += older.beside
        last[history.key] = history
    _link_clones(last.values())
    return list(last.values())


def _link_clones(histories: Collection[FindingHistory]) -> None:
    """Tell defects of cloned computations, `body.clone.1`, of their originals."""
    clones = [history for history in histories if _CLONE in history.key[1]]
    originals = {_place(history): history for history in histories} if clones else {}
    for history in clones:
        original = originals.get(_place(history, is_clone=True))
        if original is not None and original.first < history.first:
            history.original = original


def _place(history: FindingHistory, *, is_clone: bool = False) -> tuple[int, str, str, str]:
    """The computation, the instruction and the message without names; for a clone of the source."""
    number, where, what, message, *_ = history.key
    if is_clone:
        where, what = where.partition(_CLONE)[0], what.partition(_CLONE)[0]
    return number, where, what, _NAMES.sub("", message)


def followed_back(
    findings: Iterable[Finding],
    ref: ModuleRef,
    timeline: Timeline,
    look: Callable[[Module], Iterable[Finding]],
) -> list[FindingHistory]:
    """The defects of a module, each with the unbroken stretch of earlier dumps that have it.

    `look` finds the defects of an earlier module in the same way.
    """
    occurrences = [Occurrence(finding, ref) for finding in findings]
    wanted = {key for occurrence in occurrences for key in _renaming_keys(occurrence)}
    positions = range(ref.position - 1, -1, -1) if ref.position < timeline.length else ()
    seen: tuple[Module, list[Finding]] | None = None
    for position in positions:
        earlier = ModuleRef(position, ref.number)
        if not wanted or ref.number >= len(timeline.dumps[position].file.modules):
            break
        module = timeline.module(earlier)
        # Dumps of equal text share their pieces; most passes change nothing and are skipped.
        if seen is None or seen[0].pieces is not module.pieces:
            seen = module, list(look(module))
        every = (Occurrence(finding, earlier) for finding in seen[1])
        there = [other for other in every if not wanted.isdisjoint(_renaming_keys(other))]
        wanted = {key for occurrence in there for key in _renaming_keys(occurrence)}
        occurrences += there
    histories = histories_of(occurrences, timeline)
    return [history for history in histories if history.last == ref.position]


def _key(occurrence: Occurrence, timeline: Timeline) -> DefectKey:
    finding, ref = occurrence
    subject = finding.at
    if isinstance(subject, Instruction):
        where, what = subject.computation.name, subject.name
    else:
        where, what = "", timeline.dumps[ref.position].file.lines.part(subject)
    return ref.number, where, what, finding.message, finding.operand, 0


def _stretches(
    key: DefectKey, seen: dict[int, Occurrence], timeline: Timeline
) -> list[FindingHistory]:
    """The unbroken stretches of a key; dumps without a position join the last stretch, if any."""
    histories: list[FindingHistory] = []
    for position in sorted(seen):
        last = histories[-1] if histories else None
        if last is not None and position >= timeline.length:
            last.beside.append(seen[position])
        elif last is not None and last.last == position - 1:
            last.seen.append(seen[position])
        else:
            histories.append(FindingHistory(key, [seen[position]], timeline))
    return histories


def _joined(stretches: list[FindingHistory], timeline: Timeline) -> list[FindingHistory]:
    """Join each stretch with a stretch that ends in the dump before it and differs only in names.

    Numbers may differ, too: an unrolled loop has another trip count.
    """
    joined: list[FindingHistory] = []
    ended: dict[int, list[FindingHistory]] = {}
    waiting: dict[int, dict[RenamingKey, deque[FindingHistory]]] = {}
    for history in sorted(stretches, key=lambda history: history.first):
        before = history.first - 1
        if before in ended and history.first < timeline.length:
            if before not in waiting:  # complete: stretches that end there are already sorted
                waiting[before] = {}
                for candidate in ended[before]:
                    for key in _renaming_keys(candidate.seen[-1]):
                        waiting[before].setdefault(key, deque()).append(candidate)
            earlier = _taken(waiting[before], history, before)
            if earlier is not None:
                earlier.key = history.key
                earlier.seen += history.seen
                earlier.beside += history.beside
                ended.setdefault(earlier.last, []).append(earlier)
                continue
        joined.append(history)
        ended.setdefault(history.last, []).append(history)
    return joined


def _taken(
    waiting: dict[RenamingKey, deque[FindingHistory]], history: FindingHistory, before: int
) -> FindingHistory | None:
    """The first unclaimed history that matches."""
    for key in _renaming_keys(history.seen[0]):
        older = waiting.get(key)
        while older:
            earlier = older.popleft()
            if earlier.last == before:
                return earlier
    return None


RenamingKey = tuple[str, str, str]


def _renaming_keys(occurrence: Occurrence) -> tuple[RenamingKey, RenamingKey]:
    message, opcode, shape = renaming_key(occurrence)
    return (message, opcode, shape), (_NUMBERS.sub("#", message), opcode, shape)


def renaming_key(occurrence: Occurrence) -> tuple[str, str, str]:
    """The message without names, opcode and type of a finding: equal before and after a renaming.

    The type of a loop is left out."""
    finding = occurrence.finding
    opcode = shape = ""
    if isinstance(finding.at, Instruction):
        opcode = finding.at.opcode
        if opcode != "while":  # hoisting out of a loop widens its state
            shape = finding.at.type_text
    return _NAMES.sub("", finding.message), opcode, shape
