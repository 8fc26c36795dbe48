"""Attributes that are shapes: of an entry's parameters and result, and of a call's operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hlo_lint.hlo.attributes.errors import AttributeSyntaxError
from hlo_lint.hlo.attributes.exact import Language, parse_text
from hlo_lint.hlo.grammar import trees
from hlo_lint.hlo.shape import Shape, ShapeSyntaxError, TupleShape, parse_shape
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from hlo_lint.hlo.parser.literals import LiteralValue


class ProgramShape(NamedTuple):
    """The parameter and result shapes of a program: `{(f32[8]{0})->f32[8]{0}}`."""

    parameters: tuple[Shape, ...]
    result: Shape


class TypedLiteral(NamedTuple):
    """A constant as an attribute: `literal=s32[2]{0} {1, 2}`."""

    shape: Shape
    text: str
    """The value as spelled."""

    @property
    def value(self) -> LiteralValue:
        """The value as numpy.

        Raises:
            LiteralError: where the text is not a value of the shape.
            ImportError: where numpy, or ml_dtypes for a type that needs it, is not installed.
        """
        from hlo_lint.hlo.parser.literals import read_literal

        return read_literal(self.shape, self.text)


_match_array = late(r"[a-z][a-z0-9]*\s*\[[^\]]*\](?:\{[^{}]*\}(?=\s*[^\s}]))?").match
_LANGUAGE = Language(
    "program_shape",
    "expected shapes in braces, like {(f32[8]{0})->f32[8]{0}}",
    {"expected `->` and the shape of the result": ["{(f32[8])x", "{(f32[8])-}", "{(f32[8])->x"]},
)


def read_program_shape(text: str) -> ProgramShape:
    """The value of `entry_computation_layout={…}`.

    >>> str(read_program_shape("{(f32[8]{0}, s32[])->pred[]}").parameters[1])
    's32[]'

    Raises:
        AttributeSyntaxError: where it is not a program's shape.
    """
    if text.startswith("{(") and text.endswith("}"):
        parameters, arrow, result = text[1:-1].partition("->")
        if arrow:
            shape = _shape(parameters, text, 1)
            if isinstance(shape, TupleShape):
                return ProgramShape(shape.elements, _shape(result, text, len(parameters) + 3))
    return program_shape_by_grammar(text)


def program_shape_by_grammar(text: str) -> ProgramShape:
    """The same value, read by `program_shape.lark`.

    Raises:
        AttributeSyntaxError: where it is not a program's shape.
    """
    (tree,) = trees(parse_text(_LANGUAGE, text))
    if str(tree.data) != "program_shape":
        raise AttributeSyntaxError("expected `(`, shapes and `)->`", text, 1)
    *parameters, result = (_shape_at(shape.meta, text) for shape in trees(tree))
    return ProgramShape(tuple(parameters), result)


def read_shape_list(text: str) -> tuple[Shape, ...]:
    """The value of `operand_layout_constraints={…}`.

    Raises:
        AttributeSyntaxError: where it is not a list of shapes.
    """
    if text.startswith("{") and text.endswith("}"):
        shape = _shape(f"({text[1:-1]})", text, 0)
        if isinstance(shape, TupleShape):
            return shape.elements
    return shape_list_by_grammar(text)


def shape_list_by_grammar(text: str) -> tuple[Shape, ...]:
    """The same value, read by `program_shape.lark`.

    Raises:
        AttributeSyntaxError: where it is not a list of shapes.
    """
    (tree,) = trees(parse_text(_LANGUAGE, text))
    if str(tree.data) != "shape_list":
        raise AttributeSyntaxError("expected shapes in braces", text, 1)
    return tuple(_shape_at(shape.meta, text) for shape in trees(tree))


def read_one_shape(text: str) -> Shape:
    """The value of `outfeed_shape=…`.

    Raises:
        AttributeSyntaxError: where it is not a shape.
    """
    return _shape(text, text, 0)


def read_typed_literal(text: str) -> TypedLiteral:
    """The value of `literal=…`: a shape, then a value.

    Raises:
        AttributeSyntaxError: where it does not begin with an array's shape.
    """
    match = _match_array(text)
    if match is None:
        raise AttributeSyntaxError("expected a shape and a value, like s32[2]{0} {1, 2}", text, 0)
    return TypedLiteral(_shape(match[0], text, 0), text[match.end() :].strip())


def _shape_at(meta: object, text: str) -> Shape:
    start: int = getattr(meta, "start_pos", 0)
    end: int = getattr(meta, "end_pos", start)
    return _shape(text[start:end], text, start)


def _shape(spelled: str, text: str, start: int) -> Shape:
    try:
        return parse_shape(spelled)
    except ShapeSyntaxError as error:
        raise AttributeSyntaxError(error.message, text, start + error.offset) from None
