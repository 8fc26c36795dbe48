"""Random chains of instructions that only move data, in pairs, and what they do by brute force.

Brute force numbers the elements of the parameter, moves them as arrays of numpy, and goes through
an address for each element where a bitcast reads memory. It shares nothing with the index maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

Elements = NDArray[Any]


@dataclass(frozen=True)
class Laid:
    """The shape of an array of f32 with its layout."""

    dims: tuple[int, ...]
    order: tuple[int, ...]
    """From the major to the minor dimension."""
    tile: tuple[int, ...] = ()
    """A tile of the minor dimensions; it divides them."""

    def __str__(self) -> str:
        minor_to_major = ",".join(map(str, reversed(self.order)))
        tile = f":T({','.join(map(str, self.tile))})" if self.tile else ""
        return f"f32[{','.join(map(str, self.dims))}]{{{minor_to_major}{tile}}}"

    def addresses(self) -> Elements:
        """The place in memory of each element."""
        result = np.zeros(self.dims, np.int64)
        sizes = [self.dims[number] for number in self.order]
        for index in product(*map(range, self.dims)):
            ordered = [index[number] for number in self.order]
            # Dimensions without a tile are cut into tiles of one element.
            tile = [*[1] * (len(sizes) - len(self.tile)), *self.tile]
            cut = list(zip(sizes, ordered, tile, strict=True))
            outer = [size // part for size, _, part in cut]
            places = [n // part for _, n, part in cut] + [n % part for _, n, part in cut]
            address = 0
            for size, place in zip([*outer, *tile], places, strict=True):
                address = address * size + place
            result[index] = address
        return result


@dataclass(frozen=True)
class Step:
    """One instruction of a chain."""

    opcode: str
    shape: Laid
    dimensions: tuple[int, ...] = ()

    def run(self, before: Laid, elements: Elements) -> Elements:
        """The elements that the instruction gives."""
        dims = self.shape.dims
        if self.opcode == "transpose":
            return elements.transpose(self.dimensions)
        if self.opcode == "broadcast":
            sizes = [1] * len(dims)
            for number, dimension in enumerate(self.dimensions):
                sizes[dimension] = before.dims[number]
            return np.broadcast_to(elements.reshape(sizes), dims)
        if self.opcode == "bitcast":
            memory = np.zeros(elements.size, np.int64)
            memory[before.addresses().reshape(-1)] = elements.reshape(-1)
            return memory[self.shape.addresses()]
        return elements.reshape(dims)


@dataclass(frozen=True)
class Chain:
    """A parameter and what is done to it."""

    start: Laid
    steps: tuple[Step, ...]

    @property
    def end(self) -> Laid:
        """The shape of the result."""
        return self.steps[-1].shape if self.steps else self.start

    def text(self) -> str:
        """A module that does it."""
        lines = [f"  v0 = {self.start} parameter(0)"]
        for number, step in enumerate(self.steps, 1):
            root = "ROOT " if number == len(self.steps) else ""
            order = ",".join(map(str, step.dimensions))
            tail = f", dimensions={{{order}}}" if step.opcode in ("transpose", "broadcast") else ""
            lines.append(f"  {root}v{number} = {step.shape} {step.opcode}(v{number - 1}){tail}")
        body = "\n".join(lines)
        return f"HloModule chain\n\nENTRY e {{\n{body}\n}}\n"

    def run(self) -> Elements:
        """The number of the parameter's element that each element of the result is."""
        elements: Elements = np.arange(prod(self.start.dims)).reshape(self.start.dims)
        shape = self.start
        for step in self.steps:
            elements, shape = step.run(shape, elements), step.shape
        return elements


def random_pair(random: Random) -> tuple[Chain, Chain]:
    """Two chains from one shape to one shape; about half of the pairs do the same."""
    count = random.choice([1, 4, 6, 8, 12, 16, 24, 30, 36, 48, 64, 72, 96])
    start = _laid(_dims(count, random), random)
    one = _extended(Chain(start, ()), random.randint(1, 5), random)
    match random.randint(0, 5):
        case 0:
            other = _with_detours(one, random)
        case 1:
            other = _spelled_otherwise(one, random)
        case 2 | 3:
            other = _damaged(_with_detours(one, random), random)
        case 4:
            other = _damaged(one, random)
        case _:
            other = _extended(Chain(start, ()), random.randint(1, 5), random)
    return _ending_alike(one, other)


