"""A module while it is drawn, by the expressions of `steps.txt`.

An expression is evaluated from the inside out. Shape inference says what a call makes, and if it is
possible at all; `attributes.py` draws what an opcode needs beside its operands.
"""

from __future__ import annotations

import operator as op
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from hlo_lint.analysis.shape_inference import Signature
from hlo_lint.analysis.shape_inference.shape_check import check_shape
from hlo_lint.hlo.dtypes import BITS, integer_range, is_complex, is_float, is_integer
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, shape_or_none

MAX_ELEMENTS: Final = 600
"""Of an array: a judge runs each module several times."""
SIZES: Final = (1, 1, 2, 2, 3, 4, 5, 7, 8, 16)
INTEGERS: Final = tuple(
    "s32 s32 s32 u32 u32 s8 s8 u8 u8 s64 s64 u64 u64 s16 u16 s4 u4 s32 u32 s8 u8 s2".split()
)
FLOATS: Final = ("f32", "f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2")
_call = re.compile(r"([\w$:\-]+)\(([^()]*)\)((?:#\d+)*)")
_body = re.compile(r"\{([^{}]*)\}")
_shared = re.compile(r"\$\d(\w+)")
_choice = re.compile(r"<([^<>]*)>")
_leaf = re.compile(r"([a-z]+)\d*(?:@(\w+))?").fullmatch
_scalar = re.compile(r"(-?\d+|[zw]\d*)\.([a-z]\w*)").fullmatch


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


def _read_steps() -> None:
    for line in Path(__file__).with_name("steps.txt").read_text("utf-8").splitlines():
        if not line or line.startswith("//"):
            continue
        name, kinds, text = line.split(maxsplit=2)
        if name.startswith("$"):
            for kind in kinds:
                SETS[name[1:]].setdefault(kind, []).extend(text.split())
        elif name == ".":
            ATTRIBUTES[kinds] = text
        else:
            STEPS[name].append((kinds, text))


ATTRIBUTES: Final[dict[str, str]] = {}
"""The attributes of an opcode; words in capitals are drawn."""
SETS: Final[dict[str, dict[str, list[str]]]] = defaultdict(dict)
"""Sets of opcodes for each kind of type."""
STEPS: Final[dict[str, list[tuple[str, str]]]] = defaultdict(list)
"""The expressions of each step, with the kinds that they are for."""
_read_steps()


def opcode_set(name: str, dtype: str) -> Sequence[str]:
    """The opcodes of a set for a type; none where it has none."""
    return SETS[name].get(kind_of(dtype), ())


