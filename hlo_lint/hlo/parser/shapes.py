"""All spellings of a shape, and the errors of malformed shapes.

`hlo_lint.hlo.shape.parse_shape` reads plain arrays itself and leaves the rest to this module.
Tuples are split at their commas and each element goes back to `parse_shape`, which caches it: a
tuple of thousands has few distinct elements. Only the rest goes through `grammars/shape.lark`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlo_lint.hlo.comments import BLANK, COMMENT
from hlo_lint.hlo.grammar import grammar_parser, int64, offset_of, terminals, trees
from hlo_lint.hlo.shape import (
    UNBOUNDED,
    ArrayShape,
    BufferShape,
    Layout,
    OpaqueShape,
    Shape,
    ShapeSyntaxError,
    Tile,
    TupleShape,
    parse_shape,
    shape_or_none,
)
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from lark import Token, Tree, UnexpectedInput

MAX_DEPTH = 100
"""Maximum depth of brackets: real programs stay below ten, Python's own limit is near 1000."""

EXAMPLES = {
    message: texts.split("; ")
    for message, texts in {
        "expected a shape": "; [2]; 2; F32[2]; %x; f32; f32(2)",
        "expected a size": (
            "f32[a]; f32[-1]; f32[,2]; f32[2,]; f32[2,,3]; f32[<=]; f32[<=a]; f32[2,x]"
        ),
        "expected `,` or `]` after a size": "f32[2 3]; f32[2); f32[2}; f32[?2]; f32[?x",
        "expected the number of a dimension": "f32[2]{a}; f32[2]{0,}; f32[2]{,0}; f32[2]{0,,1}",
        "expected `,`, `:` or `}` in a layout": "f32[2]{0 1}; f32[2]{0]; f32[2]{0); f32[2]{0x",
        "expected a part of a layout: D, T, L, #, *, E, S, SC, P or M, in this order": (
            "f32[2]{0:X(1)}; f32[2]{0:1}; f32[2]{0:E(4)X}; f32[2]{0:S(5)X}; f32[2]{0:S(5)E(4)}; "
            "f32[2]{0:T(2)X}; f32[2]{0:L(2)X}; f32[2]{0:#(u32)X}; f32[2]{0:*(u32)X}; "
            "f32[2]{0:SC(0:1)X}; f32[2]{0:D(D)X}; f32[2]{0:M(1)X}; f32[2]{0:M(1)M(1)}; "
            "f32[2]{0:P(f32[2])X}"
        ),
        "expected a number in parentheses": (
            "f32[2]{0:Tx; f32[2]{0:T(a)}; f32[2]{0:T(2,)}; f32[2]{0:E()}; f32[2]{0:Ex; "
            "f32[2]{0:E(x)}; f32[2]{0:S()}; f32[2]{0:Sx; f32[2]{0:L()}; f32[2]{0:Lx; "
            "f32[2]{0:M()}; f32[2]{0:Mx"
        ),
        "a token has no sizes": "token[2]; opaque[2]; token[?]; opaque[<=2]",
        "a buffer holds one array": "b(); b(token[]); b((f32[2])); b(b(f32[2])); b(2",
        "nothing may follow a shape": "f32[2] x; f32[2],; f32[2]{0}{0}; token[]{; b(f32[2])x",
    }.items()
}
"""Messages for malformed shapes, by examples: a text gets the message of the example that fails in
the same state."""

_STRUCTURE = late(r"/\*(?:.*?\*/)?|//[^\n]*|[(){}\[\],]", re.S)
_BLANK = late(BLANK)
_NUMBER = r"[0-9]{1,18}"
_TILE = rf"\((?:{_NUMBER}|\*)(?:,(?:{_NUMBER}|\*))*+\)"
_is_laid_out = late(
    r"([^{}(]+\{[0-9,]*)"
    rf":(?:T((?:{_TILE})++))?(?:E\(({_NUMBER})\))?(?:S\(({_NUMBER})\))?\}}"
).fullmatch
"""Tiles, element size and memory space: all parts of layouts on TPUs and in host memory."""
_OPAQUE = {f"{kind}[]": OpaqueShape(kind) for kind in ("token", "opaque")}
_INDEX = late(r"/\*index=\d+\*/")
_nests = re.compile(r"\((?![\d*])").search
"""Finds a tuple or a buffer: the parentheses of a layout contain numbers."""
_OPENS = {"(", "[", "{"}
_CLOSES = {")", "]", "}"}


