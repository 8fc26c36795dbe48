"""Compare our reading of a text with XLA's: every difference, in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import hlo_lint
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.metadata import read_metadata
from hlo_lint.hlo.attributes.reading import read_attribute
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import wrapped_opcode
from hlo_lint.hlo.parser.literals import LiteralError
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, operands_of, type_of
from hlo_lint.hlo.shape import ShapeSyntaxError, parse_shape
from tests.conftest import present
from tests.oracle import meaning
from tests.oracle.meaning import numbers as numbers
from tests.oracle.xla import XlaComputation, XlaInstruction, XlaModule, as_utf8


def assert_same_graph(text: str, xla: XlaModule) -> None:
    """Holds where we read what XLA read.

    Raises:
        AssertionError: with every difference.
    """
    found = disagreements(text, xla)
    if found:
        raise AssertionError("\n".join(found))


def disagreements(text: str, xla: XlaModule) -> list[str]:
    """Every difference between what we read of a text and what XLA read of it; none where same."""
    module = hlo_lint.parse(as_utf8(text))
    settled = _settled(module, xla)
    found = [*_of_header(module, xla), *_of_graphs(module, xla, settled)]
    return found or list(_of_attributes(module, xla, settled))


Settled: TypeAlias = "Mapping[str, frozenset[tuple[int, int]]]"
"""Computations found alike before, with the ids of their stack frames, ours and XLA's."""


def _settled(module: Module, xla: XlaModule) -> Settled:
    written = {computation.name: computation for computation in module.computations}
    theirs = {computation.name for computation in xla.computations}
    if len(written) < len(module.computations) or not written.keys() <= theirs:
        return {}
    started = _started(module)
    return {
        each.name: each.alike[written[each.name].text]
        for each in xla.computations
        if each.alike
        and each.name in written
        and each.name not in started
        and written[each.name].text in each.alike
        and all(name in written for called in each.instructions for name in called.called)
    }


def _started(module: Module) -> set[str]:
    """Names of the computations that `async-start` calls."""
    return {
        name
        for computation in module.computations
        if " async-start(" in computation.text
        for start in computation.with_opcode("async-start")
        for name in start.called_computations
    }


def _of_header(module: Module, xla: XlaModule) -> Iterator[str]:
    for problem in module.problems:
        yield f"we report {problem.start.line}:{problem.start.column}: {problem.message}"
    entry = module.entry.name if module.entry else None
    yield from _unequal("the name of the module", module.name, xla.name)
    yield from _unequal("the entry", entry, xla.entry)
    if module.header:  # XLA says of a single instruction that it is scheduled
        yield from _unequal("is_scheduled", module.is_scheduled, xla.is_scheduled)


def _of_graphs(module: Module, xla: XlaModule, settled: Settled) -> Iterator[str]:
    try:
        theirs = xla_graph(module, xla, settled)
        ours = our_graph(module, settled)
        renamed = misnamed(module, xla, settled)
        reshaped = different_shapes(module, xla, settled)
    except (LookupError, ValueError) as error:
        yield f"the graphs cannot be set side by side: {error!r}"
        return
    yield from _unequal("the computations", list(ours), list(theirs))
    for name in ours.keys() & theirs.keys():
        yield from _of_nodes(name, ours[name], theirs[name])
    for theirs_name, ours_name in renamed:
        yield f"%{ours_name}: XLA calls it {theirs_name}"
    for name, read, spelled in reshaped:
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


def our_graph(module: Module, settled: Settled) -> dict[str, list[Node]]:
    return {
        computation.name: [] if computation.name in settled else our_nodes(computation)
        for computation in module.computations
    }


def our_nodes(computation: Computation) -> list[Node]:
    root = computation.root
    parameters = {each: number for number, each in enumerate(computation.parameters)}
    return [
        Node(
            each.name, each == root, each.opcode,
            [(operand.name, operand.shape_index) for operand in each.operands],
            sorted(user.name for user in each.users),
            sorted(each.called_computations), parameters.get(each, 0),
        )
        for each in computation.instructions
    ]  # fmt: skip


