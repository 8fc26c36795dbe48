"""Instructions to check, of many computations, by kind."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import repeat

from hlo_lint.analysis.kinds import Place
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.kinds import RowKind, reading_of


class Batch:
    """Instructions to check, of some computations."""

    def __init__(self) -> None:
        self.kinds: dict[RowKind, Computation] = {}
        """The kinds, and a computation that holds an instruction of each."""
        self._parts: list[tuple[Computation, Sequence[int]]] = []
        self._places: dict[Computation, dict[RowKind, int]] = {}

    def add(self, computation: Computation, numbers: Sequence[int]) -> None:
        """Add instructions of a computation by their positions."""
        self._parts.append((computation, numbers))
        _, kinds, kind_of = reading_of(computation)
        if len(numbers) < len(kind_of):
            kinds = [kinds[at] for at in {kind_of[number] for number in numbers}]
        self.kinds.update(zip(kinds, repeat(computation)))

    def place(self, kind: RowKind) -> Place:
        """An instruction of a kind."""
        computation = self.kinds[kind]
        places = self._places.get(computation)
        if places is None:  # most kinds are judged without
            reading = reading_of(computation)
            examples = reading.examples()
            places = {reading.kinds[at]: number for at, number in examples.items()}
            self._places[computation] = places
        return computation, places[kind]

    def places(self, opcode: str) -> Iterator[Place]:
        """The instructions of an opcode."""
        for computation, numbers in self._parts:
            if opcode in computation.opcodes:
                positions = computation.positions(opcode)
                if len(numbers) < len(computation.rows):
                    positions = sorted(set(numbers).intersection(positions))
                yield from zip(repeat(computation), positions)

    def of_kinds(self, kinds: Collection[RowKind]) -> Iterator[Place]:
        """The instructions of some kinds."""
        for opcode in dict.fromkeys([kind[0] for kind in kinds]):
            for computation, number in self.places(opcode):
                _, different, kind_of = reading_of(computation)
                if different[kind_of[number]] in kinds:
                    yield computation, number
