"""Patterns of instructions: each finds the places that it matches, or explains a mismatch."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import demands_on
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, parse_shape, part, spelled_index
from hlo_lint.text.phrases import an, counted

Attribute: TypeAlias = "str | int | bool | float | tuple[Attribute, ...]"
"""The expected value of an attribute, or its text as printed."""

ELEMENT = "get-tuple-element"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayPattern:
    """An array shape; a property that is left out may be any.

    >>> ArrayPattern(dtype="bf16", rank=2)
    m.array(dtype="bf16", rank=2)

    Raises:
        TypeError: for a value of the wrong Python type.
    """

    dtype: str | None = None
    rank: int | None = None
    dims: Sequence[int | None] | None = None
    """Sizes; None is any size."""
    layout: Sequence[int] | None = None
    """Minor to major."""

    def __post_init__(self) -> None:
        if not isinstance(self.dtype, str | None):
            raise TypeError('dtype must be an element type, like "bf16"')
        if not isinstance(self.rank, int | None):
            raise TypeError("rank must be an integer")
        for name, number, wanted in (
            ("dims", int | None, "be sizes, like (8, None)"),
            ("layout", int, "name every dimension, like (1, 0)"),
        ):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Iterable | None):
                raise TypeError(f"{name} must {wanted}")
            numbers = given if given is None else tuple(given)
            if not all(isinstance(entry, number) for entry in numbers or ()):
                raise TypeError(f"{name} must {wanted}")
            object.__setattr__(self, name, numbers)

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        asked = (f"{name}={_spelled(value)}" for name, value in values.items() if value is not None)
        return f"m.array({', '.join(asked)})"

    def why_not(self, shape: Shape | None) -> str:
        """The mismatch: "has the type f32, not bf16"; "" if the shape matches."""
        if not isinstance(shape, ArrayShape):
            return f"is {an('tuple' if isinstance(shape, TupleShape) else 'value')}, not an array"
        if self.dtype is not None and shape.dtype != self.dtype:
            return f"has the type {shape.dtype}, not {self.dtype}"
        if self.rank is not None and shape.rank != self.rank:
            return f"has the rank {shape.rank}, not {self.rank}"
        if self.dims is not None and (
            len(self.dims) != shape.rank
            or any(
                size not in (None, given) for size, given in zip(self.dims, shape.dims, strict=True)
            )
        ):
            sizes = ",".join("*" if size is None else str(size) for size in self.dims)
            return f"has the sizes [{','.join(map(str, shape.dims))}], not [{sizes}]"
        if self.layout is not None and shape.minor_to_major != self.layout:
            layouts = map(spelled_index, (shape.minor_to_major, self.layout))
            return "has the layout {}, not {}".format(*layouts)
        return ""


array = ArrayPattern


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
        begin = self.title.removeprefix("%")
        return sum(
            any(f"{reference}#".startswith(f"{begin}#") for reference in user.operand_names)
            for user in self.instruction.users
        )


_Condition: TypeAlias = tuple[Callable[[_Node, Any], str], Any]
"""A function that says why a node does not have what is asked, and what is asked."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Opcodes, patterns of operands, and further conditions. An immutable value, compared by
    content."""

    written: str
    """As the program spells it: `m.copy("inner").one_user()`."""
    opcodes: tuple[str, ...]
    """Empty for any opcode."""
    operands: tuple[Pattern, ...] = ()
    names: tuple[str, ...] = ()
    """The captures of the instruction itself, without those of its operands."""
    takes_any_order: bool = False
    conditions: tuple[_Condition, ...] = ()

    def named(self, name: str) -> Pattern:
        """The pattern with a capture under a name."""
        names = (*self.names, _checked_name(name))
        return replace(self, names=names, written=f"{self.written}.named({_spelled(name)})")

    def any_order(self) -> Pattern:
        """Operands may come in any order."""
        return replace(self, takes_any_order=True, written=f"{self.written}.any_order()")

    def one_user(self) -> Pattern:
        """A single instruction reads the result."""
        return self._with(".one_user()", _why_not_one_user, None)

    def attr(self, **asked: Attribute) -> Pattern:
        """Attributes with these values: `dimensions=(1, 0)`, `kind="kLoop"`; `_` stands for `-`.

        A string is compared with a string's or word's content, or with what it spells:
        `window="{size=2x2}"`, `replica_groups="[1,2]<=[2]"`.

        Raises:
            TypeError: for a value that is not a text, a number, a bool, or a list of these.
        """
        for name, value in asked.items():
            if not _is_attribute(value):
                raise TypeError(f"{name} must be a text, a number, a bool, or a list of these")
        attributes = ", ".join(f"{name}={_spelled(value)}" for name, value in asked.items())
        return self._with(f".attr({attributes})", _why_not_attributes, tuple(asked.items()))

    def shape(self, asked: ArrayPattern | str) -> Pattern:
        """The shape of the result: an `array(…)`, or a text like `"f32[8,4]"`, of any layout.

        Raises:
            ShapeSyntaxError: for a text that spells no shape.
            TypeError: for a value that is neither.
        """
        if not isinstance(asked, ArrayPattern | str):
            raise TypeError('shape must be array(…), or a text like "f32[8,4]"')
        wanted = parse_shape(asked) if isinstance(asked, str) else asked
        return self._with(f".shape({_spelled(asked)})", _why_not_shape, wanted)

    def where(self, description: str, holds: Callable[[Instruction], bool]) -> Pattern:
        """A predicate of the instruction; `explain` prints the description."""
        name = getattr(holds, "__name__", "…")
        written = f".where({_spelled(description)}, {'…' if name == '<lambda>' else name})"
        return self._with(written, _why_not_where, (description, holds))

    def _with(self, written: str, why_not: Callable[[_Node, Any], str], asked: Any) -> Pattern:
        conditions = (*self.conditions, (why_not, asked))
        return replace(self, conditions=conditions, written=self.written + written)

    def __repr__(self) -> str:
        return self.written


def any_(*arguments: str | Pattern) -> Pattern:
    """Any instruction: `m.any("operand")`."""
    return _made("any", (), arguments)


def op(*arguments: str | Pattern) -> Pattern:
    """Any of several opcodes, as XLA spells them: `m.op("all-reduce", "reduce-scatter")`.

    >>> op("add", "subtract", any_("x")).named("sum")
    m.op("add", "subtract", m.any("x")).named("sum")
    """
    opcodes = tuple(argument for argument in arguments if isinstance(argument, str))
    operands = tuple(argument for argument in arguments if isinstance(argument, Pattern))
    if not opcodes or arguments != (*opcodes, *operands):
        raise TypeError("the arguments of op are opcodes, then patterns")
    return Pattern(f"m.op({', '.join(map(_spelled, arguments))})", opcodes, operands)


def opcode(function: str) -> Callable[..., Pattern]:
    """The function that makes patterns of an opcode; `_` stands for `-`."""
    name = function.removesuffix("_").replace("_", "-")

    def make(*arguments: str | Pattern) -> Pattern:
        return _made(function_of(name), (name,), arguments)

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


def _made(function: str, opcodes: tuple[str, ...], arguments: tuple[str | Pattern, ...]) -> Pattern:
    names = tuple(_checked_name(name) for name in arguments[:1] if isinstance(name, str))
    operands = tuple(operand for operand in arguments if isinstance(operand, Pattern))
    if len(names) + len(operands) < len(arguments):
        raise TypeError("operands are patterns; a name comes first")
    written = f"m.{function}({', '.join(map(_spelled, arguments))})"
    return Pattern(written, opcodes, operands, names)


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or not name:
        raise TypeError("a name must be a text that is not empty")
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
        captures = next(_matches(pattern, _Node(instruction), {}, []), None)
        if captures is not None:
            yield Match(instruction, captures)


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
        yield from with_opcodes(computation, pattern.opcodes or computation.opcodes)


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
    places = tuple(range(node.operand_count))
    yield from _operands(pattern, pattern.operands, node, places, captures, reasons)


def _operands(
    pattern: Pattern,
    wanted: tuple[Pattern, ...],
    node: _Node,
    places: tuple[int, ...],
    captures: _Captures,
    reasons: list[str],
) -> Iterator[_Captures]:
    """The captures of each way in which the operands at some places are as wanted."""
    if not wanted:
        yield captures
        return
    any_order = pattern.takes_any_order
    mismatches = list[str]() if any_order else reasons
    for place in places if any_order else places[:1]:
        operand = node.operand(place)
        if operand is None:
            mismatches.append(f"the text does not define operand {place} of {node.title}")
            continue
        rest = tuple(other for other in places if other != place)
        for extended in _matches(wanted[0], operand, captures, mismatches):
            yield from _operands(pattern, wanted[1:], node, rest, extended, reasons)
    if any_order and mismatches:
        asked = an(" or ".join(wanted[0].opcodes) or "instruction")
        reasons.append(f"no operand of {node.title} is {asked} as asked: {mismatches[0]}")


def _why_not(pattern: Pattern, node: _Node) -> str:
    """The first mismatch of the node itself, without its operands; "" if it matches."""
    if pattern.opcodes and node.opcode not in pattern.opcodes:
        return f"{node.title} is {an(node.opcode)}, not {an(' or '.join(pattern.opcodes))}"
    for why_not, asked in pattern.conditions:
        if reason := why_not(node, asked):
            return f"{node.title} {reason}"
    # A pattern may name the first operands only: the rest may be any.
    count, expected = node.operand_count, len(pattern.operands)
    if count < expected:
        return f"{node.title} has {counted(count, 'operand')}, not {expected}"
    return ""


def _why_not_one_user(node: _Node, _: None) -> str:
    return "" if node.users == 1 else f"has {node.users or 'no'} users, not 1"


def _why_not_where(node: _Node, asked: tuple[str, Callable[[Instruction], bool]]) -> str:
    description, holds = asked
    return "" if holds(node.instruction) else f"is not {description!r}"


def _why_not_shape(node: _Node, asked: Shape | ArrayPattern) -> str:
    shape = node.shape
    if isinstance(asked, ArrayPattern):
        return asked.why_not(shape)
    free = isinstance(asked, ArrayShape) and asked.layout is None
    if free and isinstance(shape, ArrayShape) and shape.with_layout(None) == asked:
        return ""
    return "" if shape == asked else f"has the shape {shape}, not {asked}"


def _why_not_attributes(node: _Node, asked: tuple[tuple[str, Attribute], ...]) -> str:
    reasons = (_why_not_attribute(name, value, node) for name, value in asked)
    return next(filter(None, reasons), "")


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
