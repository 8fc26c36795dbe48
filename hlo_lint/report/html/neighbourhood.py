"""The instructions around one, and where a drawing puts them: operands above, users below.

A node's layer is its longest way to the instruction, so that every edge points down. An edge that
passes a layer gets a place in it, and each layer is ordered by the middle of its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

from hlo_lint.hlo.ir import Instruction

NEAR = 5
"""Maximum operands, or users, of one instruction that are drawn."""
ACROSS = 6
"""Maximum instructions two steps away that are drawn, on each side."""
WIDTH, HEIGHT = 196, 58
"""Of a node, in pixels."""
GAP, RISE = 18, 46
"""Between two nodes of a layer, and between two layers, in pixels."""
_BEND = 14
"""The width of the place that an edge takes in a layer that it passes, in pixels."""
_SWEEPS = 6


class DrawnNode(TypedDict):
    """One instruction of the drawing."""

    name: str
    opcode: str
    shape: str
    x: int
    """Of its left edge, in pixels."""
    y: int
    """Of its upper edge, in pixels."""
    kind: str
    """`at` for the instruction itself, `new` for what the pass added, else empty."""
    more: str
    """A note on what is not drawn: `3 more operands`."""


class Drawing(TypedDict):
    """A drawing; lengths are in pixels."""

    width: int
    height: int
    node: tuple[int, int]
    """Width and height of each node."""
    nodes: list[DrawnNode]
    edges: list[list[list[int]]]
    """The points that each edge goes through."""


@dataclass(frozen=True)
class Neighbourhood:
    """An instruction with its operands and users, two steps far."""

    at: Instruction
    above: tuple[Instruction, ...]
    """Its operands, and theirs; nearest first."""
    below: tuple[Instruction, ...]
    """Its users, and theirs."""
    hidden: dict[Instruction, str]
    """Notes on what is left out at an instruction: `3 more operands`."""

    @property
    def all(self) -> tuple[Instruction, ...]:
        """All of them in the order of the text."""
        return tuple(
            sorted((*self.above, self.at, *self.below), key=lambda instruction: instruction.number)
        )


def neighbourhood(at: Instruction) -> Neighbourhood:
    """The nearest instructions of the same computation; of many the first."""
    hidden: dict[Instruction, list[str]] = {}
    above = _around(at, True, hidden)
    below = _around(at, False, hidden)
    labels = {instruction: ", ".join(parts) for instruction, parts in hidden.items()}
    return Neighbourhood(at, above, below, labels)


def _around(
    at: Instruction, up: bool, hidden: dict[Instruction, list[str]]
) -> tuple[Instruction, ...]:
    neighbours: dict[Instruction, None] = {}
    ring, room = [at], NEAR
    for _ in range(2):
        following: dict[Instruction, None] = {}
        for instruction in ring:
            near = [
                other
                for other in _near(instruction, up)
                if other is not at and other not in neighbours
            ]
            taken = near[: min(NEAR, room - len(following))]
            following.update(dict.fromkeys(taken))
            left = len([other for other in near if other not in following])
            if left:
                what = ("operand" if up else "user") + ("" if left == 1 else "s")
                hidden.setdefault(instruction, []).append(f"{left} more {what}")
        neighbours.update(following)
        ring, room = list(following), ACROSS
    return tuple(neighbours)


def _near(at: Instruction, up: bool) -> Iterable[Instruction]:
    if not up:
        return at.users
    read = (operand.instruction for operand in at.operands)
    return dict.fromkeys(instruction for instruction in read if instruction is not None)


def draw(around: Neighbourhood, added: frozenset[Instruction] = frozenset()) -> Drawing:
    """The places of instructions and edges in the drawing; `added` are marked as new."""
    drawn = set(around.all)
    edges = [
        (other, instruction)
        for instruction in around.all
        for other in _near(instruction, True)
        if other in drawn
    ]
    layers = _layers(around, edges)
    chains, rows = _with_bends(layers, edges)
    _order(rows, chains)
    places, width = _places(rows)
    height = len(rows) * (HEIGHT + RISE) - RISE
    nodes = [
        DrawnNode(
            name=instruction.name,
            opcode=instruction.opcode,
            shape=instruction.type_text,
            x=places[instruction][0] - WIDTH // 2,
            y=places[instruction][1],
            kind="at" if instruction is around.at else "new" if instruction in added else "",
            more=around.hidden.get(instruction, ""),
        )
        for instruction in around.all
    ]
    return Drawing(
        width=width,
        height=height,
        node=(WIDTH, HEIGHT),
        nodes=nodes,
        edges=[_points(chain, places) for chain in chains],
    )


_Bend = tuple[int, int]
"""The place of an edge in a layer: the numbers of both."""
_Item = Instruction | _Bend
_Edge = tuple[Instruction, Instruction]


def _layers(around: Neighbourhood, edges: list[_Edge]) -> dict[Instruction, int]:
    """The layer of each instruction, from 0 at the top."""
    depth = {around.at: 0}
    above, below = set(around.above), set(around.below)
    for instruction in sorted(below, key=lambda instruction: instruction.number):
        depth[instruction] = 1 + max(
            (
                depth.get(one, 0)
                for one, other in edges
                if other is instruction and one not in above
            ),
            default=0,
        )
    for instruction in sorted(above, key=lambda instruction: instruction.number, reverse=True):
        depth[instruction] = (
            min(
                (
                    depth.get(other, 0)
                    for one, other in edges
                    if one is instruction and other not in below
                ),
                default=0,
            )
            - 1
        )
    top = min(depth.values())
    return {instruction: layer - top for instruction, layer in depth.items()}


def _with_bends(
    layers: dict[Instruction, int], edges: list[_Edge]
) -> tuple[list[list[_Item]], list[list[_Item]]]:
    """Each edge as a chain from layer to layer, and the layers with all that stands in them."""
    rows: list[list[_Item]] = [[] for _ in range(max(layers.values()) + 1)]
    for instruction in sorted(layers, key=lambda instruction: instruction.number):
        rows[layers[instruction]].append(instruction)
    chains: list[list[_Item]] = []
    for number, (one, other) in enumerate(edges):
        bends: list[_Item] = [(number, row) for row in range(layers[one] + 1, layers[other])]
        for bend in bends:
            assert isinstance(bend, tuple)
            rows[bend[1]].append(bend)
        chains.append([one, *bends, other])
    return chains, rows


def _order(rows: list[list[_Item]], chains: list[list[_Item]]) -> None:
    """Orders each layer by the middle of its neighbours, down and up in turns."""
    upper: dict[_Item, list[_Item]] = {}
    lower: dict[_Item, list[_Item]] = {}
    for chain in chains:
        for one, other in pairwise(chain):
            upper.setdefault(other, []).append(one)
            lower.setdefault(one, []).append(other)
    # The barycenter heuristic of layered drawings: few sweeps leave few crossings.
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = upper if down else lower
        for row in rows if down else reversed(rows):
            # The place of each item in its layer, from 0 to 1.
            at = {
                item: (number + 0.5) / len(layer)
                for layer in rows
                for number, item in enumerate(layer)
            }
            middles = {}
            for item in row:
                places = [at[other] for other in neighbours.get(item, (item,))]
                middles[item] = sum(places) / len(places)
            row.sort(key=middles.__getitem__)


def _places(rows: list[list[_Item]]) -> tuple[dict[_Item, tuple[int, int]], int]:
    """The middle of the upper edge of each item, and the width of all."""
    spans = [sum(_width(item) for item in row) + GAP * (len(row) - 1) for row in rows]
    width = max(spans)
    places: dict[_Item, tuple[int, int]] = {}
    for number, (row, span) in enumerate(zip(rows, spans, strict=True)):
        x = (width - span) // 2
        for item in row:
            places[item] = x + _width(item) // 2, number * (HEIGHT + RISE)
            x += _width(item) + GAP
    return places, width


def _width(item: _Item) -> int:
    return _BEND if isinstance(item, tuple) else WIDTH


def _points(chain: list[_Item], places: dict[_Item, tuple[int, int]]) -> list[list[int]]:
    """From the lower edge of the first to the upper edge of the last, through the bends."""
    points = []
    for number, item in enumerate(chain):
        x, y = places[item]
        if number:
            points.append([x, y])
        if number < len(chain) - 1:
            points.append([x, y + HEIGHT])
    return points
