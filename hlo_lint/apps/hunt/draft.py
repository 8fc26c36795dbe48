"""A module while it is drawn: instructions that shape inference accepts, and the data of steps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from hlo_lint.analysis.shape_inference import Signature
from hlo_lint.analysis.shape_inference.shape_check import check_shape
from hlo_lint.hlo.dtypes import BITS, integer_range, is_complex, is_float, is_integer
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, shape_or_none

MAX_ELEMENTS: Final = 600
"""Of an array: a judge runs each module several times."""
SIZES: Final = (1, 1, 2, 2, 3, 4, 5, 7, 8, 16)
INTEGERS: Final = tuple(
    "s32 s32 s32 u32 u32 s8 s8 u8 u8 s64 s64 u64 u64 s16 u16 s4 u4 s32 u32 s8 u8 s2".split()
)
FLOATS: Final = ("f32", "f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2")
_choice = re.compile(r"<([^<>]*)>")


class NotDrawn(Exception):
    """A step that cannot be where it was to begin."""


class DrawnValue(NamedTuple):
    """A value in the computation."""

    name: str
    shape: Shape

    @property
    def array(self) -> ArrayShape:
        """Its shape, if it is an array."""
        if not isinstance(self.shape, ArrayShape):
            raise NotDrawn
        return self.shape


def kind_of(dtype: str) -> str:
    """The kind of a type, as `steps.txt` has it."""
    return "t" if dtype.startswith("f8") else {"b": "f"}.get(dtype[0], dtype[0])


ATTRIBUTES: Final[dict[str, str]] = {}
"""The attributes of an opcode; words in capitals are drawn."""
SETS: Final[dict[str, dict[str, list[str]]]] = defaultdict(lambda: defaultdict(list))
"""Sets of opcodes for each kind of type."""
STEPS: Final[dict[str, list[tuple[str, str]]]] = defaultdict(list)
"""The expressions of each step, with the kinds that they are for."""

for _line in Path(__file__).with_name("steps.txt").read_text("utf-8").splitlines():
    _name, _kinds, _text = (*_line.split(maxsplit=2), "", "", "")[:3]
    if _name == ".":
        ATTRIBUTES[_kinds] = _text
    elif _name.startswith("$"):
        for _set in _name[1:].split(","):
            for _kind in _kinds:
                SETS[_set][_kind] += _text.split()
    elif _name not in ("", "//"):
        STEPS[_name].append((_kinds, _text))

DRAWN_OPCODES: Final = frozenset(
    re.findall(r"[a-z][a-z\d-]*", f"{[*ATTRIBUTES]} {SETS} {STEPS} constant parameter")
).intersection(OPCODES)
"""The opcodes that a front end writes, which are those of the steps: passes make the others."""


@dataclass
class ModuleDraft:
    """A computation while it is drawn, and those that it calls.

    Its methods raise NotDrawn for what cannot be.
    """

    random: Random
    prefix: str = "v"
    """Of its names; those of a computation that is called are p0, p1 of parameters, w2, w3."""
    signatures: dict[str, Signature] = field(default_factory=dict)
    computations: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: dict[str, Shape] = field(default_factory=dict)
    parameters: int = 0
    replicas: int = 1
    partitions: int = 1

    # ---- choices

    def chance(self, one_of: int) -> bool:
        """True once in so many times."""
        return self.random.randrange(one_of) == 0

    def opcode(self, of: str, dtype: str) -> str:
        """An opcode of a set for a type, if it has one."""
        if opcodes := SETS[of][kind_of(dtype)]:
            return self.random.choice(opcodes)
        raise NotDrawn

    def choose(self, text: str) -> str:
        """A text with one of the alternatives in each `<a|b>`."""
        while choice := _choice.search(text):
            text = text.replace(choice[0], self.random.choice(choice[1].split("|")), 1)
        return text

    def shape(self, dtype: str, rank: int, most: int = 200) -> ArrayShape:
        """An array of at most so many elements; one of thirty is empty."""
        while True:
            dims = [self.random.choice(SIZES) for _ in range(rank)]
            if rank and self.chance(30):
                dims[self.random.randrange(rank)] = 0
            if (shape := ArrayShape(dtype, tuple(dims))).elements <= most:
                return shape

    def some(self, count: int, least: int = 0) -> list[int]:
        """Some of so many numbers, in order."""
        chosen = self.random.randint(min(least, count), count)
        return sorted(self.random.sample(range(count), chosen))

    def upto(self, size: int) -> int:
        """A number from 1, or 0 where there is no other."""
        return self.random.randint(min(1, size), size)

    def number(self, dtype: str, leaf: str = "c") -> str:
        """A literal of a type: at its ends, a power of two, small, or any."""
        random = self.random
        if dtype == "pred":
            return random.choice(("true", "false"))
        if is_complex(dtype):
            return f"({random.randint(-3, 3)}, {random.randint(-3, 3)})"
        if is_float(dtype):
            is_special = self.chance(4) and kind_of(dtype) == "f"
            numbers = "inf -inf nan" if is_special else "0 -0 1 -1 2 0.5 3 -2 4 0.25"
            return random.choice(numbers.split())
        low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
        small = [random.randint(-2, 9) for _ in range(2)]
        power = (1 << random.randrange(high.bit_length())) - random.choice((0, 0, 1))
        end, anywhere = random.choice((low, high, high - 1, low + 1)), random.randint(low, high)
        number = random.choice((end, power, anywhere, *small))
        if leaf == "h":
            bits = BITS[dtype]
            number = random.choice((0, 1, bits - 1, bits + 1, random.randint(0, bits + 1)))
        number = min(max(number, low), high)
        return self.number(dtype, leaf) if leaf == "n" and number in (0, -1) else str(number)

    # ---- instructions

    def inferred(
        self, opcode: str, operands: Sequence[DrawnValue], tail: str = "", shape: str = ""
    ) -> Shape:
        """The shape of a call, if XLA takes it and it is small; `shape` where it is printed."""
        types = tuple(str(operand.shape) for operand in operands)
        callees = tuple(map(self.signatures.get, re.findall(r"%(c\d+)", tail)))
        check = check_shape(opcode, shape, types, f", {tail}" * bool(tail), callees)
        made = shape_or_none(shape) if shape else check.inferred
        if check.errors or not isinstance(made, ArrayShape | TupleShape):
            raise NotDrawn
        if isinstance(made, ArrayShape) and made.elements > MAX_ELEMENTS:
            raise NotDrawn
        return made

    def add(
        self, opcode: str, given: Sequence[DrawnValue] | str, tail: str = "", shape: str = ""
    ) -> DrawnValue:
        """Add an instruction of operands, or of a literal."""
        operands = () if isinstance(given, str) else given
        made = self.inferred(opcode, operands, tail, shape)
        name = f"{self.prefix}{len(self.lines)}"
        literal = ", ".join(f"%{one.name}" for one in operands) or given or ""
        parts = [f"%{name} = {made} {opcode}({literal})", *filter(None, [tail])]
        if self.partitions > 1 and isinstance(made, ArrayShape) and self.chance(3):
            parts.append(f"sharding={self._sharding(made.dims)}")
        self.lines.append(", ".join(parts))
        self.values[name] = made
        return DrawnValue(name, made)

    def _sharding(self, dims: tuple[int, ...]) -> str:
        """A sharding over all partitions: by some dimensions, which it divides."""
        rank, tiles, left = len(dims), [1] * len(dims), self.partitions
        for at in self.random.sample(range(rank), rank):
            tiles[at] = self.random.choice([n for n in (1, 2, 4) if n <= left and not dims[at] % n])
            left //= tiles[at]
        if left == self.partitions:
            return "{replicated}"
        listed = ",".join(map(str, [*tiles, left][: rank + (left > 1)]))
        rest = " last_tile_dim_replicate" * (left > 1)
        return f"{{devices=[{listed}]<=[{self.partitions}]{rest}}}"

    def parameter(self, shape: Shape) -> DrawnValue:
        """Add a parameter."""
        self.parameters += 1
        return self.add("parameter", f"{self.parameters - 1}", "", f"{shape}")

    def constant(self, shape: ArrayShape, numbers: Sequence[str] = ()) -> DrawnValue:
        """Add a constant with these numbers, else with any."""
        if not shape.elements:
            raise NotDrawn
        parts = list(numbers) or [self.number(shape.dtype) for _ in range(shape.elements)]
        for size in reversed(shape.dims):
            rows = (parts[at : at + size] for at in range(0, len(parts), size))
            parts = [f"{{{', '.join(row)}}}" for row in rows]
        return self.add("constant", parts[0], "", f"{shape}")

    def scalar(self, dtype: str, number: object = None, leaf: str = "c") -> DrawnValue:
        """Add a constant number."""
        text = self.number(dtype, leaf) if number is None else str(number)
        return self.constant(ArrayShape(dtype, ()), [text])

    def splat(self, shape: ArrayShape, leaf: str) -> DrawnValue:
        """Add an array that holds one number, or a constant of any."""
        if self.chance(5) and 0 < shape.elements <= 32 and leaf == "c":
            return self.constant(shape)
        one = self.scalar(shape.dtype, leaf=leaf)
        return self.add("broadcast", (one,), "dimensions={}", f"{shape}") if shape.dims else one

    def source(self, shape: ArrayShape) -> DrawnValue:
        """Add a value that depends on nothing: mostly a parameter."""
        is_counted = is_integer(shape.dtype) and BITS[shape.dtype] > 4 and shape.dims
        if is_counted and self.chance(6):
            at = self.random.randrange(shape.rank)
            return self.add("iota", (), f"iota_dimension={at}", f"{shape}")
        is_constant = self.chance(5) and 0 < shape.elements <= 64
        return self.constant(shape) if is_constant else self.parameter(shape)

    def partner(self, shape: ArrayShape) -> DrawnValue:
        """Another value of the shape: one that is there, or a new one."""
        alike = [name for name, other in self.values.items() if other == shape]
        if alike and not self.chance(3):
            return DrawnValue(self.random.choice(alike), shape)
        return self.source(shape)

    def called(
        self, shapes: Iterable[Shape], make: Callable[[ModuleDraft, list[DrawnValue]], DrawnValue]
    ) -> str:
        """Add a computation, of which `make` adds all but the parameters; its name."""
        inner = ModuleDraft(self.random, "p", self.signatures, self.computations)
        values = [inner.parameter(shape) for shape in shapes]
        inner.prefix = "w"
        root = make(inner, values)
        *lines, last = inner.lines
        if not last.startswith(f"%{root.name} = "):
            raise NotDrawn
        name = f"c{len(self.computations)}"
        self.signatures[name] = Signature(tuple(f"{v.shape}" for v in values), f"{root.shape}")
        self.computations.append("\n  ".join([f"%{name} {{", *lines, f"ROOT {last}"]) + "\n}\n")
        return name


def neutral_element(dtype: str, opcode: str) -> str:
    """The literal that a combiner leaves other values alone with."""
    if dtype == "pred":
        return {"and": "true", "minimum": "true"}.get(opcode, "false")
    if is_float(dtype):
        return {"maximum": "-inf", "minimum": "inf", "multiply": "1"}.get(opcode, "0")
    low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
    ends = {"multiply": 1, "maximum": low, "minimum": high, "and": -1 if low else high}
    return str(ends.get(opcode, 0))
