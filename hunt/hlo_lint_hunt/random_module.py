"""A randomly drawn module: instructions that shape inference accepts, and the data of steps."""

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
from hlo_lint.hlo.dtypes import BITS, integer_range, is_integer, neutral_element
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, shape_or_none

MAX_ELEMENTS: Final = 600
"""The elements of the largest array: a judge runs each module several times."""
SIZES: Final = (1, 1, 2, 2, 3, 4, 5, 7, 8, 16)

ATTRIBUTES: Final[dict[str, str]] = {}
"""The attributes of each opcode; words in capitals are drawn."""
SETS: Final[dict[str, dict[str, list[str]]]] = defaultdict(lambda: defaultdict(list))
"""The sets of opcodes, types and numbers, by name and kind of type."""
STEPS: Final[dict[str, list[tuple[str, str]]]] = defaultdict(list)
"""The expressions of each step, with the kinds of types that they are for."""

for _line in Path(__file__).with_name("steps.txt").read_text("utf-8").splitlines():
    _names, _kinds, _text = (*_line.split(maxsplit=2), "", "", "")[:3]
    for _name in _names.split(","):
        if _name == ".":
            ATTRIBUTES[_kinds] = _text
        elif _name.startswith("$"):
            for _kind in _kinds:
                SETS[_name[1:]][_kind] += _text.split()
        elif _name not in ("", "//"):
            STEPS[_name].append((_kinds, _text.replace("STEP", _name)))

DRAWN_OPCODES: Final = frozenset(
    re.findall(r"[a-z][a-z\d-]*", f"{[*ATTRIBUTES]} {SETS} {STEPS} constant parameter")
).intersection(OPCODES)
"""The opcodes that a front end writes: those of the steps. Passes make the others."""
_choice = re.compile(r"<([^<>]*)>")


class NotDrawn(Exception):
    """A step that is not valid for the value it starts at."""


class DrawnValue(NamedTuple):
    """A value in the computation."""

    name: str
    shape: Shape
    line: str
    """The instruction that makes it."""

    @property
    def array(self) -> ArrayShape:
        """The shape; NotDrawn for a tuple."""
        if not isinstance(self.shape, ArrayShape):
            raise NotDrawn
        return self.shape


def kind_of(dtype: str) -> str:
    """The kind of a type in `steps.txt`: s, u, f, t, c or p."""
    return "t" if dtype.startswith("f8") else {"b": "f"}.get(dtype[0], dtype[0])


