"""Instructions to check, of many computations, by kind."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import repeat

from hlo_lint.analysis.kinds import RowPlace
from hlo_lint.hlo.ir import Computation
from hlo_lint.hlo.ir.computation import shared_range
from hlo_lint.hlo.kinds import RowKind, reading_of


class Batch:
    """Instructions to check, of some computations."""

    def __init__(self) -> None:
        self.kinds: dict[RowKind, tuple[Computation, int]] = {}
        """The kinds, and a computation that holds each with its number there."""
        self._computations: list[Computation] = []
        self._examples: dict[Computation, Mapping[int, int]] = {}

    def add(self, computation: Computation) -> None:
        """Add the instructions of a computation."""
        self._computations.append(computation)
        kinds = reading_of(computation).kinds
        self.kinds.update(
            zip(kinds, zip(repeat(computation), shared_range(len(kinds))), strict=False)
        )

    @cached_property
    def by_opcode(self) -> dict[str, list[RowKind]]:
        """The kinds of each opcode, once all instructions are added."""
        by_opcode: dict[str, list[RowKind]] = {}
        for kind in self.kinds:
            by_opcode.setdefault(kind[0], []).append(kind)
        return by_opcode

    def place(self, kind: RowKind) -> RowPlace:
        """An instruction of a kind."""
        computation, index = self.kinds[kind]
        examples = self._examples.get(computation)
        if examples is None:  # on demand: most kinds are judged without an example
            examples = self._examples[computation] = reading_of(computation).examples()
        return computation, examples[index]

    def places(self, opcode: str) -> Iterator[RowPlace]:
        """The instructions of an opcode."""
        for computation in self._holders.get(opcode, ()):
            yield from zip(repeat(computation), computation.positions(opcode))

    @cached_property
    def _holders(self) -> dict[str, list[Computation]]:
        """The computations that hold each opcode, once all are added."""
        holders: dict[str, list[Computation]] = {}
        for computation in self._computations:
            for opcode in computation.opcodes:
                holders.setdefault(opcode, []).append(computation)
        return holders

    def of_kinds(self, kinds: Collection[RowKind]) -> Iterator[RowPlace]:
        """The instructions of some kinds."""
        for opcode in dict.fromkeys([kind[0] for kind in kinds]):
            for computation, number in self.places(opcode):
                _, different, kind_of = reading_of(computation)
                if different[kind_of[number]] in kinds:
                    yield computation, number
