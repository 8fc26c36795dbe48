"""Spell new lines in the dialect of the text, and edit parts of an instruction in place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hlo_lint.hlo.attributes.splitting import split_attributes
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import COMMON
from hlo_lint.hlo.parser.tokens import InstructionSpans
from hlo_lint.text.edits import Edit
from hlo_lint.text.errors import RewriteError
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span, indent_before

_begins_with_shape = late(r"(?:\s|/\*.*?\*/)*(?:\(|[a-z]\w*[\[<])", re.S).match
_starts_with_percent = late(r"(?:ROOT\s+)?%").match
_rest_of_line = late(r"[^\S\r\n]*(?://[^\r\n]*)?(?=\r?\n|\Z)").match


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


def end_of_line(text: str, end: int) -> int:
    """The end of the line if only a comment follows `end`, else `end`."""
    rest = _rest_of_line(text, end)
    return rest.end() if rest is not None else end


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
    added = [dialect.operand(*operand) for operand in operands[len(former) :]]
    if added:
        comma = ", " if instruction.operands_text.strip() else ""
        place = begin + spans.close
        yield Edit(Span(place, place), comma + ", ".join(added))


def attribute_edits(
    instruction: Instruction, module: Module, changes: Mapping[str, str | None]
) -> Iterator[Edit]:
    """Change, add or remove attributes; None stands for removal.

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
            if value is not None:
                index = _place_of(name, tail, places)
                added[index] = added.get(index, "") + f", {name}={value}"
        elif value is None:
            start = _start_of(name, tail, places)
            yield Edit(Span(begin + start, begin + place[1]), "")
        elif tail[slice(*place)] != value:
            yield Edit(Span(begin + place[0], begin + place[1]), value)
    for index, text in added.items():
        yield Edit(Span(begin + index, begin + index), text)


def _end(places: Mapping[str, tuple[int, int]]) -> int:
    """The end of the last attribute, relative to the attributes' text."""
    return max((end for _, end in places.values()), default=0)


def _place_of(name: str, tail: str, places: Mapping[str, tuple[int, int]]) -> int:
    """The place to insert a new attribute, relative to the attributes' text."""
    later = {"metadata": {"backend_config"}, "backend_config": set[str]()}.get(
        name, {"metadata", "backend_config"} if name in COMMON else COMMON
    )
    starts = [_start_of(present, tail, places) for present in places if present in later]
    return min(starts, default=_end(places))


def _start_of(name: str, tail: str, places: Mapping[str, tuple[int, int]]) -> int:
    """The position of the comma before an attribute."""
    ends = [end for _, end in places.values() if end <= places[name][0]]
    after = max(ends, default=0)
    comma = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*,", re.S).match(tail, after)
    return comma.end() - 1 if comma is not None else after
