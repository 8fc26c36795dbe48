"""The text of a constant as numpy: every type of element, nested braces, tuples, NaN payloads.

`grammars/literal.lark` specifies the syntax. Here the whole text is read at once: apart from the
numbers it must be the braces of the shape, and numpy reads the numbers, so the time is linear and
small. numpy is imported with the first value; types that it lacks (bf16, f8…, s4 …) are from
ml_dtypes.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hlo_lint.hlo.comments import COMMENT
from hlo_lint.hlo.dtypes import ELEMENT_TYPES, FLOATS, PART_OF_COMPLEX, integer_range, is_integer
from hlo_lint.hlo.shape import ArrayShape, BufferShape, OpaqueShape, Shape, TextError, TupleShape

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


class LiteralError(TextError):
    """A text that is not a value of its shape."""


class Elided(Enum):
    """A value that was elided when the text was printed."""

    ELIDED = "{...}"


ELIDED: Final = Elided.ELIDED

AnyArray: TypeAlias = "NDArray[Any]"
"""A numpy array of any type."""
LiteralValue: TypeAlias = "AnyArray | Elided | tuple[LiteralValue, ...] | None"
"""An array (a scalar has no dimensions), an elided value, a tuple, or None for a token."""


_remove_comments = re.compile(COMMENT.encode()).sub
_find_structure = re.compile(rf"{COMMENT}|[(){{}},]").finditer
_has_long_number = re.compile(rb"[0-9]{19}").search
_mark_payloads = re.compile(rb"nan\(0x([0-9a-fA-F]{1,16})\)").sub
_is_nan = re.compile(rb"(-?)nan(?:#([0-9a-fA-F]++))?").fullmatch
_remove_payloads = re.compile(rb"#[0-9a-fA-F]++").sub
_STRUCTURE: Final = b"{}(),"
_BLANKS: Final = b" \t\r\n"
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(_STRUCTURE))
_WHOLE_SIGNS: Final = b"-0123456789"
_FLOAT_SIGNS: Final = b"-+.eE0123456789infa"


def numpy_name(dtype: str) -> str | None:
    """The name of an element type in numpy or ml_dtypes; None for an unknown type."""
    element_type = ELEMENT_TYPES.get(dtype)
    return None if element_type is None else element_type.numpy


def numpy_dtype(dtype: str) -> numpy.dtype[Any]:
    """The numpy type of an element type of XLA.

    Raises:
        LiteralError: the type is unknown, or missing in this release of ml_dtypes.
        ImportError: numpy, or ml_dtypes for a type that needs it, is not installed.
    """
    import numpy as np

    name = numpy_name(dtype)
    if name is None:
        raise LiteralError(f"unknown element type: {dtype}", dtype, 0)
    if hasattr(np, name) or dtype == "pred":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ImportError(f"elements of {dtype} need the package ml_dtypes") from None
    try:
        numpy_type: numpy.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    except AttributeError:
        message = f"ml_dtypes {ml_dtypes.__version__} has no {name}, which {dtype} needs"
        raise LiteralError(message, dtype, 0) from None
    return numpy_type


def read_literal(shape: Shape, text: str) -> LiteralValue:
    """The value of the text between the parentheses of a `constant`.

    >>> from hlo_lint.hlo.shape import parse_shape
    >>> read_literal(parse_shape("s32[2,2]"), "{ { 1, 2 }, { 3, 4 } }")
    array([[1, 2],
           [3, 4]], dtype=int32)

    Raises:
        LiteralError: if the text is not a value of the shape.
        ImportError: if numpy, or ml_dtypes for a type that needs it, is not installed.
    """
    if len(text) < 64 and text.replace(" ", "").strip() in ("{...}", "..."):
        return ELIDED
    match shape:
        case ArrayShape():
            return _array(shape, text)
        case BufferShape(element=element):
            return _array(element, text)
        case TupleShape(elements=elements):
            return tuple(map(read_literal, elements, _elements(text, len(elements))))
        case OpaqueShape():
            return None


def _elements(text: str, count: int) -> list[str]:
    begin, depth = 0, 0
    parts: list[str] = []
    end = len(text)
    for match in _find_structure(text):
        sign = match[0]
        if sign[0] == "/":
            continue
        if sign in "({":
            depth += 1
            if depth == 1:
                begin = match.end()
        elif sign in ")}":
            depth -= 1
            if depth == 0:
                end = match.end()
                parts.append(text[begin : match.start()])
                break
        elif depth == 1:
            parts.append(text[begin : match.start()])
            begin = match.end()
    if len(parts) == 1 and not _remove_comments(b"", parts[0].encode()).strip():
        parts = []
    if len(parts) != count or depth or text[end:].strip():
        raise LiteralError(f"expected a tuple of {count} elements in parentheses", text, 0)
    return [part.strip() for part in parts]


_MOST_AROUND_A_NUMBER: Final = 1 << 20
"""The largest array with a single printed number: XLA's parser sets the other elements to 0."""


