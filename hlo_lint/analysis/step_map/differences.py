"""The operations that compute another value than before, while all others are the same.

Two values are walked down together from where the pass left the readers alone: the values of kept
instructions, and the result of the entry. Where the operations agree, the walk goes on to the
operands that differ; where they do not, it ends. If every end is an operation on the operands that
it had before, nothing in the module makes up for the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.step_map.value_classes import (
    ValueClasses,
    ValueNode,
    ValueNumber,
    choosing_attributes,
)
from hlo_lint.analysis.value_attributes import differs, is_of_user
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import BINARY, COMMUTATIVE, KEEPS_TYPE, TUPLES, UNARY
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_before_metadata,
    attributes_of,
    opcode_of,
    operands_of,
)
from hlo_lint.text.phrases import shortened

_CARRIES: Final = TUPLES | {"call", "constant", "copy", "fusion", "parameter"}
"""Opcodes that passes add and remove beside the operations."""
_MAX_ENDS: Final = 3
"""A pass that changes more operations rewrites the program."""


class OperationChange(NamedTuple):
    """An instruction before a pass, and the instruction with another value in its place."""

    old: Instruction
    new: Instruction
    text: str
    """`direction from LT to GT`."""


def only_differences(change: PassPair) -> Sequence[OperationChange]:
    """The operations that changed on the same operands; none if anything else differs."""
    if not (_keeps_operations(change) and _changes_values(change)):
        return ()
    classes = change.map.classes_once()
    gone, new = (_bitcasts(change, is_before=is_before) for is_before in (True, False))
    if gone != new:
        return ()  # a bitcast may undo what a transpose does
    starts = dict(_starts(change, classes))
    waiting = list(starts)
    seen = set(waiting)
    differences: list[OperationChange] = []
    while waiting:
        first, second = waiting.pop()
        if isinstance(first, int) and isinstance(second, int):
            ours, theirs = classes.nodes[first], classes.nodes[second]
            inner = _inner(ours, theirs, classes)
            if inner is None:
                end = starts.get((first, second)) or _only_members(first, second, classes)
                if end is None or len(differences) >= _MAX_ENDS:
                    return ()
                text = _text(ours, theirs, *end)
                if not text:
                    return ()
                differences.append(OperationChange(*end, text))
                continue
        elif isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
            inner = [pair for pair in zip(first, second, strict=True) if pair[0] != pair[1]]
        else:
            return ()
        waiting += dict.fromkeys(pair for pair in inner if pair not in seen)
        seen.update(inner)
    return differences


def _keeps_operations(change: PassPair) -> bool:
    """True if at most one operation became another, beside a clone: a cheap test."""
    counts = Counter(map(opcode_of, _changed_rows(change, is_before=False)))
    counts.subtract(map(opcode_of, _changed_rows(change, is_before=True)))
    return sum(map(abs, counts.values())) - sum(abs(counts[name]) for name in _CARRIES) <= 3


def _changes_values(change: PassPair) -> bool:
    """False if all changed instructions keep their names, operands and values."""
    if len(change.changed) < max(len(change.removed), len(change.added)):
        return True
    for pair in change.changed:
        rows, others, same = pair.before.rows, pair.after.rows, pair.same
        if len(pair.removed) != len(pair.added):
            return True
        for number in pair.removed:
            position = same.get(number)
            if position is None or _chosen(rows[number]) != _chosen(others[position]):
                return True
    return False


def _chosen(row: InstructionRecord) -> tuple[object, ...]:
    """The attributes that choose the value, and the literal of a constant."""
    opcode = opcode_of(row)
    literal = operands_of(row) if opcode == "constant" else ""
    return literal, choosing_attributes(opcode, attributes_before_metadata(attributes_of(row)))


def _changed_rows(change: PassPair, *, is_before: bool) -> Iterator[InstructionRecord]:
    for computation, numbers, _ in change.changed_places(is_before=is_before):
        yield from map(computation.rows.__getitem__, numbers)


def _bitcasts(change: PassPair, *, is_before: bool) -> Counter[tuple[str, str | None]]:
    """The number of changed bitcasts of each type and type of the operand."""
    types = Counter[tuple[str, str | None]]()
    for computation, numbers, _ in change.changed_places(is_before=is_before):
        changed = set(numbers)
        for bitcast in computation.with_opcode("bitcast"):
            if bitcast.number in changed:
                source = bitcast.producer()
                types[bitcast.type_text, source.type_text if source else None] += 1
    return types


def _only_members(
    first: int, second: int, classes: ValueClasses
) -> tuple[Instruction, Instruction] | None:
    """The only instruction of a class before the pass, and that of a class after it."""
    old, new = classes.before.members.get(first, ()), classes.after.members.get(second, ())
    if len(old) != 1 or len(new) != 1:
        return None
    (before, number), (after, position) = old[0], new[0]
    return before.at(number), after.at(position)


def _starts(
    change: PassPair, classes: ValueClasses
) -> Iterator[tuple[tuple[ValueNumber, ValueNumber], tuple[Instruction, Instruction]]]:
    """The different values of kept instructions, and of the results of computations."""
    for pair in change.changed:
        ours = classes.before.values.get(pair.before)
        theirs = classes.after.values.get(pair.after)
        if ours is None or theirs is None:
            continue
        kept = pair.kept if pair.keeps_names else ()
        ends = [(pair.before.at(number), pair.after.at(position)) for number, position in kept]
        if pair.before.root and pair.after.root:
            ends.append((pair.before.root, pair.after.root))
        for old, new in ends:
            if ours[old.name] != theirs[new.name]:
                yield (ours[old.name], theirs[new.name]), (old, new)


def _inner(
    ours: ValueNode, theirs: ValueNode, classes: ValueClasses
) -> list[tuple[ValueNumber, ValueNumber]] | None:
    """The operands that differ; None if the operations themselves do."""
    (label, operands), (other, others) = ours, theirs
    if label != other or len(operands) != len(others):
        return None
    if label[0] in COMMUTATIVE:
        gone = list((Counter(operands) - Counter(others)).elements())
        new = list((Counter(others) - Counter(operands)).elements())
        if classes.operation(gone[0]) != classes.operation(new[0]):
            new.reverse()
        return list(zip(gone, new, strict=True))
    if Counter(operands) == Counter(others):
        return None
    return [pair for pair in zip(operands, others, strict=True) if pair[0] != pair[1]]


def _text(ours: ValueNode, theirs: ValueNode, old: Instruction, new: Instruction) -> str:
    """The change of an operation on the same operands; empty for any other change."""
    label: Any
    other: Any
    (label, operands), (other, others) = ours, theirs
    opcode, becomes = label[0], other[0]
    if label == other and len(label) == 3 and Counter(operands) == Counter(others):
        is_told = opcode != "custom-call" or is_of_user(old)
        return "the order of the operands" if is_told else ""
    if operands != others:
        return ""
    if opcode != becomes:
        one_family = any(KEEPS_TYPE & family >= {opcode, becomes} for family in (BINARY, UNARY))
        # On pred, sums and maxima are equal.
        is_same = str(label[1]).startswith("pred") or label[1] != other[1]
        return "" if is_same or not one_family else f"the operation from {opcode} to {becomes}"
    if opcode == "constant" and label[1] == other[1]:
        return f"the value of the constant from {label[2]} to {other[2]}"
    is_combined = old.opcode != new.opcode or len(old.operand_names) != len(new.operand_names)
    # Only the label of an operation ends in its attributes.
    if len(label) != 3 or not isinstance(label[2], tuple) or label[1] != other[1] or is_combined:
        return ""
    names = {name for name, _ in {*label[2]} ^ {*other[2]}}
    texts = [
        f"{name} from {shortened(old.attributes.get(name, 'none'))} "
        f"to {shortened(new.attributes.get(name, 'none'))}"
        for name in names
        if differs(old, new, name)
    ]
    is_told = len(texts) == 1 and (opcode != "custom-call" or is_of_user(old))
    return texts[0] if is_told else ""
