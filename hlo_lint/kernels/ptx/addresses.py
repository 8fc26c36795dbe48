"""Bytes of shared memory that an instruction may access, as ranges in a variable.

The analysis computes an interval, and the bits that may be set, for each integer register. A
register with several assignments (in a loop) has the join of their ranges, computed as a fixed
point. So a stage counter that `selp` resets to 0 keeps its range:

    add.s32 %r126, %r210, 1;  setp.gt.s32 %p5, %r126, 1;  selp.b32 %r210, 0, %r126, %p5;

A counter that is bounded only by its loop's branch is unbounded, and may point anywhere.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.analysis.walks import reached
from hlo_lint.kernels.ptx.ranges import (
    ANYTHING,
    COMPARISONS,
    UNBOUNDED,
    Range,
    as_read,
    computed,
    join,
    narrow,
    natural,
    single,
    type_bits,
)
from hlo_lint.kernels.ptx.reader import address, whole_constant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hlo_lint.kernels.ptx.reader import Function, PtxInstruction

GROWTHS = 24
"""The number of times that a register's range may grow before it is taken as unbounded: more than
the stages of any pipeline."""
MAX_ASSIGNMENTS = 64
"""The largest number of assignments to a register that is analysed; loops have two or three."""
MAX_STEPS = 300_000
"""The budget of assignments times blocks; beyond it, all assignments reach all blocks."""

_AXES = ("x", "y", "z")
EXTERN = ".extern"
"""The common base of all `.extern .shared` variables."""


class Bytes(NamedTuple):
    """The half-open byte range that an access may touch; its base is None if unknown."""

    base: str | None
    start: int
    end: int

    def may_overlap(self, other: Bytes) -> bool:
        """True if both may touch a common byte; distinct variables never overlap."""
        if self.base is None or other.base is None:
            return True
        return self.base == other.base and self.start < other.end and other.start < self.end


class _Definition(NamedTuple):
    """An assignment: the number of its instruction, and the register."""

    position: int
    register: str


class Addresses:
    """The shared-memory ranges that the accesses of a function may touch.

    Instructions are identified by their number in the function.
    """

    def __init__(self, function: Function, asked: Iterable[tuple[int, str]]) -> None:
        """Analyse the accesses in `asked`: instruction numbers with operands such as `[%r1+16]`."""
        self._function = function
        self._instructions: list[PtxInstruction] = []
        self._blocks: list[int] = []
        self._assigned: dict[str, dict[int, bool]] = defaultdict(dict)
        """The assignments of each register; True if the operands determine the value."""
        for index, block in enumerate(function.blocks):
            for instruction in block.instructions:
                for register, is_whole in _written(instruction):
                    if whole_constant(register) is None and not register.startswith("["):
                        self._assigned[register][len(self._instructions)] = is_whole
                self._instructions.append(instruction)
                self._blocks.append(index)
        self._not_followed = {
            register
            for register, assigned in self._assigned.items()
            if len(assigned) > MAX_ASSIGNMENTS
        }
        for register in self._not_followed:
            del self._assigned[register]
        self._entering: dict[str, list[frozenset[int]] | None] = {}
        self._steps_left = MAX_STEPS
        self._ranges: dict[_Definition, Range] = {}
        self._solve(
            (position, parsed.base)
            for position, operand in asked
            if (parsed := address(operand)) is not None
        )

    def bytes(self, position: int, operand: str, size: int | None) -> Bytes:
        """The range that an access of `size` bytes may touch; `None` is an unknown size."""
        parsed = address(operand)
        value = parsed and self._value(parsed.base, position)
        if parsed is None or value is None or not value.is_bounded:
            return Bytes(value and value.base, -UNBOUNDED, UNBOUNDED)
        start = value.low + parsed.offset
        end = UNBOUNDED if size is None else value.high + parsed.offset + size
        return Bytes(value.base, start, end)

    # ---- reaching assignments

    def _reaching(self, register: str, position: int) -> Iterable[int]:
        """The assignments to a register that may reach an instruction."""
        assigned = self._assigned[register]
        if len(assigned) == 1:
            return assigned
        block = self._blocks[position]
        guarded: list[int] = []
        # Within the block, the nearest unguarded assignment hides all earlier ones.
        for earlier in reversed(assigned):
            if earlier < position and self._blocks[earlier] == block:
                guarded.append(earlier)
                if not self._instructions[earlier].guard:
                    return guarded
        entering = self._entering_blocks(register)
        return assigned if entering is None else {*guarded, *entering[block]}

    def _entering_blocks(self, register: str) -> list[frozenset[int]] | None:
        """The assignments that reach the start of each block; `None` if it takes too long."""
        if register in self._entering:
            return self._entering[register]
        assigned = self._assigned[register]
        blocks = self._function.blocks
        self._steps_left -= len(assigned) * len(blocks)
        if self._steps_left < 0:
            self._entering[register] = None
            return None
        # Reaching definitions, as in any compiler: `gens` are the assignments of a block, `kills`
        # the blocks that hide all earlier assignments.
        gens: dict[int, frozenset[int]] = {}
        kills: set[int] = set()
        for position in assigned:
            block = self._blocks[position]
            if self._instructions[position].guard:
                gens[block] = gens.get(block, frozenset()) | {position}
            else:
                gens[block] = frozenset({position})
                kills.add(block)
        entering: list[frozenset[int]] = [frozenset()] * len(blocks)
        queue = list(gens)
        while queue:
            index = queue.pop()
            leaving = gens.get(index, frozenset())
            if index not in kills:
                leaving |= entering[index]
            for successor in blocks[index].successors:
                if not leaving <= entering[successor]:
                    entering[successor] |= leaving
                    queue.append(successor)
        self._entering[register] = entering
        return entering

    # ---- the solution

    def _solve(self, wanted: Iterable[tuple[int, str]]) -> None:
        users: dict[_Definition, list[_Definition]] = defaultdict(list)

        def needed(definition: _Definition) -> Iterator[_Definition]:
            for source in self._definitions(self._sources(definition.position)):
                users[source].append(definition)
                yield source

        growths: dict[_Definition, int] = defaultdict(int)
        queue = list(reached(self._definitions(wanted), needed))  # sources are processed first
        waiting = set(queue)
        while queue:
            definition = queue.pop()
            waiting.discard(definition)
            old = self._ranges.get(definition)
            is_whole = self._assigned[definition.register][definition.position]
            new = join(old, self._evaluated(definition.position) if is_whole else ANYTHING)
            if new is None or new == old:
                continue
            # A loop counter would grow by 1 per round, 2^32 times. After a few rounds, widen its
            # range to all values; the comparison of a `selp` narrows it again.
            growths[definition] += 1
            if growths[definition] > GROWTHS:
                new = Range(new.base, -UNBOUNDED, UNBOUNDED)
                if new == old:
                    continue
            self._ranges[definition] = new
            for user in users[definition]:
                if user not in waiting:
                    waiting.add(user)
                    queue.append(user)

    def _definitions(self, read: Iterable[tuple[int, str]]) -> Iterator[_Definition]:
        """The assignments that may reach operands of instructions."""
        for position, register in read:
            if register in self._assigned:
                for source in self._reaching(register, position):
                    yield _Definition(source, register)

    def _sources(self, position: int) -> Iterator[tuple[int, str]]:
        """The operands that an assignment depends on, with the instructions that read them."""
        instruction = self._instructions[position]
        for operand in instruction.operands[1:]:
            yield position, operand
        if instruction.is_a("selp") and len(instruction.operands) == 4:
            setp = self._comparison(instruction.operands[3], position)
            if setp is not None:
                for operand in self._instructions[setp].operands[1:]:
                    yield setp, operand

    def _value(self, operand: str, position: int) -> Range | None:
        """The current range of an operand at an instruction; `None` before the first value."""
        if operand in self._assigned:
            value: Range | None = None
            for source in self._reaching(operand, position):
                value = join(value, self._ranges.get(_Definition(source, operand)))
            return value
        if operand in self._function.shared:
            return Range(EXTERN if self._function.shared[operand] else operand, 0, 0)
        constant = whole_constant(operand)
        if constant is not None:
            return single(constant)
        register, _, axis = operand.partition(".")
        match register:
            case "%tid" if axis in _AXES:
                return natural(0, self._function.threads[_AXES.index(axis)] - 1)
            case "%laneid":
                return natural(0, 31)
            case "%warpid":
                return natural(0, 63)
            case "%ntid" if axis in _AXES:
                return natural(1, 1024)
            case "%ctaid" if axis in _AXES:
                return natural(0, (1 << 31) - 1)
            case _:
                return ANYTHING

    def _evaluated(self, position: int) -> Range | None:
        """The range of an assignment's result; `None` while an operand has no value yet."""
        instruction = self._instructions[position]
        if instruction.is_a("selp") and len(instruction.operands) == 4:
            return self._selected(position, instruction)
        operands = [self._value(operand, position) for operand in instruction.operands[1:]]
        values = [value for value in operands if value is not None]
        return computed(instruction, values) if len(values) == len(operands) else None

    def _comparison(self, predicate: str, position: int) -> int | None:
        """The `setp` of a `selp`'s predicate, if it bounds the operands of the `selp`."""
        if predicate not in self._assigned:
            return None
        reaching = list(self._reaching(predicate, position))
        if len(reaching) != 1:
            return None
        (setp,) = reaching
        instruction = self._instructions[setp]
        head, *parts = instruction.opcode.split(".")
        if head != "setp" or len(parts) != 2 or len(instruction.operands) != 3:
            return None
        if instruction.guard or parts[0] not in COMPARISONS or not type_bits(parts[1]):
            return None
        # A register that is assigned again in between no longer has the compared value.
        is_near = setp < position and self._blocks[setp] == self._blocks[position]
        for operand in instruction.operands[1:]:
            assigned = self._assigned.get(operand, {})
            stays = is_near and not any(setp <= earlier < position for earlier in assigned)
            if operand in self._not_followed or (len(assigned) > 1 and not stays):
                return None
        return setp

    def _selected(self, position: int, instruction: PtxInstruction) -> Range | None:
        """The join of both operands, each narrowed by the comparison that selects it."""
        _, chosen, otherwise, predicate = instruction.operands
        # Pipelined loops choose buffers this way: `selp r, i+1, 0, i+1 < n` stays below n.
        setp = self._comparison(predicate, position)
        if setp is None:
            return join(self._value(chosen, position), self._value(otherwise, position))
        _, comparison, _ = self._instructions[setp].opcode.split(".")
        return join(
            self._under(chosen, position, setp, comparison),
            self._under(otherwise, position, setp, COMPARISONS[comparison][2]),
        )

    def _under(self, operand: str, position: int, setp: int, comparison: str) -> Range | None:
        """The range of an operand if a comparison has this outcome."""
        instruction = self._instructions[setp]
        _, left, right = instruction.operands
        a, b = self._value(left, setp), self._value(right, setp)
        if a is None or b is None:
            return None
        suffix = instruction.opcode.rpartition(".")[2]
        a, b = as_read(a, suffix), as_read(b, suffix)
        lefts, rights = narrow(a, comparison, b), narrow(b, COMPARISONS[comparison][3], a)
        if lefts is None or rights is None:
            return None  # this outcome is impossible
        narrowed = {left: lefts, right: rights}
        return narrowed[operand] if operand in narrowed else self._value(operand, position)


_WRITES_NOTHING = ("st", "stmatrix", "bar", "barrier", "cp", "bra", "brx", "red", "mbarrier", "ret")


def _written(instruction: PtxInstruction) -> Iterator[tuple[str, bool]]:
    """The registers that an instruction assigns; True if the operands determine the value."""
    if not instruction.operands or instruction.opcode.split(".")[0] in _WRITES_NOTHING:
        # `mbarrier.arrive` and the like return a predicate or a state, never part of an address.
        return
    first = instruction.operands[0]
    if first.startswith(("{", "(")):
        for register in first[1:-1].split(","):
            yield register, False
        return
    register, _, second = first.partition("|")
    yield register, True
    if second:
        yield second, False