def _array(shape: ArrayShape, text: str) -> AnyArray:
    import numpy as np

    numpy_type = numpy_dtype(shape.dtype)
    data = text.encode("utf-8", "surrogateescape")
    if b"/" in data:
        data = _remove_comments(b"", data)
    if b"nan(" in data:
        data = _mark_payloads(rb"nan#\1", data)  # these brackets are not part of the structure
    is_complex = numpy_type.kind == "c"
    is_lone = not data.translate(None, _NOT_STRUCTURE)
    if is_lone and not is_complex and shape.dims and 0 < shape.elements <= _MOST_AROUND_A_NUMBER:
        array = np.zeros(shape.dims, numpy_type)
        array.flat[0] = _array(ArrayShape(shape.dtype, ()), text)
        return array
    _check_structure(shape, data, is_complex, text)
    if not shape.elements:
        if data.translate(None, _STRUCTURE + _BLANKS):
            raise LiteralError("a value without elements has a number", text, 0)
        return np.zeros(shape.dims, numpy_type)
    numbers = data.translate(None, b"{}()")
    count = shape.elements * (2 if is_complex else 1)
    if shape.dtype == "pred":
        values = _booleans(numbers, count, text)
    elif is_integer(shape.dtype):
        values = _integers(numbers, count, shape.dtype, text).astype(numpy_type)
    elif is_complex:
        part = PART_OF_COMPLEX[shape.dtype]
        values = _floats(numbers, count, part, numpy_dtype(part), text).view(numpy_type)
    else:
        values = _floats(numbers, count, shape.dtype, numpy_type, text)
    return values.reshape(shape.dims)


def _check_structure(shape: ArrayShape, data: bytes, is_complex: bool, text: str) -> None:
    structure = data.translate(None, _NOT_STRUCTURE)
    expected = b"(,)" if is_complex else b""
    dims = shape.dims
    if 0 in dims:
        dims = dims[: dims.index(0) + 1]  # empty braces have no inner braces
    for size in reversed(dims):
        if size and len(expected) * size + size - 1 > len(structure):
            expected = b"?"  # longer than the text: never equal, so never built
            break
        expected = b"{" + b",".join([expected] * size) + b"}"
    if structure != expected:
        sizes = ",".join(map(str, shape.dims))
        what = f"nested braces that hold [{sizes}] elements" if shape.dims else "one element"
        raise LiteralError(f"expected {what}", text, 0)


def _booleans(numbers: bytes, count: int, text: str) -> AnyArray:
    import numpy as np

    numbers = numbers.replace(b"true", b"1").replace(b"false", b"0")
    values = _read(numbers, np.dtype("int64"), _WHOLE_SIGNS, count, text)
    if ((values != 0) & (values != 1)).any():
        raise LiteralError("a pred is true or false", text, 0)
    return values.astype(bool)


