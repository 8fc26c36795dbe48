"""Errors in the literal of a constant, as XLA's parser finds them.

Mirrors `ParseDenseLiteral`, `SetValueInLiteral` and `CheckParsedValueIsInRange` in
`xla/hlo/parser/hlo_parser.cc`, in one pass over the text. XLA skips commas wherever they stand, and
a single value may stand for an array.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isinf, prod

from hlo_lint.analysis.strict.shapes import invalid_layout
from hlo_lint.analysis.strict.tokens import BLANK, Refused, blank_end
from hlo_lint.hlo.dtypes import ELEMENT_TYPES, PART_OF_COMPLEX
from hlo_lint.hlo.grammar import int64
from hlo_lint.hlo.shape import ArrayShape, BufferShape, OpaqueShape, Shape, TupleShape
from hlo_lint.text.source import ParseError

_token = re.compile(
    rf"{BLANK}(?P<token>\.\.\.|-?(?:inf|nan)(?:\(0x[0-9a-fA-F]+\))?(?![\w.])"
    r"|-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(?![\w.])|true(?!\w)|false(?!\w)|[{}(),])"
).match
_is_integer = re.compile(r"-?[0-9]+").fullmatch


def literal_errors(shape: Shape, text: str) -> Iterator[ParseError]:
    """The first error in the literal `text` of a constant of that shape."""
    try:
        reader = _LiteralReader(text)
        reader.value(shape)
        if reader.token:
            raise Refused("expected `)` after the literal", reader.start)
    except Refused as error:
        yield ParseError(error.message, error.at, len(text))


class _LiteralReader:
    """One literal, token by token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.token = ""
        """The token at hand; empty after the last."""
        self.advance()

    def advance(self) -> None:
        """Go to the next token."""
        token = _token(self.text, self.at)
        if token is not None:
            self.start, self.token, self.at = token.start("token"), token["token"], token.end()
            return
        blank = blank_end(self.text, self.at)
        self.start, self.token = blank.end() if blank else self.at, ""
        if self.start < len(self.text):
            raise Refused("unexpected token in a literal", self.start)

    def expect(self, sign: str, message: str) -> None:
        """Go past `sign`."""
        if self.token != sign:
            raise Refused(message, self.start)
        self.advance()

    def value(self, shape: Shape) -> None:
        """One literal of a shape."""
        match shape:
            case TupleShape(elements=elements):
                self.expect("(", "expected `(` before the elements of a tuple")
                if self.token == ")":  # XLA counts no elements where none is given
                    elements = ()
                for number, element in enumerate(elements):
                    if number and self.token == ",":
                        self.advance()
                    self.value(element)
                self.expect(")", f"expected `)` after the {len(elements)} elements of the tuple")
            case ArrayShape():
                self.array(shape)
            case BufferShape(element=ArrayShape() as element):
                self.array(element)
            case OpaqueShape() | BufferShape():
                raise Refused(f"a constant cannot have the type {shape}", 0)

    def array(self, shape: ArrayShape) -> None:
        """The elements of an array, in braces as deep as it has dimensions."""
        if shape.dtype not in ELEMENT_TYPES:
            raise Refused(f"a constant cannot have the type {shape.dtype}", 0)
        for message in invalid_layout(shape):
            raise Refused(message, 0)
        dims, rank = shape.dims, len(shape.dims)
        counts = [0] * rank  # of the elements in each brace that is open
        depth, left = 0, prod(dims)
        while True:
            match self.token:
                case "{":
                    depth += 1
                    if depth > rank:
                        message = f"{shape} has values in {rank} pairs of braces, not in more"
                        raise Refused(message, self.start)
                    if depth > 1:
                        counts[depth - 2] += 1
                case "}":
                    depth -= 1
                    if depth < 0:
                        raise Refused("unexpected `}` in a literal", self.start)
                    if counts[depth] != dims[depth]:
                        count = f"{dims[depth]} elements, not {counts[depth]}"
                        raise Refused(f"dimension {depth} of {shape} has {count}", self.start)
                    counts[depth] = 0
                case "...":
                    if depth != 1:
                        raise Refused("expected `...` in one pair of braces", self.start)
                    counts[0] = dims[0]
                case ",":
                    pass
                case _:
                    left -= 1
                    if left < 0:
                        raise Refused(f"{shape} has fewer values", self.start)
                    if depth == rank and rank:
                        counts[-1] += 1
                    elif depth < rank and shape.dtype in PART_OF_COMPLEX:
                        raise Refused(f"{shape} has values in {rank} braces", self.start)
                    self.element(shape.dtype)
            self.advance()
            if not depth:
                return

    def element(self, dtype: str) -> None:
        """One value; the token at hand is its last afterwards."""
        if self.token in ("true", "false"):
            if dtype != "pred":
                raise Refused(f"expected a number: {dtype}", self.start)
        elif dtype in PART_OF_COMPLEX:
            self.complex(PART_OF_COMPLEX[dtype])
        elif dtype == "pred" or dtype[0] in "su":
            self.integer(dtype)
        else:
            self.real(dtype)

    def integer(self, dtype: str) -> None:
        """An integer that fits into the type; any fits into pred and u64."""
        if not _is_integer(self.token):
            raise Refused(f"expected an integer: {dtype}", self.start)
        number = self.int64()
        if dtype in ("pred", "u64"):
            return
        bits = int(dtype[1:])
        low, high = 0, (1 << bits) - 1
        if dtype[0] == "s":
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        if not low <= number <= high:
            message = f"{self.token} does not fit into {dtype}: {low} to {high}"
            raise Refused(message, self.start)

    def int64(self) -> int:
        """The token as the lexer reads it, which does not ask for the type."""
        try:
            return int64(self.token)
        except OverflowError:
            message = f"{self.token} does not fit into 64 bits"
            raise Refused(message, self.start) from None

    def real(self, dtype: str) -> None:
        """A number, an infinity or a NaN."""
        token = self.token
        if token in ("true", "false") or (token[-1:] in "{}()," and "nan" not in token):
            raise Refused(f"expected a number: {dtype}", self.start)
        if "inf" in token or "nan" in token:
            payload = token.partition("(0x")[2].rstrip(")")
            bits = ELEMENT_TYPES[dtype].nan_payload_bits
            if payload and not 0 < int(payload, 16) < 1 << bits:
                message = f"a NaN of {dtype} has {bits or 'no'} bits of payload, not {payload}"
                raise Refused(message, self.start)
            return
        number = float(self.int64() if _is_integer(token) else token)
        is_unsigned = dtype == "f8e8m0fnu"
        if (
            abs(number) >= ELEMENT_TYPES[dtype].overflow
            or isinf(number)
            or (is_unsigned and number <= 0)
        ):
            raise Refused(f"{token} does not fit into {dtype}", self.start)

    def complex(self, part: str) -> None:
        """Two parts in parentheses."""
        for sign, message in (("(", "expected `(` and two parts"), (",", "expected `,`")):
            self.expect(sign, f"{message} of a complex number")
            self.real(part)
            self.advance()
        if self.token != ")":
            raise Refused("expected `)` after a complex number", self.start)