def _dims(count: int, random: Random) -> tuple[int, ...]:
    dims = []
    while count > 1:
        size = random.choice([n for n in range(2, count + 1) if count % n == 0])
        dims.append(size)
        count //= size
    dims += [1] * random.choice([0, 0, 0, 1, 2])
    random.shuffle(dims)
    return tuple(dims)


def _laid(dims: Sequence[int], random: Random) -> Laid:
    order = list(range(len(dims)))
    if random.random() < 0.6:
        random.shuffle(order)
    tile: tuple[int, ...] = ()
    if dims and random.random() < 0.2:
        minor = [dims[number] for number in order[-random.randint(1, len(dims)) :]]
        tile = tuple(
            random.choice([n for n in range(1, size + 1) if size % n == 0]) for size in minor
        )
    return Laid(tuple(dims), tuple(order), tile)


def _extended(chain: Chain, count: int, random: Random) -> Chain:
    for _ in range(count):
        chain = Chain(chain.start, (*chain.steps, _step(chain.end, random)))
    return chain


def _step(shape: Laid, random: Random) -> Step:
    count, rank = prod(shape.dims), len(shape.dims)
    match random.choice("reshape transpose transpose bitcast bitcast copy broadcast".split()):
        case "transpose":
            order = list(range(rank))
            random.shuffle(order)
            dims = [shape.dims[number] for number in order]
            return Step("transpose", _laid(dims, random), tuple(order))
        case "broadcast":
            sizes = [1] * (rank + random.choice([1, 2]))
            kept = sorted(random.sample(range(len(sizes)), rank))
            for number, place in enumerate(kept):
                sizes[place] = shape.dims[number]
            return Step("broadcast", _laid(sizes, random), tuple(kept))
        case "copy":
            return Step("copy", _laid(shape.dims, random))
        case opcode:
            return Step(opcode, _laid(_dims(count, random), random))


def _with_detours(chain: Chain, random: Random) -> Chain:
    """The same, by way of arrays that are turned and turned back."""
    made = Chain(chain.start, ())
    for step in (None, *chain.steps):
        if step is not None:
            made = Chain(made.start, (*made.steps, step))
        if random.random() < 0.5:
            here = made.end
            there = _step(here, random)
            back = {
                "reshape": Step("reshape", here),
                "broadcast": Step("reshape", here),
                "copy": Step("copy", here),
                "bitcast": Step("bitcast", here),
                "transpose": Step("transpose", here, tuple(np.argsort(there.dimensions).tolist())),
            }
            made = Chain(made.start, (*made.steps, there, back[there.opcode]))
    return made


def _spelled_otherwise(chain: Chain, random: Random) -> Chain:
    """The same with each transpose as a bitcast and a copy, and each reshape as two."""
    made: list[Step] = []
    shape = chain.start
    for step in chain.steps:
        if step.opcode == "transpose":
            plain = Laid(shape.dims, tuple(range(len(shape.dims))))
            inverse = tuple(np.argsort(step.dimensions).tolist())
            turned = Laid(step.shape.dims, inverse)
            made += [Step("copy", plain), Step("bitcast", turned), Step("copy", step.shape)]
        elif step.opcode == "reshape":
            flat = Laid((prod(shape.dims),), (0,))
            made += [Step("reshape", flat), Step("reshape", step.shape)]
        else:
            made.append(step)
        shape = step.shape
    return Chain(chain.start, tuple(made))


def _damaged(chain: Chain, random: Random) -> Chain:
    """One step more that changes places: the dimensions of one value are turned and renamed."""
    number = random.randrange(len(chain.steps) + 1)
    here = chain.steps[number - 1].shape if number else chain.start
    order = list(range(len(here.dims)))
    random.shuffle(order)
    turned = _laid([here.dims[n] for n in order], random)
    added = (Step("transpose", turned, tuple(order)), Step("reshape", here))
    return Chain(chain.start, (*chain.steps[:number], *added, *chain.steps[number:]))


def _ending_alike(one: Chain, other: Chain) -> tuple[Chain, Chain]:
    """Both with a last copy or reshape into one shape."""
    end = Laid(one.end.dims, tuple(range(len(one.end.dims))))
    one = Chain(one.start, (*one.steps, Step("copy", end)))
    last = "copy" if other.end.dims == end.dims else "reshape"
    return one, Chain(other.start, (*other.steps, Step(last, end)))