def read_shape(text: str) -> Shape:
    """The shape in a text, in any spelling.

    >>> str(read_shape("(f32 [2]{0:T(8,128)}, /*index=1*/(), token[])"))
    '(f32[2]{0:T(8,128)}, (), token[])'

    Raises:
        ShapeSyntaxError: if it is not a shape.
    """
    if text.startswith("(") and (printed := _read_printed_tuple(text)) is not None:
        return printed
    start = _blank_end(text, 0)
    return _read_tuple(text, start) if text.startswith("(", start) else _read_single(text)


def _read_printed_tuple(text: str) -> TupleShape | None:
    """A tuple of arrays as XLA prints it; None if it has to be split."""
    if not text.endswith(")") or _nests(text, 1):
        return None
    elements = [shape_or_none(element) for element in _INDEX.sub("", text[1:-1]).split(", ")]
    if not all(isinstance(shape, ArrayShape) for shape in elements):
        return None
    return TupleShape(tuple(filter(None, elements)))


def _blank_end(text: str, start: int) -> int:
    blank = _BLANK.match(text, start)
    return blank.end() if blank else start


def _read_tuple(text: str, start: int) -> TupleShape:
    """Split a tuple without recursion: a hostile text may nest as deep as it is long."""
    open_tuples: list[list[Shape]] = []
    brackets = 0  # that the element at hand has opened
    begin = start  # of the element at hand
    complete = False  # the element at hand is a tuple that has closed
    for match in _STRUCTURE.finditer(text, start):
        sign, offset = match[0], match.start()
        if sign.startswith("/"):
            if sign == "/*":
                raise ShapeSyntaxError("a comment never ends", text, offset)
            if not text[begin:offset].strip():
                begin = match.end()
            continue
        if sign == "(" and not (brackets or complete or text[begin:offset].strip()):
            if len(open_tuples) == MAX_DEPTH:
                raise ShapeSyntaxError(f"tuples nest deeper than {MAX_DEPTH}", text, offset)
            open_tuples.append([])
            begin = match.end()
            continue
        if sign in _OPENS:
            brackets += 1
            continue
        if brackets:
            brackets -= sign in _CLOSES
            continue
        if sign == "]" or sign == "}":
            raise ShapeSyntaxError("nothing opens this bracket", text, offset)
        if complete:
            if text[begin:offset].strip():
                raise ShapeSyntaxError("nothing may follow a shape", text, begin)
        elif sign == "," or open_tuples[-1] or text[begin:offset].strip():
            open_tuples[-1].append(_element(text, begin, offset))
        begin = match.end()
        complete = sign == ")"
        if complete:
            closed = TupleShape(tuple(open_tuples.pop()))
            if not open_tuples:
                if _blank_end(text, begin) != len(text):
                    raise ShapeSyntaxError("nothing may follow a shape", text, begin)
                return closed
            open_tuples[-1].append(closed)
    raise ShapeSyntaxError("a shape's brackets never close", text, len(text))


def _element(text: str, begin: int, end: int) -> Shape:
    spelled = text[begin:end]
    begin += len(spelled) - len(spelled.lstrip())
    try:
        shape = parse_shape(spelled.strip())
        if isinstance(shape, ArrayShape):
            _check_rank(shape, text, begin)
    except ShapeSyntaxError as error:
        offset = begin if error.text is text else begin + error.offset
        raise ShapeSyntaxError(error.message, text, offset) from None
    return shape


def _check_rank(shape: ArrayShape, text: str, offset: int) -> None:
    if shape.layout is not None and len(shape.layout.minor_to_major) != len(shape.dims):
        message = "a layout needs as many numbers as the shape has dimensions"
        raise ShapeSyntaxError(message, text, offset)


def _read_single(text: str) -> Shape:
    if not text:  # an empty tuple, or an instruction without a type
        raise ShapeSyntaxError("expected a shape", text, 0)
    depth = 0
    for match in _STRUCTURE.finditer(text) if text.count("(") > MAX_DEPTH else ():
        depth += (match[0] == "(") - (match[0] == ")")
        if depth > MAX_DEPTH:
            raise ShapeSyntaxError(f"brackets nest deeper than {MAX_DEPTH}", text, match.start())
    return _OPAQUE.get(text) or _read_laid_out(text) or read_by_grammar(text)