@dataclass
class ModuleDraft:
    """A computation while it is drawn, and those that it calls."""

    random: Random
    prefix: str = "v"
    """Of its names; the parameters of a computation that is called are p0, p1."""
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

    def shuffled(self, items: Iterable[int]) -> list[int]:
        """The numbers in another order."""
        pool = list(items)
        self.random.shuffle(pool)
        return pool

    def number(self, dtype: str, leaf: str = "c") -> str:
        """A literal of a type: at its ends, a power of two, small, or any."""
        random = self.random
        if dtype == "pred":
            return random.choice(("true", "false"))
        if is_complex(dtype):
            return f"({random.randint(-3, 3)}, {random.randint(-3, 3)})"
        if is_float(dtype):
            edges = ["0", "-0", "1", "-1", "2", "0.5", "3", "-2", "4", "0.25"]
            special = self.chance(4) and kind_of(dtype) == "f"
            return random.choice(("inf", "-inf", "nan") if special else edges)
        low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
        if leaf == "h":
            bits = BITS[dtype]
            most = min(bits + 1, high)
            return str(random.choice((0, 1, bits - 1, most, random.randint(0, most))))
        number = random.choice(
            (
                random.choice((low, high, high - 1, low + 1)),
                (1 << random.randrange(high.bit_length())) - random.choice((0, 0, 1)),
                random.randint(low, high),
                *(random.randint(-2, 9) for _ in range(2)),
            )
        )
        number = min(max(number, low), high)
        return self.number(dtype, leaf) if leaf == "n" and number in (0, -1) else str(number)

    # ---- instructions

    def add(
        self,
        opcode: str,
        operands: Iterable[DrawnValue] = (),
        tail: str = "",
        shape: str = "",
        literal: str = "",
    ) -> DrawnValue:
        """Add an instruction; `shape` where it cannot be inferred.

        Raises:
            NotDrawn: XLA would refuse it, or it is large.
        """
        tail = f", {tail}" if tail else ""
        names = literal or ", ".join(f"%{operand.name}" for operand in operands)
        types = tuple(str(operand.shape) for operand in operands)
        callees = tuple(map(self.signatures.get, re.findall(r"%(c\d+)", tail)))
        check = check_shape(opcode, shape, types, tail, callees)
        made = shape_or_none(shape) if shape else check.inferred
        if check.errors or not isinstance(made, ArrayShape | TupleShape):
            raise NotDrawn
        if isinstance(made, ArrayShape) and made.elements > MAX_ELEMENTS:
            raise NotDrawn
        value = DrawnValue(f"{self.prefix}{len(self.lines)}", made)
        if self.partitions > 1 and isinstance(made, ArrayShape) and self.chance(3):
            tail += f", sharding={self._sharding(made.dims)}"
        self.lines.append(f"%{value.name} = {made} {opcode}({names}){tail}")
        self.values[value.name] = made
        return value

    def _sharding(self, dims: tuple[int, ...]) -> str:
        """A sharding over all partitions: by some dimensions, which it divides."""
        rank, tiles, left = len(dims), [1] * len(dims), self.partitions
        for at in self.shuffled(range(rank)):
            tiles[at] = self.random.choice([n for n in (1, 2, 4) if n <= left and not dims[at] % n])
            left //= tiles[at]
        if left == self.partitions:
            return "{replicated}"
        listed = ",".join(map(str, [*tiles, left][: rank + (left > 1)]))
        rest = " last_tile_dim_replicate" * (left > 1)
        return f"{{devices=[{listed}]<=[{self.partitions}]{rest}}}"

    def parameter(self, shape: Shape, name: str = "") -> DrawnValue:
        """Add a parameter."""
        self.parameters += 1
        literal = str(self.parameters - 1)
        if not name:
            return self.add("parameter", (), "", str(shape), literal)
        self.lines.append(f"%{name} = {shape} parameter({literal})")
        self.values[name] = shape
        return DrawnValue(name, shape)

    def constant(self, shape: ArrayShape, texts: Sequence[str] = (), leaf: str = "c") -> DrawnValue:
        """Add a constant with these numbers, else with any."""
        parts = list(texts) or [self.number(shape.dtype, leaf) for _ in range(shape.elements)]
        for size in reversed(shape.dims):
            count = len(parts) // size if size else 1
            parts = [
                "{" + ", ".join(parts[at * size : (at + 1) * size]) + "}" for at in range(count)
            ]
        if not shape.elements:
            raise NotDrawn
        return self.add("constant", (), "", str(shape), parts[0])

    def scalar(self, dtype: str, number: object = None, leaf: str = "c") -> DrawnValue:
        """Add a constant number."""
        text = self.number(dtype, leaf) if number is None else str(number)
        return self.constant(ArrayShape(dtype, ()), [text])

    def splat(self, shape: ArrayShape, leaf: str) -> DrawnValue:
        """Add an array that holds one number, or a constant of any."""
        if self.chance(5) and 0 < shape.elements <= 32 and leaf == "c":
            return self.constant(shape)
        one = self.scalar(shape.dtype, leaf=leaf)
        return self.add("broadcast", (one,), "dimensions={}", str(shape)) if shape.dims else one

    def source(self, shape: ArrayShape) -> DrawnValue:
        """Add a value that depends on nothing: mostly a parameter."""
        is_counted = is_integer(shape.dtype) and BITS[shape.dtype] > 4 and shape.dims
        if is_counted and self.chance(6):
            at = self.random.randrange(shape.rank)
            return self.add("iota", (), f"iota_dimension={at}", str(shape))
        if self.chance(5) and 0 < shape.elements <= 64:
            return self.constant(shape)
        return self.parameter(shape)

    def partner(self, shape: ArrayShape) -> DrawnValue:
        """Another value of the shape: one that is there, or a new one."""
        alike = [name for name, other in self.values.items() if other == shape]
        if alike and not self.chance(3):
            return DrawnValue(self.random.choice(alike), shape)
        return self.source(shape)

    def body(self, parameters: Iterable[Shape], text: str) -> str:
        """Add a computation of an expression; its name."""
        inner = ModuleDraft(self.random, "w", self.signatures, self.computations)
        values = [inner.parameter(shape, f"p{at}") for at, shape in enumerate(parameters)]
        root = inner.evaluate(text, values[0])
        *lines, last = inner.lines
        if not last.startswith(f"%{root.name} = "):
            raise NotDrawn
        name = f"c{len(self.computations)}"
        self.signatures[name] = Signature(tuple(str(v.shape) for v in values), str(root.shape))
        self.computations.append("\n  ".join([f"%{name} {{", *lines, f"ROOT {last}"]) + "\n}\n")
        return name

    # ---- expressions

    def evaluate(self, text: str, x: DrawnValue) -> DrawnValue:
        """Add what an expression makes of a value; the last statement's value."""
        for name, spelled in (counter(self.random) if "$begin" in text else {}).items():
            text = text.replace(name, spelled)
        while shared := _shared.search(text):
            opcodes = opcode_set(shared[1], x.array.dtype)
            text = text.replace(shared[0], self.random.choice(opcodes))
        while choice := _choice.search(text):
            chosen = self.random.choice(choice[1].split("|"))
            text = text[: choice.start()] + chosen + text[choice.end() :]
        bodies: list[str] = []
        while body := _body.search(text):
            bodies.append(body[1])
            text = f"{text[: body.start()]}#{len(bodies) - 1}{text[body.end() :]}"
        names = {"x": x}
        value = x
        for statement in text.split(";"):
            target, _, rest = statement.rpartition("=")
            while call := _call.search(rest):
                operands = [self._leaf(word.strip(), names) for word in call[2].split(",")]
                called = [bodies[int(number)] for number in call[3].split("#")[1:]]
                value = self._made(call[1], operands, called, names)
                names[value.name] = value
                rest = rest[: call.start()] + value.name + rest[call.end() :]
            value = names[target.strip()] = self._leaf(rest.strip(), names)
        return value

    def _made(
        self, head: str, operands: list[DrawnValue], bodies: list[str], names: dict[str, DrawnValue]
    ) -> DrawnValue:
        from hlo_lint.apps.hunt.attributes import call

        opcode, _, variant = head.partition(":")
        if opcode.startswith("$"):
            opcode = self.random.choice(opcode_set(opcode[1:], operands[0].array.dtype) or [""])
        return call(self, opcode, variant, operands, bodies)

    def _leaf(self, word: str, names: dict[str, DrawnValue]) -> DrawnValue:
        if word in names:
            return names[word]
        if word in self.values:
            return DrawnValue(word, self.values[word])
        whole, _, index = word.partition(".")
        if whole in self.values:
            return self._made(f"get-tuple-element:{index}", [self._leaf(whole, names)], [], names)
        if scalar := _scalar(word):
            number = None if scalar[1][0] in "zw" else scalar[1]
            if scalar[1].startswith("w"):
                return self.parameter(ArrayShape(scalar[2], ()))
            return self.scalar(scalar[2], number)
        leaf = _leaf(word)
        assert leaf is not None, word
        names[word] = self._new(leaf[1], self._leaf(leaf[2] or "x", names).array)
        return names[word]

    def _new(self, leaf: str, shape: ArrayShape) -> DrawnValue:
        """A value that `steps.txt` names by a letter."""
        scalar = ArrayShape(shape.dtype, ())
        if leaf in ("lowest", "highest"):
            combiner = {"lowest": "maximum", "highest": "minimum"}[leaf]
            return self.scalar(shape.dtype, neutral_element(shape.dtype, combiner))
        if leaf in "kv":
            return self.constant(scalar) if leaf == "k" else self.parameter(scalar)
        if leaf == "m":
            return self.source(ArrayShape("pred", shape.dims))
        return self.partner(shape) if leaf == "y" else self.splat(shape, leaf)


