"""A module while it is drawn: values of the entry computation, and computations that it calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import Final, NamedTuple

from hlo_lint.hlo.dtypes import BITS, is_complex, is_float, is_integer, is_signed

MAX_ELEMENTS: Final = 600
"""Of an array: a judge runs each module several times."""
SIZES: Final = (1, 1, 2, 2, 3, 4, 5, 7, 8, 16)
INTEGERS: Final = tuple(
    "s32 s32 s32 u32 u32 s8 s8 u8 u8 s64 s64 u64 u64 s16 u16 s4 u4 s32 u32 s8 u8 s2".split()
)
FLOATS: Final = ("f32", "f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2")


class DrawnValue(NamedTuple):
    """An array in the entry computation."""

    name: str
    dtype: str
    dims: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.dims)


def shape_text(dtype: str, dims: Iterable[int]) -> str:
    """A shape as HLO spells it: `s32[2,3]`."""
    return f"{dtype}[{numbers(dims)}]"


def numbers(items: Iterable[object]) -> str:
    """`1,2,3`."""
    return ",".join(map(str, items))


def ends(dtype: str) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    bits = BITS[dtype]
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(dtype) else (0, (1 << bits) - 1)


@dataclass
class ModuleDraft:
    """A module while it is drawn."""

    random: Random
    dtypes: Sequence[str] = INTEGERS
    """The types of parameters."""
    lines: list[str] = field(default_factory=list)
    values: list[DrawnValue] = field(default_factory=list)
    parameters: int = 0
    computations: list[str] = field(default_factory=list)

    # ---- choices

    def chance(self, one_of: int) -> bool:
        """True once in so many times."""
        return self.random.randrange(one_of) == 0

    def dims(self, rank: int, most: int = MAX_ELEMENTS) -> tuple[int, ...]:
        """Dimensions of an array of at most so many elements; one of thirty is empty."""
        while True:
            dims = tuple(self.random.choice(SIZES) for _ in range(rank))
            if rank and self.chance(30):
                at = self.random.randrange(rank)
                dims = (*dims[:at], 0, *dims[at + 1 :])
            if prod(dims) <= most:
                return dims

    def subset(self, items: Iterable[int], count: int | None = None) -> list[int]:
        """Some of the numbers, in order."""
        pool = list(items)
        chosen = self.random.sample(
            pool, self.random.randint(0, len(pool)) if count is None else count
        )
        return sorted(chosen)

    def shuffled(self, items: Iterable[int]) -> list[int]:
        """The numbers in another order."""
        pool = list(items)
        self.random.shuffle(pool)
        return pool

    def number(self, dtype: str) -> str:
        """A literal of a type: at its ends, a power of two, small, or any."""
        random = self.random
        if dtype == "pred":
            return random.choice(("true", "false"))
        if is_complex(dtype):
            return f"({random.randint(-3, 3)}, {random.randint(-3, 3)})"
        if is_float(dtype):
            edges: tuple[str, ...] = ("0", "-0", "1", "-1", "2", "0.5", "3", "-2", "4", "0.25")
            if self.chance(4) and not dtype.startswith("f8"):
                edges = ("inf", "-inf", "nan")
            return random.choice(edges)
        low, high = ends(dtype)
        kind = random.randrange(5)
        if kind == 0:
            return str(random.choice((low, high, high - 1, low + 1)))
        if kind == 1:
            power = 1 << random.randrange(BITS[dtype] - is_signed(dtype))
            return str(min(max(power - random.choice((0, 0, 1)), low), high))
        if kind == 2:
            return str(random.randint(low, high))
        return str(max(low, min(high, random.randint(-2, 9))))

    def nonzero(self, dtype: str) -> str:
        """A divisor: XLA leaves division by zero, and of the smallest number by -1, undefined."""
        while (text := self.number(dtype)) in ("0", "-1"):
            pass
        return text

    # ---- instructions

    def add(self, dtype: str, dims: Iterable[int], text: str) -> DrawnValue:
        """Add an instruction of the entry computation."""
        value = DrawnValue(f"v{len(self.lines)}", dtype, tuple(dims))
        self.lines.append(f"%{value.name} = {shape_text(dtype, value.dims)} {text}")
        self.values.append(value)
        return value

    def like(
        self, value: DrawnValue, opcode: str, *others: DrawnValue, more: str = ""
    ) -> DrawnValue:
        """Add an instruction of the value's own shape."""
        return self.add(value.dtype, value.dims, f"{call(opcode, value, *others)}{more}")

    def parameter(self, dtype: str, dims: Iterable[int]) -> DrawnValue:
        """Add a parameter."""
        self.parameters += 1
        return self.add(dtype, dims, f"parameter({self.parameters - 1})")

    def constant(
        self, dtype: str, dims: Iterable[int] = (), texts: Sequence[str] = ()
    ) -> DrawnValue:
        """Add a constant with these numbers, else with any."""
        dims = tuple(dims)
        flat = list(texts) or [self.number(dtype) for _ in range(prod(dims))]
        if not dims:
            return self.add(dtype, dims, f"constant({flat[0]})")

        def nested(part: Sequence[str], rest: tuple[int, ...]) -> str:
            if not rest:
                return part[0]
            size = len(part) // rest[0] if rest[0] else 0
            inner = (nested(part[at * size : (at + 1) * size], rest[1:]) for at in range(rest[0]))
            return "{" + ", ".join(inner) + "}"

        return self.add(dtype, dims, f"constant({nested(flat, dims)})")

    def splat(self, value: DrawnValue, text: str | None = None) -> DrawnValue:
        """Add an array of the value's shape that holds one number, or a constant of any."""
        if text is None and self.chance(5) and 0 < value.size <= 32:
            return self.constant(value.dtype, value.dims)
        one = self.constant(value.dtype, (), [text or self.number(value.dtype)])
        return self.broadcast(one, value.dims)

    def broadcast(self, value: DrawnValue, dims: Sequence[int]) -> DrawnValue:
        """Add the broadcast of a scalar."""
        return self.add(value.dtype, dims, f"{call('broadcast', value)}, dimensions={{}}")

    def source(self, dtype: str, dims: Sequence[int]) -> DrawnValue:
        """Add a value that depends on nothing: mostly a parameter."""
        if is_integer(dtype) and BITS[dtype] > 4 and dims and self.chance(6):
            at = self.random.randrange(len(dims))
            return self.add(dtype, dims, f"iota(), iota_dimension={at}")
        if self.chance(5) and prod(dims) <= 64:
            return self.constant(dtype, dims)
        return self.parameter(dtype, dims)

    def partner(self, value: DrawnValue) -> DrawnValue:
        """Another value of the same shape: one that is there, or a new one."""
        alike = [other for other in self.values if other[1:] == value[1:]]
        if not self.chance(3):
            return self.random.choice(alike)
        return self.source(value.dtype, value.dims)

    def computation(self, parameters: Sequence[tuple[str, tuple[int, ...]]], body: str) -> str:
        """Add a computation whose parameters are `p0`, `p1` …; its name."""
        name = f"c{len(self.computations)}"
        lines = [
            f"p{number} = {shape_text(dtype, dims)} parameter({number})"
            for number, (dtype, dims) in enumerate(parameters)
        ]
        text = "\n  ".join([*lines, *body.strip().split("\n")])
        self.computations.append(f"%{name} {{\n  {text}\n}}\n")
        return name

    def combiner(self, dtype: str, opcode: str) -> str:
        """Add the computation of a reduction."""
        return self.computation([(dtype, ()), (dtype, ())], f"ROOT r = {dtype}[] {opcode}(p0, p1)")

    def text(self, roots: Sequence[DrawnValue], name: str = "hunted") -> str:
        """The module with these results."""
        shapes = ", ".join(shape_text(root.dtype, root.dims) for root in roots)
        root = f"ROOT %root = ({shapes}) {call('tuple', *roots)}"
        body = "\n  ".join([*self.lines, root])
        parts = [f"HloModule {name}", *self.computations, f"ENTRY %main {{\n  {body}\n}}\n"]
        return "\n\n".join(parts)


def call(opcode: str, *operands: DrawnValue) -> str:
    """`add(%v0, %v1)`."""
    return f"{opcode}({', '.join(f'%{operand.name}' for operand in operands)})"
