"""Patterns of instructions: an opcode, patterns of operands, and further conditions."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, cast

from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import demands_on
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, parse_shape
from hlo_lint.text.phrases import an

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
        """The mismatch: "has the type f32, not bf16"; "" if the shape matches."""
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
    """An array shape; a property that is left out may be any. `layout` is minor to major.

    >>> array(dtype="bf16", rank=2)
    m.array(dtype="bf16", rank=2)

    Raises:
        TypeError: for a value of the wrong Python type.
    """
    if not isinstance(dtype, str | None):
        raise TypeError('dtype must be an element type, like "bf16"')
    if not isinstance(rank, int | None):
        raise TypeError("rank must be an integer")
    sizes = None if dims is None else _numbers(dims, "dims must be sizes, like (8, None)")
    order = None if layout is None else _numbers(layout, "layout must be dimensions, like (1, 0)")
    if order is not None and None in order:
        raise TypeError("layout must name every dimension")
    return ArrayPattern(dtype, rank, sizes, cast("tuple[int, ...] | None", order))


def _numbers(given: object, message: str) -> tuple[int | None, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(message)
    numbers = tuple(given)
    if not all(isinstance(number, int | None) for number in numbers):
        raise TypeError(message)
    return numbers


# ---- modifiers, in the order in which they were written


class Named(NamedTuple):
    """The pattern's capture."""

    name: str

    def __repr__(self) -> str:
        return f".named({_spelled(self.name)})"


class AnyOrder(NamedTuple):
    """Operands may be in any order."""

    def __repr__(self) -> str:
        return ".any_order()"


class OneUser(NamedTuple):
    """A single instruction reads the result."""

    def __repr__(self) -> str:
        return ".one_user()"


class HasAttributes(NamedTuple):
    """Attributes have these values."""

    asked: tuple[tuple[str, Attribute], ...]

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={_spelled(value)}" for name, value in self.asked)
        return f".attr({attributes})"


class HasShape(NamedTuple):
    """The result has this shape."""

    asked: ArrayPattern | str

    def __repr__(self) -> str:
        asked = self.asked
        return f".shape({_spelled(asked)})"


class Where(NamedTuple):
    """The caller's predicate holds."""

    description: str
    holds: Callable[[Instruction], bool]

    def __repr__(self) -> str:
        name = getattr(self.holds, "__name__", "…")
        return f".where({_spelled(self.description)}, {'…' if name == '<lambda>' else name})"


Modifier = Named | AnyOrder | OneUser | HasAttributes | HasShape | Where


@dataclass(frozen=True, slots=True)
class Pattern:
    """Opcodes, patterns of operands, and further conditions. An immutable value, compared by
    content."""

    function: str
    """As written: `all_reduce`, `any`, `op`."""
    opcodes: tuple[str, ...]
    """Empty for any opcode."""
    operands: tuple[Pattern, ...] = ()
    capture: str = ""
    """The name written as first argument."""
    modifiers: tuple[Modifier, ...] = ()

    def named(self, name: str) -> Pattern:
        """The pattern with a capture under a name."""
        return self._with(Named(_checked_name(name)))

    def any_order(self) -> Pattern:
        """Operands may come in any order."""
        return self._with(AnyOrder())

    def one_user(self) -> Pattern:
        """A single instruction reads the result."""
        return self._with(OneUser())

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
        return self._with(HasAttributes(tuple(asked.items())))

    def shape(self, asked: ArrayPattern | str) -> Pattern:
        """The shape of the result: an `array(…)`, or a text like `"f32[8,4]"`, of any layout.

        Raises:
            ShapeSyntaxError: for a text that spells no shape.
            TypeError: for a value that is neither.
        """
        if isinstance(asked, str):
            parse_shape(asked)
        elif not isinstance(asked, ArrayPattern):
            raise TypeError('shape must be array(…), or a text like "f32[8,4]"')
        return self._with(HasShape(asked))

    def where(self, description: str, holds: Callable[[Instruction], bool]) -> Pattern:
        """A predicate of the instruction; `explain` prints the description."""
        return self._with(Where(description, holds))

    def _with(self, modifier: Modifier) -> Pattern:
        return replace(self, modifiers=(*self.modifiers, modifier))

    @property
    def names(self) -> tuple[str, ...]:
        """The captures of the instruction itself, without those of its operands."""
        named = [modifier.name for modifier in self.modifiers if isinstance(modifier, Named)]
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
    """Any of several opcodes, as XLA spells them: `m.op("all-reduce", "reduce-scatter")`.

    >>> op("add", "subtract", any_("x")).named("sum")
    m.op("add", "subtract", m.any("x")).named("sum")
    """
    opcodes = tuple(argument for argument in arguments if isinstance(argument, str))
    operands = tuple(argument for argument in arguments if isinstance(argument, Pattern))
    if not opcodes or arguments != (*opcodes, *operands):
        raise TypeError("the arguments of op are opcodes, then patterns")
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
