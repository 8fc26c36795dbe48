"""A drawing of an instruction's neighbours: its operands above it, its users below.

The layer of a node is its longest path to the instruction, so that every edge points down. An edge
takes room in each layer that it passes. Layers are ordered by the barycenter heuristic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import TypedDict

from hlo_lint.analysis.grouping import by_key
from hlo_lint.hlo.ir import Instruction

NEAR = 5
"""Maximum operands, or users, drawn of an instruction."""
ACROSS = 6
"""Maximum instructions drawn two steps away, on each side."""
WIDTH, HEIGHT = 196, 58
"""Size of a node, in pixels."""
GAP, RISE = 18, 46
"""Space between nodes of a layer, and between layers, in pixels."""
_BEND = 14
"""Width of an edge in a layer that it passes, in pixels."""
_SWEEPS = 6


class DrawnNode(TypedDict):
    """An instruction of the drawing."""

    name: str
    opcode: str
    shape: str
    x: int
    """Left edge, in pixels."""
    y: int
    """Upper edge, in pixels."""
    kind: str
    """`at` for the instruction itself, `new` if the pass added it, else empty."""
    more: str
    """The neighbours that are not drawn: `3 more operands`."""


class Drawing(TypedDict):
    """A drawing; lengths are in pixels."""

    width: int
    height: int
    node: tuple[int, int]
    """Width and height of each node."""
    nodes: list[DrawnNode]
    edges: list[list[list[int]]]
    """The points of each edge."""


@dataclass(frozen=True)
class Neighbourhood:
    """An instruction with its operands and users, up to two steps away."""

    at: Instruction
    above: tuple[Instruction, ...]
    """Its operands and their operands, nearest first."""
    below: tuple[Instruction, ...]
    """Its users and their users, nearest first."""
    hidden: dict[Instruction, str]
    """The neighbours left out at an instruction: `3 more operands`."""

    @property
    def all(self) -> tuple[Instruction, ...]:
        """All instructions in the order of the text."""
        return tuple(
            sorted((*self.above, self.at, *self.below), key=lambda instruction: instruction.number)
        )


def neighbourhood(at: Instruction) -> Neighbourhood:
    """The nearest instructions in the computation, the first of many."""
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
                neighbour
                for neighbour in _near(instruction, up)
                if neighbour is not at and neighbour not in neighbours
            ]
            taken = near[: min(NEAR, room - len(following))]
            following.update(dict.fromkeys(taken))
            left = len([neighbour for neighbour in near if neighbour not in following])
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
    """The drawing of a neighbourhood; `added` instructions are marked as new."""
    drawn = set(around.all)
    edges = [
        (operand, instruction)
        for instruction in around.all
        for operand in _near(instruction, True)
        if operand in drawn
    ]
    layers = _layers(around, edges)
    chains, rows = _with_bends(layers, edges)
    _order(rows, chains)
    places, width = _places(rows)
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
        height=len(rows) * (HEIGHT + RISE) - RISE,
        node=(WIDTH, HEIGHT),
        nodes=nodes,
        edges=[_points(chain, places) for chain in chains],
    )


_Bend = tuple[int, int]
"""An edge in a layer that it passes: the numbers of both."""
_Item = Instruction | _Bend
_Edge = tuple[Instruction, Instruction]


def _layers(around: Neighbourhood, edges: list[_Edge]) -> dict[Instruction, int]:
    """The layer of each instruction, from 0 at the top."""
    depth = {around.at: 0}
    above, below = set(around.above), set(around.below)
    for instruction in sorted(below, key=lambda instruction: instruction.number):
        read = [operand for operand, user in edges if user is instruction and operand not in above]
        depth[instruction] = 1 + max((depth.get(operand, 0) for operand in read), default=0)
    for instruction in sorted(above, key=lambda instruction: instruction.number, reverse=True):
        users = [user for operand, user in edges if operand is instruction and user not in below]
        depth[instruction] = min((depth.get(user, 0) for user in users), default=0) - 1
    top = min(depth.values())
    return {instruction: layer - top for instruction, layer in depth.items()}


def _with_bends(
    layers: dict[Instruction, int], edges: list[_Edge]
) -> tuple[list[list[_Item]], list[list[_Item]]]:
    """Edges as chains from layer to layer, and the items of each layer."""
    rows: list[list[_Item]] = [[] for _ in range(max(layers.values()) + 1)]
    for instruction in sorted(layers, key=lambda instruction: instruction.number):
        rows[layers[instruction]].append(instruction)
    chains: list[list[_Item]] = []
    for number, (operand, user) in enumerate(edges):
        bends = [(number, row) for row in range(layers[operand] + 1, layers[user])]
        for bend in bends:
            rows[bend[1]].append(bend)
        chains.append([operand, *bends, user])
    return chains, rows


def _order(rows: list[list[_Item]], chains: list[list[_Item]]) -> None:
    """Order each layer by the mean position of its neighbours, downwards and upwards in turns."""
    steps = [step for chain in chains for step in pairwise(chain)]
    lower = by_key(steps)
    upper = by_key((deeper, higher) for higher, deeper in steps)
    # The barycenter heuristic of layered drawings: few sweeps leave few crossings.
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = upper if down else lower
        for row in rows if down else reversed(rows):
            # The position of each item in its layer, from 0 to 1.
            position = {
                item: (number + 0.5) / len(layer)
                for layer in rows
                for number, item in enumerate(layer)
            }
            middles = {
                item: fmean(position[near] for near in neighbours.get(item, (item,)))
                for item in row
            }
            row.sort(key=middles.__getitem__)


def _places(rows: list[list[_Item]]) -> tuple[dict[_Item, tuple[int, int]], int]:
    """The middle of each item's upper edge, and the width of the drawing."""
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
    """The points of an edge: lower edge of the operand, bends, upper edge of the user."""
    points = []
    for number, item in enumerate(chain):
        x, y = places[item]
        if number:
            points.append([x, y])
        if number < len(chain) - 1:
            points.append([x, y + HEIGHT])
    return points
