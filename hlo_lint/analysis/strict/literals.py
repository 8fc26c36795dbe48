"""Whether a literal has the shape of its constant, and values that fit into its type.

It reads as `ParseLiteral` in `xla/hlo/parser/hlo_parser.cc` does, in one pass over the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_lint.analysis.strict.tokens import BLANK
from hlo_lint.hlo.dtypes import ELEMENT_TYPES, FLOATS, PART_OF_COMPLEX
from hlo_lint.hlo.shape import ArrayShape, BufferShape, OpaqueShape, Shape, TupleShape
from hlo_lint.text.source import ParseError

_token = re.compile(
    rf"{BLANK}(?P<token>\.\.\.|-?(?:inf|nan)(?:\(0x[0-9a-fA-F]+\))?(?![\w.])"
    r"|-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(?![\w.])|true(?!\w)|false(?!\w)|[{}(),])"
).match
_is_elided = re.compile(rf"{BLANK}\.\.\.").match
_is_integer = re.compile(r"-?[0-9]+").fullmatch


class _Wrong(Exception):
    """Where a literal is none of its shape."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


def literal_troubles(shape: Shape, text: str) -> Iterator[ParseError]:
    """The first thing that is wrong with the literal `text` of a constant of that shape."""
    try:
        reader = _Reader(text)
        reader.value(shape)
        reader.end()
    except _Wrong as wrong:
        yield ParseError(wrong.message, wrong.at, len(text))


class _Reader:
    """One literal, token by token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.token = ""
        self.next()

    def next(self) -> None:
        """Go to the next token; "" behind the last."""
        found = _token(self.text, self.at)
        if found is None:
            if self.text[self.at :].strip():
                blank = re.compile(BLANK).match(self.text, self.at)
                at = blank.end() if blank else self.at
                if at < len(self.text):
                    raise _Wrong("this is no value of a literal", at)
            self.start, self.token = len(self.text), ""
            return
        self.start, self.token, self.at = found.start("token"), found["token"], found.end()

    def expect(self, sign: str, message: str) -> None:
        """Go over `sign`."""
        if self.token != sign:
            raise _Wrong(message, self.start)
        self.next()

    def end(self) -> None:
        """Nothing may follow."""
        if self.token:
            raise _Wrong("nothing may follow the literal", self.start)

    def value(self, shape: Shape) -> None:
        """One literal of a shape."""
        match shape:
            case TupleShape(elements=elements):
                self.expect("(", "a tuple's literal stands in parentheses")
                for number, element in enumerate(elements):
                    if number:
                        self.expect(",", f"expected `,` and element {number} of the tuple")
                    self.value(element)
                self.expect(")", f"expected `)` behind the {len(elements)} elements of the tuple")
            case ArrayShape():
                self.array(shape)
            case OpaqueShape() | BufferShape():
                raise _Wrong(f"there are no constants of the type {shape}", 0)

    def array(self, shape: ArrayShape) -> None:
        """All elements of an array, in braces as deep as it has dimensions."""
        if shape.dtype not in ELEMENT_TYPES:
            raise _Wrong(f"there are no constants of the type {shape.dtype}", 0)
        rank, dims = len(shape.dims), shape.dims
        if rank and self.elided():
            return
        read = _VALUES.get(shape.dtype[:1], _Reader.real)
        if shape.dtype == "pred":
            read = _Reader.predicate
        elif shape.dtype in FLOATS:
            read = _Reader.real
        counts: list[int] = []  # of what was read in each brace that is open
        while True:
            if self.token == "{":
                if len(counts) == rank:
                    raise _Wrong(f"{shape} has values in {rank} pairs of braces", self.start)
                counts.append(0)
                self.next()
                if self.token != "}":
                    continue
            elif self.token == "" or len(counts) < rank:
                raise _Wrong(f"{shape} has values in {rank} pairs of braces", self.start)
            else:
                if counts and counts[-1] == dims[rank - 1]:
                    said = f"the last dimension of {shape} has {dims[rank - 1]} elements"
                    raise _Wrong(said, self.start)
                read(self, shape.dtype)
                if not counts:
                    return
                counts[-1] += 1
            while self.token == "}":
                depth = len(counts)
                if counts.pop() != dims[depth - 1]:
                    said = f"dimension {depth - 1} of {shape} has {dims[depth - 1]} elements"
                    raise _Wrong(said, self.start)
                self.next()
                if not counts:
                    return
                counts[-1] += 1
            self.expect(",", "expected `,` or `}`")
            if self.token == "}":
                raise _Wrong("expected a value behind `,`", self.start)

    def elided(self) -> bool:
        """Whether it is `{...}`, which is gone over."""
        if self.token != "{" or not _is_elided(self.text, self.at):
            return False
        self.next()
        self.next()
        self.expect("}", "expected `}` behind `...`")
        return True

    def predicate(self, dtype: str) -> None:
        """True or false, or 1 or 0."""
        if self.token not in ("true", "false", "0", "1"):
            raise _Wrong("expected true or false", self.start)
        self.next()

    def integer(self, dtype: str) -> None:
        """An integer that fits into the type."""
        if not _is_integer(self.token):
            raise _Wrong(f"expected an integer: {dtype}", self.start)
        bits = int(dtype[1:])
        low, high = 0, (1 << bits) - 1
        if dtype[0] == "s":
            low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        if len(self.token) > 24 or not low <= int(self.token) <= high:
            raise _Wrong(f"{self.token} does not fit into {dtype}: {low} to {high}", self.start)
        self.next()

    def real(self, dtype: str) -> None:
        """A number, an infinity or a NaN."""
        token = self.token
        if token[-1:] in "{}(),." and "nan(" not in token:
            raise _Wrong(f"expected a number: {dtype}", self.start)
        if token in ("true", "false"):
            raise _Wrong(f"expected a number: {dtype}", self.start)
        if "nan" in token:
            payload = token.partition("(0x")[2].rstrip(")")
            width = ELEMENT_TYPES[dtype].nan_payload_bits
            if payload and int(payload, 16) >= 1 << width:
                raise _Wrong(f"a NaN of {dtype} has {width} bits of payload", self.start)
        elif "inf" in token:
            if not ELEMENT_TYPES[dtype].has_infinity:
                raise _Wrong(f"{dtype} has no infinity", self.start)
        elif token.startswith("-") and dtype == "f8e8m0fnu":
            raise _Wrong(f"{token} does not fit into {dtype}: it has no sign", self.start)
        elif abs(float(token)) > ELEMENT_TYPES[dtype].max_literal:
            raise _Wrong(f"{token} does not fit into {dtype}", self.start)
        self.next()

    def complex(self, dtype: str) -> None:
        """Two parts in parentheses."""
        part = PART_OF_COMPLEX[dtype]
        self.expect("(", f"expected two parts in parentheses: {dtype}")
        self.real(part)
        self.expect(",", "expected `,` and the imaginary part")
        self.real(part)
        self.expect(")", "expected `)` behind the imaginary part")


_VALUES = {"s": _Reader.integer, "u": _Reader.integer, "c": _Reader.complex}
