"""Alignment of the instructions of two computations.

What computes the same is the same. Around what differs the pairs grow: from pairs to those who read
them, from pairs to what they read; names count where nothing else tells, opcodes at the very end.
Each instruction is paired once, so the cost is that of reading the edges a few times.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Final

from hlo_lint.analysis.diff.structural_hash import Body, Read
from hlo_lint.hlo.records import name_of, opcode_of

NOTHING: Final = -1


def align(before: Body, after: Body) -> list[int]:
    """For each instruction of `before` its position in `after`, or `NOTHING`.

    No instruction of `after` is given twice. Get-tuple-elements that are read through have none.
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
        pairs.by_neighbour(ours, theirs)
        pairs.grow(ours, theirs)
    return pairs.forth


Kinds = Sequence[object]
"""By position, the label or opcode that must agree for two instructions to be paired."""


class _Pairs:
    def __init__(self, before: Body, after: Body) -> None:
        self.before, self.after = before, after
        self.forth = [NOTHING] * len(before.values)
        self.back = [NOTHING] * len(after.values)
        self._new: list[tuple[int, int]] = []
        """Pairs whose operands have not been looked at."""

    def _pair(self, ours: int, theirs: int) -> None:
        self.forth[ours] = theirs
        self.back[theirs] = ours
        self._new.append((ours, theirs))

    def _left(self) -> list[int]:
        return [at for at in self.before.positions if self.forth[at] == NOTHING]

    def _right(self) -> list[int]:
        return [at for at in self.after.positions if self.back[at] == NOTHING]

    def by_value(self) -> None:
        """Pairs what computes the same; of several the ones with the same name, then in order."""
        ours, theirs = self.before.values, self.after.values
        names = _names(self.before), _names(self.after)
        same = defaultdict(list)
        for at in self.before.positions:
            same[ours[at]].append(at)
        others = defaultdict(list)
        for at in self.after.positions:
            if theirs[at] in same:
                others[theirs[at]].append(at)
        # A value number stands for a whole tree of operands, so equal numbers need no further look.
        # Names decide among copies, as long as both runs kept them.
        for value, right in others.items():
            left = same[value]
            if len(left) > 1 or len(right) > 1:
                named = {names[1][at]: at for at in right}
                for at in left:
                    other = named.get(names[0][at])
                    if other is not None:
                        self._pair(at, other)
                left = [at for at in left if self.forth[at] == NOTHING]
                right = [at for at in right if self.back[at] == NOTHING]
            for at, other in zip(left, right, strict=False):
                self._pair(at, other)
        self._new.clear()  # what they read computes the same, too

    def roots(self, ours: Kinds, theirs: Kinds) -> None:
        """Pairs the roots."""
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
        """Pairs what pairs read at the same place, and what reads the same pairs."""
        self._downwards(ours, theirs)
        self._upwards(ours, theirs)
        self._downwards(ours, theirs)

    def _downwards(self, ours: Kinds, theirs: Kinds) -> None:
        # From pairs that are certain to their operands: place by place, kind by kind.
        while self._new:
            left, right = self._new.pop()
            for (one, path), (other, index) in zip(
                self.before.reads[left], self.after.reads[right], strict=False
            ):
                if min(one, other) < 0 or path != index:
                    continue
                if self._may_pair(one, other, ours, theirs):
                    self._pair(one, other)

    def _upwards(self, ours: Kinds, theirs: Kinds) -> None:
        readers: dict[tuple[object, tuple[Read, ...]], deque[int]] = defaultdict(deque)
        for at in self._right():
            if self.after.reads[at]:
                readers[theirs[at], self.after.reads[at]].append(at)
        if not readers:
            return
        # And from pairs to their readers: an instruction whose operands are all paired alike.
        for at in self._left():
            reads = tuple([(self.forth[one], path) for one, path in self.before.reads[at]])
            waiting = readers.get((ours[at], reads))
            if waiting:
                self._pair(at, waiting.popleft())

    def by_name(self, ours: Kinds, theirs: Kinds) -> None:
        """Pairs what has the same name."""
        index = self.after.computation.index
        names = _names(self.before)
        for at in self._left():
            other = index.get(names[at])
            if other is not None and self._may_pair(at, other, ours, theirs):
                self._pair(at, other)

    def by_neighbour(self, ours: Kinds, theirs: Kinds) -> None:
        """Pairs what reads one and the same pair at the same place, or is read so, in order."""
        # The weakest evidence comes last: one common neighbour. What pairs here differs somewhere.
        for down in (True, False):
            waiting: dict[tuple[object, Edge], deque[int]] = defaultdict(deque)
            for at, edge in _edges(self.after, self._right(), down):
                waiting[theirs[at], edge].append(at)
            for at, (place, path, one) in _edges(self.before, self._left(), down):
                if self.forth[at] != NOTHING or one < 0 or self.forth[one] == NOTHING:
                    continue
                candidates = waiting.get((ours[at], (place, path, self.forth[one])))
                while candidates:
                    other = candidates.popleft()
                    if self.back[other] == NOTHING:
                        self._pair(at, other)
                        break


Edge = tuple[int, tuple[int, ...], int]
"""The place of an operand, the element that is read of it, and the instruction at the other end."""


def _names(body: Body) -> list[str]:
    return [name_of(row) for row in body.computation.rows]


def _edges(body: Body, positions: Iterable[int], down: bool) -> Iterable[tuple[int, Edge]]:
    """Each of these with what it reads (`down`) or who reads it: place, element, neighbour."""
    if down:
        for at in positions:
            for place, (read, path) in enumerate(body.reads[at]):
                yield at, (place, path, read)
        return
    wanted = set(positions)
    for reader in body.positions:
        for place, (read, path) in enumerate(body.reads[reader]):
            if read in wanted:
                yield read, (place, path, reader)
