"""Turn a rewritten graph into edits of the module's text, with new lines in its dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from hlo_lint.analysis.calls import inline_computations
from hlo_lint.analysis.rewrite.graph import AnyInstruction, NewInstruction, RewrittenGraph
from hlo_lint.hlo.attributes.splitting import joined_attributes, split_attributes
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis, called_names
from hlo_lint.hlo.opcodes import COMMON
from hlo_lint.hlo.parser.tokens import InstructionSpans
from hlo_lint.text.edits import Edit
from hlo_lint.text.errors import RewriteError
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span, indent_before

_begins_with_shape = late(r"(?:\s|/\*.*?\*/)*(?:\(|[a-z]\w*[\[<])", re.S).match
_starts_with_percent = late(r"(?:ROOT\s+)?%").match


class Dialect(NamedTuple):
    """The syntax choices that differ between HLO texts."""

    percent: str
    """`%` if names have it, else empty."""
    is_typed: bool
    """True if operands are printed with their shapes."""

    def operand(self, reference: str, type_text: str) -> str:
        """Print an operand."""
        shape = f"{type_text} " if self.is_typed and type_text else ""
        return f"{shape}{self.percent}{reference}"


def dialect_of(instruction: Instruction) -> Dialect:
    """The dialect of an instruction; if it has no operands, its computation decides."""
    percent = "%" if _starts_with_percent(instruction.text) else ""
    if instruction.operand_names:
        return Dialect(percent, bool(_begins_with_shape(instruction.operands_text)))
    return Dialect(percent, _prints_shapes(instruction.computation))


@cached_analysis
def _prints_shapes(computation: Computation) -> bool:
    """True if the first instruction with operands prints their shapes."""
    readers = (instruction for instruction in computation if instruction.operand_names)
    first = next(readers, None)
    return first is not None and bool(_begins_with_shape(first.operands_text))


def line_break(instruction: Instruction, module: Module) -> str:
    """The line end of the text, followed by the indentation of an instruction."""
    text = module.file.text
    place = module.span(instruction)
    line_end = text.find("\n", place.end)  # after a comment, perhaps
    newline = "\r\n" if line_end > 0 and text[line_end - 1] == "\r" else "\n"
    return newline + indent_before(text, place.start)


def code_span(instruction: Instruction, module: Module) -> Span:
    """The span of an instruction without the comment at its end."""
    start, end = module.span(instruction)
    tail = instruction.attributes_text
    places = split_attributes(tail)
    return Span(start, end if "" in places else end - len(tail) + _end(places))


def removal(instruction: Instruction, module: Module) -> Edit:
    """Delete an instruction, with its whole line if it stands alone there."""
    text, (start, end) = module.file.text, module.span(instruction)
    begin, stop = text.rfind("\n", 0, start) + 1, text.find("\n", end) + 1
    is_alone = stop > 0 and not (text[begin:start] + text[end:stop]).strip()
    return Edit(Span(begin, stop) if is_alone else Span(start, end), "")


def operand_edits(
    instruction: Instruction, module: Module, operands: Sequence[tuple[str, str]]
) -> Iterator[Edit]:
    """Change the operands of an instruction to pairs of a name without `%` and a shape.

    Raises:
        RewriteError: the text does not show where an operand is.
    """
    spans = InstructionSpans(instruction.text, instruction.row)
    begin = module.span(instruction).start
    dialect = dialect_of(instruction)
    former = instruction.operand_names
    for number, (reference, type_text) in enumerate(operands[: len(former)]):
        span = spans.operand_span(number)
        if span is None:
            if reference == former[number]:
                continue
            message = f"the text of %{instruction.name} does not show where operand {number} is"
            raise RewriteError(message)
        start = span.start
        if span.shape_start < start and type_text:
            shape = instruction.text[span.shape_start : start].rstrip()
            start = span.shape_start if shape != type_text else start
        if start < span.start:
            text = dialect.operand(reference, type_text)
        elif reference != former[number]:
            text = dialect.percent + reference
        else:
            continue
        yield Edit(Span(begin + start, begin + span.end), text)
    if added := [dialect.operand(*operand) for operand in operands[len(former) :]]:
        comma = ", " if instruction.operands_text.strip() else ""
        place = begin + spans.close
        yield Edit(Span(place, place), comma + ", ".join(added))


def attribute_edits(
    instruction: Instruction, module: Module, changes: Mapping[str, str]
) -> Iterator[Edit]:
    """Change or add attributes.

    A new attribute goes where XLA prints it: before metadata, and before the attributes that every
    opcode may have.

    Raises:
        RewriteError: the attributes cannot be told apart.
    """
    tail = instruction.attributes_text
    begin = module.span(instruction).end - len(tail)  # the tail ends where the instruction ends
    places = split_attributes(tail)
    if "" in places:
        raise RewriteError(f"the attributes of %{instruction.name} cannot be read")
    added: dict[int, str] = {}
    for name, value in changes.items():
        place = places.get(name)
        if place is None:
            index = _place_of(name, tail, places)
            added[index] = added.get(index, "") + f", {name}={value}"
        elif tail[slice(*place)] != value:
            yield Edit(Span(begin + place[0], begin + place[1]), value)
    for index, text in added.items():
        yield Edit(Span(begin + index, begin + index), text)


def _end(places: Mapping[str, tuple[int, int]]) -> int:
    """The end of the last attribute, relative to the attributes' text."""
    return max((end for _, end in places.values()), default=0)


