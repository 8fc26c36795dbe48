"""Kernels that only permute data, with the loops of each move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import chain, repeat
from typing import Final, NamedTuple, TypeAlias, TypeGuard

from hlo_lint.analysis.buffers import operand_place, source_of
from hlo_lint.analysis.calls import fusions_of, holders, with_opcodes
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.layouts import packs_alike, reshape_is_bitcast, strides
from hlo_lint.hlo.records import type_of
from hlo_lint.hlo.shape import ArrayShape, Index, Shape, part, shape_or_none

MoveLoops: TypeAlias = tuple[tuple[int, int, int], ...]
"""A move as loops, outermost first in read order: size, read step, written step, in elements."""

_MOVERS: Final = ("copy", "transpose")
_MAY_STAND_BESIDE: Final = frozenset({*_MOVERS, "parameter", "bitcast", "reshape"})
_MAX_ROWS: Final = 8


class Move(NamedTuple):
    """A kernel that moves an array."""

    kernel: Instruction
    """The copy or transpose, or the fusion around it."""
    before: ArrayShape
    after: ArrayShape
    steps: MoveLoops
    """Empty if every element keeps its address."""

    def __str__(self) -> str:
        """`f32[8,3]{1,0} to f32[3,8]{1,0}`; of equal shapes, the permutation of the dimensions."""
        if str(self.before) != str(self.after):
            return f"{self.before} to {self.after}"
        written = sorted(self.steps, key=lambda step: -step[2])
        dimensions = ",".join(str(self.steps.index(step)) for step in written)
        sizes = ",".join(str(size) for size, _, _ in self.steps)
        return f"{self.before.dtype}[{sizes}] by dimensions={{{dimensions}}}"

    @property
    def is_duplicate(self) -> bool:
        """True if it copies the array into a second buffer in the same order."""
        return self.before == self.after

    @property
    def byte_count(self) -> int:
        """Bytes that are read and written."""
        return 2 * (self.before.byte_size or 0)

    def undoes(self, earlier: Move) -> bool:
        """True if it puts every element back to its place before the earlier move."""
        back = tuple(sorted(((n, w, r) for n, r, w in earlier.steps), key=lambda step: -step[1]))
        return bool(self.steps) and self.steps == back


@cached_analysis
def moves(module: Module) -> tuple[Move, ...]:
    """The kernels of a module that only move an array.

    Tiled arrays are left out, and moves that no bitcast can replace: into a different memory, or to
    elements of a different width.
    """
    return tuple(_moves(module))


def _moves(module: Module) -> Iterator[Move]:
    for computation in module.nonfusion_computations:
        for opcode in _MOVERS:
            for mover in computation.with_opcode(opcode):
                yield from _move(mover, mover)
    movers = _moving_bodies(module)
    for fusion, body in fusions_of(module, movers.keys()):
        yield from _move(fusion, movers[body.name])


def _moving_bodies(module: Module) -> Mapping[str, Instruction]:
    """The movers of the fusions that only move data, by the name of their body."""
    movers: dict[str, Instruction] = {}
    for computation in chain.from_iterable(map(holders(module).get, _MOVERS, repeat(()))):
        if computation.name in module.fusion_computations:
            mover = _only_mover(computation)
            if mover is not None and module.computation(computation.name) is computation:
                movers[computation.name] = mover
    return movers


def _only_mover(body: Computation) -> Instruction | None:
    """The copy or transpose of a body whose other instructions only rename."""
    if len(body.rows) > _MAX_ROWS or not body.opcodes <= _MAY_STAND_BESIDE:
        return None
    if len(body.with_opcode("parameter")) != 1:
        return None
    for reshape in body.with_opcode("reshape"):
        before, after = operand_array(reshape, 0), result_array(reshape)
        if before is None or after is None or not (before.has_places and after.has_places):
            return None
        if not reshape_is_bitcast(before, after):
            return None
    movers = list(with_opcodes(body, _MOVERS))
    return movers[0] if len(movers) == 1 else None


def _move(kernel: Instruction, mover: Instruction) -> Iterator[Move]:
    source = operand_place(mover.computation, mover.number, 0, ())
    numbers = () if mover.opcode == "copy" else mover.integers_attribute("dimensions")
    if source is None or numbers is None:
        return
    position, index = source
    before = type_of(mover.computation.rows[position])
    moved = _moved(mover.opcode, before, index, mover.type_text, numbers)
    if moved is not None:
        yield Move(kernel, *moved)


@lru_cache(maxsize=1 << 10)
def _moved(
    opcode: str, operand: str, index: Index, result: str, numbers: tuple[int, ...]
) -> tuple[ArrayShape, ArrayShape, MoveLoops] | None:
    before, after = part(shape_or_none(operand), index), shape_or_none(result)
    if not is_dense(before) or not is_dense(after):
        return None
    dimensions = tuple(range(before.rank)) if opcode == "copy" else numbers
    if sorted(dimensions) != list(range(before.rank)):
        return None
    steps = _steps(before, after, dimensions)
    return None if steps is None else (before, after, steps)


def _steps(before: ArrayShape, after: ArrayShape, dimensions: tuple[int, ...]) -> MoveLoops | None:
    """The loops of a transpose or a copy; None if the arrays do not fit together."""
    if tuple(before.dims[d] for d in dimensions) != after.dims:
        return None
    if before.dtype != after.dtype or not packs_alike(before, after):
        return None
    read, written = strides(before), strides(after)
    places = enumerate(zip(after.dims, dimensions, strict=True))
    return _merged([(size, read[d], written[k]) for k, (size, d) in places])


def _merged(loops: list[tuple[int, int, int]]) -> MoveLoops:
    """The move in as few loops as possible: equal moves have equal loops.

    >>> _merged([(4, 6, 6), (6, 1, 1)])
    ()
    >>> _merged([(2, 12, 12), (3, 1, 4), (4, 3, 1)])
    ((2, 12, 12), (4, 3, 1), (3, 1, 4))
    """
    ordered = sorted((loop for loop in loops if loop[0] != 1), key=lambda loop: -loop[1])
    merged: list[tuple[int, int, int]] = []
    for size, read, written in ordered:
        if merged:
            outer, outer_read, outer_written = merged[-1]
            # The outer loop's step is the extent of the inner loop, on both sides: they merge.
            if outer_read == size * read and outer_written == size * written:
                merged[-1] = outer * size, read, written
                continue
        merged.append((size, read, written))
    return () if all(read == written for _, read, written in merged) else tuple(merged)


def is_dense(shape: Shape | None) -> TypeGuard[ArrayShape]:
    """True for an array with elements, which follow each other in memory without tiles."""
    if not isinstance(shape, ArrayShape) or shape.is_tiled:
        return False
    return shape.has_places and shape.elements > 0


@cached_analysis
def strided_reads(module: Module) -> tuple[Move, ...]:
    """The fusions of loop kind that compute, and read an operand in another order than they write.

    Neighbouring threads read elements that are far apart; transpose fusions go through tiles.
    """
    bodies = {body.name for opcode in _MOVERS for body in holders(module).get(opcode, ())}
    return tuple(
        move
        for fusion, body in fusions_of(module, bodies - _moving_bodies(module).keys())
        if "kind=kLoop" in fusion.attributes_text
        for mover in (*body.with_opcode("copy"), *body.with_opcode("transpose"))
        if (source := operand_place(body, mover.number, 0, ())) is not None
        and body.at(source[0]).opcode == "parameter"
        for move in _move(fusion, mover)
        if any(written == 1 != read for _, read, written in move.steps)
    )


def source_of_move(move: Move, by_kernel: dict[Instruction, Move]) -> Move | None:
    """The move whose result this move reads, directly or through bitcasts."""
    operands = move.kernel.operands
    source = source_of(operands[0], ("bitcast",)) if operands else None
    return None if source is None else by_kernel.get(source)
