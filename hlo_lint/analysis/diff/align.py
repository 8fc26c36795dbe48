"""Alignment of the instructions of two computations.

Instructions that compute equal values are pairs. From these, pairs grow along the edges, to
operands and to users; then names decide, and opcodes last. Each instruction is paired once, so the
cost is that of reading the edges a few times.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final

from hlo_lint.analysis.diff.structural_hash import Body, Read
from hlo_lint.analysis.grouping import by_key
from hlo_lint.hlo.records import name_of, opcode_of

NOTHING: Final = -1


def align(before: Body, after: Body) -> list[int]:
    """For each instruction of `before` its position in `after`, or `NOTHING`.

    No instruction of `after` occurs twice. Get-tuple-elements that are read through have none.
    """
    pairs = _Pairs(before, after)
    pairs.by_value()
    opcodes = [opcode_of(row) for row in before.computation.rows]
    others = [opcode_of(row) for row in after.computation.rows]
    for ours, theirs in ((before.labels, after.labels), (opcodes, others)):
        pairs.roots(ours, theirs)
        pairs.grow(ours, theirs)
        pairs.by_name(ours, theirs)
        pairs.grow(ours, theirs)
    return pairs.forth


Kinds = Sequence[object]
"""By position, the label or opcode that must agree for two instructions to be paired."""


class _Pairs:
    def __init__(self, before: Body, after: Body) -> None:
        self.before, self.after = before, after
        self.forth = [NOTHING] * len(before.values)
        self.back = [NOTHING] * len(after.values)

    def _pair(self, ours: int, theirs: int) -> None:
        self.forth[ours] = theirs
        self.back[theirs] = ours

    def _left(self) -> list[int]:
        return [position for position in self.before.positions if self.forth[position] == NOTHING]

    def _right(self) -> list[int]:
        return [position for position in self.after.positions if self.back[position] == NOTHING]

    def by_value(self) -> None:
        """Pair equal values; among several, by name, then in order."""
        ours, theirs = self.before.values, self.after.values
        names = _names(self.before), _names(self.after)
        same = by_key((ours[position], position) for position in self.before.positions)
        others = by_key(
            (theirs[position], position)
            for position in self.after.positions
            if theirs[position] in same
        )
        # A value number covers the whole tree of operands, so equal numbers suffice.
        # Names decide among copies, as long as both runs kept them.
        for value, right in others.items():
            left = same[value]
            if len(left) > 1 or len(right) > 1:
                named = {names[1][position]: position for position in right}
                for position in left:
                    partner = named.get(names[0][position])
                    if partner is not None:
                        self._pair(position, partner)
                left = [position for position in left if self.forth[position] == NOTHING]
                right = [position for position in right if self.back[position] == NOTHING]
            for position, partner in zip(left, right, strict=False):
                self._pair(position, partner)

    def roots(self, ours: Kinds, theirs: Kinds) -> None:
        """Pair the roots."""
        left, right = self.before.root, self.after.root
        if left >= 0 and right >= 0 and self._may_pair(left, right, ours, theirs):
            self._pair(left, right)

    def _may_pair(self, left: int, right: int, ours: Kinds, theirs: Kinds) -> bool:
        return (
            self.forth[left] == NOTHING
            and self.back[right] == NOTHING
            and ours[left] == theirs[right]
            and left not in self.before.elements
            and right not in self.after.elements
        )

    def grow(self, ours: Kinds, theirs: Kinds) -> None:
        """Pair the operands of pairs at the same place, and the users of the same pairs."""
        self._downwards(ours, theirs)
        self._upwards(ours, theirs)
        self._downwards(ours, theirs)

    def _downwards(self, ours: Kinds, theirs: Kinds) -> None:
        # From pairs to their operands, place by place. The operands of equal values are equal, too.
        waiting = [
            (left, right)
            for left, right in enumerate(self.forth)
            if right != NOTHING and self.before.values[left] != self.after.values[right]
        ]
        while waiting:
            left, right = waiting.pop()
            for (left_operand, path), (right_operand, index) in zip(
                self.before.reads[left], self.after.reads[right], strict=False
            ):
                if min(left_operand, right_operand) < 0 or path != index:
                    continue
                if self._may_pair(left_operand, right_operand, ours, theirs):
                    self._pair(left_operand, right_operand)
                    waiting.append((left_operand, right_operand))

    def _upwards(self, ours: Kinds, theirs: Kinds) -> None:
        readers: dict[tuple[object, tuple[Read, ...]], deque[int]] = defaultdict(deque)
        for position in self._right():
            if self.after.reads[position]:
                readers[theirs[position], self.after.reads[position]].append(position)
        if not readers:
            return
        # And from pairs to their readers: an instruction whose operands are all paired alike.
        for position in self._left():
            reads = tuple(
                [(self.forth[operand], path) for operand, path in self.before.reads[position]]
            )
            if waiting := readers.get((ours[position], reads)):
                self._pair(position, waiting.popleft())

    def by_name(self, ours: Kinds, theirs: Kinds) -> None:
        """Pair instructions of the same name."""
        index = self.after.computation.index
        names = _names(self.before)
        for position in self._left():
            partner = index.get(names[position])
            if partner is not None and self._may_pair(position, partner, ours, theirs):
                self._pair(position, partner)


def _names(body: Body) -> list[str]:
    return [name_of(row) for row in body.computation.rows]
