"""What we read of a text beside what XLA read of it: every difference, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import hlo_lint
from hlo_lint.ir import NAME, Computation, Module
from hlo_lint.shape import (
    ArrayShape,
    BufferShape,
    Layout,
    OpaqueShape,
    Shape,
    TupleShape,
    parse_shape,
)
from tests.oracle.xla import XlaComputation, XlaInstruction, XlaModule


def assert_same_graph(text: str, xla: XlaModule) -> None:
    """Holds where we read what XLA read.

    Raises:
        AssertionError: with every difference.
    """
    assert disagreements(text, xla) == []


def disagreements(text: str, xla: XlaModule) -> list[str]:
    """Every difference between what we read of a text and what XLA read of it; none where same."""
    module = hlo_lint.parse(text)
    return [*_of_header(module, xla), *_of_graphs(module, xla)]


def _of_header(module: Module, xla: XlaModule) -> Iterator[str]:
    for problem in module.problems:
        yield f"we report {problem.start.line}:{problem.start.column}: {problem.message}"
    entry = module.entry.name if module.entry else None
    yield from _unequal("the name of the module", module.name, xla.name)
    yield from _unequal("the entry", entry, xla.entry)
    if module.header:  # XLA says of a single instruction that it is scheduled
        yield from _unequal("is_scheduled", module.is_scheduled, xla.is_scheduled)


def _of_graphs(module: Module, xla: XlaModule) -> Iterator[str]:
    try:
        theirs = xla_graph(module, xla)
        ours = our_graph(module)
    except (LookupError, ValueError) as error:
        yield f"the graphs cannot be set side by side: {error!r}"
        return
    yield from _unequal("the computations", list(ours), list(theirs))
    for name in ours.keys() & theirs.keys():
        yield from _of_nodes(name, ours[name], theirs[name])
    for theirs_name, ours_name in misnamed(module, xla):
        yield f"%{ours_name}: XLA calls it {theirs_name}"
    for name, read, spelled in different_shapes(module, xla):
        yield f"%{name}: the shape is {read!r} here, {spelled!r} in XLA"


def _of_nodes(computation: str, ours: list[Node], theirs: list[Node]) -> Iterator[str]:
    names = [node.name for node in ours]
    other_names = [node.name for node in theirs]
    yield from _unequal(f"the instructions of {computation}", names, other_names)
    if names != other_names:
        return
    for our_node, their_node in zip(ours, theirs, strict=True):
        for field in Node._fields[1:]:
            what = f"{computation}: %{our_node.name}: {field}"
            yield from _unequal(what, getattr(our_node, field), getattr(their_node, field))


def _unequal(what: str, ours: object, theirs: object) -> Iterator[str]:
    if ours != theirs:
        yield f"{what}: {ours!r} here, {theirs!r} in XLA"


# ---- a graph of either side, spelled the same way


class Node(NamedTuple):
    """An instruction, its operands as pairs of a name and an index path."""

    name: str
    is_root: bool
    opcode: str
    reads: list[tuple[str, tuple[int, ...]]]
    users: list[str]
    """In order of their names."""
    calls: list[str]
    parameter: int


def our_graph(module: Module) -> dict[str, list[Node]]:
    return {computation.name: our_nodes(computation) for computation in module.computations}


def our_nodes(computation: Computation) -> list[Node]:
    root = computation.root
    parameters = {each: number for number, each in enumerate(computation.parameters)}
    return [
        Node(
            instruction.name,
            instruction == root,
            instruction.opcode,
            [(operand.name, operand.index) for operand in instruction.operands],
            sorted(user.name for user in instruction.users),
            sorted(instruction.called),
            parameters.get(instruction, 0),
        )
        for instruction in computation.instructions
    ]


def xla_graph(module: Module, xla: XlaModule) -> dict[str, list[Node]]:
    """XLA's graph in our names.

    XLA makes a get-tuple-element of each `%x#1`, a computation of each that is written in an
    attribute, and one around what `custom-call-start` starts: none of these is in the text.
    """
    written = {computation.name: computation for computation in module.computations}
    roots = {each.name: root_of(each) for each in xla.computations}
    started: dict[str, str] = {}
    graph = {}
    for computation in xla.computations:
        if computation.name not in written:
            continue
        names = our_names(written[computation.name], computation)
        elements = {each.name: each for each in computation.instructions if each.name not in names}
        place: dict[str, tuple[str, tuple[int, ...]]] = {}
        nodes = []
        for each in computation.instructions:
            if each.name not in names:
                name, path = place[each.operands[0]]
                place[each.name] = (name, (*path, each.index))
                continue
            place[each.name] = (names[each.name], ())
            opcode, called = each.opcode, each.called
            if opcode.startswith("async-"):
                names_wrapper = each.called and each.called[0] not in written
                if names_wrapper and opcode == "async-start":
                    called = roots[each.called[0]].called
                wrapped = (
                    roots[each.called[0]].opcode if names_wrapper else started.get(each.operands[0])
                )
                if wrapped:
                    started[each.name] = wrapped
                    opcode = f"{wrapped}{opcode.removeprefix('async')}"
            nodes.append(
                Node(
                    names[each.name],
                    each.name == computation.root,
                    opcode,
                    [place[operand] for operand in each.operands],
                    sorted(readers(each, elements, names)),
                    sorted(name for name in called if name in written),
                    each.parameter,
                )
            )
        graph[computation.name] = nodes
    return graph


def readers(
    read: XlaInstruction, elements: dict[str, XlaInstruction], names: dict[str, str]
) -> set[str]:
    """Our names of those that read an instruction, or an element of it that XLA made."""
    found: set[str] = set()
    for user in read.users:
        if user in elements:
            found |= readers(elements[user], elements, names)
        else:
            found.add(names[user])
    return found


def root_of(computation: XlaComputation) -> XlaInstruction:
    return next(each for each in computation.instructions if each.name == computation.root)


def our_names(ours: Computation, theirs: XlaComputation) -> dict[str, str]:
    """Our name for each of XLA's, which renames what is doubled: both have the text's order."""
    names = [row[NAME] for row in ours.rows]
    instructions = theirs.instructions
    if len(instructions) > len(names):
        instructions = tuple(
            each
            for each in instructions
            if each.opcode != "get-tuple-element" or each.name in names
        )
    return {each.name: name for each, name in zip(instructions, names, strict=True)}


def misnamed(module: Module, xla: XlaModule) -> list[tuple[str, str]]:
    """Instructions that XLA calls otherwise, although nothing else there has their name."""
    taken = {each.name for computation in xla.computations for each in computation.instructions}
    written = {computation.name: computation for computation in module.computations}
    return [
        (theirs, ours)
        for computation in xla.computations
        if computation.name in written
        for theirs, ours in our_names(written[computation.name], computation).items()
        if theirs != ours and ours not in taken
    ]


def different_shapes(module: Module, xla: XlaModule) -> list[tuple[str, str, str]]:
    """Instructions whose shape we read otherwise; where none is printed XLA infers it."""
    different = []
    written = {computation.name: computation for computation in module.computations}
    for computation in xla.computations:
        if computation.name not in written:
            continue
        ours = written[computation.name]
        shapes = {each.name: each.shape for each in computation.instructions}
        for theirs, name in our_names(ours, computation).items():
            instruction = ours.instruction(name)
            assert instruction is not None
            if not instruction.type_text:
                continue
            if numbers(instruction.shape) != numbers(parse_shape(shapes[theirs])):
                different.append((name, instruction.type_text, shapes[theirs]))
    return different


def numbers(shape: Shape) -> dict[str, Any]:
    """A shape as `tests/oracle/read_hlo.py` shows a `ShapeProto`."""
    match shape:
        case TupleShape(elements=elements):
            return {"kind": "tuple", "elements": [numbers(element) for element in elements]}
        case BufferShape(element=element):
            return {"kind": "buffer", "elements": [numbers(element)]}
        case OpaqueShape(kind=kind):
            return {"kind": {"opaque": "opaque_type"}.get(kind, kind), "elements": []}
        case ArrayShape():
            layout = shape.layout or Layout(shape.minor_to_major)
            return {
                "kind": shape.dtype,
                "dims": list(shape.dims),
                "dynamic": list(shape.dynamic or (False,) * shape.rank),
                "order": list(layout.minor_to_major),
                "tiles": [list(tile) for tile in layout.tiles],
                "bits": layout.element_size_in_bits,
                "space": layout.memory_space,
            }