def _read_laid_out(text: str) -> ArrayShape | None:
    """An array with a tiled layout; None if the grammar has to read it."""
    match = _is_laid_out(text)
    if match is None:
        return None
    plain, tiles, element_size, memory_space = match.groups()
    sizes = tuple(
        tuple(None if size == "*" else int(size) for size in tile.split(","))
        for tile in (tiles[1:-1].split(")(") if tiles else ())
    )
    shape = shape_or_none(f"{plain}}}")
    if not isinstance(shape, ArrayShape) or shape.layout is None:
        return None
    order = shape.layout.minor_to_major
    return shape.with_layout(Layout(order, sizes, int(element_size or 0), int(memory_space or 0)))


def read_by_grammar(text: str) -> Shape:
    """The shape in a text, read only by the grammar: slow, and the specification."""
    from lark import UnexpectedInput

    try:
        tree = grammar_parser("shape").parse(text)
    except UnexpectedInput as error:
        raise ShapeSyntaxError(*_explain(error, text)) from None
    return _Values(text).shape(trees(tree)[0])


def _explain(error: UnexpectedInput, text: str) -> tuple[str, str, int]:
    from lark import UnexpectedToken

    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        signs = [match[0] for match in _STRUCTURE.finditer(text)]
        if sum(sign in _OPENS for sign in signs) > sum(sign in _CLOSES for sign in signs):
            return "a shape's brackets never close", text, len(text)
        return "expected a shape", text, len(text)
    message = error.match_examples(grammar_parser("shape").parse, EXAMPLES, use_accepts=False)
    return message or "expected a shape", text, offset_of(error, text)


class _Values:
    """Turns a tree of `shape.lark` into values; each method is named after its rule."""

    def __init__(self, text: str) -> None:
        self.text = text

    def shape(self, tree: Tree[Token]) -> Shape:
        match str(tree.data):
            case "tuple":
                return TupleShape(tuple(self.shape(child) for child in trees(tree)))
            case "buffer":
                return BufferShape(self.array(trees(tree)[0]))
            case "opaque":
                return OpaqueShape(terminals(tree)[0].value)
            case _:
                return self.array(tree)

    def array(self, tree: Tree[Token]) -> ArrayShape:
        sizes: list[int] = []
        dynamic: list[bool] = []
        layout = None
        for child in trees(tree):
            match str(child.data):
                case "unbounded":
                    sizes.append(UNBOUNDED)
                    dynamic.append(True)
                case "layout":
                    layout = self.layout(child)
                case kind:
                    sizes.append(self.number(terminals(child)[0]))
                    dynamic.append(kind == "bound")
        flags = tuple(dynamic) if any(dynamic) else ()
        shape = ArrayShape(terminals(tree)[0].value, tuple(sizes), layout, flags)
        _check_rank(shape, self.text, tree.meta.start_pos)
        return shape

    def layout(self, tree: Tree[Token]) -> Layout:
        order, *parts = trees(tree)
        tiles: tuple[Tile, ...] = ()
        element_size = memory_space = 0
        rest: list[str] = []
        for part in parts:
            match str(part.data):
                case "tiles":
                    tiles = tuple(self.tile(tile) for tile in trees(part))
                case "element_size":
                    element_size = self.number(terminals(part)[0])
                case "memory_space":
                    memory_space = self.number(terminals(part)[0])
                case _:
                    spelled = self.text[part.meta.start_pos : part.meta.end_pos]
                    rest.append(re.sub(rf"\s+|{COMMENT}", "", spelled))
        numbers = tuple(self.number(token) for token in terminals(order))
        return Layout(numbers, tiles, element_size, memory_space, tuple(rest))

    def tile(self, tree: Tree[Token]) -> Tile:
        sizes = [terminals(size)[0] for size in trees(tree)]
        return tuple(None if size.type == "COMBINE" else self.number(size) for size in sizes)

    def number(self, token: Token) -> int:
        try:
            return int64(token)
        except OverflowError:
            message = "a number does not fit"
            raise ShapeSyntaxError(message, self.text, token.start_pos or 0) from None
