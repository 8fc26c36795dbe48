"""The operations that compute another value than before, while everything around them is the same.

Two values are walked down together from where the pass left the readers alone: a kept instruction
with unchanged readers, or the result. Where the operations agree, the walk goes on to the operands
that differ; where they do not, it ends. If every end is an operation on the operands that it had
before, or a value that an operation was left out of, nothing in the module makes up for the change.
Where a pass also rewrites other values, an end is reported alone if its readers, and all that it is
computed from, are unchanged.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.analysis.bypasses import bypassed
from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.step_map.value_classes import ValueClasses, ValueNode, ValueNumber
from hlo_lint.analysis.value_attributes import choosing_attributes, differs, is_of_user
from hlo_lint.analysis.walks import reached
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import (
    BINARY,
    COMMUTATIVE,
    FIRST_INDEX,
    KEEPS_TYPE,
    SYMMETRIC,
    TUPLES,
    UNARY,
)
from hlo_lint.hlo.records import (
    attributes_before_metadata,
    attributes_of,
    opcode_of,
    operands_of,
    references_of,
    type_of,
)
from hlo_lint.text.phrases import an, shortened

_CARRIES: Final = TUPLES | {"call", "constant", "copy", "fusion", "parameter"}
"""Opcodes that passes add and remove beside the operations."""
_CLAMPED: Final = FIRST_INDEX.keys() | {"gather", "scatter"}
"""Opcodes that clamp indices: several numbers may mean the same place."""
_CALLEES: Final = frozenset({"callee", "computation"})
"""The labels of computations that an operation applies or runs."""
_MAY_GO: Final = {"custom-call": "marks", "set-dimension-size": "sizes"}
"""Operations that some passes may remove, with the words for them in `transitions.toml`."""
_MAX_ENDS: Final = 3
"""A pass that changes more operations rewrites the program."""
_MAX_LOCAL: Final = 100
"""The values that are walked from an instruction alone, and the changes that are reported alone."""
_MAX_CONE: Final = 10_000
"""The largest number of ancestors of an operand; beyond it nothing is reported."""

ValuePair: TypeAlias = tuple[ValueNumber, ValueNumber]
"""A value before the pass, and another value after it."""
Ends: TypeAlias = tuple[Instruction, Instruction]
"""The instructions that compute them."""


class OperationChange(NamedTuple):
    """An instruction before a pass, and the instruction with another value in its place."""

    old: Instruction
    new: Instruction
    text: str
    """`direction from LT to GT`."""
    is_sure: bool = False
    """True if no other change of the pass can make up for it."""


def changed_operations(pair: PassPair) -> Sequence[OperationChange]:
    """The operations that changed on the same operands."""
    is_small = _keeps_operations(pair) and _keeps_bitcasts(pair)
    local = set[Ends]() if is_small else _local(pair)
    if not (is_small or local) or not _changes_values(pair):
        return ()
    walk = _Walk(pair)
    changes = walk.ends(walk.starts) if is_small else None
    if changes is None:
        local = local or _local(pair)
        alone = [
            walk.ends([pair], _MAX_LOCAL) for pair, start in walk.starts.items() if start in local
        ]
        single = dict.fromkeys(ends[0] for ends in alone if ends and len(ends) == 1)
        is_rewrite = len(single) > _MAX_LOCAL
        return [end for end in single if not is_rewrite and _is_isolated(end, pair)]
    # A kernel may be symmetric in its operands, and ties of a sort may be fully equal elements.
    is_sure = len(changes) == 1 and changes[0].new.opcode not in ("custom-call", "sort")
    return [end._replace(is_sure=is_sure) for end in changes]


def _keeps_operations(pair: PassPair) -> bool:
    """True if at most one operation became another, beside a clone: a cheap test.

    Else names mean little: cse of XLA:TPU gives one iota the name of another (`v5e_2x2_misc`).
    """
    counts = Counter(map(opcode_of, pair.changed_rows(is_before=False)))
    counts.subtract(map(opcode_of, pair.changed_rows(is_before=True)))
    return sum(map(abs, counts.values())) - sum(abs(counts[name]) for name in _CARRIES) <= 3


def _changes_values(pair: PassPair) -> bool:
    """False if all changed instructions keep their names, operands and values."""
    if len(pair.changed) < max(len(pair.removed), len(pair.added)):
        return True
    for body in pair.changed:
        same = body.same
        if len(body.removed) != len(body.added):
            return True
        for number in body.removed:
            position = same.get(number)
            if position is None or _chosen(body.before, number) != _chosen(body.after, position):
                return True
    return False


def _chosen(computation: Computation, number: int) -> tuple[object, ...]:
    """The callees and attributes that choose the value, and the literal of a constant."""
    row = computation.rows[number]
    opcode = opcode_of(row)
    literal = operands_of(row) if opcode == "constant" else ""
    attributes = choosing_attributes(opcode, attributes_before_metadata(attributes_of(row)))
    return literal, attributes, calls_of(computation).get(number)


def _keeps_bitcasts(pair: PassPair) -> bool:
    """True if as many bitcasts of each type remain.

    With a bitcast, a reduction of one dimension may be that of two (reduction-dimension-grouper).
    """
    counts = Counter[tuple[str, str | None]]()
    for is_before in (True, False):
        for computation, numbers, _ in pair.changed_places(is_before=is_before):
            for number in set(computation.positions("bitcast")).intersection(numbers):
                bitcast = computation.at(number)
                source = bitcast.producer()
                types = bitcast.type_text, source.type_text if source else None
                counts[types] += 1 if is_before else -1
    return not any(counts.values())


def _local(pair: PassPair) -> Set[Ends]:
    """Kept instructions with unchanged readers whose change may be the only one: a cheap test."""
    local: set[Ends] = set()
    for body in pair.changed:
        before, after = body.before, body.after
        # The callers of a changed computation may make up for its change.
        if not (before.is_entry or len(pair.changed) == 1) or not body.keeps_names:
            continue
        for number, position in body.kept:
            row, other = before.rows[number], after.rows[position]
            # `_text` tells of no change of type, and of none that comes with moved or wrapped code.
            if opcode_of(row) in _CARRIES or type_of(row) != type_of(other):
                continue
            is_same = references_of(row) == references_of(other)
            if is_same and _chosen(before, number) == _chosen(after, position):
                continue
            old, new = before.at(number), after.at(position)
            sources = [[part.opcode for part in ends.producers] for ends in (old, new)]
            # Operands that other operations compute are a rewrite, unless one was left out.
            if sources[0] != sources[1] and not bypassed(old, new, pair.before):
                continue
            users = old.users, new.users
            if len(users[0]) == len(users[1]) > 0 and all(
                body.keeps(user.name) for user in chain(*users)
            ):
                local.add((old, new))
    return local


def _is_isolated(end: OperationChange, pair: PassPair) -> bool:
    """True if all that a changed operation is computed from is unchanged."""
    body = next((body for body in pair.changed if body.after is end.new.computation), None)
    if body is None:
        return False
    others = {other.before.name for other in pair.changed}
    cone = [*islice(reached([end.new], attrgetter("producers")), _MAX_CONE), *end.new.users]
    return len(cone) < _MAX_CONE and all(
        (part is end.new or part.opcode == "constant" or body.keeps(part.name))
        and others.isdisjoint(part.called_computations)
        for part in cone
    )


def _starts(pair: PassPair, classes: ValueClasses) -> Iterator[tuple[ValuePair, Ends]]:
    """The different values that unchanged instructions read, and different results."""
    for body in pair.changed:
        ours = classes.before.values.get(body.before)
        theirs = classes.after.values.get(body.after)
        if ours is None or theirs is None:
            continue
        kept = body.kept if body.keeps_names else ()
        ends = [(body.before.at(number), body.after.at(position)) for number, position in kept]
        if body.before.root and body.after.root:
            ends.append((body.before.root, body.after.root))
        for old, new in ends:
            values = ours[old.name], theirs[new.name]
            # What only changed instructions read is seen in their values.
            if values[0] != values[1] and (
                new.is_root or not new.users or any(body.keeps(user.name) for user in new.users)
            ):
                yield values, (old, new)


class _Walk:
    """The walk down two values, pair by pair."""

    def __init__(self, pair: PassPair) -> None:
        self._pair = pair
        self._classes = pair.map.classes
        self.starts: Mapping[ValuePair, Ends] = dict(_starts(pair, self._classes))

    def ends(
        self, starts: Iterable[ValuePair], most: int = sys.maxsize
    ) -> Sequence[OperationChange] | None:
        """The changed operations below some starts, after `most` pairs of values at most.

        None if anything else differs.
        """
        waiting = [(pair, self.starts[pair]) for pair in starts]
        seen = {pair for pair, _ in waiting}
        ends: dict[OperationChange, None] = {}
        while waiting:
            reached_pair, start = waiting.pop()
            pair = self._classes.revealed(*reached_pair)
            inner = self._inner(*pair) if pair[0] != pair[1] else ()
            if inner is None:
                ends_here = self.starts.get(reached_pair) or self._classes.only_members(*pair)
                end = self._end(pair, ends_here, start)
                if end is None or len({*ends, end}) > _MAX_ENDS:
                    return None
                ends[end] = None
            elif len(seen) > most:
                return None
            for below in inner or ():
                if below not in seen:
                    seen.add(below)
                    waiting.append((below, self.starts.get(below, start)))
        return list(ends)

    def _inner(self, first: ValueNumber, second: ValueNumber) -> Sequence[ValuePair] | None:
        """The operands that differ; None if the operations themselves do."""
        label, ours = self._classes.node(first)
        other, theirs = self._classes.node(second)
        # Equal operands in a different order are an end, too: `_order` judges them.
        if label != other or len(ours) != len(theirs) or Counter(ours) == Counter(theirs):
            return None
        if label[0] in COMMUTATIVE:
            gone = list((Counter(ours) - Counter(theirs)).elements())
            new = list((Counter(theirs) - Counter(ours)).elements())
            if self._classes.node(gone[0])[0] != self._classes.node(new[0])[0]:
                new.reverse()
            return list(zip(gone, new, strict=True))
        pairs = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
        opcodes = {self._classes.node(old)[0][0] for old, _ in pairs}
        is_permuted = len(pairs) > 1 and bool({old for old, _ in pairs} & {new for _, new in pairs})
        # Several indices mean the same place, if they are clamped.
        is_same_place = label[0] in _CLAMPED and "constant" in opcodes
        is_end = is_permuted or is_same_place or not opcodes.isdisjoint(_CALLEES)
        return None if is_end else pairs

    def _end(self, pair: ValuePair, ends: Ends | None, start: Ends) -> OperationChange | None:
        ours, theirs = map(self._classes.node, pair)
        text = _text(ours, theirs, *ends, self._pair) if ends else ""
        if ends and text:
            return OperationChange(*ends, text)
        text = self._left_out(*start)
        return OperationChange(*start, text) if text else None

    def _left_out(self, old: Instruction, new: Instruction) -> str:
        """The operation that an instruction bypasses now to read its operand, or ""."""
        values = self._classes.before.values[old.computation]
        values_now = self._classes.after.values[new.computation]
        bypass = bypassed(old, new, self._pair.before)
        # A reader with other attributes may do what the operation did, as a convolution pads.
        if bypass is None or _attributes(old) != _attributes(new):
            return ""
        number, step = bypass
        source = new.operand_names[number]
        thing = _MAY_GO.get(step.opcode)
        is_free = thing is not None and may(self._pair.pass_name, thing)
        if is_free or values_now[source] != values[source]:
            return ""
        if source in step.operand_names or step.opcode == "convert":
            return f"operand {number}: it reads past %{step.name}, {an(step.opcode)}"
        return f"operand {number} from %{step.name} to %{source}, which is a different value"


def _attributes(instruction: Instruction) -> str:
    return attributes_before_metadata(instruction.attributes_text)


def _text(
    ours: ValueNode, theirs: ValueNode, old: Instruction, new: Instruction, pair: PassPair
) -> str:
    """The change of an operation on the same operands; empty for any other change."""
    (label, operands), (other, others) = ours, theirs
    opcode, becomes = label[0], other[0]
    if label == other:
        is_order = Counter(operands) == Counter(others)
        return _order(old, new, pair) if is_order else _applied(old, new, pair)
    # Only operations and constants have a type: elements, states and empty bodies have none.
    if len(label) != 3 or len(other) != 3:
        return ""
    is_sorted = not COMMUTATIVE.isdisjoint((opcode, becomes))
    # compare(a, b) LT is compare(b, a) GT: other operands may make up for another operation.
    if operands != others and not (is_sorted and Counter(operands) == Counter(others)):
        return ""
    if opcode != becomes:
        is_same = label[1] != other[1] or not _are_other_operations(opcode, becomes, label[1])
        return "" if is_same else f"the operation from {opcode} to {becomes}"
    if opcode == "constant" and label[1] == other[1]:
        is_told = "..." not in old.operands_text + new.operands_text
        texts = [f"the value of the constant from {shortened(label[2])} to {shortened(other[2])}"]
        return texts[0] if is_told else ""
    is_combined = old.opcode != new.opcode or len(old.operand_names) != len(new.operand_names)
    # Only the label of an operation ends in its attributes.
    if not isinstance(label[2], tuple) or label[1] != other[1] or is_combined:
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


def _are_other_operations(opcode: str, becomes: str, type_text: str) -> bool:
    # On pred, add, maximum and or are equal; on other types, sums and maxima differ.
    one_family = any(KEEPS_TYPE & family >= {opcode, becomes} for family in (BINARY, UNARY))
    return one_family and not type_text.startswith("pred")


def _order(old: Instruction, new: Instruction, pair: PassPair) -> str:
    """The changed order of operands or branches; empty if the operation is symmetric in them."""
    ours, theirs = old.called_computations, new.called_computations
    if old.opcode == "conditional" and ours != theirs:
        return f"the branches from {', '.join(ours)} to {', '.join(theirs)}"
    body = pair.before.callee(old) if old.opcode in ("call", "fusion") else None
    is_symmetric = (
        old.attributes.get("direction") in SYMMETRIC
        or (old.opcode == "custom-call" and not is_of_user(old))
        or (body is not None and body.opcodes <= COMMUTATIVE | {"parameter"})
    )
    return "" if is_symmetric else "the order of the operands"


def _applied(old: Instruction, new: Instruction, pair: PassPair) -> str:
    """The changed operation of a reducer, or ""."""
    if old.operand_names != new.operand_names:
        return ""
    steps = pair.before.callee(old), pair.after.callee(new)
    roots = [step.root for step in steps if step is not None and len(step.rows) == 3]
    if len(roots) < 2 or roots[0] is None or roots[1] is None:
        return ""  # more than one operation on two parameters
    opcode, becomes = roots[0].opcode, roots[1].opcode
    is_other = opcode != becomes and _are_other_operations(opcode, becomes, roots[0].type_text)
    return f"the applied operation from {opcode} to {becomes}" if is_other else ""
