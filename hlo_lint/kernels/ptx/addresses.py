"""Ranges of shared memory that an instruction may access: a variable and a range of bytes.

Intervals, with the bits that may be set, over the integer registers; a register that is assigned
several times (a loop's) holds what any of its assignments gives, until nothing grows. So a stage
counter that `selp` sends back to 0 keeps its range:

    add.s32 %r126, %r210, 1;  setp.gt.s32 %p5, %r126, 1;  selp.b32 %r210, 0, %r126, %p5;

A counter that only its loop's branch bounds is unbounded, so what it points at may be anything.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.kernels.ptx.operands import address, whole_constant
from hlo_lint.kernels.ptx.ranges import (
    ANYTHING,
    COMPARISONS,
    UNBOUNDED,
    Range,
    as_signed,
    as_unsigned,
    computed,
    join,
    narrow,
    natural,
    single,
    type_bits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hlo_lint.kernels.ptx.reader import Function, PtxInstruction

GROWTHS = 24
"""So often a register's range may grow before it is taken as unbounded: more than any pipeline
has stages."""
MAX_ASSIGNMENTS = 64
"""Of one register that is followed; a compiler's loops have two or three."""
MAX_STEPS = 300_000
"""Maximum of registers times blocks; beyond it all assignments are taken to reach everywhere."""
MAX_CHAIN = 6
"""Instructions between a compared register and the `selp` that the comparison decides."""

_AXES = ("x", "y", "z")
EXTERN = ".extern"
"""The one base of every `.extern .shared` variable."""


class Bytes(NamedTuple):
    """The half-open byte range that an access may touch."""

    base: str | None
    start: int
    end: int

    def may_overlap(self, other: Bytes) -> bool:
        """True if both may touch a common byte; distinct variables never overlap."""
        if self.base is None or other.base is None:
            return True
        return self.base == other.base and self.start < other.end and other.start < self.end


class _Definition(NamedTuple):
    """An assignment: which instruction, and the register."""

    at: int
    register: str