def neutral_element(dtype: str, opcode: str) -> str:
    """The literal that a combiner leaves other values alone with."""
    if dtype == "pred":
        return {"and": "true", "minimum": "true"}.get(opcode, "false")
    if is_float(dtype):
        return {"maximum": "-inf", "minimum": "inf", "multiply": "1", "add": "0"}[opcode]
    low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
    ends = {"multiply": 1, "maximum": low, "minimum": high, "and": -1 if low else high}
    return str(ends.get(opcode, 0))


MAX_TURNS: Final = 6
_HOLDS: Final = {"LT": op.lt, "LE": op.le, "GT": op.gt, "GE": op.ge, "NE": op.ne}


def counter(random: Random) -> dict[str, str]:
    """The counter of a loop of any integer type that soon ends; it may pass the end of its type."""
    while True:
        dtype = random.choice("s32 s32 s64 u32 u32 s8 u8 u64 s16".split())
        low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
        begin = random.choice((0, 0, 1, 2, 3, low, high, high - 1, 100))
        end = random.choice((0, 1, 2, 3, 5, low, high, high - 2, 101))
        step = random.choice((1, 1, 2, 3, 5, high, max(low, -1)))
        direction, advance = random.choice([*_HOLDS]), random.choice(("add", "add", "subtract"))
        at, turns = begin, 0
        while _HOLDS[direction](at, end) and turns <= MAX_TURNS:
            at += step if advance == "add" else -step
            at = (at - low) % (high - low + 1) + low
            turns += 1
        if turns <= MAX_TURNS:
            numbers = {"$begin": begin, "$end": end, "$step": step}
            scalars = {name: f"{number}.{dtype}" for name, number in numbers.items()}
            return {**scalars, "$direction": direction, "$advance": advance}
