"""Generates modules that passes rewrite: a text and its traits for each seed.

A trait is a step of `steps.txt`: the left side of some rewrite, with constants, types and sizes at
their limits. Steps are nested, because each step starts at an existing value, mostly the last, and
shared, because it may start at any value. An expression is evaluated from the inside out.

Given modules are mutated: other constants, types and sizes, swapped operands, other opcodes. XLA's
parser refuses most mutations; those that it reads are judged like generated modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from random import Random
from typing import Any, Final

from hlo_lint.analysis.loops import COMPARISONS
from hlo_lint.dumps.directory import open_dump
from hlo_lint.hlo.dtypes import BITS, integer_range, neutral_element
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape
from hlo_lint_hunt.fair import unfair
from hlo_lint_hunt.random_module import (
    ATTRIBUTES,
    SETS,
    STEPS,
    DrawnValue,
    ModuleDraft,
    NotDrawn,
    kind_of,
)

MOST_STEPS: Final = 14
MAX_TURNS: Final = 6
INTEGERS: Final = tuple(
    "s32 s32 s32 u32 u32 s8 s8 u8 u8 s64 s64 u64 u64 s16 u16 s4 u4 s32 u32 s8 u8 s2 u2".split()
)
FLOATS: Final = ("f32", "f32", "f64", "bf16", "f16", "f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f4e2m1fn")
DEVICES: Final = ((1, 1), (4, 1), (1, 4))
"""The numbers of replicas and of partitions; most modules are for one device."""
MOST_CHANGES: Final = 4
TRIES: Final = 20
MAX_CHARACTERS: Final = 20_000
"""The longest text of a module; longer ones take too long to judge again and again."""
_NAME: Final = r"%[\w.\-]+"
_LITERALS: Final = (
    "0 1 -1 2 3 7 8 -8 127 -128 255 65535 2147483647 -2147483648 true false -0 0.5 inf nan".split()
)
CHANGES: Final[Mapping[str, tuple[str, Sequence[str]]]] = {
    "constant": (r"(?<=constant\()[^{}()]+", _LITERALS),
    "opcode": (rf"(?<= )[\w\-]+(?=\({_NAME}, {_NAME}\))", [*SETS["binary"]["s"], "divide"]),
    "swap": (rf"(?<=\()({_NAME}), ({_NAME})(?=\))", [r"\2, \1"]),
    "operand": (rf"(?<=[( ]){_NAME}(?=[,)])", ()),
    "retype": (r"\b(?:[su]\d+|b?f\d\w*)(?=\[)", (*INTEGERS, *FLOATS)),
    "resize": (r"(?<=[\[,])\d+(?=[,\d]*\])|(?<=sizes=\{)\d+|(?<=sizes=\{\d,)\d+", "012358"),
}
"""A pattern of the places of each change, and replacements; if empty, the text of another place."""
EVERYWHERE: Final = ("retype", "resize")
"""Changes that apply to every place with the same text."""
_call = re.compile(r"([\w$:\-]+)\(([^()]*)\)((?:#\d+)*)")
_body = re.compile(r"\{([^{}]*)\}")
_shared = re.compile(r"\$\d(\w+)")
_word = re.compile(r"\b[A-Z]{3,}\b")
_repeated = re.compile(r"\(([^()]*)\)\*(.)")


@dataclass(frozen=True)
class Generated:
    """A generated module and its traits."""

    seed: int
    text: str
    traits: tuple[str, ...]
    """The steps of the module, in order."""


def generate(seed: int) -> Generated:
    """The module of a seed."""
    random = Random(seed)
    return Generated(seed, *drawn_module(random, random.choices(DEVICES, (8, 1, 1))[0]))


def drawn_module(random: Random, devices: tuple[int, int]) -> tuple[str, tuple[str, ...]]:
    """A module for numbers of replicas and partitions, and its traits.

    Four of five modules have only integers, whose values are compared bit for bit.
    """
    draft = ModuleDraft(random)
    draft.replicas, draft.partitions = devices
    draft.is_named = draft.chance(4)
    dtype = "pred" if draft.chance(12) else random.choice(FLOATS if draft.chance(5) else INTEGERS)
    first = draft.shape(dtype, random.choice((0, 1, 1, 2, 2, 3, 3, 4)))
    sources = [draft.source(first), *(draft.parameter(first) for _ in range(draft.chance(3)))]
    values: list[DrawnValue] = []
    traits: list[str] = []
    for _ in range(random.randint(2, MOST_STEPS)):
        name = random.choice(list(STEPS))
        start = random.choice([*values, *sources]) if draft.chance(3) else (values or sources)[-1]
        texts = [text for kinds, text in STEPS[name] if kind_of(start.array.dtype) in kinds]
        if texts and (value := _step(draft, name, random.choice(texts), start)):
            traits.append(name)
            values.append(value)
    results = [*values[-1:], *(value for value in values[:-1] if draft.chance(2))]
    return _text(draft, results or sources[-1:]), tuple(traits)


def _step(draft: ModuleDraft, name: str, text: str, start: DrawnValue) -> DrawnValue | None:
    """Add a step to the draft; None for an invalid step, which leaves the draft unchanged."""
    values, computations = dict(draft.values), [*draft.computations]
    try:
        value = _evaluate(draft, start, text=text)
        if name != "convert" or not unfair(parse_file(_text(draft, [value])).modules[0]):
            return value
    except NotDrawn:
        pass
    draft.values, draft.computations = values, computations
    return None


def _text(draft: ModuleDraft, roots: Sequence[DrawnValue]) -> str:
    root = f"ROOT %root = {TupleShape(tuple(value.shape for value in roots))} tuple("
    root += ", ".join(f"%{value.name}" for value in roots) + ")"
    body = "\n  ".join([*(value.line for value in draft.values.values()), root])
    head = "HloModule hunted"
    head += f", replica_count={draft.replicas}" * (draft.replicas > 1)
    head += f", num_partitions={draft.partitions}" * (draft.partitions > 1)
    return "\n\n".join([head, *draft.computations, f"ENTRY %main {{\n  {body}\n}}\n"])


def _evaluate(draft: ModuleDraft, x: DrawnValue, *, text: str) -> DrawnValue:
    """Add an expression, applied to a value; returns the value of its last statement."""
    for name, spelled in (_counter(draft) if "$begin" in text else {}).items():
        text = text.replace(name, spelled)
    while shared := _shared.search(text):
        text = text.replace(shared[0], draft.one_of(shared[1], x.array.dtype))
    text = draft.choose(text)
    bodies: list[str] = []
    while body := _body.search(text):
        bodies.append(body[1])
        text = text.replace(body[0], f"#{len(bodies) - 1}", 1)
    names = {"x": x}
    for statement in text.split(";"):
        target, _, rest = statement.rpartition("=")
        while call := _call.search(rest):
            operands = [_leaf(draft, word.strip(), names) for word in call[2].split(",")]
            called = [bodies[int(number)] for number in call[3].split("#")[1:]]
            rest = rest.replace(call[0], _called(draft, call[1], operands, called).name, 1)
        value = names[target.strip()] = _leaf(draft, rest.strip(), names)
    return value


def _called(
    draft: ModuleDraft, head: str, operands: list[DrawnValue], bodies: Sequence[str] = ()
) -> DrawnValue:
    """Add a call, and the computations that it calls."""
    words = [*head.split(":"), ""]
    opcode, variant, *_ = (
        draft.one_of(word[1:], operands[0].array.dtype) if word[:1] == "$" else word
        for word in words
    )
    shapes: list[Shape] = [operand.shape for operand in operands]
    if opcode == "scan":
        shapes[0] = ArrayShape(operands[0].array.dtype, operands[0].array.dims[1:])
    elif bodies and opcode not in ("call", "conditional", "while"):
        times = 2 if opcode in ("select-and-scatter", "sort") else 1
        shapes = [ArrayShape(value.array.dtype, ()) for value in operands for _ in range(times)]
    callees = []
    for number, body in enumerate(bodies, 1):
        taken = shapes[number : number + 1] if opcode == "conditional" else shapes
        callees.append(draft.called(taken, partial(_evaluate, text=body)))
    return DrawnCall(draft, opcode, variant, operands, callees).add()


def _leaf(draft: ModuleDraft, word: str, names: dict[str, DrawnValue]) -> DrawnValue:
    """The value of a word of `steps.txt`."""
    whole, _, rest = word.partition(".")
    if value := draft.values.get(whole):
        return _called(draft, f"get-tuple-element:{rest}", [value]) if rest else value
    if rest and whole == "w":
        return draft.parameter(ArrayShape(rest, ()))
    if rest:
        return draft.scalar(rest, None if whole == "z" else whole)
    if word not in names:
        leaf, _, like = word.partition("@")
        shape = _leaf(draft, like or "x", names).array
        names[word] = draft.leaf(leaf.rstrip("0123456789"), shape)
    return names[word]


def _counter(draft: ModuleDraft) -> dict[str, str]:
    """The counter of a loop with few turns, of any integer type; it may overflow."""
    random = draft.random
    while True:
        dtype = draft.one_of("index", "s32")
        low, high = integer_range(dtype)[0], integer_range(dtype)[-1]
        count = begin = random.choice((0, 0, 1, 2, 3, low, high, high - 1, 100))
        end = random.choice((0, 1, 2, 3, 5, low, high, high - 2, 101))
        step = random.choice((1, 1, 2, 3, 5, high, max(low, -1)))
        direction = random.choice([*COMPARISONS])
        advance, change, turns = *random.choice((("add", step), ("subtract", -step))), 0
        while COMPARISONS[direction](count, end) and turns <= MAX_TURNS:
            count, turns = (count + change - low) % (high - low + 1) + low, turns + 1
        if turns <= MAX_TURNS:
            numbers = {"$begin": begin, "$end": end, "$step": step}
            scalars = {name: f"{number}.{dtype}" for name, number in numbers.items()}
            return {**scalars, "$direction": direction, "$advance": advance}


@dataclass
class DrawnCall:
    """A randomly drawn call.

    A word of `steps.txt` is a key of `words`, the name of a template, or the name of a method,
    which returns its text and may add operands, a type and words.
    """

    draft: ModuleDraft
    opcode: str
    variant: str
    operands: list[DrawnValue]
    callees: Sequence[str]
    words: dict[str, Sequence[Any]] = field(default_factory=dict)
    type: str = ""
    """The printed type, if it cannot be inferred."""

    def add(self) -> DrawnValue:
        """Add the call with its attributes, or raise NotDrawn if XLA would refuse it."""
        text = ATTRIBUTES.get(f"{self.opcode}:{self.variant}", ATTRIBUTES.get(self.opcode, ""))
        self.words |= {"VARIANT": self.variant, "CALLEES": self.callees}
        self.words |= {"FIRST": self.callees[:1], "SECOND": self.callees[1:]}
        if isinstance(self.operands[0].shape, ArrayShape):
            order = self.draft.random.sample(range(self.x.rank), self.x.rank)
            self.words |= {"ALL": range(self.x.rank), "SOME": self.draft.some(self.x.rank)}
            self.words |= {"ORDER": order} | ({"ONE": order[:1]} if order else {})
        tail = self._spelled(text, self.x.dims if "*" in text else ())
        operands = self.operands if self.opcode != "iota" else ()
        return self.draft.add(self.opcode, operands, tail, self.type)

    @property
    def x(self) -> ArrayShape:
        """The shape of the first operand."""
        return self.operands[0].array

    def _one_of(self, *choices: int) -> int:
        return self.draft.random.choice(choices)

    def _any(self, dims: Iterable[int], dtype: str = "") -> None:
        """Add an operand with the element type of the first operand."""
        self.operands.append(self.draft.source(ArrayShape(dtype or self.x.dtype, tuple(dims))))

    def _like(self, opcode: str, operands: Sequence[DrawnValue], attributes: str) -> None:
        """Add an operand with the dimensions of another call's result."""
        shape = self.draft.inferred(opcode, operands, attributes)
        self._any(DrawnValue("", shape, "").array.dims)

    def _spelled(self, text: str, dims: Sequence[int] = ()) -> str:
        while part := _repeated.search(text):
            sides = (part[1].replace("SIDE", f"{n}").replace("HALF", f"{n // 2}") for n in dims)
            text = text.replace(part[0], part[2].join(sides), 1)
        return _word.sub(self._drawn, self.draft.choose(text)).strip()

    def _drawn(self, match: re.Match[str]) -> str:
        word, name = match[0], match[0].lower()
        of_devices = f"{name}:{self.draft.replicas},{self.draft.partitions}"
        if template := ATTRIBUTES.get(name) or ATTRIBUTES.get(of_devices):
            return self._spelled(template, self.x.dims)
        maker = getattr(self, f"_{name}", None)
        if word not in self.words and maker is None:
            raise NotDrawn  # a scalar has no dimensions, and partitions no groups
        drawn = self.words[word] if maker is None else maker()
        return drawn if isinstance(drawn, str) else ",".join(map(str, drawn or ()))

    def _typed(self, dims: Sequence[int] | None = None, dtype: str = "") -> None:
        dtype = dtype or self.variant or self.x.dtype
        self.type = str(ArrayShape(dtype, self.x.dims if dims is None else tuple(dims)))

    def _reshaped(self) -> None:
        """Merge two dimensions or add a dimension of size 1, then split a dimension."""
        dims, dim = [*self.x.dims], self._one_of(*range(self.x.rank + 1))
        dims[dim : dim + 2] = [prod(dims[dim : dim + 2])]
        dim = self._one_of(*range(len(dims)))
        outer = self._one_of(*(n for n in range(1, dims[dim] + 1) if dims[dim] % n == 0), 1)
        dims[dim : dim + 1] = [outer, dims[dim] // outer]
        self._typed(dims)

    def _kept(self) -> list[int]:
        rank, added = self.x.rank + 1, self.draft.random.randint(0, self.x.rank)
        self._typed([*self.x.dims[:added], self._one_of(0, 1, 1, 2, 3, 4), *self.x.dims[added:]])
        return [number for number in range(rank) if number != added]

    def _bits(self) -> None:
        width, dims = BITS[self.x.dtype], self.x.dims
        wider = [n for n in (16, 32, 64) if n > width >= 8 and dims[-1:] == (n // width,)]
        new_width = self._one_of(width, *(n for n in (8, 16, 32) if n < width), *wider)
        if new_width != width:
            dims = (*dims, width // new_width) if new_width < width else dims[:-1]
        self._typed(dims, f"{self.draft.random.choice('su')}{new_width}")

    def _part(self) -> Sequence[int] | None:
        """Add start indices, constants and others; zeros after a given first index."""
        draft, sizes, given = self.draft, [*map(self.draft.upto, self.x.dims)], self.operands[1:]
        if is_update := self.opcode == "dynamic-update-slice":
            sizes = [*given.pop(0).array.dims]
        if given:
            self.operands += [draft.scalar(given[0].array.dtype, 0)] * (self.x.rank - 1)
            sizes[:] = [1, *self.x.dims[1:]]
        else:
            index = ArrayShape(draft.one_of("index", "s32"), ())
            self.operands += [draft.leaf(draft.random.choice("ky"), index) for _ in sizes]
        return None if is_update else sizes

    def _gathered(self) -> None:
        """Draw dimension numbers of a gather, and add its indices."""
        draft, random, rank = self.draft, self.draft.random, self.x.rank
        if not rank or not self.x.elements:
            raise NotDrawn
        dims = [self._one_of(1, 2, 3) for _ in range(self._one_of(0, 1, 2))]
        shared = draft.some(rank - 1) if draft.chance(3) else []
        rest = [dim for dim in range(rank) if dim not in shared]
        dims += [self.x.dims[dim] for dim in shared]
        gone, vector_dim = [rest[n] for n in draft.some(len(rest))], random.randint(0, len(dims))
        places = random.sample(rest, draft.upto(len(rest)))
        dropped = {*gone, *shared}
        sizes = [1 if dim in dropped else draft.upto(size) for dim, size in enumerate(self.x.dims)]
        offsets = random.sample(range(len(dims) + rank - len(dropped)), rank - len(dropped))
        along = [*range(len(dims) - len(shared), len(dims))]
        if len(places) > 1 or draft.chance(2):
            dims.insert(vector_dim, len(places))
            along = [dim + (dim >= vector_dim) for dim in along]
        else:
            vector_dim = len(dims)
        self._any(dims, draft.one_of("index", "s32"))
        self.words |= {"OFFSETS": sorted(offsets), "GONE": gone, "PLACES": places}
        self.words |= {"VECTOR": [vector_dim], "SIZES": sizes, "SHARED": shared, "ALONG": along}

    def _scattered(self) -> None:
        """Draw dimension numbers of a scatter, those of a gather, and add the updates."""
        self._like("gather", self.operands, self._spelled(ATTRIBUTES["gather"]))

    def _scanned(self) -> None:
        """Type a scan along the first dimension: the stacked outputs, and the carry."""
        carry = self.operands[1].array
        stacked = ArrayShape(carry.dtype, (*self.x.dims[:1], *carry.dims))
        self.type = str(TupleShape((stacked, carry)))

    def _sized(self) -> None:
        """Add a size in range for a static dimension: a second size could bring elements back."""
        dim = next(iter(self.words.get("ONE", ())), -1)
        if dim < 0 or self.x.is_dynamic(dim):
            raise NotDrawn
        low, high = (self.draft.scalar("s32", number) for number in (0, self.x.dims[dim]))
        size = self.draft.parameter(ArrayShape("s32", ()))
        self.operands.append(self.draft.add("clamp", (low, size, high)))

    def _combiner(self) -> str:
        """Add an associative combiner; a reduction also gets the identity as its initial value."""
        draft, dtype = self.draft, self.x.dtype
        opcode = draft.one_of("unordered" if self.opcode == "scatter" else "commutative", dtype)
        if self.opcode in ("reduce", "reduce-window"):
            self.operands.append(draft.scalar(dtype, neutral_element(dtype, opcode)))
        scalars = [ArrayShape(dtype, ())] * 2
        return draft.called(scalars, lambda body, _: body.add(opcode, [*body.values.values()]))

    def _pooled(self) -> str:
        """Draw the window of a pooling, and add the updates."""
        window = self._spelled(ATTRIBUTES["pooling"], self.x.dims)
        given = [*self.operands, self.draft.scalar(self.x.dtype, 0)]
        self._like("reduce-window", given, f"window={{{window}}}, to_apply={self.callees[1]}")
        self.operands.append(given[1])
        return window

    def _product(self) -> None:
        """Draw batch and contracting dimensions of a dot, and add its second operand."""
        random, own = self.draft.random, self.draft.shape("s32", self._one_of(0, 1, 2), 24).dims
        order, (low, high) = (
            self.words["ORDER"],
            sorted(random.choices(range(self.x.rank + 1), k=2)),
        )
        items = [*((dim, self.x.dims[dim]) for dim in order[:high]), *((-1, size) for size in own)]
        random.shuffle(items)
        self._any(size for _, size in items)
        places = {dim: number for number, (dim, _) in enumerate(items)}
        for role, ours in (("B", order[:low]), ("C", order[low:high])):
            self.words |= {f"LHS{role}": ours, f"RHS{role}": [places[dim] for dim in ours]}

    def _convolved(self) -> str:
        """Draw the window, groups and labels of a convolution, and replace its operands."""
        dtype = self.x.dtype if self.x.dtype in ("s32", "s8", "f64") else "f32"
        features, batches = self._one_of(1, 1, 1, 2, 3), self._one_of(1, 1, 2, 3)
        batches = batches if features == 1 else 1
        sizes = [self._one_of(*range(1, 7)) for _ in range(self._one_of(1, 2))]
        window = self._spelled(ATTRIBUTES["window"], [min(size, 3) for size in sizes])
        widths = [*map(int, re.findall(r"\d+", window.partition(" ")[0]))]
        batch, outputs, inputs = (self._one_of(1, 2) for _ in range(3))
        extents = {"b": batches * batch, "f": features * inputs, "i": inputs}
        extents["o"] = features * batches * outputs
        sides = (kinds + "01"[: len(sizes)] for kinds in ("bf", "io", "bf"))
        lhs, rhs, result = ("".join(self.draft.random.sample(side, len(side))) for side in sides)
        self.operands = []
        for labels, spatial in ((lhs, sizes), (rhs, widths)):
            self._any((extents.get(side) or spatial[int(side)] for side in labels), dtype)
        self.words |= {"FEATURES": [features], "BATCHES": [batches]}
        self.words["LABELS"] = f"{lhs}_{rhs}->{result}"
        return f"{window} rhs_reversal={'x'.join(str(self._one_of(0, 1)) for _ in sizes)}"


def mutated(texts: Sequence[str], seed: int, accepts: Callable[[str], bool]) -> Generated | None:
    """A random text with a few changes that XLA's parser accepts; None without a change."""
    random = Random(seed)
    text, traits = random.choice(texts), []
    for _ in range(random.randint(1, MOST_CHANGES)):
        for _ in range(TRIES):
            name = random.choice([*CHANGES])
            changed = _changed(text, name, random)
            if changed != text and accepts(changed):
                text = changed
                traits.append(name)
                break
    return Generated(seed, text, tuple(traits)) if text not in texts else None


def _changed(text: str, name: str, random: Random) -> str:
    pattern, given = CHANGES[name]
    if not (matches := [*re.finditer(pattern, text)]):
        return text
    match = random.choice(matches)
    new = match.expand(random.choice(given or [place[0] for place in matches]))
    if name in EVERYWHERE:
        return re.sub(pattern, lambda place: new if place[0] == match[0] else place[0], text)
    return text[: match.start()] + new + text[match.end() :]


def fair_texts(paths: Sequence[Path]) -> Iterator[str]:
    """The small and fair modules below some paths."""
    for dump in (dump for compilation in open_dump(paths) for dump in compilation.dumps):
        module, *others = dump.file.modules
        is_small = module.entry and not others and len(dump.file.text) <= MAX_CHARACTERS
        if is_small and not module.problems and not unfair(module):
            yield dump.file.text
