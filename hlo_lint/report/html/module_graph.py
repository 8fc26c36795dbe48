"""A whole module as a graph in layers, which the page draws on demand.

An instruction stands below its operands, so that data flows down. sigma (WebGL) draws 100,000
instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TypedDict

from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.pass_stats import passes
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.hlo.ir import Computation, Module
from hlo_lint.hlo.shape import byte_sizes
from hlo_lint.text.errors import DumpError

MAX_INSTRUCTIONS = 100_000
"""Maximum instructions of a graph."""
MAX_ON_PAGE = 300_000
"""Maximum instructions of all graphs of a page."""


class ComputationBlock(TypedDict):
    """The instructions of a computation: a range of the nodes."""

    name: str
    start: int
    end: int
    """Exclusive."""


class ModuleGraph(TypedDict):
    """The nodes of a module as columns, an entry for each instruction."""

    file: str
    computations: list[ComputationBlock]
    """The entry first."""
    names: list[str]
    opcodes: list[str]
    opcode: list[int]
    """Index into `opcodes`."""
    shapes: list[str]
    shape: list[int]
    """Index into `shapes`."""
    bytes: list[int]
    """Size of the result in bytes."""
    x: list[float]
    """Position in its layer; neighbours are 1 or more apart."""
    y: list[int]
    """Layer in its computation."""
    passes: list[str]
    born: list[int]
    """Index into `passes` of the pass that added the name; -1 if the first dump has it."""
    edges: list[int]
    """Flat pairs of node numbers: an operand, its user."""
    calls: list[int]
    """Flat pairs: a node, the number of a computation that it calls."""


def graph_of(
    compilation: Compilation, findings: Iterable[Diagnostic], room: int
) -> ModuleGraph | None:
    """The graph of the dump with the first of the findings that is in a dump, if any is.

    None, too, if the dump has more than `room` instructions or cannot be read.
    """
    dumps = {str(dump.path): dump for dump in compilation.dumps}
    dump = next((dumps[finding.path] for finding in findings if finding.path in dumps), None)
    if dump is None:
        return None
    try:
        module = dump.module
        births, titles = _births(compilation, dump)
    except DumpError:
        return None
    if sum(map(len, module)) > min(room, MAX_INSTRUCTIONS):
        return None
    return module_graph(module, dump.path.name, births, titles)


def _births(compilation: Compilation, until: PassDump) -> tuple[dict[str, int], list[str]]:
    """The index of the pass that added each name, and the names of the passes."""
    births: dict[str, int] = {}
    titles: list[str] = []
    seen: set[Computation] = set()
    if until not in in_order(compilation):
        return births, titles
    for step in passes(compilation):
        first = not seen
        for computation in step.dump.module:
            if computation not in seen:  # dumps share what they repeat
                seen.add(computation)
                for name in computation.index:
                    births.setdefault(name, -1 if first else len(titles))
        if not first:
            titles.append(step.name)
        if step.dump is until:
            break
    return births, titles


def module_graph(
    module: Module, file: str, births: Mapping[str, int], titles: list[str]
) -> ModuleGraph:
    """Lay out a module; `births` maps names to indices into `titles`, the names of passes."""
    ordered = sorted(module, key=lambda computation: not computation.is_entry)
    numbers = {computation.name: number for number, computation in enumerate(ordered)}
    graph = ModuleGraph(
        file=file, computations=[], names=[], opcodes=[], opcode=[], shapes=[], shape=[],
        bytes=[], x=[], y=[], passes=titles, born=[], edges=[], calls=[],
    )  # fmt: skip
    opcodes: dict[str, int] = {}
    shapes: dict[str, int] = {}
    for computation in ordered:
        start = len(graph["names"])
        for instruction in computation:
            node = start + instruction.number
            graph["names"].append(instruction.name)
            graph["opcode"].append(opcodes.setdefault(instruction.opcode, len(opcodes)))
            graph["shape"].append(shapes.setdefault(instruction.type_text, len(shapes)))
            sizes = byte_sizes(instruction.shape_or_none)
            graph["bytes"].append(sum(size or 0 for size in sizes))
            graph["born"].append(births.get(instruction.name, -1))
            for operand in _operands(computation, instruction.operand_names):
                graph["edges"] += (start + operand, node)
            for name in instruction.called_computations:
                if name in numbers:
                    graph["calls"] += (node, numbers[name])
        across, down = layered(computation)
        graph["x"] += across
        graph["y"] += down
        end = len(graph["names"])
        graph["computations"].append(ComputationBlock(name=computation.name, start=start, end=end))
    graph["opcodes"], graph["shapes"] = list(opcodes), list(shapes)
    return graph


def _operands(computation: Computation, references: Iterable[str]) -> list[int]:
    positions = (computation.index.get(name.partition("#")[0]) for name in references)
    return [position for position in positions if position is not None]


def layered(computation: Computation) -> tuple[list[float], list[int]]:
    """The position of each instruction in its layer, 1 or more apart, and its layer."""
    # Only operands above count: a text that names one below it is not a sound one.
    operands = [
        [
            position
            for position in _operands(computation, instruction.operand_names)
            if position < instruction.number
        ]
        for instruction in computation
    ]
    users: list[list[int]] = [[] for _ in operands]
    for user, above in enumerate(operands):
        for operand in above:
            users[operand].append(user)
    both = [above + below for above, below in zip(operands, users, strict=True)]
    layer = _layers(operands, users)
    layers = by_key((depth, node) for node, depth in enumerate(layer))
    across = [0.0] * len(layer)
    # The barycenter heuristic: down by operands, up by users, down by both.
    for neighbours, direction in ((operands, 1), (users, -1), (both, 1)):
        for depth in sorted(layers)[::direction]:
            wanted = {
                node: fmean(across[neighbour] for neighbour in neighbours[node] or [node])
                for node in layers[depth]
            }
            members = sorted(layers[depth], key=wanted.__getitem__)
            positions = spaced(map(wanted.__getitem__, members))
            for node, position in zip(members, positions, strict=True):
                across[node] = round(position, 1)
    return across, layer


def _layers(operands: Sequence[Sequence[int]], users: Sequence[Sequence[int]]) -> list[int]:
    layer: list[int] = []
    sinks: list[bool] = []
    for above in operands:
        layer.append(1 + max((layer[operand] for operand in above), default=-1))
        sinks.append(not above or (len(above) == 1 and sinks[above[0]]))
    # A thousand parameters in one layer would draw the module as a line: each sinks to its first
    # user, and the unary instructions between them, too.
    for node in reversed(range(len(layer))):
        if sinks[node] and users[node]:
            layer[node] = min(layer[user] for user in users[node]) - 1
    return layer


def spaced(wanted: Iterable[float]) -> list[float]:
    """The positions closest to ascending ones that are 1 apart, by least squares.

    >>> spaced([0.0, 0.0, 5.0])
    [-0.5, 0.5, 5.0]
    """
    blocks: list[tuple[float, int]] = []  # the mean left end and the length of each run
    for number, position in enumerate(wanted):
        mean, length = position - number, 1
        while blocks and blocks[-1][0] >= mean:
            before, count = blocks.pop()
            mean = (before * count + mean * length) / (count + length)
            length += count
        blocks.append((mean, length))
    starts = [mean for mean, length in blocks for _ in range(length)]
    return [start + number for number, start in enumerate(starts)]