def _place_of(name: str, tail: str, places: Mapping[str, tuple[int, int]]) -> int:
    """The place to insert a new attribute, relative to the attributes' text."""
    later = (present for present in places if _rank(present) > _rank(name))
    starts = [_start_of(present, tail, places) for present in later]
    return min(starts, default=_end(places))


def _start_of(name: str, tail: str, places: Mapping[str, tuple[int, int]]) -> int:
    """The position of the comma before an attribute."""
    after = max([end for _, end in places.values() if end <= places[name][0]], default=0)
    comma = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*,", re.S).match(tail, after)
    return comma.end() - 1 if comma is not None else after


_op_name = late(r'op_name="[^"]').search

_CARRIED: Final = COMMON - {"backend_config", "metadata", "parameter_replication"}
"""Attributes that a replacement inherits (`hlo_computation.cc:1768-1864`)."""
_LAST: Final = {"metadata": 2, "backend_config": 3}
"""Attributes that XLA prints last, in this order."""


def _rank(name: str) -> int:
    """0 for attributes of the opcode, which XLA prints before those that every opcode may have."""
    return _LAST.get(name, int(name in COMMON))


def edits_of(graph: RewrittenGraph) -> tuple[Edit, ...]:
    """The edits, sorted by their position in the text.

    Raises:
        RewriteError: the text does not show where an operand or an attribute is.
    """
    removed = graph.removed.keys() | graph.dead()
    uncalled = dict.fromkeys(graph.uncalled(removed))
    touched = graph.lines.keys() | removed | graph.operands.keys() | graph.attributes.keys()
    for computation, root in graph.roots.items():
        nodes = (computation.root, root)
        touched |= {node for node in nodes if isinstance(node, Instruction)}
    edits = [*_removed_computations(graph, uncalled), *_added_computations(graph)]
    for instruction in touched:
        if instruction.computation in uncalled:
            continue
        if instruction not in removed:
            edits += _changes(graph, instruction)
        elif lines := _printed(graph, instruction):
            separator = line_break(instruction, graph.module)
            edits.append(Edit(code_span(instruction, graph.module), separator.join(lines)))
        else:
            edits.append(removal(instruction, graph.module))
    edits.sort()
    for before, after in pairwise(edits):
        if after.span.start < before.span.end:
            # A computation that is written into an attribute changes, and goes with its caller.
            raise RewriteError("two changes overlap in the text")
    return tuple(edits)


def _changes(graph: RewrittenGraph, instruction: Instruction) -> Iterator[Edit]:
    module = graph.module
    separator = line_break(instruction, module)
    start = module.span(instruction).start
    prefix = "".join(f"{line}{separator}" for line in _printed(graph, instruction))
    mark_end = start
    if graph.root(instruction.computation) is not instruction:
        if instruction.is_root:
            mark_end += len(instruction.text) - len(instruction.text[4:].lstrip())
    elif not instruction.is_root and graph.roots:
        prefix += "ROOT "  # without a mark the last instruction is the root
    if prefix or mark_end > start:
        yield Edit(Span(start, mark_end), prefix)
    if instruction in graph.operands:
        reads = [(read.reference, read.type_text) for read in graph.operands[instruction]]
        yield from operand_edits(instruction, module, reads)
    if instruction in graph.attributes:
        yield from attribute_edits(instruction, module, graph.attributes[instruction])


def _printed(graph: RewrittenGraph, instruction: Instruction) -> list[str]:
    """Print the new instructions before an instruction, in the dialect of its text."""
    dialect = dialect_of(instruction)
    lines = []
    for new in graph.lines.get(instruction, ()):
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
    names = graph.computations.keys()
    nodes: list[AnyInstruction] = [*graph.new_instructions, *graph.attributes]
    callers = {node.computation for node in nodes if names & {*called_names(graph.tail(node))}}
    last = [module.entry] if module.entry else []
    first = min(map(module.computation_start, callers or last), default=module.start)
    # A computation that is written into an attribute has no line before it.
    starts = (module.computation_start(body) for body in module if body not in inline)
    begin = max((start for start in starts if start <= first), default=first)
    newline = "\r\n" if "\r\n" in module.file.text else "\n"
    added = "".join(computation.text + "\n\n" for computation in graph.computations.values())
    yield Edit(Span(begin, begin), added.replace("\n", newline))
