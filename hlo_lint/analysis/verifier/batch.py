"""Rows to check, of many computations, by kind."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.kinds import RowKind, reading_of
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.records import InstructionRecord


class Batch:
    """Rows to check, of some computations."""

    def __init__(self) -> None:
        self.kinds: dict[str, dict[RowKind, int]] = {}
        """The kinds of each opcode, and a row of each."""
        self._starts: list[int] = []
        self._parts: list[tuple[Computation, Sequence[int]]] = []
        self._holders: dict[str, list[int]] = defaultdict(list)
        """The parts that hold an opcode."""
        self._size = 0

    def add(self, computation: Computation, numbers: Sequence[int]) -> None:
        """Add instructions of a computation by their positions."""
        _, kinds, kind_of = reading = reading_of(computation)
        start = self._size
        for opcode in computation.opcodes:
            self._holders[opcode].append(len(self._parts))
        self._starts.append(start)
        self._parts.append((computation, numbers))
        self._size += len(numbers)
        if len(numbers) == len(kind_of):
            examples = reading.examples()
        else:
            examples = {kind_of[number]: at for at, number in enumerate(numbers)}
        for kind, at in examples.items():
            row_kind = kinds[kind]
            self.kinds.setdefault(row_kind[0], {}).setdefault(row_kind, start + at)

    def place(self, at: int) -> tuple[Computation, int]:
        """The computation of a row, and its position there."""
        part = bisect_right(self._starts, at) - 1
        computation, numbers = self._parts[part]
        return computation, numbers[at - self._starts[part]]

    def row(self, at: int) -> InstructionRecord:
        """A row as a record."""
        computation, number = self.place(at)
        return computation.rows[number]

    def callees(self, at: int) -> tuple[str, ...]:
        """The names of the computations that a row calls."""
        computation, number = self.place(at)
        return calls_of(computation).get(number, ())

    def of_kinds(self, kinds: Iterable[RowKind]) -> list[int]:
        """The rows of some kinds."""
        by_opcode: dict[str, set[RowKind]] = {}
        for kind in kinds:
            by_opcode.setdefault(kind[0], set()).add(kind)
        places: list[int] = []
        for opcode, wanted in by_opcode.items():
            for part in self._holders[opcode]:
                start, (computation, numbers) = self._starts[part], self._parts[part]
                _, held, kind_of = reading_of(computation)
                positions = computation.positions(opcode)
                chosen = [number for number in positions if held[kind_of[number]] in wanted]
                if len(numbers) < len(kind_of):
                    among = set(chosen)
                    chosen = [at for at, number in enumerate(numbers) if number in among]
                places += [start + number for number in chosen]
        places.sort()
        return places

    @cached_property
    def _by_attributes(self) -> Mapping[str, list[RowKind]]:
        """The kinds with the same attributes."""
        groups: dict[str, list[RowKind]] = defaultdict(list)
        for kinds in self.kinds.values():
            for kind in kinds:
                groups[kind[2]].append(kind)
        return groups

    @cached_property
    def _attributes(self) -> str:
        """The attributes of all kinds: most hold no word that a check asks for."""
        return "\n".join(self._by_attributes)

    def with_attribute(self, word: str, other_than: frozenset[str] = frozenset()) -> list[int]:
        """The rows whose attributes hold a word, those of some opcodes left out."""
        if word not in self._attributes:
            return []
        holding = [kinds for text, kinds in self._by_attributes.items() if word in text]
        return self.of_kinds(
            {kind for kinds in holding for kind in kinds if kind[0] not in other_than}
        )