def xla_graph(module: Module, xla: XlaModule, settled: Settled) -> dict[str, list[Node]]:
    """XLA's graph in our names.

    XLA makes a get-tuple-element of each `%x#1`, a computation of each that is written in an
    attribute, and one around what `custom-call-start` starts: none of these is in the text.
    """
    written = {computation.name: computation for computation in module.computations}
    roots = {each.name: root_of(each) for each in xla.computations}
    started: dict[str, str] = {}
    graph: dict[str, list[Node]] = {}
    for computation in xla.computations:
        if computation.name not in written:
            continue
        if computation.name in settled:
            graph[computation.name] = []
            continue
        names = our_names(written[computation.name], computation)
        opcodes = {name_of(row): opcode_of(row) for row in written[computation.name].rows}
        asynchronous: set[str] = set()
        elements = {each.name: each for each in computation.instructions if each.name not in names}
        place: dict[str, tuple[str, tuple[int, ...]]] = {}
        nodes = []
        for each in computation.instructions:
            if each.name not in names:
                name, path = place[each.operands[0]]
                place[each.name] = (name, (*path, each.index))
                continue
            place[each.name] = (names[each.name], ())
            opcode = each.opcode
            called = each.called
            if opcode.startswith("async-"):
                wrapped = started.get(each.operands[0], "") if each.operands else ""
                if each.called and each.called[0] not in written:
                    root = roots[each.called[0]]
                    wrapped = root.opcode
                    called = root.called if opcode == "async-start" else ()
                if wrapped:
                    started[each.name] = wrapped
                    opcode = f"{wrapped}{opcode.removeprefix('async')}"
                elif opcode != "async-start" and each.operands[0] not in asynchronous:
                    # Without a start before it XLA forgets which opcode the sugar wraps.
                    spelled = opcodes[names[each.name]]
                    if wrapped_opcode(spelled) and spelled.endswith(opcode.removeprefix("async")):
                        opcode = spelled
                asynchronous.add(each.name)
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
    names = [name_of(row) for row in ours.rows]
    instructions = theirs.instructions
    if len(instructions) > len(names):
        instructions = tuple(
            each
            for each in instructions
            if each.opcode != "get-tuple-element" or each.name in names
        )
    return {each.name: name for each, name in zip(instructions, names, strict=True)}


def misnamed(module: Module, xla: XlaModule, settled: Settled) -> list[tuple[str, str]]:
    """Instructions that XLA calls otherwise, although nothing else there has their name."""
    taken = {each.name for computation in xla.computations for each in computation.instructions}
    written = {computation.name: computation for computation in module.computations}
    return [
        (theirs, ours)
        for computation in xla.computations
        if computation.name in written and computation.name not in settled
        for theirs, ours in our_names(written[computation.name], computation).items()
        if theirs != ours and ours not in taken
    ]


def different_shapes(
    module: Module, xla: XlaModule, settled: Settled
) -> list[tuple[str, str, str]]:
    """Instructions whose shape we read otherwise; where none is printed XLA infers it."""
    different = []
    written = {computation.name: computation for computation in module.computations}
    for computation in xla.computations:
        if computation.name not in written or computation.name in settled:
            continue
        ours = written[computation.name]
        shapes = {each.name: each.shape for each in computation.instructions}
        for theirs, name in our_names(ours, computation).items():
            instruction = present(ours.instruction(name))
            if not instruction.type_text:
                continue
            if numbers(instruction.shape) != numbers(parse_shape(shapes[theirs])):
                different.append((name, instruction.type_text, shapes[theirs]))
    return different


# ---- attributes

_ROLES = (
    *("calls", "to_apply", "body", "condition", "select", "scatter", "comparator"),
    *("true_computation", "false_computation", "branch_computations", "called_computations"),
)
"""Attributes that name computations, in the order in which XLA lists what they name."""

_IN_THE_PRINTED_HEADER = (
    "alias_passthrough_params", "allow_spmd_sharding_propagation_to_output",
    "allow_spmd_sharding_propagation_to_parameters", "num_partitions", "replica_count",
)  # fmt: skip
"""Fields of a header that no proto has: XLA prints them again, and we read that."""

