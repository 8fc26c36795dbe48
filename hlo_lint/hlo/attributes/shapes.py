"""Attributes that are shapes, or hold them: of an entry, of a call's operands, of a literal."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.comments import BLANK
from hlo_lint.hlo.shape import (
    ArrayShape,
    Shape,
    ShapeSyntaxError,
    TupleShape,
    leaves,
    parse_shape,
    spelled_part,
)
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from hlo_lint.hlo.parser.literals import LiteralValue


class ProgramShape(NamedTuple):
    """The parameter and result shapes of a program: `{(f32[8]{0})->f32[8]{0}}`."""

    parameters: tuple[Shape, ...]
    result: Shape

    def arrays(self) -> dict[str, ArrayShape]:
        """The arrays of parameters and result, each by a description.

        >>> [*read_program_shape("{(f32[8], (s32[]))->f32[8]}").arrays()]
        ['parameter 0', 'parameter 1, part {0}', 'the result']
        """
        parts = [(f"parameter {number}", shape) for number, shape in enumerate(self.parameters)]
        return {
            spelled_part(name, index): leaf
            for name, shape in (*parts, ("the result", self.result))
            for index, leaf in leaves(shape)
            if isinstance(leaf, ArrayShape)
        }


class TypedLiteral(NamedTuple):
    """A constant as an attribute: `literal=s32[2]{0} {1, 2}`."""

    shape: Shape
    text: str

    @property
    def value(self) -> LiteralValue:
        """The value as numpy.

        Raises:
            LiteralError: if the text is not a value of the shape.
            ImportError: if numpy, or ml_dtypes for a type that needs it, is not installed.
        """
        from hlo_lint.hlo.parser.literals import read_literal

        return read_literal(self.shape, self.text)


_match_array = late(r"[a-z][a-z0-9]*\s*\[[^\]]*\](?:\{[^{}]*\}(?=\s*[^\s}]))?").match
_is_program = late(rf"{BLANK}\{{{BLANK}(\(.*?\)){BLANK}->(.*)\}}{BLANK}", re.S).fullmatch
_is_list = late(rf"{BLANK}\{{(.*)\}}{BLANK}", re.S).fullmatch


def read_program_shape(text: str) -> ProgramShape:
    """The value of `entry_computation_layout={…}`.

    >>> str(read_program_shape("{(f32[8]{0}, s32[])->pred[]}").parameters[1])
    's32[]'
    """
    match = _is_program(text)
    if match is None:
        message = "expected shapes in braces, like {(f32[8]{0})->f32[8]{0}}"
        raise AttributeSyntaxError(message, text, 0)
    parameters = _elements(match[1], text, match.start(1))
    return ProgramShape(parameters, _shape(match[2], text, match.start(2)))


def read_shape_list(text: str) -> tuple[Shape, ...]:
    """The value of `operand_layout_constraints={…}`."""
    match = _is_list(text)
    if match is None:
        raise AttributeSyntaxError("expected shapes in braces", text, 0)
    return _elements(f"({match[1]})", text, match.start(1) - 1)


def read_one_shape(text: str) -> Shape:
    """The value of `outfeed_shape=…`."""
    return _shape(text, text, 0)


def read_typed_literal(text: str) -> TypedLiteral:
    """The value of `literal=…`: a shape, then a value."""
    match = _match_array(text)
    if match is None:
        raise AttributeSyntaxError("expected a shape and a value, like s32[2]{0} {1, 2}", text, 0)
    return TypedLiteral(_shape(match[0], text, 0), text[match.end() :].strip())


def _elements(spelled: str, text: str, start: int) -> tuple[Shape, ...]:
    shape = _shape(spelled, text, start)
    assert isinstance(shape, TupleShape)  # it begins with a parenthesis
    return shape.elements


def _shape(spelled: str, text: str, start: int) -> Shape:
    try:
        return parse_shape(spelled)
    except ShapeSyntaxError as error:
        raise AttributeSyntaxError(error.message, text, start + error.offset) from None