class Addresses:
    """The shared-memory ranges that the accesses of one function may touch.

    Instructions go by their number in the function.
    """

    def __init__(self, function: Function, asked: Iterable[tuple[int, str]]) -> None:
        """`asked`: the instructions and operands, `[%r1+16]`, that will be looked up."""
        self._function = function
        self._instructions: list[PtxInstruction] = []
        self._blocks: list[int] = []
        """The block of each instruction."""
        self._assigned: dict[str, dict[int, bool]] = defaultdict(dict)
        """The assignments of each register; True if the operands determine the value."""
        for index, block in enumerate(function.blocks):
            for one in block.instructions:
                for register, is_whole in _written(one):
                    if whole_constant(register) is None and not register.startswith("["):
                        self._assigned[register][len(self._instructions)] = is_whole
                self._instructions.append(one)
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
            (at, parsed.base) for at, operand in asked if (parsed := address(operand)) is not None
        )

    def bytes(self, at: int, operand: str, size: int | None) -> Bytes:
        """The range that an access of `size` bytes touches; `None` is an unknown size."""
        parsed = address(operand)
        value = None if parsed is None else self._value(parsed.base, at)
        if parsed is None or value is None or value.base is None:
            return Bytes(None, -UNBOUNDED, UNBOUNDED)
        if not value.is_bounded:
            return Bytes(value.base, -UNBOUNDED, UNBOUNDED)
        start = value.low + parsed.offset
        end = UNBOUNDED if size is None else value.high + parsed.offset + size
        return Bytes(value.base, start, end)

    # ---- who assigned what an instruction reads

    def _reaching(self, register: str, at: int) -> Iterable[int]:
        """The assignments that an instruction may read."""
        assigned = self._assigned[register]
        if len(assigned) == 1:
            return assigned
        block = self._blocks[at]
        guarded: list[int] = []
        # Within the block the nearest unguarded assignment hides all before it.
        for other in reversed(assigned):
            if other < at and self._blocks[other] == block:
                guarded.append(other)
                if not self._instructions[other].guard:
                    return guarded
        entering = self._entering_blocks(register)
        return assigned if entering is None else {*guarded, *entering[block]}

    def _entering_blocks(self, register: str) -> list[frozenset[int]] | None:
        """The assignments that reach each block's beginning; `None` if that takes too long."""
        if register in self._entering:
            return self._entering[register]
        assigned = self._assigned[register]
        blocks = self._function.blocks
        self._steps_left -= len(assigned) * len(blocks)
        if self._steps_left < 0:
            self._entering[register] = None
            return None
        # Reaching definitions, as in any compiler: `made` is what a block adds, `kills` the blocks
        # that let nothing through.
        made: dict[int, frozenset[int]] = {}
        kills: set[int] = set()
        for at in assigned:
            block = self._blocks[at]
            if self._instructions[at].guard:
                made[block] = made.get(block, frozenset()) | {at}
            else:
                made[block] = frozenset({at})
                kills.add(block)
        entering: list[frozenset[int]] = [frozenset()] * len(blocks)
        queue = list(made)
        while queue:
            index = queue.pop()
            leaving = made.get(index, frozenset())
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
        order: list[_Definition] = []
        users: dict[_Definition, list[_Definition]] = defaultdict(list)
        seen: set[_Definition] = set()
        pending = [
            _Definition(source, register)
            for at, register in wanted
            if register in self._assigned
            for source in self._reaching(register, at)
        ]
        while pending:
            definition = pending.pop()
            if definition in seen:
                continue
            seen.add(definition)
            order.append(definition)
            for at, register in self._sources(definition.at):
                if register not in self._assigned:
                    continue
                for source in self._reaching(register, at):
                    needed = _Definition(source, register)
                    users[needed].append(definition)
                    pending.append(needed)
        growths: dict[_Definition, int] = defaultdict(int)
        queue = order  # sources were found last, and are taken first
        waiting = set(queue)
        while queue:
            definition = queue.pop()
            waiting.discard(definition)
            old = self._ranges.get(definition)
            is_whole = self._assigned[definition.register][definition.at]
            new = join(old, self._evaluated(definition.at) if is_whole else ANYTHING)
            if new is None or new == old:
                continue
            # A loop counter would grow by one a round, 2^32 times. After a few rounds its range is
            # widened to all values, and the comparison of a `selp` narrows it again.
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

    def _sources(self, at: int) -> Iterator[tuple[int, str]]:
        """The operands that an assignment reads, and the instruction that reads them."""
        one = self._instructions[at]
        for operand in one.operands[1:]:
            yield at, operand
        if one.is_a("selp") and len(one.operands) == 4:
            setp = self._comparison(one.operands[3], at)
            if setp is not None:
                for operand in self._instructions[setp].operands[1:]:
                    yield setp, operand

    def _value(self, operand: str, at: int) -> Range | None:
        """The range of an operand there so far; `None` before the first value."""
        if operand in self._assigned:
            value: Range | None = None
            for source in self._reaching(operand, at):
                value = join(value, self._ranges.get(_Definition(source, operand)))
            return value
        shared = self._function.shared.get(operand)
        if shared is not None:
            return Range(EXTERN if shared.is_extern else operand, 0, 0)
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

    def _evaluated(
        self, at: int, lookup: Callable[[str], Range | None] | None = None
    ) -> Range | None:
        """The range that an assignment gives; `None` while an operand has no value yet."""
        one = self._instructions[at]
        if one.is_a("selp") and len(one.operands) == 4:
            return self._selected(at, one)
        values = []
        for operand in one.operands[1:]:
            result = self._value(operand, at) if lookup is None else lookup(operand)
            if result is None:
                return None
            values.append(result)
        return computed(one, values)

    def _comparison(self, predicate: str, at: int) -> int | None:
        """The `setp` that a `selp` goes by, if it says something of what `selp` reads."""
        if predicate not in self._assigned:
            return None
        reaching = list(self._reaching(predicate, at))
        if len(reaching) != 1:
            return None
        (setp,) = reaching
        one = self._instructions[setp]
        parts = one.opcode.split(".")
        if one.guard or len(parts) != 3 or parts[0] != "setp" or len(one.operands) != 3:
            return None
        if parts[1] not in COMPARISONS or not type_bits(parts[2]):
            return None
        # A register that is assigned again in between is no longer what was compared.
        is_near = setp < at and self._blocks[setp] == self._blocks[at]
        for operand in one.operands[1:]:
            assigned = self._assigned.get(operand, {})
            stays = is_near and not any(setp <= other < at for other in assigned)
            if operand in self._not_followed or (len(assigned) > 1 and not stays):
                return None
        return setp

    def _selected(self, at: int, one: PtxInstruction) -> Range | None:
        """Either operand, each narrowed by the comparison that selects it."""
        _, chosen, otherwise, predicate = one.operands
        # Buffers of a pipelined loop are chosen so: `selp r, i+1, 0, i+1 < n` stays below n.
        setp = self._comparison(predicate, at)
        if setp is None:
            return join(self._value(chosen, at), self._value(otherwise, at))
        _, comparison, _ = self._instructions[setp].opcode.split(".")
        return join(
            self._under(chosen, at, setp, comparison),
            self._under(otherwise, at, setp, COMPARISONS[comparison][2]),
        )

    def _under(self, operand: str, at: int, setp: int, comparison: str) -> Range | None:
        """The range of an operand where a comparison has this outcome."""
        one = self._instructions[setp]
        _, left, right = one.operands
        a, b = self._value(left, setp), self._value(right, setp)
        if a is None or b is None:
            return None
        suffix = one.opcode.rpartition(".")[2]
        read = as_signed if suffix.startswith("s") else as_unsigned
        a, b = read(a, type_bits(suffix)), read(b, type_bits(suffix))
        lefts, rights = narrow(a, comparison, b), narrow(b, COMPARISONS[comparison][3], a)
        if lefts is None or rights is None:
            return None  # it never turns out so
        narrowed = {left: lefts, right: rights}
        if operand in narrowed:
            return narrowed[operand]
        # `shl %r135, %r134, 11` is bounded by what was compared of %r134.
        bounds = {name: range_ for name, range_ in narrowed.items() if self._is_assigned_once(name)}

        def value(name: str, at: int, depth: int) -> Range | None:
            if name in bounds:
                return bounds[name]
            if depth == MAX_CHAIN or not bounds or not self._is_assigned_once(name):
                return self._value(name, at)
            ((source, is_whole),) = self._assigned[name].items()
            one = self._instructions[source]
            if not is_whole or one.guard or one.is_a("selp", "ld", "atom", "shfl"):
                return self._value(name, at)
            return self._evaluated(source, lambda operand: value(operand, source, depth + 1))

        return value(operand, at, 0)

    def _is_assigned_once(self, register: str) -> bool:
        return len(self._assigned.get(register, {})) == 1


_WRITES_NOTHING = ("st", "stmatrix", "bar", "barrier", "cp", "bra", "brx", "red", "mbarrier", "ret")


def _written(one: PtxInstruction) -> Iterator[tuple[str, bool]]:
    """The registers an instruction assigns, and whether its other operands say what."""
    if not one.operands or one.opcode.split(".")[0] in _WRITES_NOTHING:
        # `mbarrier.arrive` and the like give a predicate or a state: no address is made of it.
        return
    first = one.operands[0]
    if first.startswith(("{", "(")):
        for register in first[1:-1].split(","):
            yield register, False
        return
    register, _, second = first.partition("|")
    yield register, True
    if second:
        yield second, False