TAKEN_OVER = ("backend_config", "frontend_attributes", "metadata", "sharding")
"""Fields that XLA copies from `async-done` to the root of what `async-start` calls."""


class _Seen(NamedTuple):
    """The fields left to compare of an instruction whose attributes are alike."""

    frames: tuple[int, int]
    """The ids of its stack frame, ours and XLA's."""
    control: list[str]
    called: list[str]


_alike: dict[tuple[str, ...], _Seen] = {}
"""Comparisons that came out alike, by all that they depend on: dumps repeat themselves."""


def _of_attributes(module: Module, xla: XlaModule, settled: Settled) -> Iterator[str]:
    yield from _of_header_attributes(module, xla)
    written = {computation.name: computation for computation in module.computations}
    theirs = {computation.name: computation for computation in xla.computations}

    @cache
    def frames(our_id: int, their_id: int) -> bool:
        """True if two ids stand for the same stack: XLA numbers the frames anew."""
        stack = module.stack_frames.stack(our_id)
        found = [[each.file, each.line, each.function] for each in stack]
        return found == xla.stacks.get(str(their_id), [])

    started = _started(module)
    for name, ours in written.items():
        other = theirs[name]
        if name in settled:
            for pair in settled[name]:
                if not frames(*pair):
                    yield f"{name}: the stack of frame {pair[0]} is another in XLA: {pair[1]}"
            continue
        pairs: set[tuple[int, int]] = set()
        found: list[str] = []
        if name not in started:  # those run where the instruction says that starts them
            found += _unequal(f"{name}: its thread", ours.thread, other.thread or "main")
        names = our_names(ours, other)
        if other.schedule:
            order = [names[each] for each in other.schedule if each in names]
            found += _unequal(f"{name}: its schedule", [name_of(row) for row in ours.rows], order)
        for each in other.instructions:
            if each.name in names:
                instruction = present(ours.instruction(names[each.name]))
                place = f"{name}: %{instruction.name}"
                is_wrapped = name in started and instruction == ours.root
                for difference in _of_instruction(instruction, each, theirs, names, frames, pairs):
                    if not is_wrapped or difference.partition(":")[0] not in TAKEN_OVER:
                        found.append(f"{place}: {difference}")
        yield from found
        if not found and name not in started and _is_plain(other, names):
            other.alike[ours.text] = frozenset(pairs)


def _is_plain(theirs: XlaComputation, names: Mapping[str, str]) -> bool:
    """True if nothing of the comparison depends on other computations."""
    is_asynchronous = any(each.opcode.startswith("async-") for each in theirs.instructions)
    return not is_asynchronous and all(name == other for name, other in names.items())


def _of_instruction(
    instruction: Instruction,
    xla: XlaInstruction,
    computations: Mapping[str, XlaComputation],
    names: Mapping[str, str],
    frames: Callable[[int, int], bool],
    pairs: set[tuple[int, int]],
) -> Iterator[str]:
    row = instruction.row
    wrapped = ""
    if xla.opcode != opcode_of(row) and xla.opcode == "async-start":
        body = computations[xla.called[0]]
        wrapped = root_of(body).fields
    value = operands_of(row) if opcode_of(row) == "constant" else ""
    if opcode_of(row) == "compare" and instruction.operands:
        value = str(instruction.operands[0].shape)
    spelled = opcode_of(row), type_of(row), attributes_of(row)
    key = (*spelled, value, xla.fields, xla.metadata, wrapped)
    seen = _alike.get(key)
    if seen is None:
        try:
            found = list(_of_fields(instruction, xla, wrapped))
            metadata = _metadata(instruction.attributes.get("metadata"), xla.metadata)
            control = instruction.attribute("control-predecessors") or ()
        except (AttributeSyntaxError, LiteralError, ShapeSyntaxError) as error:
            yield f"{error} in {error.text[:200]!r}"
            return
        if isinstance(metadata, str):
            found.append(metadata)
        if found or isinstance(metadata, str):
            yield from found
            return
        assert isinstance(control, tuple)
        attributes = instruction.attributes
        called = [name for role in _ROLES for name in _called(attributes.get(role, ""))]
        seen = _alike[key] = _Seen(metadata, sorted(map(str, control)), called)
    pairs.add(seen.frames)
    if not frames(*seen.frames):
        yield "the stack of frame {} is another in XLA, where it is {}".format(*seen.frames)
    if seen.control or xla.control:
        theirs = sorted(names.get(name, name) for name in xla.control)
        yield from _unequal("control predecessors", seen.control, theirs)
    if len(xla.called) > 1 and all(name in computations for name in seen.called):
        yield from _unequal("called, by role", seen.called, list(xla.called))