def _integers(numbers: bytes, count: int, dtype: str, text: str) -> AnyArray:
    import numpy as np

    low, high = (integer_range(dtype)[index] for index in (0, -1))
    numpy_type = np.dtype("int64" if low < 0 else "uint64")
    if low == 0 and b"-" in numbers:
        raise LiteralError("an unsigned number has no sign", text, text.find("-"))
    if _has_long_number(numbers):  # numpy would clip numbers that do not fit
        if numbers.translate(None, _WHOLE_SIGNS + _BLANKS + b","):
            raise LiteralError("expected integers", text, 0)
        try:
            values = [int(number) for number in numbers.split(b",")]
        except ValueError:
            raise LiteralError("expected integers", text, 0) from None
        if len(values) != count or min(values) < low or max(values) > high:
            raise LiteralError(f"expected integers from {low} to {high}", text, 0)
        return np.array(values, numpy_type)
    values_read = _read(numbers, numpy_type, _WHOLE_SIGNS, count, text)
    if int(values_read.min()) < low or int(values_read.max()) > high:
        raise LiteralError(f"expected integers from {low} to {high}", text, 0)
    return values_read


def _floats(
    numbers: bytes, count: int, dtype: str, numpy_type: numpy.dtype[Any], text: str
) -> AnyArray:
    """Read floats as XLA does: as doubles, which are then rounded."""
    import numpy as np

    nans = _nans(numbers) if b"nan" in numbers else []
    if nans:
        numbers = _remove_payloads(b"", numbers)
    doubles = _read(numbers, np.dtype("float64"), _FLOAT_SIGNS, count, text)
    with np.errstate(over="ignore", invalid="ignore"):
        values = doubles.astype(numpy_type)
    fraction = ELEMENT_TYPES[dtype].nan_payload_bits
    if fraction and nans:
        bits = 8 * numpy_type.itemsize
        exponent = ((1 << (bits - 1 - fraction)) - 1) << fraction
        spelled = values.view(f"u{numpy_type.itemsize}")
        for place, negative, payload in nans:
            named = 1 << (fraction - 1) if payload is None else payload & ((1 << fraction) - 1)
            spelled[place] = negative << (bits - 1) | exponent | named
    elif nans and dtype == "f8e4m3fn":
        for place, negative, _ in nans:
            values.view("u1")[place] = 0xFF if negative else 0x7F
    return values


def _nans(numbers: bytes) -> list[tuple[int, int, int | None]]:
    payloads = []
    for place, number in enumerate(numbers.split(b",")):
        if b"n" in number and (nan := _is_nan(number.strip())):
            payload = None if nan[2] is None else int(nan[2], 16)
            payloads.append((place, len(nan[1]), payload))
    return payloads


def _read(
    numbers: bytes, numpy_type: numpy.dtype[Any], signs: bytes, count: int, text: str
) -> AnyArray:
    import warnings

    import numpy as np

    strange = numbers.translate(None, signs + _BLANKS + b",")
    if strange:
        offset = max(text.find(chr(strange[0])), 0)
        raise LiteralError("expected numbers", text, offset)
    bare = numbers.translate(None, _BLANKS)
    if b",," in bare or bare[:1] == b"," or bare[-1:] == b",":
        raise LiteralError("a number is missing", text, 0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = np.fromstring(numbers.decode("ascii"), numpy_type, sep=",")
    except (DeprecationWarning, ValueError):
        raise LiteralError("expected numbers", text, 0) from None
    if len(values) != count:
        raise LiteralError(f"expected {count} numbers", text, 0)
    return values


def spelled_literal(literal: AnyArray, dtype: str) -> str:
    """An array as the text of a constant; floats round-trip exactly."""
    if literal.ndim == 0:
        if dtype == "pred":
            return "true" if literal else "false"
        if dtype in PART_OF_COMPLEX:
            return f"({float(literal.real)!r}, {float(literal.imag)!r})"
        return repr(float(literal) if dtype in FLOATS else int(literal))
    return "{" + ", ".join(spelled_literal(part, dtype) for part in literal) + "}"
