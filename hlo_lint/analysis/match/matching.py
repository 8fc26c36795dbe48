"""The places that patterns match, and the reason for each mismatch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from hlo_lint.analysis.match.pattern import (
    ELEMENT,
    AnyOrder,
    ArrayPattern,
    Attribute,
    HasAttributes,
    HasShape,
    Modifier,
    OneUser,
    Pattern,
    Where,
)
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.shape import ArrayShape, Shape, parse_shape, part
from hlo_lint.text.phrases import an, counted


class _Node(NamedTuple):
    """A node of the graph: an instruction, or an implicit element of its tuple."""

    instruction: Instruction
    path: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        return f"%{self.instruction.name}" + "".join(f"#{number}" for number in self.path)

    @property
    def opcode(self) -> str:
        return ELEMENT if self.path else self.instruction.opcode

    @property
    def operand_count(self) -> int:
        return 1 if self.path else len(self.instruction.operand_names)

    def operand(self, place: int) -> _Node | None:
        if self.path:
            return _Node(self.instruction, self.path[:-1])
        # Compact text has no get-tuple-elements: `%call#1` reads element 1 of %call.
        name, *path = self.instruction.operand_names[place].split("#")
        computation = self.instruction.computation
        number = computation.index.get(name)
        if number is None or not all(part.isdecimal() for part in path):
            return None
        return _Node(computation.at(number), tuple(map(int, path)))

    @property
    def shape(self) -> Shape | None:
        return part(self.instruction.shape_or_none, self.path)

    @property
    def users(self) -> int:
        """The number of users; for an element, the users of it or of a part of it."""
        if not self.path:
            return len(self.instruction.users)
        begin = f"{self.instruction.name}" + "".join(f"#{number}" for number in self.path)
        return sum(
            any(
                reference == begin or reference.startswith(f"{begin}#")
                for reference in user.operand_names
            )
            for user in self.instruction.users
        )


_Captures = Mapping[str, _Node]


class Match(Mapping[str, Instruction]):
    """A place that a pattern matches, with the instruction for each name.

    >>> from hlo_lint import match as m, parse
    >>> module = parse("HloModule m\\n\\nENTRY e {\\n  ROOT p = f32[] parameter(0)\\n}\\n")
    >>> [hit["x"].name for hit in m.find(m.any("x"), module)]
    ['p']
    """

    __slots__ = ("_captures", "instruction")

    def __init__(self, instruction: Instruction, captures: _Captures) -> None:
        self.instruction = instruction
        """The instruction that the whole pattern matches."""
        self._captures = captures

    def __getitem__(self, name: str) -> Instruction:
        return self._captures[name].instruction

    def __iter__(self) -> Iterator[str]:
        return iter(self._captures)

    def __len__(self) -> int:
        return len(self._captures)

    def element(self, name: str) -> tuple[int, ...]:
        """The index of the implicit tuple element that a name captures; `()` for an instruction."""
        return self._captures[name].path

    def __repr__(self) -> str:
        captures = ", ".join(f"{name}={node.title}" for name, node in self._captures.items())
        return f"<Match %{self.instruction.name}{': ' if captures else ''}{captures}>"


Searched: TypeAlias = "Module | Computation | Instruction | Iterable[Computation]"


def find(pattern: Pattern, where: Searched) -> Iterator[Match]:
    """Every place that a pattern matches, each instruction once, in the order of the text."""
    for instruction in candidates(pattern, where):
        for captures in _matches(pattern, _Node(instruction), {}, []):
            yield Match(instruction, captures)
            break


def candidates(pattern: Pattern, where: Searched) -> Iterator[Instruction]:
    """Instructions whose opcode the root of the pattern matches."""
    match where:
        case Instruction():
            yield where
            return
        case Computation():
            computations: Iterable[Computation] = (where,)
        case Module():
            computations = where.computations
        case _:
            computations = where
    for computation in computations:
        if not pattern.opcodes:
            yield from computation.instructions
        elif len(pattern.opcodes) == 1:
            yield from computation.with_opcode(pattern.opcodes[0])
        else:
            instructions = [
                instruction
                for name in set(pattern.opcodes)
                for instruction in computation.with_opcode(name)
            ]
            yield from sorted(instructions, key=lambda instruction: instruction.number)


def explain(pattern: Pattern, instruction: Instruction) -> str:
    """The first reason why a pattern does not match: "%c is a copy, not a custom-call".

    Empty if it matches.
    """
    reasons: list[str] = []
    for _ in _matches(pattern, _Node(instruction), {}, reasons):
        return ""
    return reasons[0]


def _matches(
    pattern: Pattern, node: _Node, captures: _Captures, reasons: list[str]
) -> Iterator[_Captures]:
    """The captures of each way to match the node; without a match, `reasons` grows."""
    reason = _why_not(pattern, node)
    if not reason:
        for name in pattern.names:
            # A name that occurs twice in a pattern must be the same node in both places.
            captured = captures.get(name)
            if captured is not None and captured != node:
                reason = f"{name} is {captured.title} and {node.title}, not the same"
                break
            captures = {**captures, name: node}
    if reason:
        reasons.append(reason)
        return
    if not pattern.operands:
        yield captures
        return
    places = range(node.operand_count)
    if any(isinstance(modifier, AnyOrder) for modifier in pattern.modifiers):
        yield from _in_any_order(pattern.operands, node, frozenset(places), captures, reasons)
    else:
        yield from _in_order(pattern.operands, node, 0, captures, reasons)


def _in_order(
    patterns: tuple[Pattern, ...], node: _Node, place: int, captures: _Captures, reasons: list[str]
) -> Iterator[_Captures]:
    if not patterns:
        yield captures
        return
    for extended in _operand(patterns[0], node, place, captures, reasons):
        yield from _in_order(patterns[1:], node, place + 1, extended, reasons)


def _in_any_order(
    patterns: tuple[Pattern, ...],
    node: _Node,
    places: frozenset[int],
    captures: _Captures,
    reasons: list[str],
) -> Iterator[_Captures]:
    if not patterns:
        yield captures
        return
    mismatches: list[str] = []
    for place in sorted(places):
        for extended in _operand(patterns[0], node, place, captures, mismatches):
            yield from _in_any_order(patterns[1:], node, places - {place}, extended, reasons)
    if mismatches:
        asked = an(" or ".join(patterns[0].opcodes) or "instruction")
        reasons.append(f"no operand of {node.title} is {asked} as asked: {mismatches[0]}")


def _operand(
    pattern: Pattern, node: _Node, place: int, captures: _Captures, reasons: list[str]
) -> Iterator[_Captures]:
    operand = node.operand(place)
    if operand is None:
        reasons.append(f"the text does not define operand {place} of {node.title}")
        return
    yield from _matches(pattern, operand, captures, reasons)


def _why_not(pattern: Pattern, node: _Node) -> str:
    """The first mismatch of the node itself, without its operands; "" if it matches."""
    if pattern.opcodes and node.opcode not in pattern.opcodes:
        return f"{node.title} is {an(node.opcode)}, not {an(' or '.join(pattern.opcodes))}"
    for modifier in pattern.modifiers:
        reason = _unmet(modifier, node)
        if reason:
            return f"{node.title} {reason}"
    # A pattern may name the first operands only: the rest may be any.
    count, asked = node.operand_count, len(pattern.operands)
    if count < asked:
        return f"{node.title} has {counted(count, 'operand')}, not {asked}"
    return ""


def _unmet(modifier: Modifier, node: _Node) -> str:
    match modifier:
        case OneUser() if node.users != 1:
            return f"has {node.users or 'no'} users, not 1"
        case HasShape(asked):
            if isinstance(asked, ArrayPattern):
                return asked.why_not(node.shape)
            return _why_not_shape(parse_shape(asked), node.shape)
        case HasAttributes(attributes):
            for name, value in attributes:
                reason = _why_not_attribute(name, value, node)
                if reason:
                    return reason
        case Where(description, holds) if not holds(node.instruction):
            return f"is not {description!r}"
    return ""


def _why_not_shape(asked: Shape, shape: Shape | None) -> str:
    if shape == asked:
        return ""
    free = isinstance(asked, ArrayShape) and asked.layout is None
    if free and isinstance(shape, ArrayShape) and shape.with_layout(None) == asked:
        return ""
    return f"has the shape {shape}, not {asked}"


def _why_not_attribute(name: str, asked: Attribute, node: _Node) -> str:
    from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
    from hlo_lint.hlo.attributes.reading import read_attribute

    if node.path:
        if name == "index" and asked == node.path[-1]:
            return ""
        return f"has index={node.path[-1]}, not {name}={_text(asked)}"
    attributes = node.instruction.attributes if node.instruction.attributes_text else {}
    text = attributes.get(name, attributes.get(name.replace("_", "-")))
    if text is None:
        return f"has no {name}"
    if text == asked:
        return ""
    try:
        value = read_attribute(name, text)
        if value == asked and isinstance(value, bool) == isinstance(asked, bool):
            return ""
        # Texts are compared as values, too: `[1,2]<=[2]` equals `{{0,1}}`.
        spells = isinstance(asked, str) and not isinstance(value, str)
        if spells and value == read_attribute(name, str(asked)):
            return ""
    except AttributeSyntaxError:
        pass
    return f"has {name}={text}, not {_text(asked)}"


def _text(asked: Attribute) -> str:
    match asked:
        case bool():
            return "true" if asked else "false"
        case tuple():
            return "{" + ",".join(map(_text, asked)) + "}"
        case _:
            return str(asked)
