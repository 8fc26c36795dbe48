"""Patterns of instructions, their matching, and the reason for each mismatch."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, cast

from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import demands_on
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, parse_shape, part
from hlo_lint.text.phrases import an, counted

Attribute: TypeAlias = "str | int | bool | float | tuple[Attribute, ...]"
"""The expected value of an attribute, or its text as printed."""

ELEMENT = "get-tuple-element"


@dataclass(frozen=True, slots=True)
class ArrayPattern:
    """Constraints on an array shape; None matches anything, and within `dims` any size."""

    dtype: str | None = None
    rank: int | None = None
    dims: tuple[int | None, ...] | None = None
    layout: tuple[int, ...] | None = None
    """Minor to major."""

    def __repr__(self) -> str:
        constraints = (
            f"{name}={_spelled(value)}"
            for name, value in (
                ("dtype", self.dtype),
                ("rank", self.rank),
                ("dims", self.dims),
                ("layout", self.layout),
            )
            if value is not None
        )
        return f"m.array({', '.join(constraints)})"

    def why_not(self, shape: Shape | None) -> str:
        """The mismatch: "its type is f32, not bf16"; empty if all fits."""
        if not isinstance(shape, ArrayShape):
            return f"is {an('tuple' if isinstance(shape, TupleShape) else 'value')}, not an array"
        if self.dtype is not None and shape.dtype != self.dtype:
            return f"has the type {shape.dtype}, not {self.dtype}"
        if self.rank is not None and shape.rank != self.rank:
            return f"has the rank {shape.rank}, not {self.rank}"
        if self.dims is not None and not _fits(self.dims, shape.dims):
            sizes = ",".join("*" if size is None else str(size) for size in self.dims)
            return f"has the sizes [{','.join(map(str, shape.dims))}], not [{sizes}]"
        if self.layout is not None and shape.minor_to_major != self.layout:
            order = ",".join(map(str, self.layout))
            return f"has the layout {{{','.join(map(str, shape.minor_to_major))}}}, not {{{order}}}"
        return ""


def _fits(asked: tuple[int | None, ...], dims: tuple[int, ...]) -> bool:
    return len(asked) == len(dims) and all(
        size is None or size == there for size, there in zip(asked, dims, strict=True)
    )


def array(
    *,
    dtype: str | None = None,
    rank: int | None = None,
    dims: Iterable[int | None] | None = None,
    layout: Iterable[int] | None = None,
) -> ArrayPattern:
    """An array of a type, a rank, sizes, a layout (minor to major); what is left out may be any.

    >>> array(dtype="bf16", rank=2)
    m.array(dtype="bf16", rank=2)

    Raises:
        TypeError: for what is not a name of a type, no number, no list of numbers.
    """
    if not isinstance(dtype, str | None):
        raise TypeError('dtype wants a type, like "bf16"')
    if not isinstance(rank, int | None):
        raise TypeError("rank wants a number")
    sizes = None if dims is None else _numbers(dims, "dims wants sizes, like (8, None)")
    order = None if layout is None else _numbers(layout, "layout wants dimensions, like (1, 0)")
    if order is not None and None in order:
        raise TypeError("layout wants each dimension")
    return ArrayPattern(dtype, rank, sizes, cast("tuple[int, ...] | None", order))


def _numbers(given: object, message: str) -> tuple[int | None, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(message)
    numbers = tuple(given)
    if not all(isinstance(number, int | None) for number in numbers):
        raise TypeError(message)
    return numbers


# ---- modifiers, in the order in which they were written


class _Named(NamedTuple):
    name: str

    def __repr__(self) -> str:
        return f".named({_spelled(self.name)})"


class _AnyOrder(NamedTuple):
    def __repr__(self) -> str:
        return ".any_order()"


class _OneUser(NamedTuple):
    def __repr__(self) -> str:
        return ".one_user()"


class _HasAttributes(NamedTuple):
    asked: tuple[tuple[str, Attribute], ...]

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={_spelled(value)}" for name, value in self.asked)
        return f".attr({attributes})"


class _HasShape(NamedTuple):
    asked: ArrayPattern | str

    def __repr__(self) -> str:
        asked = self.asked
        return f".shape({_spelled(asked)})"


class _Where(NamedTuple):
    description: str
    holds: Callable[[Instruction], bool]

    def __repr__(self) -> str:
        name = getattr(self.holds, "__name__", "…")
        return f".where({_spelled(self.description)}, {'…' if name == '<lambda>' else name})"


_Modifier = _Named | _AnyOrder | _OneUser | _HasAttributes | _HasShape | _Where


@dataclass(frozen=True, slots=True)
class Pattern:
    """An opcode, or several, what it reads, and what else is asked of it. A value: compared by
    content, never changed."""

    function: str
    """As written: `all_reduce`, `any`, `op`."""
    opcodes: tuple[str, ...]
    """Empty for any."""
    operands: tuple[Pattern, ...] = ()
    capture: str = ""
    """The name written as first argument."""
    modifiers: tuple[_Modifier, ...] = ()

    def named(self, name: str) -> Pattern:
        """The pattern with a capture under a name."""
        return self._with(_Named(_checked_name(name)))

    def any_order(self) -> Pattern:
        """Operands may come in any order."""
        return self._with(_AnyOrder())

    def one_user(self) -> Pattern:
        """One instruction reads it, and no other."""
        return self._with(_OneUser())

    def attr(self, **asked: Attribute) -> Pattern:
        """Attributes with these values: `dimensions=(1, 0)`, `kind="kLoop"`; `_` stands for `-`.

        A string is compared with a string's or word's content, or with what it spells:
        `window="{size=2x2}"`, `replica_groups="[1,2]<=[2]"`.

        Raises:
            TypeError: for what is not such a value.
        """
        for name, value in asked.items():
            if not _is_attribute(value):
                raise TypeError(f"{name} wants a text, a number, true or false, or a list of them")
        return self._with(_HasAttributes(tuple(asked.items())))

    def shape(self, asked: ArrayPattern | str) -> Pattern:
        """An array as described, or this shape: `"f32[8,4]"`; where it says no layout, of any.

        Raises:
            ShapeSyntaxError: for a text that spells no shape.
            TypeError: for what is neither.
        """
        if isinstance(asked, str):
            parse_shape(asked)
        elif not isinstance(asked, ArrayPattern):
            raise TypeError('shape wants array(…), or a text like "f32[8,4]"')
        return self._with(_HasShape(asked))

    def where(self, description: str, holds: Callable[[Instruction], bool]) -> Pattern:
        """A test of the instruction by a function; `explain` prints the description."""
        return self._with(_Where(description, holds))

    def _with(self, modifier: _Modifier) -> Pattern:
        return replace(self, modifiers=(*self.modifiers, modifier))

    @property
    def names(self) -> tuple[str, ...]:
        """The captures of the instruction itself; not those of its operands."""
        named = [modifier.name for modifier in self.modifiers if isinstance(modifier, _Named)]
        return (self.capture, *named) if self.capture else tuple(named)

    def __repr__(self) -> str:
        arguments = [_spelled(opcode) for opcode in self.opcodes] if self.function == "op" else []
        arguments += [_spelled(self.capture)] if self.capture else []
        arguments += map(repr, self.operands)
        return f"m.{self.function}({', '.join(arguments)})" + "".join(map(repr, self.modifiers))


def any_(*arguments: str | Pattern) -> Pattern:
    """Any instruction: `m.any("operand")`."""
    capture, operands = _arguments(arguments)
    return Pattern("any", (), operands, capture)


def op(*arguments: str | Pattern) -> Pattern:
    """One of several opcodes, as XLA spells them: `m.op("all-reduce", "reduce-scatter")`.

    >>> op("add", "subtract", any_("x")).named("sum")
    m.op("add", "subtract", m.any("x")).named("sum")
    """
    opcodes = tuple(argument for argument in arguments if isinstance(argument, str))
    operands = tuple(argument for argument in arguments if isinstance(argument, Pattern))
    if not opcodes or arguments != (*opcodes, *operands):
        raise TypeError("op wants opcodes, then patterns of operands")
    return Pattern("op", opcodes, operands)


def opcode(function: str) -> Callable[..., Pattern]:
    """The function that makes patterns of an opcode; `_` stands for `-`."""
    name = function.removesuffix("_").replace("_", "-")

    def make(*arguments: str | Pattern) -> Pattern:
        capture, operands = _arguments(arguments)
        return Pattern(function_of(name), (name,), operands, capture)

    make.__name__ = function
    make.__doc__ = f"An instruction {name}: a name for it first, then patterns of its operands."
    return make


def is_function(function: str) -> bool:
    """True if an opcode of jaxlib 0.11.2, or its asynchronous sugar, has this function."""
    name = function.removesuffix("_").replace("_", "-")
    return function_of(name) == function and demands_on(name) is not None


def function_of(name: str) -> str:
    """The function of an opcode: `all_reduce`, `and_`."""
    function = name.replace("-", "_")
    return f"{function}_" if keyword.iskeyword(function) else function


def _arguments(arguments: tuple[str | Pattern, ...]) -> tuple[str, tuple[Pattern, ...]]:
    capture = ""
    if arguments and isinstance(arguments[0], str):
        capture, arguments = _checked_name(arguments[0]), arguments[1:]
    operands = tuple(argument for argument in arguments if isinstance(argument, Pattern))
    if len(operands) < len(arguments):
        raise TypeError("operands are patterns; a name comes first")
    return capture, operands


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError("a name is a text, and not empty")
    return name


def _is_attribute(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_attribute, value))
    return isinstance(value, str | int | float)


def _spelled(value: object) -> str:
    """A value as it is written in a pattern: strings in double quotes."""
    match value:
        case str():
            quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{quoted}"'
        case tuple():
            return f"({', '.join(map(_spelled, value))}{',' if len(value) == 1 else ''})"
        case _:
            return repr(value)


# ---- matching


class _Node(NamedTuple):
    """A node of the graph: an instruction, or an element of its tuple that no line spells."""

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
        """The number of its users; of an element, of those that read it or a part of it."""
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
    """One place that a pattern matches: what each name stands for.

    >>> from hlo_lint import parse
    >>> module = parse("HloModule m\\n\\nENTRY e {\\n  ROOT p = f32[] parameter(0)\\n}\\n")
    >>> [hit["x"].name for hit in find(any_("x"), module)]
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
        """The index of the tuple element that a name stands for; `()` if a line spells it."""
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
    """Instructions with an opcode that the root of the pattern asks for."""
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

    Empty where it matches.
    """
    reasons: list[str] = []
    for _ in _matches(pattern, _Node(instruction), {}, reasons):
        return ""
    return reasons[0]


def _matches(
    pattern: Pattern, node: _Node, captures: _Captures, reasons: list[str]
) -> Iterator[_Captures]:
    """Each way in which the node matches, with what is captured then.

    Where there is none, at least one reason is added.
    """
    reason = _why_not(pattern, node)
    if not reason:
        for name in pattern.names:
            # A name that stands twice in a pattern must mean the same node in both places.
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
    if any(isinstance(modifier, _AnyOrder) for modifier in pattern.modifiers):
        yield from _in_any_order(pattern.operands, node, frozenset(places), captures, reasons)
    else:
        yield from _in_order(pattern.operands, node, 0, captures, reasons)


def _in_order(
    patterns: tuple[Pattern, ...],
    node: _Node,
    place: int,
    captures: _Captures,
    reasons: list[str],
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
        reasons.append(
            f"no operand of {node.title} is {an(_called(patterns[0]))} as asked: {mismatches[0]}"
        )


def _operand(
    pattern: Pattern, node: _Node, place: int, captures: _Captures, reasons: list[str]
) -> Iterator[_Captures]:
    operand = node.operand(place)
    if operand is None:
        reasons.append(f"operand {place} of {node.title} is not in the text")
        return
    yield from _matches(pattern, operand, captures, reasons)


def _why_not(pattern: Pattern, node: _Node) -> str:
    """The first thing that is asked of the node itself and does not hold; empty where all does."""
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


def _unmet(modifier: _Modifier, node: _Node) -> str:
    match modifier:
        case _OneUser() if node.users != 1:
            return f"has {node.users or 'no'} users, not one"
        case _HasShape(asked):
            if isinstance(asked, ArrayPattern):
                return asked.why_not(node.shape)
            return _why_not_shape(parse_shape(asked), node.shape)
        case _HasAttributes(attributes):
            for name, value in attributes:
                reason = _why_not_attribute(name, value, node)
                if reason:
                    return reason
        case _Where(description, holds) if not holds(node.instruction):
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
        # A text is compared as a value, too: `[1,2]<=[2]` equals `{{0,1}}`.
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


def _called(pattern: Pattern) -> str:
    return " or ".join(pattern.opcodes) or "instruction"