@dataclass
class ModuleDraft:
    """A randomly drawn computation, with the computations that it calls.

    Its methods raise NotDrawn for invalid instructions.
    """

    random: Random
    prefix: str = "v"
    """The first letter of names. A called computation has parameters p0, p1 and values w2, w3."""
    signatures: dict[str, Signature] = field(default_factory=dict)
    computations: list[str] = field(default_factory=list)
    values: dict[str, DrawnValue] = field(default_factory=dict)
    replicas: int = 1
    partitions: int = 1
    is_named: bool = False
    """True if shardings name the axes of a mesh: they end XLA before others are judged."""

    def chance(self, one_of: int) -> bool:
        """True with a probability of 1 in `one_of`."""
        return self.random.randrange(one_of) == 0

    def one_of(self, set_name: str, dtype: str) -> str:
        """A random member of a set for a type; NotDrawn if the set is empty."""
        if members := SETS[set_name][kind_of(dtype)]:
            return self.random.choice(members)
        raise NotDrawn

    def choose(self, text: str) -> str:
        """A text with a random alternative in place of each `<a|b>`."""
        while choice := _choice.search(text):
            text = text.replace(choice[0], self.random.choice(choice[1].split("|")), 1)
        return text

    def shape(self, dtype: str, rank: int, most: int = 200) -> ArrayShape:
        """An array shape of at most `most` elements; 1 in 30 is empty."""
        while True:
            dims = [self.random.choice(SIZES) for _ in range(rank)]
            if rank and self.chance(30):
                dims[self.random.randrange(rank)] = 0
            if (shape := ArrayShape(dtype, tuple(dims))).elements <= most:
                return shape

    def some(self, count: int) -> list[int]:
        """A random subset of the numbers below `count`, in order."""
        return sorted(self.random.sample(range(count), self.random.randint(0, count)))

    def upto(self, size: int) -> int:
        """A random number from 1 to `size`; 0 for size 0."""
        return self.random.randint(min(1, size), size)

    def number(self, dtype: str, leaf: str = "c") -> str:
        """A literal of a type: an integer at an end of the range, a power of 2, small, or any."""
        if not is_integer(dtype):
            return self.one_of("number", dtype)
        random, bits = self.random, BITS[dtype]
        low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
        end, power = random.choice((low, high, high - 1, low + 1)), 1 << random.randrange(bits)
        small, of_width = (random.randint(-2, 9), random.randint(-2, 9)), (0, 1, bits - 1, bits + 1)
        numbers = (end, power - random.choice((0, 0, 1)), random.randint(low, high), *small)
        numbers = numbers if leaf != "h" else (*of_width, random.randint(0, bits + 1))
        number = min(max(random.choice(numbers), low), high)
        return self.number(dtype, leaf) if leaf == "n" and number in (0, -1) else str(number)

    def inferred(
        self, opcode: str, operands: Sequence[DrawnValue], tail: str = "", shape: str = ""
    ) -> Shape:
        """The shape of a valid, small call; `shape` is given where it cannot be inferred."""
        types = tuple(str(operand.shape) for operand in operands)
        callees = tuple(map(self.signatures.get, re.findall(r"%(c\d+)", tail)))
        check = check_shape(opcode, shape, types, f", {tail}" * bool(tail), callees)
        result = shape_or_none(shape) if shape else check.inferred
        if check.errors or not isinstance(result, ArrayShape | TupleShape):
            raise NotDrawn
        if isinstance(result, ArrayShape) and result.elements > MAX_ELEMENTS:
            raise NotDrawn
        return result

    def add(
        self, opcode: str, given: Sequence[DrawnValue] | str, tail: str = "", shape: str = ""
    ) -> DrawnValue:
        """Add an instruction with operands, or with a literal."""
        operands = () if isinstance(given, str) else given
        result = self.inferred(opcode, operands, tail, shape)
        name = f"{self.prefix}{len(self.values)}"
        literal = ", ".join(f"%{operand.name}" for operand in operands) or given or ""
        line = ", ".join([f"%{name} = {result} {opcode}({literal})", *filter(None, [tail])])
        if self.partitions > 1 and isinstance(result, ArrayShape) and self.chance(3):
            line += f", sharding={self._sharding(opcode, result.dims)}"
        self.values[name] = DrawnValue(name, result, line)
        return self.values[name]

    def _sharding(self, opcode: str, dims: tuple[int, ...]) -> str:
        """A sharding by a mesh of two axes, as such or as tiles.

        An axis that shards no dimension replicates the array; a sum may be left unreduced there.
        """
        axes: list[list[int]] = [[] for _ in (*dims, "rest")]
        for axis in self.random.sample(range(2), 2):
            fitting = [dim for dim, size in enumerate(dims) if not size % 2 ** (len(axes[dim]) + 1)]
            fitting = [*range(len(dims))] if self.chance(8) else fitting
            axes[self.random.choice([*fitting, -1])].append(axis)
        axes[-1].sort()
        *tiled, rest = axes
        kind = "unreduced" if opcode in ("dot", "reduce") and self.chance(3) else "replicated"
        if self.is_named:
            *named, last = (
                f"{{{', '.join(repr('ab'[axis]) for axis in group)}}}" for group in axes
            )
            left = f", {kind}={last}" * bool(rest)
            return f"{{mesh['a'=2,'b'=2], [{', '.join(named)}]{left}}}"
        tiles = ",".join(f"{2 ** len(group)}" for group in (axes if rest else tiled))
        order = ",".join(f"{axis}" for group in axes for axis in group)
        left = f" last_tile_dims={{{kind}}}" * bool(rest)
        return f"{{devices=[{tiles}]<=[2,2]T({order}){left}}}"

    def parameter(self, shape: Shape) -> DrawnValue:
        """Add a parameter."""
        number = sum(" parameter(" in value.line for value in self.values.values())
        return self.add("parameter", f"{number}", "", f"{shape}")

    def constant(self, shape: ArrayShape, number: object = None, leaf: str = "c") -> DrawnValue:
        """Add a constant with random numbers, or with `number` everywhere."""
        if not shape.elements:
            raise NotDrawn
        parts = [
            self.number(shape.dtype, leaf) if number is None else f"{number}".lower()
            for _ in range(shape.elements)
        ]
        for size in reversed(shape.dims):
            rows = (parts[start : start + size] for start in range(0, len(parts), size))
            parts = [f"{{{', '.join(row)}}}" for row in rows]
        return self.add("constant", parts[0], "", f"{shape}")

    def scalar(self, dtype: str, number: object = None, leaf: str = "c") -> DrawnValue:
        """Add a constant number."""
        return self.constant(ArrayShape(dtype, ()), number, leaf=leaf)

    def source(self, shape: ArrayShape) -> DrawnValue:
        """Add a value without operands: mostly a parameter."""
        is_counted = is_integer(shape.dtype) and BITS[shape.dtype] > 4 and shape.dims
        if is_counted and self.chance(6):
            dim = self.random.randrange(shape.rank)
            return self.add("iota", (), f"iota_dimension={dim}", f"{shape}")
        is_constant = self.chance(5) and 0 < shape.elements <= 64
        return self.constant(shape) if is_constant else self.parameter(shape)

    def partner(self, shape: ArrayShape) -> DrawnValue:
        """Another value of the shape, existing or new."""
        alike = [value for value in self.values.values() if value.shape == shape]
        return self.random.choice(alike) if alike and not self.chance(3) else self.source(shape)

    def leaf(self, leaf: str, like: ArrayShape) -> DrawnValue:
        """Add the value of a leaf of `steps.txt`, whose shape follows that of an array."""
        dtype = like.dtype
        if leaf == "c" and self.chance(5) and 0 < like.elements <= 32:
            return self.constant(like)
        if make := {
            "k": lambda: self.scalar(dtype),
            "m": lambda: self.source(ArrayShape("pred", like.dims)),
            "u": lambda: self.source(ArrayShape(dtype, tuple(map(self.upto, like.dims)))),
            "v": lambda: self.parameter(ArrayShape(dtype, ())),
            "y": lambda: self.partner(like),
            "maximum": lambda: self.scalar(dtype, neutral_element(dtype, leaf)),
            "minimum": lambda: self.scalar(dtype, neutral_element(dtype, leaf)),
        }.get(leaf):
            return make()
        scalar = self.scalar(dtype, leaf=leaf)
        return self.add("broadcast", (scalar,), "dimensions={}", f"{like}") if like.dims else scalar

    def called(
        self, shapes: Iterable[Shape], make: Callable[[ModuleDraft, DrawnValue], DrawnValue]
    ) -> str:
        """Add a computation whose body `make` adds to the parameters; returns its name."""
        inner = ModuleDraft(self.random, "p", self.signatures, self.computations)
        values = [inner.parameter(shape) for shape in shapes]
        inner.prefix = "w"
        root = make(inner, values[0])
        *lines, last = (value.line for value in inner.values.values())
        if last != root.line:
            raise NotDrawn
        name = f"c{len(self.computations)}"
        self.signatures[name] = Signature(tuple(f"{v.shape}" for v in values), f"{root.shape}")
        self.computations.append("\n  ".join([f"%{name} {{", *lines, f"ROOT {last}"]) + "\n}\n")
        return f"%{name}"
