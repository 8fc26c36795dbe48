"""Differences between two modules, computation by computation, names left out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from hlo_lint.analysis.diff.align import NOTHING, align
from hlo_lint.analysis.diff.normalize import PROVENANCE, literal_meaning, meaning, shape_meaning
from hlo_lint.analysis.diff.structural_hash import Body, Read, Structure, Structures
from hlo_lint.analysis.grouping import by_key
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Instruction, Module
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS, NO_KERNEL
from hlo_lint.hlo.records import name_of, opcode_of


@dataclass(frozen=True, slots=True)
class Change:
    """A field in which two instructions, or two headers, differ."""

    what: str
    """`shape`, `operand 0`, `control`, or the name of an attribute."""
    before: str | None
    """As spelled; None if the field is missing."""
    after: str | None


@dataclass(frozen=True, slots=True)
class Changed:
    """A pair of instructions that differ."""

    before: Instruction
    after: Instruction
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class ComputationDifference:
    """The differences in a computation."""

    before: Computation | None
    """None if only the second module has it."""
    after: Computation | None
    removed: tuple[Instruction, ...] = ()
    added: tuple[Instruction, ...] = ()
    changed: tuple[Changed, ...] = ()
    moved: tuple[tuple[Instruction, Instruction], ...] = ()
    """Instructions that moved in the schedule: the fewest that explain the difference."""
    itself: tuple[Change, ...] = ()
    """Changed attributes of the computation: its execution thread."""

    @property
    def name(self) -> str:
        """The name in the second module, if it has the computation."""
        computation = self.after or self.before
        assert computation is not None
        return computation.name

    @property
    def instructions(self) -> int:
        """The number of instructions that differ; all, if a module lacks the computation."""
        if self.before is None or self.after is None:
            computation = self.after or self.before
            return 0 if computation is None else len(computation.rows)
        return len(self.removed) + len(self.added) + len(self.changed) + len(self.moved)

    @property
    def same(self) -> bool:
        """True if both modules have equal computations."""
        alone = self.before is None or self.after is None
        return not (alone or self.instructions or self.itself)


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between two modules."""

    before: Module
    after: Module
    header: tuple[Change, ...] = ()
    computations: tuple[ComputationDifference, ...] = ()
    """The entry computation, then the order of the second module, then removed computations."""

    @property
    def same(self) -> bool:
        """True if the modules differ at most in names."""
        return not self.header and not self.computations

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of instructions removed, added, changed and moved; all instructions of a
        computation that only one module has."""
        parts = self.computations
        return {
            "removed": sum(
                len(part.removed) if part.after else part.instructions for part in parts
            ),
            "added": sum(len(part.added) if part.before else part.instructions for part in parts),
            "changed": sum(len(part.changed) for part in parts),
            "moved": sum(len(part.moved) for part in parts),
        }


def diff(before: Module, after: Module) -> Difference:
    """Compare two modules; names, ids and the order of attributes are left out.

    Two modules are the same if both compute each value equally often: a graph and its copy with
    different names, with get-tuple-elements printed or not, with metadata or without. If both are
    scheduled, the order of instructions that become kernels counts.
    """
    structures = Structures()
    return compare(structures.of(before), structures.of(after))


def compare(before: Structure, after: Structure) -> Difference:
    """The differences between two structures from the same `Structures`."""
    if before.number == after.number:
        return Difference(before.module, after.module)
    pairs = paired_computations(before, after)
    partners = {left.computation.name: right.computation.name for left, right, _ in pairs}

    def are_partners(name: str | None, its: str | None) -> bool:
        """True if two callees are equal, or differ where they are compared themselves."""
        body = None if name is None else before.bodies.get(name)
        its_body = None if its is None else after.bodies.get(its)
        if body is None or its_body is None:
            return name is not None and its is not None and body is its_body
        return body.number == its_body.number or partners.get(str(name)) == its

    scheduled = before.module.is_scheduled and after.module.is_scheduled
    fused = before.module.fusion_computations | after.module.fusion_computations
    compared = [
        _compared(left, right, pair, are_partners, scheduled and not in_fusion)
        for left, right, pair in pairs
        for in_fusion in [left.computation.name in fused or right.computation.name in fused]
    ]
    theirs = set(partners.values())
    compared += [
        ComputationDifference(None, body.computation)
        for name, body in after.bodies.items()
        if name not in theirs
    ]
    compared += [
        ComputationDifference(body.computation, None)
        for name, body in before.bodies.items()
        if name not in partners
    ]
    place = {name: position for position, name in enumerate(after.bodies)}
    differing = [computation for computation in compared if not computation.same]
    differing.sort(key=lambda computation: _rank(computation, place))
    header = _header_changes(before, after)
    return Difference(before.module, after.module, header, tuple(differing))


def _rank(computation: ComputationDifference, place: dict[str, int]) -> tuple[int, int]:
    if computation.after is None:
        return 2, 0
    return (0 if computation.after.is_entry else 1), place.get(computation.after.name, 0)


Pair = tuple[Body, Body, list[int] | None]
"""Two computations, and the alignment of their instructions; None if they are equal."""


def paired_computations(before: Structure, after: Structure) -> list[Pair]:
    """Pairs of computations: the callees of pairs, then by content, then by name."""
    pairs: list[Pair] = []
    left, right = dict(before.bodies), dict(after.bodies)
    waiting: list[tuple[str, str]] = []
    first, second = before.module.entry, after.module.entry
    if first is not None and second is not None:
        waiting.append((first.name, second.name))

    def settle() -> None:
        for left_name, right_name in waiting:  # grows on the way
            if left_name not in left or right_name not in right:
                continue
            left_body, right_body = left.pop(left_name), right.pop(right_name)
            pair = None if left_body.number == right_body.number else align(left_body, right_body)
            pairs.append((left_body, right_body, pair))
            waiting.extend(_calls(left_body, right_body, pair))
        waiting.clear()

    settle()
    by_content = by_key((body.number, name) for name, body in right.items())
    # pop() takes from the end: names of the first module come first, and stay for their namesakes.
    for same in by_content.values():
        same.sort(key=lambda name: name in left, reverse=True)
    for name, body in list(left.items()):
        same = by_content.get(body.number, [])
        if name in same:
            same.remove(name)
            waiting.append((name, name))
        elif same:
            waiting.append((name, same.pop()))
    settle()
    waiting += [(name, name) for name in left if name in right]
    settle()
    return pairs


def _calls(left: Body, right: Body, pair: list[int] | None) -> Iterator[tuple[str, str]]:
    """Pairs of callees, of paired instructions."""
    if pair is None:
        return  # their callees have the same content, and are paired by it
    for position, called in left.callees.items():
        match = pair[position]
        if match != NOTHING:
            yield from zip(called, right.callees.get(match, ()), strict=False)


_ArePartners = Callable[[str | None, str | None], bool]
"""True for the names of two callees without a difference of their callers."""


def _compared(
    left: Body, right: Body, pair: list[int] | None, are_partners: _ArePartners, scheduled: bool
) -> ComputationDifference:
    ours, theirs = left.computation, right.computation
    if pair is None:
        if not scheduled or left.schedule == right.schedule:
            return ComputationDifference(ours, theirs)
        return ComputationDifference(ours, theirs, moved=_moved(left, right, align(left, right)))
    taken = set(pair)
    removed = [ours.at(position) for position in left.positions if pair[position] == NOTHING]
    added = [theirs.at(position) for position in right.positions if position not in taken]
    changed = [
        Changed(ours.at(position), theirs.at(match), changes)
        for position in left.positions
        if (match := pair[position]) != NOTHING
        and left.values[position] != right.values[match]
        and (changes := tuple(_changes(left, right, position, match, pair, are_partners)))
    ]
    itself = []
    if ours.thread != theirs.thread:
        itself.append(Change("execution_thread", ours.thread, theirs.thread))
    if min(left.root, right.root) >= 0 and pair[left.root] not in (NOTHING, right.root):
        names = (f"%{name_of(body.computation.rows[body.root])}" for body in (left, right))
        itself.append(Change("root", *names))
    moved = _moved(left, right, pair) if scheduled else ()
    return ComputationDifference(
        ours, theirs, tuple(removed), tuple(added), tuple(changed), moved, tuple(itself)
    )


def _changes(
    left: Body, right: Body, position: int, match: int, pair: list[int], are_partners: _ArePartners
) -> Iterator[Change]:
    """The fields in which two paired instructions differ."""
    ours, theirs = left.computation.at(position), right.computation.at(match)
    if left.labels[position] != right.labels[match]:
        if shape_meaning(ours.type_text) != shape_meaning(theirs.type_text):
            yield Change("shape", ours.type_text, theirs.type_text)
        if ours.opcode in LITERAL_OPERANDS:
            values = ours.operands_text.strip(), theirs.operands_text.strip()
            if literal_meaning(values[0]) != literal_meaning(values[1]):
                yield Change("value", *values)
        yield from _attribute_changes(ours.attributes, theirs.attributes)
    yield from _operand_changes(left, right, position, match, pair)
    # Differences inside callees are reported there.
    ours_called, theirs_called = left.callees.get(position, ()), right.callees.get(match, ())
    for name, its in zip_longest(ours_called, theirs_called):
        if not are_partners(name, its):
            yield Change("calls", name and f"%{name}", its and f"%{its}")


def _attribute_changes(ours: dict[str, str], theirs: dict[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys([*ours, *theirs]):
        # Control predecessors are compared with the operands.
        if name in PROVENANCE or name in CALLING_ATTRIBUTES or name == "control-predecessors":
            continue
        before, after = ours.get(name), theirs.get(name)
        meanings = [None if text is None else meaning(name, text) for text in (before, after)]
        if meanings[0] != meanings[1]:
            yield Change(name, before, after)


def _operand_changes(
    left: Body, right: Body, position: int, match: int, pair: list[int]
) -> Iterator[Change]:
    reads, others = left.reads[position], right.reads[match]
    split, other_split = left.operands[position], right.operands[match]
    for place, (read, its) in enumerate(
        zip_longest(reads[:split], others[:other_split], fillvalue=None)
    ):
        if read is not None and its is not None and _same_read(left, right, read, its, pair):
            continue
        before, after = _shown(left, read), _shown(right, its)
        if before != after:  # else an instruction was replaced by its namesake: both are reported
            yield Change(f"operand {place}", before, after)
    control, its_control = reads[split:], others[other_split:]
    partners = sorted((pair[read], path) for read, path in control)
    if partners != sorted(its_control):
        sides = (left, control), (right, its_control)
        values, its_values = (
            sorted(body.values[read] if read >= 0 else -1 for read, _ in edges)
            for body, edges in sides
        )
        if values != its_values:
            names = (", ".join(str(_shown(body, read)) for read in edges) for body, edges in sides)
            before, after = (side or None for side in names)
            yield Change("control-predecessors", before, after)


def _same_read(left: Body, right: Body, read: Read, its: Read, pair: list[int]) -> bool:
    (position, path), (its_position, its_path) = read, its
    if path != its_path or (position < 0) != (its_position < 0):
        return False
    # A read of a partner, or of another instruction that computes the same.
    if position < 0 or pair[position] == its_position:
        return True
    return left.values[position] == right.values[its_position]  # a copy of it


def _shown(body: Body, read: Read | None) -> str | None:
    if read is None:
        return None
    position, path = read
    name = name_of(body.computation.rows[position]) if position >= 0 else "?"
    return f"%{name}" + "".join(f"#{element}" for element in path)


def _moved(left: Body, right: Body, pair: list[int]) -> tuple[tuple[Instruction, Instruction], ...]:
    """The fewest pairs to leave out so that both orders agree."""
    ours, theirs = left.computation, right.computation
    pairs = [
        (position, pair[position])
        for position in left.positions
        if pair[position] != NOTHING and opcode_of(ours.rows[position]) not in NO_KERNEL
    ]
    kept = _longest_rise([match for _, match in pairs])
    return tuple(
        (ours.at(position), theirs.at(match))
        for number, (position, match) in enumerate(pairs)
        if number not in kept
    )


def _longest_rise(numbers: Sequence[int]) -> set[int]:
    """Places of a longest rising subsequence.

    >>> sorted(_longest_rise([0, 3, 1, 2]))
    [0, 2, 3]
    """
    ends: list[int] = []
    places: list[int] = []
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect_left(ends, number)
        if length == len(ends):
            ends.append(number)
            places.append(place)
        else:
            ends[length], places[length] = number, place
        before.append(places[length - 1] if length else -1)
    rise: set[int] = set()
    place = places[-1] if places else -1
    while place >= 0:
        rise.add(place)
        place = before[place]
    return rise


def _header_changes(before: Structure, after: Structure) -> tuple[Change, ...]:
    spelled = before.module.attributes, after.module.attributes
    return tuple(
        Change(name, spelled[0].get(name), spelled[1].get(name))
        for name in dict.fromkeys([*before.header, *after.header])
        if before.header.get(name) != after.header.get(name)
    )
