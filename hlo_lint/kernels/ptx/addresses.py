"""Ranges of shared memory that an instruction may access: a variable and a range of bytes.

Intervals, with the bits that may be set, over the integer registers; a register that is assigned
several times (a loop's) holds what any of its assignments gives, until nothing grows. So a stage
counter that `selp` sends back to 0 keeps its range:

    add.s32 %r126, %r210, 1;  setp.gt.s32 %p5, %r126, 1;  selp.b32 %r210, 0, %r126, %p5;

A counter that only its loop's branch bounds is unbounded, so what it points at may be anything.

Registers hold no sign: a value stands for itself modulo the width, and an instruction that looks at
the sign first brings it into the range it reads. What is not modelled is unknown, never narrower.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hlo_lint.kernels.ptx.reader import address, number
from hlo_lint.text.lazy_dataclasses import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hlo_lint.kernels.ptx.reader import Function, PtxInstruction

UNBOUNDED = 1 << 80
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


class Range(NamedTuple):
    """Numbers `low` to `high`, both included, or byte offsets from a shared variable."""

    base: str | None
    low: int
    high: int
    bits: int = -1
    """Those that may be set, as a mask; -1 where that is not known. Only of numbers from 0."""

    @property
    def is_bounded(self) -> bool:
        """True if both ends are known."""
        return self.low > -UNBOUNDED and self.high < UNBOUNDED

    @property
    def is_natural(self) -> bool:
        """True if it holds plain numbers, none below 0."""
        return self.base is None and self.low >= 0 and self.is_bounded

    @property
    def mask(self) -> int:
        """The bits that may be set in a natural number of this range."""
        most = (1 << self.high.bit_length()) - 1
        return most if self.bits < 0 else self.bits & most


ANYTHING = Range(None, -UNBOUNDED, UNBOUNDED)


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


def _natural(low: int, high: int, bits: int = -1) -> Range:
    if bits >= 0:
        high = min(high, bits)
    return Range(None, min(low, high), high, bits)


def _constant(value: int) -> Range:
    return Range(None, value, value, value if value >= 0 else -1)


def join(left: Range | None, right: Range | None) -> Range | None:
    """A range that holds both; `None` holds nothing."""
    if left is None or right is None:
        return right if left is None else left
    if left.base != right.base:
        return ANYTHING
    bits = -1 if left.bits < 0 or right.bits < 0 else left.bits | right.bits
    return Range(left.base, min(left.low, right.low), max(left.high, right.high), bits)


def _fitted(value: Range, width: int) -> Range:
    """The value in a register of that width, modulo which it stands for itself."""
    if not value.is_bounded or value.high - value.low >= 1 << width:
        return Range(value.base, -UNBOUNDED, UNBOUNDED) if value.base else _full(width)
    if value.base is None and not -(1 << width) <= value.low <= value.high < 1 << (width + 1):
        return _full(width)
    return value


def _full(width: int) -> Range:
    return _natural(0, (1 << width) - 1)


def _unsigned(value: Range, width: int) -> Range:
    """The value as an unsigned instruction reads it."""
    if value.base is not None:
        return ANYTHING
    return value if value.low >= 0 and value.high < 1 << width else _full(width)


def _signed(value: Range, width: int) -> Range:
    """The value as a signed instruction reads it."""
    half = 1 << (width - 1)
    if value.base is not None:
        return ANYTHING
    return value if -half <= value.low and value.high < half else Range(None, -half, half - 1)


# ---- instructions


def _width(kind: str) -> int:
    digits = kind[1:]
    return int(digits) if kind[:1] in {"b", "u", "s"} and digits in {"8", "16", "32", "64"} else 0


def _sum(left: Range, right: Range) -> Range:
    if left.base is not None and right.base is not None:
        return ANYTHING
    base = left.base or right.base
    low, high = left.low + right.low, left.high + right.high
    if low <= -UNBOUNDED or high >= UNBOUNDED:
        return Range(base, -UNBOUNDED, UNBOUNDED)
    # Without a carry the bits of a sum are those of its parts: `base + (i << 4)` keeps 4 zeros.
    disjoint = left.is_natural and right.is_natural and not left.mask & right.mask
    return Range(base, low, high, left.mask | right.mask if disjoint else -1)


def _negated(value: Range) -> Range:
    return ANYTHING if value.base is not None else Range(None, -value.high, -value.low)


def _product(left: Range, right: Range) -> Range:
    if left.base or right.base or not (left.is_bounded and right.is_bounded):
        return ANYTHING
    ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    shift = right.low.bit_length() - 1
    # A product with a power of two is a shift.
    if left.is_natural and right.low == right.high == 1 << max(shift, 0):
        return _natural(min(ends), max(ends), left.mask << shift)
    return Range(None, min(ends), max(ends))


def _and(left: Range, right: Range) -> Range:
    naturals = [value for value in (left, right) if value.is_natural]
    if not naturals:
        return ANYTHING
    mask = naturals[0].mask
    for value in naturals[1:]:
        mask &= value.mask
    return _natural(0, min(value.high for value in naturals), mask)


def _or(left: Range, right: Range, *, exclusive: bool) -> Range:
    """`or`, and where `exclusive` `xor`, which may clear bits."""
    if right.base is not None:
        left, right = right, left
    if not right.is_natural:
        return ANYTHING
    high = left.high + right.high
    if left.base is not None:
        # A variable is aligned, so its address takes offsets by `or`; never more than by `add`.
        return Range(left.base, left.low - exclusive * right.high, high)
    if not left.is_natural:
        return ANYTHING
    low = 0 if exclusive else max(left.low, right.low)
    return _natural(low, high, left.mask | right.mask)


def _lop3(values: list[Range], table: int) -> Range:
    """Bit by bit what the table says of three inputs."""
    if not all(value.base is None for value in values):
        return ANYTHING
    bits = 0
    # Row abc of the table is the result for bits a, b, c of the inputs (PTX ISA, lop3).
    for row in range(8):
        if not table >> row & 1:
            continue
        possible = -1
        for value, place in zip(values, (4, 2, 1), strict=True):
            if row & place and value.is_natural:
                possible &= value.mask
        if possible < 0:
            return ANYTHING
        bits |= possible
    return _natural(0, bits, bits)


def _shifted_left(value: Range, by: Range, width: int) -> Range:
    if by.base is not None or by.low != by.high or not 0 <= by.low < width:
        return ANYTHING
    return _product(value, _constant(1 << by.low))


def _shifted_right(value: Range, by: Range) -> Range:
    if value.base is not None or not value.is_bounded or by.base is not None:
        return ANYTHING
    if by.low == by.high and 0 <= by.low < 64:
        bits = value.mask >> by.low if value.is_natural else -1
        return Range(None, value.low >> by.low, value.high >> by.low, bits)
    return _natural(0, value.high) if value.low >= 0 else ANYTHING


def _field(value: Range, position: Range, length: Range, signed: bool) -> Range:
    if length.base is not None or length.low != length.high or not 0 < length.low <= 64:
        return ANYTHING
    if signed:
        half = 1 << (length.low - 1)
        return Range(None, -half, half - 1)
    mask = (1 << length.low) - 1
    if value.is_natural and position.base is None and position.low == position.high >= 0:
        mask &= value.mask >> position.low
    return _natural(0, mask, mask)


def _computed(one: PtxInstruction, values: list[Range]) -> Range:
    """The result range of an arithmetic instruction for these operands."""
    parts = one.opcode.split(".")
    head, kind = parts[0], parts[-1]
    width = _width(kind)
    count = len(values)
    if head in {"mov", "cvta"} and count == 1:
        return values[0]
    if head == "shfl":
        return values[0] if values else ANYTHING
    if head == "cvt" and count == 1 and len(parts) >= 3:
        return _converted(values[0], parts[-2], kind)
    if not width:
        return ANYTHING
    signed = kind.startswith("s")
    read: Callable[[Range, int], Range] = _signed if signed else _unsigned
    wide = width * 2 if "wide" in parts else width
    result = ANYTHING
    match head, count:
        case "add", 2:
            result = _sum(*values)
        case "sub", 2:
            result = _sum(values[0], _negated(values[1]))
        case "neg", 1:
            result = _negated(values[0])
        case "mul" | "mul24", 2 if "hi" not in parts:
            result = _product(*(read(one, width) for one in values))
        case "mad" | "mad24", 3 if "hi" not in parts:
            product = _product(*(read(one, width) for one in values[:2]))
            result = _sum(_fitted(product, wide), values[2])
        case "and", 2:
            result = _and(*values)
        case "or" | "xor", 2:
            result = _or(*values, exclusive=head == "xor")
        case "lop3", 4 if values[3].low == values[3].high:
            result = _lop3(values[:3], values[3].low)
        case "shl", 2:
            result = _shifted_left(values[0], values[1], width)
        case "shr", 2:
            result = _shifted_right(read(values[0], width), values[1])
        case "bfe", 3:
            result = _field(read(values[0], width), values[1], values[2], signed)
        case "min" | "max", 2:
            ends = [read(one, width) for one in values]
            pick = min if head == "min" else max
            result = Range(None, pick(one.low for one in ends), pick(one.high for one in ends))
        case "rem", 2 if not signed and values[1].is_natural:
            result = _natural(0, max(values[1].high - 1, 0))
        case "div", 2 if not signed:
            dividend = _unsigned(values[0], width)
            least = values[1].low if values[1].is_natural else 1
            result = _natural(0, dividend.high // max(least, 1))
        case "popc" | "clz" | "bfind", 1:
            return _natural(0, width)
        case "ld" | "atom" | "ldu", _ if width < 32 and not signed:
            return _full(width)
        case _:
            return ANYTHING
    return _fitted(result, wide) if result != ANYTHING else ANYTHING


def _converted(value: Range, to: str, kind: str) -> Range:
    width, target = _width(kind), _width(to)
    if not width or not target:
        return ANYTHING
    if value.base is not None:
        return value  # shared memory fits 32 bits
    # A narrowing conversion keeps the low bits, so modulo the new width the value is itself.
    if target <= width:
        return _fitted(value, target)
    return _signed(value, width) if kind.startswith("s") else _unsigned(value, width)


_COMPARED = {
    # comparison: what bounds the left side if it holds, its opposite, and with the sides swapped
    "lt": ("high", -1, "ge", "gt"),
    "le": ("high", 0, "gt", "ge"),
    "gt": ("low", 1, "le", "lt"),
    "ge": ("low", 0, "lt", "le"),
    "lo": ("high", -1, "hs", "hi"),
    "ls": ("high", 0, "hi", "hs"),
    "hi": ("low", 1, "ls", "lo"),
    "hs": ("low", 0, "lo", "ls"),
    "eq": ("both", 0, "ne", "eq"),
    "ne": ("not", 0, "eq", "ne"),
}


def _narrowed(value: Range, comparison: str, bound: Range) -> Range | None:
    """The part of a range for which a comparison holds; `None` if there is none."""
    if value.base is not None or bound.base is not None:
        return value
    side, step, _, _ = _COMPARED[comparison]
    low, high = value.low, value.high
    if side in {"high", "both"}:
        high = min(high, bound.high + step)
    if side in {"low", "both"}:
        low = max(low, bound.low + step)
    if side == "not" and bound.low == bound.high:
        low += low == bound.low
        high -= high == bound.high
    return Range(None, low, high, value.bits) if low <= high else None


# ---- a function


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
                    if number(register) is None and not register.startswith("["):
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
        constant = number(operand)
        if constant is not None:
            return _constant(constant)
        register, _, axis = operand.partition(".")
        match register:
            case "%tid" if axis in _AXES:
                return _natural(0, self._function.threads[_AXES.index(axis)] - 1)
            case "%laneid":
                return _natural(0, 31)
            case "%warpid":
                return _natural(0, 63)
            case "%ntid" if axis in _AXES:
                return _natural(1, 1024)
            case "%ctaid" if axis in _AXES:
                return _natural(0, (1 << 31) - 1)
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
        return _computed(one, values)

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
        if parts[1] not in _COMPARED or not _width(parts[2]):
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
            self._under(otherwise, at, setp, _COMPARED[comparison][2]),
        )

    def _under(self, operand: str, at: int, setp: int, comparison: str) -> Range | None:
        """The range of an operand where a comparison has this outcome."""
        one = self._instructions[setp]
        _, left, right = one.operands
        a, b = self._value(left, setp), self._value(right, setp)
        if a is None or b is None:
            return None
        kind = one.opcode.rpartition(".")[2]
        read = _signed if kind.startswith("s") else _unsigned
        a, b = read(a, _width(kind)), read(b, _width(kind))
        lefts, rights = _narrowed(a, comparison, b), _narrowed(b, _COMPARED[comparison][3], a)
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
