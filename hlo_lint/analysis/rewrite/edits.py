"""Turn a rewritten graph into edits of the module's text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from hlo_lint.analysis.rewrite.graph import (
    AFTER,
    BEFORE,
    AnyInstruction,
    InsertionPoint,
    NewInstruction,
    RewrittenGraph,
    inline_computations,
)
from hlo_lint.analysis.rewrite.lines import (
    attribute_edits,
    code_span,
    dialect_of,
    end_of_line,
    line_break,
    operand_edits,
    removal,
)
from hlo_lint.hlo.attributes.splitting import joined_attributes
from hlo_lint.hlo.ir import Computation, Instruction, called_names
from hlo_lint.hlo.opcodes import COMMON
from hlo_lint.text.edits import Edit
from hlo_lint.text.errors import RewriteError
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span

_op_name = late(r'op_name="[^"]').search

_CARRIED: Final = COMMON - {"backend_config", "metadata", "parameter_replication"}
"""Attributes that a replacement inherits (`hlo_computation.cc:1768-1864`)."""
_LAST: Final = {"metadata": 1, "backend_config": 2}
"""Attributes that XLA prints last, in this order."""


def edits_of(graph: RewrittenGraph) -> tuple[Edit, ...]:
    """The edits, sorted by their position in the text.

    Raises:
        RewriteError: the text does not show where an operand or an attribute is.
    """
    removed = graph.removed.keys() | graph.dead()
    uncalled = dict.fromkeys(graph.uncalled(removed))
    touched = {anchor.instruction for anchor in graph.lines} | removed
    touched |= graph.operands.keys() | graph.attributes.keys()
    for computation, root in graph.roots.items():
        nodes = (computation.root, root)
        touched |= {node for node in nodes if isinstance(node, Instruction)}
    edits = [*_removed_computations(graph, uncalled), *_added_computations(graph)]
    for instruction in touched:
        if instruction.computation in uncalled:
            continue
        place_edits = _in_its_place if instruction in removed else _changes
        edits += place_edits(graph, instruction)
    edits.sort()
    for before, after in pairwise(edits):
        if after.span.start < before.span.end:
            # A computation that is written into an attribute changes, and goes with its caller.
            raise RewriteError("two changes overlap in the text")
    return tuple(edits)


def _in_its_place(graph: RewrittenGraph, instruction: Instruction) -> Iterator[Edit]:
    """Remove an instruction, or replace its text by the new instructions next to it."""
    lines = [*_printed(graph, instruction, BEFORE), *_printed(graph, instruction, AFTER)]
    if lines:
        separator = line_break(instruction, graph.module)
        yield Edit(code_span(instruction, graph.module), separator.join(lines))
    else:
        yield removal(instruction, graph.module)


def _changes(graph: RewrittenGraph, instruction: Instruction) -> Iterator[Edit]:
    """The edits of an instruction that stays, and of the new instructions next to it."""
    module = graph.module
    separator = line_break(instruction, module)
    start, end = module.span(instruction)
    before, after = (_printed(graph, instruction, side) for side in (BEFORE, AFTER))
    prefix = "".join(f"{line}{separator}" for line in before)
    mark_end = start
    if graph.root(instruction.computation) is not instruction:
        if instruction.is_root:
            mark_end += len(instruction.text) - len(instruction.text[4:].lstrip())
    elif not instruction.is_root and (after or graph.roots):
        prefix += "ROOT "  # without a mark the last instruction is the root
    if prefix or mark_end > start:
        yield Edit(Span(start, mark_end), prefix)
    if instruction in graph.operands:
        reads = [(read.reference, read.type_text) for read in graph.operands[instruction]]
        yield from operand_edits(instruction, module, reads)
    if instruction in graph.attributes:
        yield from attribute_edits(instruction, module, graph.attributes[instruction])
    if after:
        place = end_of_line(module.file.text, end)
        yield Edit(Span(place, place), "".join(f"{separator}{line}" for line in after))


def _printed(graph: RewrittenGraph, instruction: Instruction, side: int) -> list[str]:
    """Print the new instructions on one side of an instruction, in the dialect of its text."""
    dialect = dialect_of(instruction)
    lines = []
    for new in graph.lines.get(InsertionPoint(instruction, side), ()):
        root = "ROOT " if graph.root(new.computation) is new else ""
        operands = new.literal or ", ".join(
            dialect.operand(read.reference, read.type_text) for read in new.operands
        )
        head = f"{root}{dialect.percent}{new.name} = {new.type_text} {new.opcode}({operands})"
        lines.append(head + joined_attributes(_attributes_of(new)))
    return lines


def _attributes_of(new: NewInstruction) -> dict[str, str]:
    """The own and inherited attributes of a new instruction, in XLA's order."""
    attributes = dict(new.attributes)
    for name, value in new.replaced.attributes.items() if new.replaced else ():
        if name in _CARRIED:
            attributes.setdefault(name, value)
    if metadata := _metadata(new):
        attributes["metadata"] = metadata
    return dict(sorted(attributes.items(), key=lambda pair: _LAST.get(pair[0], 0)))


def _metadata(node: AnyInstruction) -> str:
    """The metadata of an instruction; a new instruction inherits that of its first operand."""
    if isinstance(node, Instruction):
        return node.attribute_text("metadata") or ""
    if "metadata" in node.attributes:
        return node.attributes["metadata"]
    own = _metadata(node.operands[0].source) if node.operands else ""
    if node.replaced is not None and not _op_name(own):
        return _metadata(node.replaced) or own
    return own


def _removed_computations(graph: RewrittenGraph, uncalled: Iterable[Computation]) -> Iterator[Edit]:
    text = graph.module.file.text
    for computation in uncalled:
        begin = graph.module.computation_start(computation)
        end = begin + computation.size
        while text[end : end + 1] in ("\r", "\n") and end < len(text):
            end += 1
        yield Edit(Span(begin, end), "")


def _added_computations(graph: RewrittenGraph) -> Iterator[Edit]:
    """Add the new computations before their first caller, or else before the entry."""
    if not graph.computations:
        return
    module, inline = graph.module, inline_computations(graph.module)
    callers: set[Computation] = set()
    nodes: list[AnyInstruction] = [*graph.new_instructions, *graph.attributes]
    for node in nodes:
        if not graph.computations.keys().isdisjoint(called_names(graph.tail(node))):
            callers.add(node.computation)
    last = [module.entry] if module.entry else []
    first = min(map(module.computation_start, callers or last), default=module.start)
    # A computation that is written into an attribute has no line before it.
    starts = (module.computation_start(body) for body in module if body not in inline)
    begin = max((start for start in starts if start <= first), default=first)
    newline = "\r\n" if "\r\n" in module.file.text else "\n"
    added = "".join(computation.text + "\n\n" for computation in graph.computations.values())
    yield Edit(Span(begin, begin), added.replace("\n", newline))