def _metadata(text: str | None, xla: str) -> str | tuple[int, int]:
    """The ids of both sides' stack frames, or how the rest differs."""
    ours = {} if text is None else meaning.cleaned(meaning.metadata(read_metadata(text)))
    theirs = json.loads(xla)
    ids = ours.pop("stack_frame_id", 0), theirs.pop("stack_frame_id", 0)
    return ids if ours == theirs else f"metadata: {ours!r} here, {theirs!r} in XLA"


def _called(text: str) -> list[str]:
    return [name.strip(" %\n") for name in text.strip("{}").split(",") if name.strip()]


def _of_fields(instruction: Instruction, xla: XlaInstruction, wrapped: str) -> Iterator[str]:
    theirs = {**(_read(wrapped) if wrapped else {}), **_read(xla.fields)}
    opcode = instruction.opcode
    if opcode != xla.opcode and opcode.endswith("-start"):
        opcode = opcode.removesuffix("-start")
    ours = _in_order(meaning.fields(instruction, opcode))
    for key in sorted(ours.keys() | theirs.keys()):
        if key == "literal" and meaning.alike(ours.get(key, {}), theirs.get(key, {})):
            continue
        if key == "comparison_order" and key not in theirs:
            continue  # 0.10 says it by the type alone
        if key == "comparison_type" and key not in theirs:
            continue  # 0.12 says it by the order and the types of the operands alone
        if key == "sharding" and key in ours and _is_spread(ours[key], theirs.get(key, {})):
            continue
        if key == "is_stable" and opcode == "topk" and key not in ours:
            continue  # 0.11 takes it for granted
        yield from _unequal(key, ours.get(key), theirs.get(key))


def _is_spread(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """True if XLA wrote down one sharding for each array of a tuple, where the text has one."""
    parts = theirs.get("tuple_shardings", ())
    return bool(parts) and all(part == ours for part in parts)


def _read(fields: str) -> dict[str, Any]:
    return _in_order(meaning.cleaned(meaning.without_defaults(json.loads(fields))))


def _in_order(fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields, maps and tables sorted: XLA has no order for them."""
    pairs = fields.get("frontend_attributes", {}).get("map", ())
    if not pairs:
        return fields
    ordered = sorted((pair.get("key", ""), pair.get("value", "")) for pair in pairs)
    return {**fields, "frontend_attributes": ordered}


def _of_header_attributes(module: Module, xla: XlaModule) -> Iterator[str]:
    try:
        attributes = {name: module.attribute(name) for name in module.attributes}
    except AttributeSyntaxError as error:
        yield f"the header: {error} in {error.text[:200]!r}"
        return
    ours = _in_order(meaning.cleaned(meaning.header(attributes)))
    theirs = _in_order(meaning.cleaned(xla.header))
    inferred = () if "entry_computation_layout" in attributes else ("parameters", "result")
    for key in sorted(ours.keys() | theirs.keys()):
        if key not in inferred:
            yield from _unequal(f"the header: {key}", ours.get(key), theirs.get(key))
    printed = hlo_lint.parse(xla.printed_header + "\n").attributes
    for name in _IN_THE_PRINTED_HEADER:
        again = read_attribute(name, printed[name]) if name in printed else None
        yield from _unequal(f"the header: {name}", attributes.get(name), again)
